package limits

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"
)

// raiseVariable makes the test binary call tellFiles.
const raiseVariable = "LIMITS_TEST_RAISE"

func TestMain(m *testing.M) {
	if raise := os.Getenv(raiseVariable); raise != "" {
		os.Exit(tellFiles(raise == "yes"))
	}
	os.Exit(m.Run())
}

// tellFiles prints the limit of open files that a child of this process has, after this process has
// raised it if raise is set.
func tellFiles(raise bool) int {
	if raise {
		if err := RaiseFileLimit(); err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
	}
	cmd := exec.Command("/bin/sh", "-c", "ulimit -Sn; ulimit -Hn")
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	if err := cmd.Run(); err != nil {
		return 1
	}
	return 0
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
			script := fmt.Sprintf("ulimit %s && ulimit -Hn %s && exec %q", soft, hard, os.Args[0])
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			cmd := exec.CommandContext(ctx, "/bin/sh", "-c", script)
			cmd.Env = append(os.Environ(), raiseVariable+"="+tc.raise)
			out, err := cmd.CombinedOutput()
			if string(out) != tc.want || err != nil {
				t.Errorf("got %q, %v, want %q", out, err, tc.want)
			}
		})
	}
}
