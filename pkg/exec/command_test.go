package exec_test

import (
	"context"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bringupd/bringupd/pkg/exec"
	"github.com/bringupd/bringupd/pkg/process"
	"github.com/bringupd/bringupd/test/fakechild"
)

// TestCommandIsStopped verifies that a command is stopped when it is not wanted any more, and that
// its exit is that of the stop.
func TestCommandIsStopped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		programs := fakechild.New(map[string]fakechild.Program{
			"wait": func(ctx context.Context, _ *fakechild.Process) int {
				<-ctx.Done()
				return 0
			},
		})
		command := exec.Command{
			Spec: process.Spec{Name: "the command", Argv: []string{"wait"}},
			Start: func(ctx context.Context, spec process.Spec) (process.Handle, func(), error) {
				child, err := programs.Start(ctx, spec)
				stop := func() { child.Stop(t.Context(), time.Second, syscall.SIGTERM) }
				return child, stop, err
			},
			Publish: func([]exec.Piece) error { return nil }, MaxDelay: time.Second, MaxOutput: 1 << 10,
		}
		wanted, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		began := time.Now()
		_, exit, _ := command.Run(wanted)
		if took := time.Since(began); took < time.Minute || took > 2*time.Minute || exit.Code != 143 {
			t.Errorf("it has ended after %s with %+v", took, exit)
		}
		if left := programs.Left(); len(left) > 0 {
			t.Errorf("%v are left", left)
		}
	})
}
