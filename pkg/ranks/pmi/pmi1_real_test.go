//go:build mpi

package pmi

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// ceiling limits waits that end much sooner on any machine.
const ceiling = 2 * time.Minute

// flavour is an MPI whose programs are run.
type flavour struct {
	name   string
	python string // with mpi4py for it; empty: C only
}

const (
	debian = "MPICH of Debian"
	pypi   = "MPICH of PyPI"
	intel  = "Intel MPI"
)

// flavours returns the MPIs that this machine must have: none is skipped.
func flavours(t *testing.T) []flavour {
	t.Helper()
	list := []flavour{{name: debian}}
	for _, v := range []struct{ name, variable string }{{pypi, "BRINGUPD_TEST_MPICH"}, {intel, "BRINGUPD_TEST_INTEL"}} {
		python := os.Getenv(v.variable)
		if python == "" {
			t.Fatalf("cannot test %s: %s must be the python of a virtual environment that has "+
				"it and mpi4py", v.name, v.variable)
		}
		list = append(list, flavour{v.name, python})
	}
	return list
}

// compiled returns the test's C program, compiled for Debian's MPICH.
func compiled(t *testing.T) string {
	t.Helper()
	binary := filepath.Join(t.TempDir(), "ring")
	if said, err := exec.Command("mpicc.mpich", "-o", binary, "testdata/ring.c").CombinedOutput(); err != nil {
		t.Fatalf("cannot compile for MPICH: %v\n%s", err, said)
	}
	return binary
}

// launch is a set of programs that are started as ranks, as by a launcher.
type launch struct {
	t *testing.T
	// The name must be unique: MPICH 5 names its shared memory after it, and a killed job leaves that
	// behind.
	name string
	hall *hall
	ctx  context.Context
	end  context.CancelCauseFunc
	all  sync.WaitGroup

	mu     sync.Mutex
	jobs   int
	spaces []*PMI1Server
	left   []string // in shared memory, before the cleanup
	said   map[ProcID]*strings.Builder
	codes  map[ProcID]int // 128 + n for a signal
	parts  map[ProcID]SessionState
}

// abortion is the cause of an end that a rank has requested.
type abortion aborted

func (a abortion) Error() string {
	return fmt.Sprintf("rank %d aborts with %d: %s", a.rank, a.code, a.words)
}

func launched(t *testing.T, nodes []int, argv ...string) *launch {
	t.Helper()
	return launchedIn(t, newHall(), nodes, argv...)
}

func launchedIn(t *testing.T, h *hall, nodes []int, argv ...string) *launch {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), ceiling)
	t.Cleanup(cancel)
	l := &launch{t: t, name: rand.Text(), hall: h, said: make(map[ProcID]*strings.Builder),
		codes: make(map[ProcID]int), parts: make(map[ProcID]SessionState)}
	l.ctx, l.end = context.WithCancelCause(ctx)
	h.spawn = func(_ *hall, s SpawnRequest) (string, error) { return l.spawn(s) }
	commands := []Command{{Argv: argv, Ranks: len(nodes)}}
	if err := l.start(&Job{Name: l.name, Hosts: []string{"n0", "n1"}, Nodes: nodes,
		UniverseSize: 7}, commands); err != nil {
		t.Fatal(err)
	}
	l.all.Wait()
	l.left, _ = filepath.Glob("/dev/shm/mpich_*")
	for _, s := range l.spaces {
		if err := s.RemoveSharedMemory(); err != nil {
			t.Error(err)
		}
	}
	return l
}

// swept returns the leftovers that have been removed.
func (l *launch) swept() []string {
	return slices.DeleteFunc(slices.Clone(l.left), func(path string) bool {
		_, err := os.Stat(path)
		return err == nil
	})
}

// spawn places the new ranks on both nodes in turn.
func (l *launch) spawn(s SpawnRequest) (string, error) {
	l.mu.Lock()
	l.jobs++
	job := &Job{Name: fmt.Sprintf("%s.%d", l.name, l.jobs), Hosts: []string{"n0", "n1"},
		UniverseSize: 7, Parent: &s.Requester, Preput: s.Preput}
	l.mu.Unlock()
	for app, command := range s.Commands {
		if _, err := exec.LookPath(command.Argv[0]); err != nil {
			return "", err
		}
		for range command.Ranks {
			job.Nodes, job.Apps = append(job.Nodes, len(job.Nodes)%2), append(job.Apps, app)
		}
	}
	return job.Name, l.start(job, s.Commands)
}

func (l *launch) start(job *Job, commands []Command) error {
	spaces := l.hall.open(job, func(a aborted) { l.end(abortion(a)) })
	l.mu.Lock()
	l.spaces = slices.AppendSeq(l.spaces, maps.Values(spaces))
	l.mu.Unlock()
	for rank, node := range job.Nodes {
		if err := l.rank(spaces[node], job, rank, commands[job.CommandIndex(rank)]); err != nil {
			return err
		}
	}
	return nil
}

