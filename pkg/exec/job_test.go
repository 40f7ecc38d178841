package exec_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/bringupd/bringupd/pkg/eventlog"
	"github.com/bringupd/bringupd/pkg/exec"
	"github.com/bringupd/bringupd/pkg/peerlink"
	"github.com/bringupd/bringupd/pkg/process"
	"github.com/bringupd/bringupd/pkg/roles/launcher"
	"github.com/bringupd/bringupd/pkg/signal"
	"github.com/bringupd/bringupd/pkg/signal/record"
	"github.com/bringupd/bringupd/test/fakechild"
	"github.com/bringupd/bringupd/test/memory"
)

// observedFS calls a function before each call that reads or changes a file.
type observedFS struct {
	signal.SharedFS
	call func(op, path string) error
}

func (o observedFS) ListDir(path string, vet func(signal.FileAttributes) error) ([]string, error) {
	if err := o.call("list", path); err != nil {
		return nil, err
	}
	return o.SharedFS.ListDir(path, vet)
}

func (o observedFS) ReadFile(path string) ([]byte, error) {
	if err := o.call("read", path); err != nil {
		return nil, err
	}
	return o.SharedFS.ReadFile(path)
}

func (o observedFS) ReadRange(path string, from, most int64) ([]byte, signal.FileAttributes, error) {
	if err := o.call("read", path); err != nil {
		return nil, signal.FileAttributes{}, err
	}
	return o.SharedFS.ReadRange(path, from, most)
}

func (o observedFS) WriteFile(path string, data []byte, durable bool) error {
	if err := o.call("write", path); err != nil {
		return err
	}
	return o.SharedFS.WriteFile(path, data, durable)
}

func (o observedFS) ChangeName(how signal.NameChange, from, to string) error {
	if err := o.call(string(how), to); err != nil {
		return err
	}
	return o.SharedFS.ChangeName(how, from, to)
}

// observe returns the access of a process to the file system whose calls are observed.
func observe(call func(op, path string) error) signal.Access {
	disk := signal.NewDiskFS(new(signal.CallMeter))
	if call != nil {
		disk = observedFS{disk, call}
	}
	return signal.Access{FS: disk, NoHints: true}
}

// job is a run in a bubble, whose nodes execute commands. It implements [exec.Team].
type job struct {
	t          *testing.T
	dir        *signal.Dir // of the head
	size       int
	head       *exec.Head
	nodes      []*exec.Node
	record     record.Job
	outside    *memory.Host // of the callers
	absent     atomic.Pointer[[]int]
	warnings   *observer.ObservedLogs
	writeFails atomic.Int32 // number of errors of writing that were logged
	endRun     context.CancelFunc
	end        func() // ends everything and waits for it

	mu      sync.Mutex
	started []process.Spec
	wanted  []context.Context // of the commands that were started
	stops   int               // number of commands that were stopped
}

