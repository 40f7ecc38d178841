package service

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/bringupd/bringupd/pkg/framework"
	"github.com/bringupd/bringupd/pkg/health"
	"github.com/bringupd/bringupd/pkg/process"
	"github.com/bringupd/bringupd/pkg/signal"
	"github.com/bringupd/bringupd/pkg/signal/record"
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
			dir, err := signal.CreateRun(t.Context(), signal.Location{LogDir: t.TempDir(), Run: "17.0", Key: "k", Size: 1, Host: "n0"}, record.Job{})
			if err != nil {
				t.Fatal(err)
			}
			c.cfg.OnWriteError = func(error) {}
			c.contexts.Background = func(task func(context.Context)) { go task(t.Context()) }
			c.OpenLogs(dir, 0, 1, "n0")
			begin := func(command string) []string {
				return ShellCommand("cd " + at + "; " + command + "; exec sleep 1000")
			}
			service := &framework.Service{Name: "worker", Argv: begin("echo $$ >argv"), Env: os.Environ(), WarmInput: []byte(`{"go": "on"}`)}
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
			if err := c.StartService(t.Context(), service, health.ServiceDied, time.Minute, func(f *health.Failure) {}); err != nil {
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
			c.StopSelected(0, func(string) bool { return true })
		})
	}
}

// TestPortTakenBetweenStarts verifies that each start checks for other processes on the service's
// ports and names them, also after a start that failed temporarily.
func TestPortTakenBetweenStarts(t *testing.T) {
	c := children(t)
	dir, err := signal.CreateRun(t.Context(), signal.Location{LogDir: t.TempDir(), Run: "17.0", Key: "k", Size: 1, Host: "n0"}, record.Job{})
	if err != nil {
		t.Fatal(err)
	}
	c.cfg.OnWriteError = func(error) {}
	c.contexts.Background = func(task func(context.Context)) { go task(t.Context()) }
	c.OpenLogs(dir, 0, 1, "n0")
	ports, err := process.FindFreePorts(1)
	if err != nil {
		t.Fatal(err)
	}
	service := &framework.Service{
		Name: "worker", Argv: ShellCommand("exit 1"), Env: os.Environ(), ReadyPort: ports[0], MaxStarts: 2,
		CheckReady: func(context.Context) error { return errors.New("not yet") },
		IsTransient: func(process.Exit, []string) bool {
			listener, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", ports[0]))
			if err != nil {
				t.Error(err)
				return false
			}
			t.Cleanup(func() { _ = listener.Close() })
			return true
		},
	}
	err = c.StartService(t.Context(), service, health.ServiceDied, time.Minute, func(*health.Failure) {})
	want := fmt.Sprintf("port %d (worker) is taken: port %[1]d of 127.0.0.1 is held by pid %d", ports[0], os.Getpid())
	if err == nil || !strings.Contains(err.Error(), want) {
		t.Errorf("%v does not say %q", err, want)
	}
}
