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

// observer is called before each call to the file system, and may make it fail or hang.
type observer func(op signal.Op, path string) error

// BeginCall implements [signal.Interceptor].
func (o observer) BeginCall(op signal.Op, path string) (time.Time, error) {
	if o == nil {
		return time.Now(), nil
	}
	return time.Now(), o(op, path)
}

// EndCall implements [signal.Interceptor].
func (observer) EndCall(signal.Op, string, time.Time) {}

// observe returns the access of a process to the file system whose calls are observed.
func observe(call observer) signal.Access {
	return signal.Access{FS: signal.NewDiskFS(call), NoHints: true}
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
	writeFails atomic.Int32 // number of errors of writing that were logged
	endRun     context.CancelFunc
	endLinks   context.CancelFunc // closes all connections
	vanished   atomic.Bool        // callers cannot access the file system
	end        func()             // ends everything and waits for it

	mu      sync.Mutex
	started []process.Spec
	wanted  []context.Context // of the commands that were started
	stops   int               // number of commands that were stopped
}

// newJob starts a run of size nodes. Callers can connect to the head if it is linked. call observes
// the calls of all nodes to the file system, and may be nil.
func newJob(t *testing.T, size int, linked bool, call observer) *job {
	t.Helper()
	place := signal.Location{LogDir: t.TempDir(), Run: "17.0", Key: "k", Size: size, Host: "n0", Access: observe(call)}
	dir, err := signal.CreateRun(t.Context(), place, record.Job{})
	if err != nil {
		t.Fatal(err)
	}
	j := &job{t: t, dir: dir, size: size, outside: new(memory.Net).Host("outside")}
	work, endWork := context.WithCancel(t.Context())
	run, endRun := context.WithCancel(work)
	links, endLinks := context.WithCancel(work)
	j.endRun, j.endLinks = endRun, endLinks
	var tasks sync.WaitGroup
	programs := fakechild.New(map[string]fakechild.Program{"sh": fakechild.Shell{}.Run})
	network := new(memory.Net)
	var trails []*eventlog.EventLog
	for node := range size {
		trail := eventlog.New()
		trail.Open(dir, launcher.Identity{NodeIndex: node, Size: size}, "node")
		trails = append(trails, trail)
		of := dir.ForNode(node)
		daemon := exec.Daemon{
			NodeIndex: node, Dir: of, Control: of.NewWatch(signal.ControlDir, signal.HeadPace),
			Log: zap.NewNop(), Trail: trail,
			LogWriteError: func(err error) {
				if err != nil {
					j.writeFails.Add(1)
				}
			},
			FileTimeout: 10 * time.Second, RunCtx: run,
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
		if linked && node > 0 {
			daemon.Dial = func(ctx context.Context) (exec.Conn, error) {
				key := dir.DeriveSecret(peerlink.SecretName)
				host := network.Host(fmt.Sprint("n", node))
				return peerlink.DialStream(ctx, peerlink.CommandStream, key, node, host, j.record.LinkAddresses)
			}
		}
		j.nodes = append(j.nodes, exec.NewNode(daemon))
		daemon.Go(daemon.Control.Run)
	}
	j.head = exec.NewHead(j.nodes[0], j)
	for _, node := range j.nodes {
		node.Go(node.HandleOrders)
	}
	if linked {
		listener, err := network.Host("n0").Listen()
		if err != nil {
			t.Fatal(err)
		}
		j.outside, j.record.LinkAddresses = network.Host("outside"), []string{listener.Addr().String()}
		tasks.Go(func() { j.serve(links, listener) })
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
	link.HandleStreams(peerlink.CommandStream, j.head.ServeConn)
	link.HandleStreams(peerlink.CallerStream, j.head.ServeCaller)
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

// HasLink, RequestConn, Hosts and Address implement [exec.Team].
func (j *job) HasLink(int) bool { return j.record.LinkAddresses != nil }

func (j *job) RequestConn(node int) error {
	j.nodes[node].HandleConnRequest()
	return nil
}

func (*job) Hosts() ([]int, []string) { return nil, nil }
func (*job) Address(int) string       { return "" }

// NotifyWorker implements [exec.Team].
func (j *job) NotifyWorker(node int) { j.nodes[node].Control.NotifyChange() }

// client returns a caller with one connection and one access to the file system.
func (j *job) client(request exec.Request, times exec.Timeouts, out, errs io.Writer) *exec.Client {
	j.t.Helper()
	place := signal.Location{Access: observe(func(signal.Op, string) error {
		if j.vanished.Load() {
			return syscall.EIO
		}
		return nil
	})}
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

// TestCommands executes commands by streams and by files. Afterwards no file of a request is left,
// and the head is idle.
func TestCommands(t *testing.T) {
	for _, linked := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			j := newJob(t, 3, linked, nil)
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
				{"a variable", exec.Request{Argv: shell("echo $A").Argv, Env: []string{"A=b"},
					Nodes: []string{"1"}}, []int{0}, nil, "b\n", ""},
				{"output at intervals", shell("for i in 1 2 3; do echo $i; sleep 1; done", "0", "1"), []int{0, 0}, nil,
					"n0: 1\nn0: 2\nn0: 3\nn1: 1\nn1: 2\nn1: 3\n", ""},
				{"something in the background", shell("sleep 300 & echo", "1"), []int{0}, nil, "\n", ""},
				{"no such program", exec.Request{Argv: []string{"/no/such"},
					Nodes: []string{"1", "2"}}, []int{127, 127}, nil, "", ""},
				{"no such node", shell("echo", "n7"), nil, exec.ErrRefused, "", ""},
				{"no node", shell("echo"), nil, exec.ErrRefused, "", ""},
				{"no command", exec.Request{Nodes: []string{"all"}}, nil, exec.ErrRefused, "", ""},
			} {
				got := j.request(t.Context(), tc.request)
				if !errors.Is(got.err, tc.err) || !slices.Equal(got.codes(), tc.codes) ||
					got.out != tc.out || got.errs != tc.errs {
					t.Errorf("%s: %v, codes %v, out %q, errors %q", tc.name, got.err, got.codes(), got.out, got.errs)
				}
				for _, node := range got.nodes {
					if !node.Answered || (node.Exit.Failed != "") != (node.Exit.Code == 127) {
						t.Errorf("%s: %+v", tc.name, node)
					}
				}
				time.Sleep(2 * time.Second) // until the next poll of the control directory
				if left := j.names(); len(left) > 0 || j.head.IsBusy() {
					t.Errorf("%s: %v are left; the head is busy: %t", tc.name, left, j.head.IsBusy())
				}
			}
			for i, wanted := range j.wanted {
				if wanted.Err() == nil {
					t.Errorf("the context of command %d is not released", i)
				}
			}
			if j.writeFails.Load() > 0 {
				t.Errorf("%d writes failed", j.writeFails.Load())
			}
			j.end()
			events := strings.Join(j.events(), "")
			for event, want := range map[string]int{
				`"event":"request"`: 10, `"ok":true`: 7, `"event":"exec"`: 11,
				`"event":"exec-exit"`: 11, `"exit":"exit code 3"`: 1,
			} {
				if got := strings.Count(events, event); got != want {
					t.Errorf("%d events have %s, want %d", got, event, want)
				}
			}
		})
	}
}