// newJob starts a run of size nodes. Callers can connect to the head if it is linked. call observes
// the calls of all nodes to the file system, and may be nil.
func newJob(t *testing.T, size int, linked bool, call func(op, path string) error) *job {
	t.Helper()
	place := signal.Location{LogDir: t.TempDir(), Run: "17.0", Key: "k", Size: size, Host: "n0", Access: observe(call)}
	dir, err := signal.CreateRun(t.Context(), place, record.Job{})
	if err != nil {
		t.Fatal(err)
	}
	core, warnings := observer.New(zap.WarnLevel)
	j := &job{t: t, dir: dir, size: size, warnings: warnings, outside: new(memory.Net).Host("outside")}
	work, endWork := context.WithCancel(t.Context())
	run, endRun := context.WithCancel(work)
	j.endRun = endRun
	var tasks sync.WaitGroup
	programs := fakechild.New(map[string]fakechild.Program{"sh": fakechild.Shell{}.Run})
	var trails []*eventlog.EventLog
	for node := range size {
		trail := eventlog.New()
		trail.Open(dir, launcher.Identity{NodeIndex: node, Size: size}, "node")
		trails = append(trails, trail)
		of := dir.ForNode(node)
		daemon := exec.Daemon{
			NodeIndex: node, Dir: of, Control: of.NewWatch(signal.ControlDir, signal.HeadPace), Log: zap.New(core), Trail: trail,
			LogWriteError: func(err error) {
				if err != nil {
					j.writeFails.Add(1)
				}
			},
			FileTimeout: 10 * time.Second, RunCtx: run, WorkCtx: work,
			Go:            func(task func(context.Context)) { tasks.Go(func() { task(work) }) },
			OwnProgramEnv: func() []string { return []string{"OWN=1"} },
			Start: func(ctx context.Context, spec process.Spec) (process.Handle, func(), error) {
				j.mu.Lock()
				defer j.mu.Unlock()
				j.started, j.wanted = append(j.started, spec), append(j.wanted, ctx)
				spec.Env = append(spec.Env, fmt.Sprintf("NODE=%d", node))
				child, err := programs.Start(ctx, spec)
				return child, func() {
					child.Stop(work, time.Second, syscall.SIGTERM)
					j.mu.Lock()
					defer j.mu.Unlock()
					j.stops++
				}, err
			},
		}
		j.nodes = append(j.nodes, exec.NewNode(daemon))
		daemon.Go(daemon.Control.Run)
		if node > 0 {
			daemon.Go(j.nodes[node].HandleOrders)
		}
	}
	j.head = exec.NewHead(j.nodes[0], j)
	tasks.Go(func() { j.head.HandleRequests(work) })
	if linked {
		network := new(memory.Net)
		listener, err := network.Host("n0").Listen()
		if err != nil {
			t.Fatal(err)
		}
		j.outside, j.record.LinkAddresses = network.Host("outside"), []string{listener.Addr().String()}
		tasks.Go(func() { j.serve(work, listener) })
	}
	j.end = func() {
		endWork()
		tasks.Wait()
		time.Sleep(time.Minute) // until calls that nobody waits for any more have returned
		for _, trail := range trails {
			trail.Close(context.Background())
		}
		if left := programs.Left(); len(left) > 0 {
			t.Errorf("%v are left", left)
		}
	}
	return j
}

// serve accepts the connections of callers.
func (j *job) serve(ctx context.Context, listener net.Listener) {
	cfg := peerlink.Config{Key: j.dir.DeriveSecret(peerlink.SecretName), Nodes: j.size, HeartbeatInterval: time.Second}
	link := peerlink.NewHead(cfg, listener, nil)
	link.AcceptClients(j.head)
	link.Run(ctx)
}

// SelectNodes implements [exec.Team]. All nodes have joined.
func (j *job) SelectNodes(words []string) ([]int, error) {
	id := launcher.Identity{Size: j.size}
	var joined []string
	for node := range j.size {
		id.Hosts = append(id.Hosts, j.OutputPrefix(node))
		joined = append(joined, signal.NodeName(node, j.size, record.StateJoined))
	}
	nodes := (&signal.DirSnapshot{Names: joined}).ParseListing(j.size)
	return exec.Selection{ID: id, Nodes: nodes}.SelectMembers(words)
}

// OutputPrefix implements [exec.Team].
func (j *job) OutputPrefix(node int) string { return fmt.Sprintf("n%d", node) }

// AbsentNodes implements [exec.Team].
func (j *job) AbsentNodes() []int {
	if absent := j.absent.Load(); absent != nil {
		return *absent
	}
	return nil
}

// NotifyWorker implements [exec.Team].
func (j *job) NotifyWorker(node int) { j.nodes[node].Control.NotifyChange() }

// client returns a caller with one connection and one access to the file system.
func (j *job) client(request exec.Request, times exec.Timeouts, out, errs io.Writer) *exec.Client {
	j.t.Helper()
	place := signal.Location{Access: observe(nil)}
	dir, _, err := place.OpenExisting(j.t.Context(), j.dir.Path(), "outside")
	if err != nil {
		j.t.Fatal(err)
	}
	return exec.New(dir, j.record, request, j.outside, times, out, errs)
}

// outcome is what a caller gets.
type outcome struct {
	nodes     []exec.Result
	err       error
	out, errs string // sorted lines
}

func (o outcome) codes() (codes []int) {
	for _, node := range o.nodes {
		codes = append(codes, node.Exit.Code)
	}
	return codes
}

