//go:build linux && cgo

package pmix_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.uber.org/zap/zaptest"

	"github.com/bringupd/bringupd/internal/ctxutil"
	"github.com/bringupd/bringupd/internal/files"
	"github.com/bringupd/bringupd/pkg/ranks/pmi"
	"github.com/bringupd/bringupd/pkg/ranks/pmi/pmix"
)

// The faults of testdata/fake.c, with their numbers there.
const (
	emptyAnswer = iota
	old
	refuses
	aborts
	exits
	hangs
	crashesLater
	prints
	listens
	logs
)

// fake returns a libpmix with a fault.
func fake(t *testing.T, fault int) pmix.Library {
	t.Helper()
	path := filepath.Join(t.TempDir(), "libpmix.so.2")
	compile := exec.Command("gcc", "-shared", "-fPIC", fmt.Sprintf("-DFAULT=%d", fault), "-o", path, "testdata/fake.c")
	if said, err := compile.CombinedOutput(); err != nil {
		t.Fatalf("cannot compile: %v\n%s", err, said)
	}
	return pmix.Library{Path: path}
}

func start(ctx context.Context, t *testing.T, library pmix.Library) (*pmix.Server, error) {
	dir, err := files.MakeOwnedTemp(t.TempDir(), "")
	if err != nil {
		t.Fatal(err)
	}
	s, err := pmix.Start(ctx, pmix.Config{
		// The race detector makes a program sleep for a second at its end.
		Library: library, Environ: append(os.Environ(), "GORACE=atexit_sleep_ms=0"), Host: "n0",
		Dir: dir, Log: zaptest.NewLogger(t),
	})
	if err == nil {
		t.Cleanup(s.Stop)
		s.SetHandlers(pmix.Handlers{Handlers: pmi.Handlers{AbortJob: func(pmi.ProcID, int, string) {}}})
	}
	return s, err
}

func TestUnfitLibraries(t *testing.T) {
	text := filepath.Join(t.TempDir(), "text")
	if err := os.WriteFile(text, []byte("no library"), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, tc := range map[string]struct {
		library pmix.Library
		want    string
	}{
		"no file":                       {pmix.Library{Path: "/nonexistent/libpmix.so.2"}, "No such file"},
		"no library":                    {pmix.Library{Path: text}, "cannot load"},
		"no libpmix":                    {fake(t, emptyAnswer), "it has no PMIx_"},
		"an old one":                    {fake(t, old), "it is PMIx 2.2.5, of old, and version 3 or later is required"},
		"it refuses":                    {fake(t, refuses), "PMIx status -31"},
		"it aborts":                     {fake(t, aborts), "signal: aborted"},
		"it just exits":                 {fake(t, exits), "it won't be"},
		"it logs more than can be sent": {fake(t, logs), "logged: -29"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := start(t.Context(), t, tc.library)
			if err == nil || !strings.Contains(err.Error(), tc.want) ||
				!strings.Contains(err.Error(), tc.library.Path) {
				t.Errorf("got %v, want %s", err, tc.want)
			}
		})
	}
}

func TestLibraryThatHangs(t *testing.T) {
	ctx, cancel := context.WithTimeoutCause(t.Context(), 300*time.Millisecond, errors.New("late"))
	defer cancel()
	began := time.Now()
	if _, err := start(ctx, t, fake(t, hangs)); err == nil || !strings.Contains(err.Error(), "late") {
		t.Errorf("got %v", err)
	}
	if took := time.Since(began); took > 10*time.Second {
		t.Errorf("it took %v", took)
	}
}

// TestStartIsCanceled verifies that the error names the cause, even if the child's end is noticed
// first.
func TestStartIsCanceled(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errors.New("late"))
	library := fake(t, hangs)
	for range 5 {
		if _, err := start(ctx, t, library); err == nil || !strings.Contains(err.Error(), "late") {
			t.Fatalf("got %v", err)
		}
	}
}

var world = &pmi.Job{Name: "w", Hosts: []string{"n0"}, Nodes: []int{0}, UniverseSize: 1}