// awaitStops waits until a number of commands were stopped, at most two hours.
func (j *job) awaitStops(count int) (took time.Duration) {
	for began := time.Now(); ; time.Sleep(10 * time.Millisecond) {
		j.mu.Lock()
		stops := j.stops
		j.mu.Unlock()
		if took = time.Since(began); stops >= count || took > 2*time.Hour {
			return took
		}
	}
}

// TestCancel cancels commands on the head and on a worker: the caller gets its own reason, the
// commands are ended, and no file is left. A caller that vanishes cancels its commands, too.
func TestCancel(t *testing.T) {
	for _, tc := range []struct {
		linked, vanishes bool
		most             time.Duration
	}{{true, false, 200 * time.Millisecond}, {true, true, 200 * time.Millisecond},
		{false, false, 2 * time.Second}, {false, true, time.Minute}} {
		synctest.Test(t, func(t *testing.T) {
			j := newJob(t, 3, tc.linked, nil)
			defer j.end()
			reason := errors.New("enough")
			ctx, cancel := context.WithCancelCause(t.Context())
			answer := make(chan outcome, 1)
			go func() { answer <- j.request(ctx, shell("echo begun; sleep 10000", "0", "2")) }()
			// No heartbeat is missing.
			time.Sleep(time.Minute + 100*time.Millisecond)
			if !j.head.IsBusy() || strings.Contains(strings.Join(j.names(), " "), "call.") {
				t.Errorf("the head is busy: %t; there are %v", j.head.IsBusy(), j.names())
			}
			if tc.vanishes {
				j.outside.Vanish()
				j.vanished.Store(true)
			} else {
				cancel(reason)
			}
			if took := j.awaitStops(2); took > tc.most {
				t.Errorf("%+v: the commands were stopped after %s", tc, took)
			}
			time.Sleep(90 * time.Second)
			if left := j.names(); len(left) > 0 || j.head.IsBusy() || j.writeFails.Load() > 0 {
				t.Errorf("%+v: %v are left; the head is busy: %t; %d writes failed", tc, left,
					j.head.IsBusy(), j.writeFails.Load())
			}
			cancel(reason)
			got := <-answer
			if got.err != reason || !tc.vanishes &&
				(!slices.Equal(got.codes(), []int{143, 143}) || got.out != "n0: begun\nn2: begun\n") {
				t.Errorf("%+v: %v, codes %v, out %q", tc, got.err, got.codes(), got.out)
			}
		})
	}
}