// request sends a request and waits for the outcome.
func (j *job) request(ctx context.Context, request exec.Request) outcome {
	j.t.Helper()
	var out, errs bytes.Buffer
	times := exec.DefaultTimeouts
	times.Accept = 5 * time.Minute
	nodes, err := j.client(request, times, &out, &errs).Execute(ctx, nil)
	sorted := func(text string) string {
		return strings.Join(slices.Sorted(strings.SplitAfterSeq(text, "\n")), "")
	}
	return outcome{nodes, err, sorted(out.String()), sorted(errs.String())}
}

// shell returns a request for a line of shell on nodes.
func shell(line string, nodes ...string) exec.Request {
	return exec.Request{Argv: []string{"/bin/sh", "-c", line}, Nodes: nodes}
}

// names returns the names of requests that exist in the run directory.
func (j *job) names() (names []string) {
	j.t.Helper()
	for _, sub := range []string{signal.ExecDir, signal.ControlDir} {
		entries, err := os.ReadDir(filepath.Join(j.dir.Path(), sub))
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			j.t.Fatal(err)
		}
		for _, entry := range entries {
			name := entry.Name()
			if sub == signal.ExecDir || strings.HasPrefix(name, "exec.") || strings.HasPrefix(name, "call.") {
				names = append(names, sub+"/"+name)
			}
		}
	}
	return names
}

// events returns the events of all nodes without their times and requests. The job must have ended.
func (j *job) events() (events []string) {
	j.t.Helper()
	paths, err := filepath.Glob(filepath.Join(j.dir.Path(), signal.EventsDir, "*"))
	if err != nil || len(paths) == 0 {
		j.t.Fatalf("no events: %v", err)
	}
	slices.Sort(paths)
	for _, path := range paths {
		data, err := os.ReadFile(path)
		if err != nil {
			j.t.Fatal(err)
		}
		for line := range bytes.Lines(data) {
			events = append(events, string(line))
		}
	}
	return events
}

// TestCommands executes commands with and without a connection to the head. Afterwards no file of a
// request is left, and the head is idle.
func TestCommands(t *testing.T) {
	for linked, idle := range map[bool]time.Duration{true: 100 * time.Millisecond, false: 12 * time.Second} {
		synctest.Test(t, func(t *testing.T) {
			var mu sync.Mutex
			removals := make(map[string]int)
			j := newJob(t, 3, linked, func(op, path string) error {
				if op == string(signal.RemoveTree) && filepath.Base(filepath.Dir(path)) == signal.ControlDir {
					mu.Lock()
					defer mu.Unlock()
					removals[filepath.Base(path)]++
				}
				return nil
			})
			for _, tc := range []struct {
				name      string
				request   exec.Request
				codes     []int
				err       error
				out, errs string // lines in any order
			}{
				{"one node", shell("printf 'no end'; echo other >&2; exit 3", "2"), []int{3}, nil, "no end", "other\n"},
				{"the head", shell("echo $NODE", "head"), []int{0}, nil, "0\n", ""},
				{"all nodes", shell("echo $NODE; printf end; echo e >&2; exit $NODE", "all"), []int{0, 1, 2}, nil,
					"n0: 0\nn0: end\nn1: 1\nn1: end\nn2: 2\nn2: end\n", "n0: e\nn1: e\nn2: e\n"},
				{"a variable", exec.Request{Argv: shell("echo $A").Argv, Env: []string{"A=b"}, Nodes: []string{"1"}}, []int{0}, nil, "b\n", ""},
				{"output at intervals", shell("for i in 1 2 3; do echo $i; sleep 1; done", "0", "1"), []int{0, 0}, nil,
					"n0: 1\nn0: 2\nn0: 3\nn1: 1\nn1: 2\nn1: 3\n", ""},
				{"something in the background", shell("sleep 300 & echo", "1"), []int{0}, nil, "\n", ""},
				{"no such program", exec.Request{Argv: []string{"/no/such"}, Nodes: []string{"1", "2"}}, []int{127, 127}, nil, "", ""},
				{"no such node", shell("echo", "n7"), nil, exec.ErrRefused, "", ""},
				{"no node", shell("echo"), nil, exec.ErrRefused, "", ""},
				{"no command", exec.Request{Nodes: []string{"all"}}, nil, exec.ErrRefused, "", ""},
			} {
				got := j.request(t.Context(), tc.request)
				if !errors.Is(got.err, tc.err) || !slices.Equal(got.codes(), tc.codes) || got.out != tc.out || got.errs != tc.errs {
					t.Errorf("%s: %v, codes %v, out %q, errors %q", tc.name, got.err, got.codes(), got.out, got.errs)
				}
				for _, node := range got.nodes {
					if !node.Answered || (node.Exit.Failed != "") != (node.Exit.Code == 127) {
						t.Errorf("%s: %+v", tc.name, node)
					}
				}
				time.Sleep(idle)
				left := slices.DeleteFunc(j.names(), func(name string) bool { return strings.Contains(name, "/call.") })
				if len(left) > 0 || j.head.IsBusy() {
					t.Errorf("%s: %v are left; the head is busy: %t", tc.name, left, j.head.IsBusy())
				}
				time.Sleep(time.Second) // until the next poll of the control directory
				if left := j.names(); len(left) > 0 {
					t.Errorf("%s: %v are left", tc.name, left)
				}
			}
			for i, wanted := range j.wanted {
				if wanted.Err() == nil {
					t.Errorf("the context of command %d is not released", i)
				}
			}
			for name, times := range removals {
				if times != 1 {
					t.Errorf("%s is removed %d times", name, times)
				}
			}
			if j.writeFails.Load() > 0 {
				t.Errorf("%d writes failed", j.writeFails.Load())
			}
			j.end()
			events := strings.Join(j.events(), "")
			for event, want := range map[string]int{
				`"event":"request"`: 10, `"ok":true`: 7, `"event":"exec"`: 11, `"event":"exec-exit"`: 11, `"exit":"exit code 3"`: 1,
			} {
				if got := strings.Count(events, event); got != want {
					t.Errorf("%d events have %s, want %d", got, event, want)
				}
			}
		})
	}
}

