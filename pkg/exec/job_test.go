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
			FileTimeout: time.Minute, RunCtx: run, WorkCtx: work,
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
	out, errs string
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
	nodes, err := j.client(request, exec.DefaultTimeouts, &out, &errs).Execute(ctx, nil)
	return outcome{nodes, err, out.String(), errs.String()}
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
	for _, linked := range []bool{true, false} {
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
				sorted := func(text string) string {
					return strings.Join(slices.Sorted(strings.SplitAfterSeq(text, "\n")), "")
				}
				if !errors.Is(got.err, tc.err) || !slices.Equal(got.codes(), tc.codes) || sorted(got.out) != tc.out || sorted(got.errs) != tc.errs {
					t.Errorf("%s: %v, codes %v, out %q, errors %q", tc.name, got.err, got.codes(), got.out, got.errs)
				}
				for _, node := range got.nodes {
					if !node.Answered || (node.Exit.Failed != "") != (node.Exit.Code == 127) {
						t.Errorf("%s: %+v", tc.name, node)
					}
				}
				time.Sleep(20 * time.Second)
				if left := j.names(); len(left) > 0 || j.head.IsBusy() {
					t.Errorf("%s: %v are left; the head is busy: %t", tc.name, left, j.head.IsBusy())
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