func (l *launch) rank(space *PMI1Server, job *Job, rank int, command Command) error {
	ours, theirs, err := NewConnPair()
	if err != nil {
		return err
	}
	defer theirs.Close()
	said := &strings.Builder{}
	cmd := exec.CommandContext(l.ctx, command.Argv[0], command.Argv[1:]...)
	cmd.ExtraFiles, cmd.Stdout, cmd.Stderr, cmd.Dir = []*os.File{theirs}, said, said, command.Dir
	cmd.Env = os.Environ()
	for _, name := range slices.Sorted(maps.Keys(PMI1Environ(job, rank, 3))) {
		cmd.Env = append(cmd.Env, name+"="+PMI1Environ(job, rank, 3)[name])
	}
	if err := cmd.Start(); err != nil {
		return errors.Join(err, ours.Close())
	}
	who := ProcID{Job: job.Name, Rank: rank}
	l.all.Go(func() {
		parting := space.ServeRank(l.ctx, rank, ours)
		_ = cmd.Wait()
		code := cmd.ProcessState.ExitCode()
		if status := cmd.ProcessState.Sys().(syscall.WaitStatus); status.Signaled() {
			code = 128 + int(status.Signal())
		}
		l.mu.Lock()
		defer l.mu.Unlock()
		l.said[who], l.codes[who], l.parts[who] = said, code, parting
		if parting.Initialized && !parting.Finalized {
			l.end(fmt.Errorf("rank %d has died with %d", rank, code))
		}
	})
	return nil
}

// wanted verifies that the given number of ranks have printed the text, and that all ranks have
// exited with 0 and finalized.
func (l *launch) wanted(words string, ranks int) {
	l.t.Helper()
	count := 0
	for who, said := range l.said {
		count += strings.Count(said.String(), words)
		if l.codes[who] != 0 || l.parts[who] != (SessionState{Initialized: true, Finalized: true}) {
			l.t.Errorf("%s has ended with %d, %+v", who, l.codes[who], l.parts[who])
		}
	}
	if count != ranks {
		l.t.Errorf("%d ranks of %d have said %q", count, ranks, words)
	}
	l.show()
}

func (l *launch) show() {
	l.t.Helper()
	for who, said := range l.said {
		if l.t.Failed() || said.Len() > 0 && testing.Verbose() {
			l.t.Logf("%s, which ended with %d, %+v, said:\n%s", who, l.codes[who], l.parts[who], said)
		}
	}
}

// twoByTwo are the nodes of the ranks.
var twoByTwo = []int{0, 0, 1, 1}

// program returns the command line that performs an action.
func (f flavour) program(t *testing.T, does ...string) []string {
	if f.python == "" {
		return append([]string{compiled(t)}, does...)
	}
	return append([]string{f.python, "testdata/mpi.py"}, does...)
}

func TestRealRing(t *testing.T) {
	for _, f := range flavours(t) {
		t.Run(f.name, func(t *testing.T) {
			began := time.Now()
			launched(t, twoByTwo, f.program(t, "ring")...).wanted("sum 6, 2 here, universe 7", 4)
			t.Log(time.Since(began))
		})
	}
}

// TestRealPlaces places ranks on nodes in turn, with numbers that do not begin with 0.
func TestRealPlaces(t *testing.T) {
	for _, f := range flavours(t) {
		t.Run(f.name, func(t *testing.T) {
			launched(t, []int{1, 0, 1, 0}, f.program(t, "ring")...).wanted("sum 6, 2 here, universe 7", 4)
			launched(t, []int{1, 1}, f.program(t, "ring")...).wanted("sum 1, 2 here, universe 7", 2)
		})
	}
}

// TestRealWithoutMapping verifies that ranks without a mapping detect by themselves that all of
// them share this machine.
func TestRealWithoutMapping(t *testing.T) {
	for _, f := range flavours(t) {
		t.Run(f.name, func(t *testing.T) {
			h := newHall()
			h.unmapped = true
			launchedIn(t, h, twoByTwo, f.program(t, "ring")...).wanted("sum 6, 4 here, universe 7", 4)
		})
	}
}

func TestRealEnds(t *testing.T) {
	for _, f := range flavours(t) {
		for _, tc := range []struct {
			does  string
			cause string
		}{
			{"abort", "rank 3 aborts with 42"}, {"exit", "rank 3 has died with 7"},
			{"kill", "rank 3 has died with 137"}, {"zero", "rank 3 has died with 0"},
		} {
			t.Run(f.name+", "+tc.does, func(t *testing.T) {
				l := launched(t, twoByTwo, f.program(t, tc.does)...)
				if cause := context.Cause(l.ctx); cause == nil || !strings.HasPrefix(cause.Error(), tc.cause) {
					t.Errorf("the cause is %v, not that %s", cause, tc.cause)
				}
				if swept := l.swept(); f.name == pypi && len(swept) < len(l.spaces) {
					t.Errorf("on %d nodes it has left %v, and only this was swept: %v", len(l.spaces), l.left, swept)
				}
				l.show()
			})
		}
	}
}

func TestRealPublish(t *testing.T) {
	for _, f := range flavours(t) {
		t.Run(f.name, func(t *testing.T) {
			nodes := twoByTwo
			if f.name == intel {
				// It crashes when it connects to another node, under its own mpiexec too.
				nodes = []int{0, 0, 0, 0}
			}
			launched(t, nodes, f.program(t, "publish")...).wanted("met by name", 2)
		})
	}
}

func TestRealSpawn(t *testing.T) {
	for _, f := range flavours(t) {
		if f.name == debian {
			continue // spawns no ranks, under its own mpiexec too
		}
		t.Run(f.name, func(t *testing.T) {
			launched(t, []int{0}, f.program(t, "spawn")...).wanted("children 0 1 2 of 3", 1)
		})
		if f.name == intel {
			// It crashes when it spawns more than once or more than one command, under its own mpiexec too.
			continue
		}
		t.Run(f.name+", two commands, one after the other", func(t *testing.T) {
			l := launched(t, twoByTwo, f.program(t, "spawns")...)
			l.wanted("children 0/0 1/1 2/1, then 0 0 0 0 0, then refused", 1)
		})
	}
}