func TestLibraryThatCrashes(t *testing.T) {
	s, err := start(t.Context(), t, fake(t, crashesLater))
	if err != nil {
		t.Fatal(err)
	}
	if err := s.AddJob(t.Context(), world); err == nil || !strings.Contains(err.Error(), "the PMIx server died") {
		t.Errorf("got %v", err)
	}
	if !ctxutil.AwaitDoneFor(s.Done(), 10*time.Second) {
		t.Fatal("it goes on")
	}
	if err := s.Err(); err == nil || !strings.Contains(err.Error(), "signal: segmentation fault") ||
		!strings.HasSuffix(err.Error(), ": oh no") {
		t.Errorf("it has ended with %v", err)
	}
	if _, err := s.RankEnviron(t.Context(), pmi.ProcID{Job: "w"}); err == nil ||
		!strings.Contains(err.Error(), "oh no") {
		t.Errorf("afterwards: %v", err)
	}
}

func TestLibraryThatPrints(t *testing.T) {
	s, err := start(t.Context(), t, fake(t, prints))
	if err != nil {
		t.Fatal(err)
	}
	if err := s.AddJob(t.Context(), world); err != nil {
		t.Error(err)
	}
	long := *world
	long.Name = strings.Repeat("x", 256)
	if err := s.AddJob(t.Context(), &long); !errors.Is(err, pmi.BadParam) {
		t.Errorf("a name that is too long: %v", err)
	}
	s.Stop()
	if err := s.Err(); err != nil {
		t.Errorf("it was stopped: %v", err)
	}
}

// TestRankThatDied verifies that no process waits for data that a dead rank would have committed.
func TestRankThatDied(t *testing.T) {
	s, err := start(t.Context(), t, fake(t, prints))
	if err != nil {
		t.Fatal(err)
	}
	s.SetHandlers(pmix.Handlers{Handlers: pmi.Handlers{Peers: nobody{}}})
	if err := s.AddJob(t.Context(), world); err != nil {
		t.Fatal(err)
	}
	waits := make(chan error)
	go func() {
		_, err := s.FetchModex(t.Context(), pmi.ProcID{Job: "w"})
		waits <- err
	}()
	select {
	case err := <-waits:
		t.Fatalf("it has not waited: %v", err)
	case <-time.After(100 * time.Millisecond):
	}
	if err := s.ReportDeath(t.Context(), pmi.ProcID{Job: "w"}, 137); err != nil {
		t.Error(err)
	}
	if err := <-waits; !errors.Is(err, pmi.Unreachable) {
		t.Errorf("got %v", err)
	}
	if _, err := s.FetchModex(t.Context(), pmi.ProcID{Job: "w", Rank: 1}); !errors.Is(err, pmi.NotFound) {
		t.Errorf("no such rank: %v", err)
	}
}

// nobody is a Peers without other nodes.
type nobody struct{ pmi.Peers }

func (nobody) NotifyNodes(context.Context, pmi.Event) error { return nil }

// TestOrphan verifies that a child whose library hangs ends after its daemon.
func TestOrphan(t *testing.T) {
	orders, ours, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	child := exec.Command("/proc/self/exe", pmix.ChildCommand, "--pmix="+fake(t, hangs).Path)
	child.Stdin = orders
	if err := child.Start(); err != nil {
		t.Fatal(err)
	}
	defer orders.Close()
	// The order to start, without infos: the library then hangs.
	if _, err := ours.Write([]byte{0, 0, 0, 9, 1, 0, 0, 0, 1, 0, 0, 0, 0}); err != nil {
		t.Fatal(err)
	}
	time.AfterFunc(200*time.Millisecond, func() { _ = ours.Close() })
	late := time.AfterFunc(30*time.Second, func() { _ = child.Process.Kill() })
	defer late.Stop()
	_ = child.Wait()
	if status := child.ProcessState.Sys().(syscall.WaitStatus); status.ExitStatus() != 4 {
		t.Errorf("the child: %v", child.ProcessState)
	}
}

func TestNoChildOfAChild(t *testing.T) {
	t.Setenv("BRINGUPD_PMIX_CHILD", "1")
	if _, err := start(t.Context(), t, pmix.Library{}); err == nil || !strings.Contains(err.Error(), "no subcommand") {
		t.Errorf("got %v", err)
	}
}
