package process

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"
)

// tellFiles prints the limit of open files that a child of this process has, after this process has
// raised it if the argument is yes.
func tellFiles() error {
	if os.Args[1] == "yes" {
		if err := RaiseFileLimit(); err != nil {
			return err
		}
	}
	cmd := exec.Command("/bin/sh", "-c", "ulimit -Sn; ulimit -Hn")
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	return cmd.Run()
}

func TestRaiseFiles(t *testing.T) {
	for _, tc := range []struct {
		name   string
		limits string // soft and hard limit at the daemon's start
		raise  string
		want   string
	}{
		{"as Go does it", "-Sn 64 -Hn 512", "no", "64\n512\n"},
		{"raised", "-Sn 64 -Hn 512", "yes", "512\n512\n"},
		{"nothing to raise", "-Sn 512 -Hn 512", "yes", "512\n512\n"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			soft, hard, _ := strings.Cut(tc.limits, " -Hn ")
			script := fmt.Sprintf("ulimit %s && ulimit -Hn %s && exec %q %s", soft, hard, os.Args[0], tc.raise)
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			cmd := exec.CommandContext(ctx, "/bin/sh", "-c", script)
			cmd.Env = append(os.Environ(), helperVariable+"=files")
			out, err := cmd.CombinedOutput()
			if string(out) != tc.want || err != nil {
				t.Errorf("got %q, %v, want %q", out, err, tc.want)
			}
		})
	}
}