// TestCancel cancels commands on the head and on a worker: the caller gets its own reason, the
// commands are ended, and no file is left. With a connection, this takes no poll at an interval.
func TestCancel(t *testing.T) {
	for linked, most := range map[bool]time.Duration{true: 200 * time.Millisecond, false: 2 * time.Second} {
		for _, how := range []string{"canceled", "vanished"} {
			if how == "vanished" && !linked {
				continue // TestSilentCaller
			}
			synctest.Test(t, func(t *testing.T) {
				j := newJob(t, 3, linked, nil)
				defer j.end()
				reason := errors.New("enough")
				ctx, cancel := context.WithCancelCause(t.Context())
				answer := make(chan outcome, 1)
				go func() { answer <- j.request(ctx, shell("echo begun; sleep 1000", "0", "2")) }()
				// No heartbeat is missing.
				time.Sleep(time.Minute + 100*time.Millisecond)
				if names := strings.Join(j.names(), " "); strings.Contains(names, ".request") || strings.Contains(names, ".000000") || !j.head.IsBusy() {
					t.Errorf("while the command runs, there are %s; the head is busy: %t", names, j.head.IsBusy())
				}
				began := time.Now()
				if how == "vanished" {
					j.outside.Vanish()
				} else {
					cancel(reason)
				}
				for {
					j.mu.Lock()
					stops := j.stops
					j.mu.Unlock()
					if stops >= 2 || time.Since(began) > time.Minute {
						break
					}
					time.Sleep(time.Millisecond)
				}
				if took := time.Since(began); took > most {
					t.Errorf("%s, linked %t: the commands were stopped after %s", how, linked, took)
				}
				cancel(reason)
				got := <-answer
				if got.err != reason || !slices.Equal(got.codes(), []int{143, 143}) || got.out != "n0: begun\nn2: begun\n" {
					t.Errorf("%s, linked %t: %v, codes %v, out %q", how, linked, got.err, got.codes(), got.out)
				}
				time.Sleep(20 * time.Second)
				if left := j.names(); len(left) > 0 || j.head.IsBusy() || j.writeFails.Load() > 0 {
					t.Errorf("%v are left; the head is busy: %t; %d writes failed", left, j.head.IsBusy(), j.writeFails.Load())
				}
			})
		}
	}
}