// TestConcurrentRequests sends many requests at once: each is executed.
func TestConcurrentRequests(t *testing.T) {
	for _, linked := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			j := newJob(t, 2, linked, nil)
			defer j.end()
			var callers sync.WaitGroup
			for range 40 {
				callers.Go(func() {
					got := j.request(t.Context(), shell("echo $NODE", "0", "1"))
					if got.err != nil || got.out != "n0: 0\nn1: 1\n" {
						t.Errorf("%v, %q", got.err, got.out)
					}
				})
			}
			callers.Wait()
			time.Sleep(2 * time.Second)
			if left := j.names(); len(left) > 0 {
				t.Errorf("%v are left", left)
			}
		})
	}
}

// TestReadsAgain verifies that a request and an order are read again that cannot be read at first:
// an incomplete request for a limited time, and both as long as the file system does not respond.
func TestReadsAgain(t *testing.T) {
	for name, tc := range map[string]struct {
		fails func(path string, after time.Duration) error
		most  time.Duration
		err   error
	}{
		"a request is incomplete for a moment": {func(path string, after time.Duration) error {
			if strings.Contains(path, "/call.") && after < time.Second {
				return os.ErrNotExist
			}
			return nil
		}, 3 * time.Second, nil},
		"a request remains incomplete": {func(path string, _ time.Duration) error {
			if strings.Contains(path, "/call.") {
				return os.ErrNotExist
			}
			return nil
		}, 4 * time.Second, exec.ErrRefused},
		"a read of a request hangs": {func(path string, after time.Duration) error {
			if strings.Contains(path, "/call.") && after < time.Second {
				time.Sleep(15 * time.Second)
			}
			return nil
		}, 13 * time.Second, nil},
		"a read of an order hangs": {func(path string, after time.Duration) error {
			if strings.Contains(path, "/exec.") && after < time.Second {
				time.Sleep(15 * time.Second)
			}
			return nil
		}, 18 * time.Second, nil},
	} {
		synctest.Test(t, func(t *testing.T) {
			began := time.Now().Add(time.Minute)
			j := newJob(t, 2, false, func(op signal.Op, path string) error {
				if time.Since(began) < 0 || op != signal.OpRead {
					return nil
				}
				return tc.fails(path, time.Since(began))
			})
			defer j.end()
			time.Sleep(time.Until(began))
			got := j.request(t.Context(), shell("echo", "1"))
			if took := time.Since(began); !errors.Is(got.err, tc.err) || took > tc.most {
				t.Errorf("%s: it ended after %s: %v", name, took, got.err)
			}
		})
	}
}

