package service

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/bringupd/bringupd/pkg/framework"
	"github.com/bringupd/bringupd/pkg/health"
)

// TestWarm verifies that a service uses the process that was started in advance, unless it cannot
// be used any more.
func TestWarm(t *testing.T) {
	for _, tc := range []struct {
		name string
		warm string // the command that waits for its order; empty: none
		env  string // additional environment of the process started in advance
		want string // the process that does the work
	}{
		{"it waits", "read order; echo $$ >ahead", "", "ahead"},
		{"it was told something else", "read order || exit; echo $$ >ahead", "X=1", "begun"},
		{"it has ended", "[ -e begun ] || exit 3; read order; echo $$ >ahead", "", "begun"},
		{"there is no such way", "", "", "argv"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			c, at := children(t), t.TempDir()
			begin := func(command string) []string {
				return ShellCommand("cd " + at + "; " + command + "; exec sleep 1000")
			}
			service := &framework.Service{Name: "worker", Argv: begin("echo $$ >argv"), Env: os.Environ(),
				WarmInput: []byte(`{"go": "on"}`)}
			if tc.warm != "" {
				service.WarmCommand = func() []string { return begin(tc.warm) }
			}
			ahead := *service
			if tc.env != "" {
				ahead.Env = append(os.Environ(), tc.env)
			}
			c.Prestart(t.Context(), &ahead)
			if tc.want == "begun" && service.WarmCommand != nil {
				service.WarmCommand = func() []string { return begin("read order; echo $order >begun") }
			}
			if w := c.prestarted; w != nil && tc.env == "" && tc.want == "begun" {
				<-w.child.Ended()
			}
			onDeath := func(*health.Failure) {}
			if err := c.startService(t.Context(), service, time.Minute, onDeath); err != nil {
				t.Fatal(err)
			}
			untilThere(t, filepath.Join(at, tc.want))
			for _, other := range []string{"ahead", "begun", "argv"} {
				if _, err := os.Stat(filepath.Join(at, other)); other != tc.want && err == nil {
					t.Errorf("the work is done by %s, too", other)
				}
			}
			if c.Count() != 1 {
				t.Errorf("there are %d children", c.Count())
			}
			endAll(c)
		})
	}
}