// TestConcurrentRequests sends many requests at once: each is executed, and neither the head nor a
// caller reads more than a limited number of files at once.
func TestConcurrentRequests(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var now, most atomic.Int32
		slow := func(op, path string) error {
			if op == "read" && strings.Contains(path, "/"+signal.ExecDir+"/") {
				if n := now.Add(1); n > most.Load() {
					most.Store(n)
				}
				time.Sleep(10 * time.Millisecond)
				now.Add(-1)
			}
			return nil
		}
		j := newJob(t, 2, false, slow)
		defer j.end()
		const many = 40
		var callers sync.WaitGroup
		for range many {
			callers.Go(func() {
				got := j.request(t.Context(), shell("echo $NODE", "0", "1"))
				if got.err != nil || got.out != "n0: 0\nn1: 1\n" {
					t.Errorf("%v, %q", got.err, got.out)
				}
			})
		}
		callers.Wait()
		if got := most.Load(); got < 2 || got > 16 {
			t.Errorf("the head read %d requests at once", got)
		}
		time.Sleep(15 * time.Second)
		if left := j.names(); len(left) > 0 {
			t.Errorf("%v are left", left)
		}
	})
}

// TestHeadReadsAgain verifies that the head reads a request again that it cannot read at first: an
// incomplete one for a limited time, and others as long as the file system does not respond. One
// message reports a directory that cannot be listed.
func TestHeadReadsAgain(t *testing.T) {
	const failing = "cannot read requests of other bringupd commands"
	for name, tc := range map[string]struct {
		linked   bool
		fails    func(op, path string, after time.Duration) error
		most     time.Duration
		err      error
		warnings int
	}{
		"it is incomplete for a moment": {false, func(op, path string, after time.Duration) error {
			if strings.HasSuffix(path, ".request") && after < time.Second {
				return os.ErrNotExist
			}
			return nil
		}, 2 * time.Second, nil, 0},
		"it remains incomplete": {false, func(op, path string, _ time.Duration) error {
			if strings.HasSuffix(path, ".request") {
				return os.ErrNotExist
			}
			return nil
		}, 4 * time.Second, exec.ErrRefused, 0},
		"a read hangs": {false, func(op, path string, after time.Duration) error {
			if strings.HasSuffix(path, ".request") && after < time.Second {
				time.Sleep(15 * time.Second)
			}
			return nil
		}, 12 * time.Second, nil, 0},
		"no listing": {false, func(op, path string, after time.Duration) error {
			if op == "list" && strings.HasSuffix(path, "/"+signal.ExecDir) && after < 3*time.Second {
				return syscall.EACCES
			}
			return nil
		}, 4 * time.Second, nil, 1},
		"no listing, and only the connection announces it": {true, func(op, path string, after time.Duration) error {
			if op == "list" && (strings.HasSuffix(path, "/"+signal.ControlDir) || after < 3*time.Second) {
				return syscall.EACCES
			}
			return nil
		}, 4 * time.Second, nil, 1},
	} {
		synctest.Test(t, func(t *testing.T) {
			began := time.Now().Add(time.Minute)
			j := newJob(t, 1, tc.linked, func(op, path string) error {
				if time.Since(began) < 0 {
					return nil
				}
				return tc.fails(op, path, time.Since(began))
			})
			defer j.end()
			time.Sleep(time.Until(began))
			got := j.request(t.Context(), shell("echo", "head"))
			if took := time.Since(began); !errors.Is(got.err, tc.err) || took > tc.most {
				t.Errorf("%s: it ended after %s: %v", name, took, got.err)
			}
			if got := j.warnings.FilterMessage(failing).Len(); got != tc.warnings {
				t.Errorf("%s: %d messages report it", name, got)
			}
		})
	}
}

// TestRunIsEnding verifies that a run that is ending refuses requests.
func TestRunIsEnding(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := newJob(t, 1, true, nil)
		defer j.end()
		j.endRun()
		if got := j.request(t.Context(), shell("echo", "head")); !errors.Is(got.err, exec.ErrRefused) || len(j.started) > 0 {
			t.Errorf("%v; %d commands were started", got.err, len(j.started))
		}
	})
}

