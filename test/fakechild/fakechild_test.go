package fakechild

import (
	"context"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bringupd/bringupd/pkg/process"
	"github.com/bringupd/bringupd/test/fakechild/childtest"
)

// programs returns the programs of the tests.
func programs() map[string]Program { return map[string]Program{"sh": Shell{}.Run} }

// TestContract checks that fake children fulfil the contract of real ones.
func TestContract(t *testing.T) {
	childtest.Contract(t, func(t *testing.T, test func(*testing.T, process.Starter)) {
		synctest.Test(t, func(t *testing.T) { test(t, New(programs())) })
	})
}

// TestProgram checks a child that is a Go function, and whose waits take no real time.
func TestProgram(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		saves := func(ctx context.Context, p *Process) int {
			terms := make(chan syscall.Signal, 1)
			p.Catch(syscall.SIGTERM, terms)
			select {
			case <-terms:
				Sleep(ctx, time.Hour)
				_, _ = p.Stdout.Write([]byte("saved on " + p.Getenv("NODE") + "\n"))
				return 5
			case <-ctx.Done():
				return 0
			}
		}
		s := New(map[string]Program{"saves": saves})
		spec := process.Spec{Name: "driver", Argv: []string{"/opt/saves"}, Env: []string{"NODE=n1"}}
		child, err := s.Start(t.Context(), spec)
		if err != nil {
			t.Fatal(err)
		}
		synctest.Wait() // otherwise TERM could arrive before it is caught
		began := time.Now()
		exit := child.Stop(t.Context(), 2*time.Hour, syscall.SIGTERM)
		took, lines := time.Since(began), child.LastLines()
		if exit.Code != 5 || took != time.Hour || lines[0] != "saved on n1" {
			t.Errorf("it exits with %+v after %v, and has said %q", exit, took, lines)
		}
		if err := s.Close(t.Context()); err != nil {
			t.Error(err)
		}
	})
}