// TestRunIsEnding verifies that a run that is ending refuses requests, and that a caller does not
// wait for nodes after the end.
func TestRunIsEnding(t *testing.T) {
	for _, linked := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			j := newJob(t, 2, linked, nil)
			defer j.end()
			answer := make(chan outcome, 1)
			go func() { answer <- j.request(t.Context(), shell("sleep 1000", "1")) }()
			time.Sleep(10 * time.Second)
			j.endRun()
			got := j.request(t.Context(), shell("echo", "head"))
			j.mu.Lock()
			started := len(j.started)
			j.mu.Unlock()
			if !errors.Is(got.err, exec.ErrRefused) || started > 1 {
				t.Errorf("%v; %d commands were started", got.err, started)
			}
			if err := j.dir.WriteMark(t.Context(), signal.ControlDir, signal.NameOrderlyEnd); err != nil {
				t.Fatal(err)
			}
			j.endLinks()
			if got := <-answer; !errors.Is(got.err, exec.ErrRunOver) && !slices.Equal(got.codes(), []int{143}) {
				t.Errorf("linked %t: %v, %+v", linked, got.err, got.nodes)
			}
		})
	}
}

// TestLostNode loses a node while its command runs: the caller gets the answers of all nodes.
func TestLostNode(t *testing.T) {
	for _, linked := range []bool{true, false} {
		synctest.Test(t, func(t *testing.T) {
			j := newJob(t, 3, linked, nil)
			defer j.end()
			time.AfterFunc(time.Minute, func() {
				j.absent.Store(&[]int{2})
				j.head.CloseNodeConns(2)
			})
			got := j.request(t.Context(), shell("[ $NODE = 1 ] || sleep 1000", "1", "2"))
			lost := exec.Exit{Code: 76, Exit: "lost", Failed: "the node is lost"}
			if got.err != nil || !slices.Equal(got.codes(), []int{0, 76}) || got.nodes[1].Exit != lost {
				t.Errorf("%v, %+v", got.err, got.nodes)
			}
		})
	}
}

// TestOwnProgram verifies how commands are started: the daemon's own program without a path that
// other users could have written and with the node's variables, and no output is kept for the log.
func TestOwnProgram(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := newJob(t, 1, true, nil)
		defer j.end()
		for _, own := range []bool{true, false} {
			request := exec.Request{Argv: []string{"why-node", "--stacks"}, Env: []string{"A=b"},
				Nodes: []string{"head"}, OwnProgram: own}
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
		if j.nodes[0].AwaitPublished(5 * time.Minute); time.Since(began) < 58*time.Second ||
			time.Since(began) > 62*time.Second {
			t.Errorf("it has awaited the end of a command for %s", time.Since(began))
		}
		if got := <-answer; got.err != nil || !slices.Equal(got.codes(), []int{4}) {
			t.Errorf("%v, codes %v", got.err, got.codes())
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if got := j.request(ctx, shell("echo", "head")); !slices.Equal(got.codes(), []int{125}) || len(j.started) != 1 {
			t.Errorf("afterwards: %v, codes %v; %d commands were started", got.err, got.codes(), len(j.started))
		}
	})
}

// TestMuchOutput verifies that a file has as much output as it can hold, and the amount of the rest.
// (TestMuchOutputOfMany sends more by streams.)
func TestMuchOutput(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		j := newJob(t, 2, false, nil)
		defer j.end()
		const last = 300_000
		size := 0
		for i := range last {
			size += len(fmt.Sprintln(i + 1))
		}
		got := j.request(t.Context(), shell(fmt.Sprint("seq ", last), "1"))
		if got.err != nil || len(got.nodes) != 1 {
			t.Fatalf("%v, %+v", got.err, got.nodes)
		}
		dropped := int(got.nodes[0].Exit.Dropped)
		if dropped == 0 || len(got.out)+dropped != size || len(got.out) < 300<<10 {
			t.Errorf("%d bytes of %d, dropped %d", len(got.out), size, dropped)
		}
	})
}