// TestLostNode loses a node while its command runs: the caller gets the answers of all nodes.
func TestLostNode(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := newJob(t, 3, true, nil)
		defer j.end()
		time.AfterFunc(time.Minute, func() { j.absent.Store(&[]int{2}) })
		got := j.request(t.Context(), shell("[ $NODE = 1 ] || sleep 1000", "1", "2"))
		lost := exec.Exit{Code: 76, Exit: "lost", Failed: "the node is lost"}
		if got.err != nil || !slices.Equal(got.codes(), []int{0, 76}) || got.nodes[1].Exit != lost {
			t.Errorf("%v, %+v", got.err, got.nodes)
		}
	})
}

// TestOwnProgram verifies how commands are started: the daemon's own program without a path that
// other users could have written and with the node's variables, and no output is kept for the log.
func TestOwnProgram(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := newJob(t, 1, true, nil)
		defer j.end()
		for _, own := range []bool{true, false} {
			request := exec.Request{Argv: []string{"why-node", "--stacks"}, Env: []string{"A=b"}, Nodes: []string{"head"}, OwnProgram: own}
			j.request(t.Context(), request)
		}
		want := []process.Spec{
			{Argv: []string{process.OwnBinary, "why-node", "--stacks"}, Env: []string{"A=b", "OWN=1"}},
			{Argv: []string{"why-node", "--stacks"}, Env: []string{"A=b"}},
		}
		if len(j.started) != len(want) {
			t.Fatalf("%d commands were started", len(j.started))
		}
		for i, got := range j.started {
			if !slices.Equal(got.Argv, want[i].Argv) || !slices.Equal(got.Env, want[i].Env) || got.KeepLines >= 0 {
				t.Errorf("%+v is started, want %+v", got, want[i])
			}
		}
	})
}

// TestAwaitPublished verifies the end of a node: no further command starts, and the ends of those
// that run are published, which is awaited for a limited time.
func TestAwaitPublished(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := newJob(t, 1, true, nil)
		defer j.end()
		answer := make(chan outcome, 1)
		go func() { answer <- j.request(t.Context(), shell("sleep 60; exit 4", "head")) }()
		time.Sleep(time.Second)
		began := time.Now()
		if j.nodes[0].AwaitPublished(5 * time.Second); time.Since(began) != 5*time.Second {
			t.Errorf("it has awaited a long command for %s", time.Since(began))
		}
		if j.nodes[0].AwaitPublished(5 * time.Minute); time.Since(began) < 58*time.Second || time.Since(began) > 62*time.Second {
			t.Errorf("it has awaited the end of a command for %s", time.Since(began))
		}
		if got := <-answer; got.err != nil || !slices.Equal(got.codes(), []int{4}) {
			t.Errorf("%v, codes %v", got.err, got.codes())
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if got := j.request(ctx, shell("echo", "head")); got.err == nil || len(j.started) != 1 {
			t.Errorf("afterwards: %v; %d commands were started", got.err, len(j.started))
		}
	})
}

// TestOutputIsLost verifies that an error of writing output is logged, and that the caller is told
// how much is missing; but not if the command was cancelled.
func TestOutputIsLost(t *testing.T) {
	for _, canceled := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			hung := make(chan struct{})
			j := newJob(t, 2, true, func(op, path string) error {
				if strings.HasSuffix(path, "1.000001") {
					if canceled {
						<-hung
					}
					return syscall.ENOSPC
				}
				return nil
			})
			defer j.end()
			defer close(hung)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			if canceled {
				time.AfterFunc(10*time.Second, cancel)
			}
			got := j.request(ctx, shell("for i in 1 2 3; do echo $i; sleep 1; done", "1"))
			if len(got.nodes) != 1 || !got.nodes[0].Answered || got.out != "1\n" || (got.err == nil) == canceled {
				t.Fatalf("%+v", got)
			}
			if exit := got.nodes[0].Exit; !canceled && (exit.Dropped != 2 || exit.Parts != 1) {
				t.Errorf("its exit is %+v", exit)
			}
			if fails := j.writeFails.Load(); (fails > 0) == canceled {
				t.Errorf("canceled %t: %d errors were logged", canceled, fails)
			}
		})
	}
}
