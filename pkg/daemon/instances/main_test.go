package instances

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
	"go.uber.org/zap/zaptest/observer"
	"go.yaml.in/yaml/v3"

	"github.com/bringupd/bringupd/internal/envlist"
	"github.com/bringupd/bringupd/pkg/daemon/deps"
	"github.com/bringupd/bringupd/pkg/daemon/lifecycle"
	"github.com/bringupd/bringupd/pkg/daemon/planning"
	"github.com/bringupd/bringupd/pkg/daemon/stepwatch"
	"github.com/bringupd/bringupd/pkg/daemon/world"
	"github.com/bringupd/bringupd/pkg/eventlog"
	"github.com/bringupd/bringupd/pkg/framework"
	"github.com/bringupd/bringupd/pkg/health"
	"github.com/bringupd/bringupd/pkg/process"
	"github.com/bringupd/bringupd/pkg/ranks/affinity"
	"github.com/bringupd/bringupd/pkg/ranks/rendezvous"
	"github.com/bringupd/bringupd/pkg/roles"
	"github.com/bringupd/bringupd/pkg/roles/rolefile"
	"github.com/bringupd/bringupd/pkg/service"
	"github.com/bringupd/bringupd/pkg/signal"
	"github.com/bringupd/bringupd/pkg/signal/record"
	"github.com/bringupd/bringupd/test/fakechild"
	"github.com/bringupd/bringupd/test/memory"
)

func TestMain(m *testing.M) {
	// With Go 1.26, goroutines of one bubble that receive from timers at the same time corrupt the
	// race detector's memory: they share the bubble's race context. One processor avoids this.
	runtime.GOMAXPROCS(1)
	m.Run()
}

// mountPoint is where the nodes see the share.
const mountPoint = "/share"

// run is a run of roles on nodes in a bubble of testing/synctest: the share is in memory, and the
// processes are goroutines. The head is on node 0.
type run struct {
	t      *testing.T
	share  *memory.Share
	dir    *signal.Dir // of the head
	plan   *roles.Plan
	head   *Head
	worlds rendezvous.Worlds
	nodes  []*testNode
	logged *observer.ObservedLogs // of the head
	began  time.Time
	spares int         // how many of the nodes are spares: the last ones
	late   bool        // these make their offers when a test says so
	listen bool        // endpoints are listed when a test says that their processes listen
	isDead atomic.Bool // the head does not learn what happens on its own node
	// policy changes the effects of the calls to the share; nil: all succeed.
	policy func(memory.Policy) memory.Policy
	// onDiagnosis is called while the processes of an instance that hangs are inspected; nil: nothing is.
	onDiagnosis func()
	// address is that of all nodes; empty: each has its own.
	address    string
	firstPort  int                            // of the block of each node that is no spare
	frameworks map[string]framework.Framework // of the roles that are clusters
	layout     affinity.Node                  // of each node
	opening    sync.Once
	hasPorts   bool        // the node of the head keeps its ports
	listens    atomic.Bool // the processes own the sockets of this test process

	mu       sync.Mutex
	fault    func(op signal.Op, path string) error // of calls to the share; nil: none; guarded by mu
	failures []record.Failure                      // that have ended the run
	tasks    []*startedChild                       // in the order of their starts; guarded by mu
}

// startedChild is a process that a node has started.
type startedChild struct {
	name string // role.index.rank.gN
	node string
	at   time.Time
	env  func(name string) string
	exit chan int // its code, when the test says so
	// prints receives lines that it prints.
	prints chan string
	pid    int
	works  bool // it uses processor time; guarded by the run's mu
	ended  bool // guarded by the run's mu
}

// testNode is a node of a run.
type testNode struct {
	*lifecycle.Publisher
	*Node
	children *service.Children
	starter  *fakechild.Supervisor
	steps    *stepwatch.Monitor
	out      bytes.Buffer
	freeze   context.CancelFunc // makes it see no more orders of the head
}

// inBubble runs a test with a run of the roles of a file, which ends at the end of the test.
func inBubble(t *testing.T, nodes int, file string, test func(r *run)) {
	t.Helper()
	inBubbleOf(t, func(*run) {}, nodes, file, test)
}

// inBubbleOf does the same with a run that a function changes before it begins.
func inBubbleOf(t *testing.T, change func(*run), nodes int, file string, test func(r *run)) {
	t.Helper()
	var list yaml.Node
	if err := yaml.Unmarshal([]byte(file), &list); err != nil {
		t.Fatal(err)
	}
	defs, err := rolefile.Parse(list.Content[0])
	if err != nil {
		t.Fatal(err)
	}
	synctest.Test(t, func(t *testing.T) {
		r := &run{t: t, share: memory.NewShare(mountPoint)}
		change(r)
		r.begin(nodes, defs)
		defer r.end()
		r.later()
		test(r)
	})
}

// begin makes the run directory, and starts the head and all nodes.
func (r *run) begin(size int, defs []roles.Definition) {
	r.t.Helper()
	r.began = time.Now()
	place := signal.Location{LogDir: mountPoint + "/logs", Run: "j", Key: "k", Size: size, Host: "n0"}
	place.Access = r.access()
	dir, err := signal.CreateRun(r.t.Context(), place, record.Job{})
	if err != nil {
		r.t.Fatal(err)
	}
	r.dir = dir
	rec := new(roles.PlanRecord)
	var spares []roles.NodeFacts
	for node := range size {
		offer := roles.NodeFacts{NodeIndex: node, Host: fmt.Sprint("n", node), GPUs: len(r.layout.GPUs),
			Address: cmp.Or(r.address, fmt.Sprint("10.0.0.", node+1)), FirstPort: cmp.Or(r.firstPort, 20000)}
		if node >= size-r.spares {
			offer.FirstPort = 30000
			spares = append(spares, offer)
			continue
		}
		rec.Offers = append(rec.Offers, offer)
	}
	if r.plan, err = planning.MakePlan(defs, rec); err != nil {
		r.t.Fatal(err)
	}
	steps := roles.StepNames(defs)
	for number, step := range append([]string{""}, steps...) {
		for node := range size {
			r.nodes = append(r.nodes, r.newNode(record.MemberIndex(node, number, size), size, step, defs, rec))
		}
	}
	var core zapcore.Core
	core, r.logged = observer.New(zap.InfoLevel)
	publisher := r.nodes[0].Publisher
	publisher.Log = zap.New(core)
	watch := r.dir.NewWatch(signal.NodesDir, signal.HeadPace)
	publisher.Background(watch.Run)
	r.nodes[0].Reports.Send = func(name string, content []byte) {
		if r.isDead.Load() {
			return
		}
		if err := r.dir.AcceptReport(0, name, content); err != nil {
			r.t.Error(err)
		}
	}
	var dropped func() []record.DroppedNode
	if r.late {
		spares, dropped = nil, func() []record.DroppedNode { return nil }
	}
	r.head = NewHead(HeadConfig{
		Dropped: dropped,
		Hang: HangConfig{Steps: r.nodes[0].steps, Diagnose: r.diagnose,
			DescribeSuspects: func() (s lifecycle.Suspect) { return s }},
		NodeChoice: &planning.NodeChoice{Plan: r.plan, Record: rec, Spares: spares},
		Publisher:  publisher, Defs: defs, Size: size, Steps: steps, NodeWatch: watch, Worlds: &r.worlds,
		HasStandIns: !r.listen,
		Failed: func(cause record.Failure, _ time.Time) {
			r.mu.Lock()
			r.failures = append(r.failures, cause)
			r.mu.Unlock()
			publisher.CancelRun(&lifecycle.Outcome{Code: 77})
		},
	})
	publisher.Background(r.head.Follow)
	publisher.Background(func(ctx context.Context) {
		if r.head.AwaitGate(ctx) == nil {
			r.openGate()
		}
	})
	for i, n := range r.nodes {
		store := stepwatch.Store{Dir: n.Dir, WriteTimeout: time.Minute, OnWriteError: n.LogWriteError}
		if i == 0 {
			store.Nodes = watch
		}
		n.Background(func(ctx context.Context) { n.steps.Run(ctx, store) })
		n.Start()
	}
}

func (r *run) diagnose(_ context.Context, hung world.HungWorld) *health.Failure {
	if r.onDiagnosis != nil {
		r.onDiagnosis()
	}
	return health.NewFailure(health.DeadlinePassed, "%s hangs for %s", hung.Instance, hung.Timeout)
}

// access returns an access to the share.
func (r *run) access() signal.Access {
	meter := new(signal.CallMeter)
	client := r.share.Access(faultyCalls{meter, r})
	if r.policy != nil {
		client.Policy = r.policy(client.Policy)
	}
	return signal.Access{FS: client, Meter: meter, NoHints: true, Jitter: func() float64 { return 0.5 }}
}

// faultyCalls makes the calls to the share fail as the run says.
type faultyCalls struct {
	*signal.CallMeter
	run *run
}

// BeginCall implements [signal.Interceptor].
func (c faultyCalls) BeginCall(op signal.Op, path string) (time.Time, error) {
	c.run.mu.Lock()
	fault := c.run.fault
	c.run.mu.Unlock()
	if fault != nil {
		if err := fault(op, path); err != nil {
			return time.Time{}, err
		}
	}
	return c.CallMeter.BeginCall(op, path)
}

// setFault makes calls to the share fail or wait; nil: no more.
func (r *run) setFault(fault func(op signal.Op, path string) error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.fault = fault
}

// newNode returns a node, or another member, of a step. Nothing runs yet.
func (r *run) newNode(node, size int, step string, defs []roles.Definition, rec *roles.PlanRecord) *testNode {
	r.t.Helper()
	n := &testNode{}
	life := lifecycle.NewLifetime(r.t.Context())
	n.Publisher = &lifecycle.Publisher{Lifetime: life, Events: eventlog.New(), Log: zap.NewNop(),
		Meter: new(signal.CallMeter), PeerTimeout: 10 * time.Second, Dir: r.dir.ForNode(node)}
	n.NodeIndex = node
	n.ControlWatch = n.Dir.NewWatch(signal.ControlDir, signal.WorkerPace(size))
	life.Background(func(ctx context.Context) {
		ctx, n.freeze = context.WithCancel(ctx)
		n.ControlWatch.Run(ctx)
	})
	n.starter = fakechild.New(map[string]fakechild.Program{"sh": r.runProcess})
	cfg := new(deps.Config)
	cfg.Identity.NodeIndex, cfg.Identity.Size = node, size
	cfg.World.PerNode, cfg.Progress = "1", `step (\d+)`
	n.steps = stepwatch.New(cfg)
	var block *planning.PortBlock
	if r.hasPorts && node == 0 {
		block = planning.NewPortBlock(n.Background)
	}
	n.children = service.NewChildren(
		service.Config{Starter: socketOwners{n.starter, r}, Steps: n.steps, EventLog: n.Events, Log: n.Log,
			OnWriteError: n.LogWriteError, GracePeriod: time.Second},
		service.Contexts{Run: life.RunCtx, Teardown: life.WorkCtx, Grace: life.GraceCtx, Background: life.Background})
	host := fmt.Sprint("n", record.NodeOfMember(node, size))
	n.children.OpenLogs(n.Dir, node, size, host)
	var err error
	n.Node, err = NewNode(NodeConfig{
		Publisher: n.Publisher, Children: n.children, Steps: n.steps, CPUTimes: r.cpuTimes, Defs: defs, Record: rec,
		Plan: r.plan, Size: size, Step: step, Name: host,
		Host: testHost{private: r.t.TempDir(), node: host, of: n, run: r},
		Out:  &n.out, Err: &n.out, Frameworks: r.frameworks, Ports: block,
	})
	if err != nil {
		r.t.Fatal(err)
	}
	return n
}

// socketOwners starts processes that own the sockets of this test process when the run says so.
type socketOwners struct {
	process.Starter
	run *run
}

func (o socketOwners) Start(ctx context.Context, spec process.Spec) (process.Handle, error) {
	child, err := o.Starter.Start(ctx, spec)
	if err != nil {
		return nil, err
	}
	return socketOwner{child, o.run}, nil
}

type socketOwner struct {
	process.Handle
	run *run
}

func (o socketOwner) OwnsProcess(pid int) bool { return pid == os.Getpid() && o.run.listens.Load() }

// testHost implements Host.
type testHost struct {
	Host
	private, node string
	of            *testNode
	run           *run
}

func (h testHost) Environ(_ roles.Placement, more map[string]string) []string {
	return envlist.With([]string{"NODE=" + h.node}, more)
}

// WorldConfig returns the configuration of worlds without servers for MPI, whose nodes reach the head
// in memory.
func (h testHost) WorldConfig() world.NodeConfig {
	n := h.of
	cfg := new(deps.Config)
	cfg.Identity.Host, cfg.Simulation.NoSockets = h.node, true
	cfg.World.GoOn = true // that does not concern instances
	return world.NodeConfig{
		Config: cfg, Layout: h.run.layout, BindKinds: affinity.AllKinds(), RunDir: n.Dir.Path(),
		Children: n.children, Background: n.Background, Trail: n.Events, Log: n.Log,
		SocketDir: func() (string, error) { return "", errors.New("there are no sockets in a bubble") },
		RendezvousLink: world.RendezvousLink{
			Dial: func(ctx context.Context, key string) (io.ReadWriteCloser, error) {
				return h.run.worlds.LocalDialer(key, n.NodeIndex, n.Background)(ctx)
			},
			Await: func(context.Context) error { return nil },
		},
	}
}

func (testHost) ServiceEnviron(base []string) []string { return base }

func (h testHost) DescribeNode(_ framework.Framework, member Member) (framework.Node, error) {
	return framework.Node{RunName: member.Cluster, TeamIndex: member.Index, Size: member.Size, Host: h.node,
		Address: h.run.address}, nil
}

func (testHost) TakePlace(*roles.PlanRecord, int, int) {}

func (testHost) RoleKey(role string) string { return "key of " + role }

func (testHost) ReportSilence(string, string, string, time.Duration) {}

func (h testHost) PrivateDir() (string, error) { return h.private, nil }

// runProcess is the program of all processes: it ends with 0 at a stop signal, after LAST_LINE if that
// is set, unless IGNORE_TERM is set, or as the test says.
func (r *run) runProcess(ctx context.Context, p *fakechild.Process) int {
	name := os.Expand("${ROLE}.${ROLE_INDEX}.${INSTANCE_RANK}.g${GENERATION}",
		func(name string) string { return p.Getenv("BRINGUPD_" + name) })
	own := &startedChild{name: name, node: p.Getenv("NODE"), env: p.Getenv, at: time.Now(), exit: make(chan int, 1),
		prints: make(chan string, 10), pid: p.PID}
	r.mu.Lock()
	r.tasks = append(r.tasks, own)
	r.mu.Unlock()
	defer func() {
		r.mu.Lock()
		own.ended = true
		r.mu.Unlock()
	}()
	if p.Getenv("IGNORE_TERM") != "" {
		p.Ignore(syscall.SIGTERM)
	}
	for {
		select {
		case line := <-own.prints:
			_, _ = io.WriteString(p.Stdout, line+"\n")
		case code := <-own.exit:
			return code
		case <-ctx.Done():
			if line := p.Getenv("LAST_LINE"); line != "" {
				_, _ = io.WriteString(p.Stdout, line+"\n")
			}
			return 0
		}
	}
}

// end ends the run and all of its processes.
func (r *run) end() {
	r.t.Helper()
	for _, n := range r.nodes {
		n.CancelRun(&lifecycle.Outcome{Orderly: true})
		n.StopAll(r.t.Context())
		synctest.Wait()
		if left := n.starter.Left(); len(left) > 0 {
			r.t.Errorf("still running: %v", left)
		}
		_ = n.children.Close(r.t.Context())
		n.Close()
	}
}

// starts returns the names of all processes that have been started, sorted.
func (r *run) starts() (names []string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, one := range r.tasks {
		names = append(names, one.name)
	}
	slices.Sort(names)
	return names
}

// openGate opens the gate, unless it is open: it opens by itself when the roles have what it requires.
func (r *run) openGate() {
	r.t.Helper()
	r.opening.Do(func() {
		r.head.OpenGate(r.t.Context())
		r.head.markControl(signal.NameGateOpen)
	})
}

// find returns a process that has been started, or fails the test.
func (r *run) find(name string) *startedChild {
	r.t.Helper()
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, one := range r.tasks {
		if one.name == name {
			return one
		}
	}
	r.t.Fatalf("%s has not been started", name)
	return nil
}

// print makes a process print a line, and waits until it has been handled.
func (r *run) print(name, line string) {
	r.t.Helper()
	r.find(name).prints <- line
	synctest.Wait()
}

// cpuTimes returns the processor times of processes: those that work use a whole processor.
func (r *run) cpuTimes(pids []int) (map[int]time.Duration, error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	used := make(map[int]time.Duration)
	for _, one := range r.tasks {
		switch {
		case !slices.Contains(pids, one.pid):
		case one.works:
			used[one.pid] = time.Since(one.at)
		default:
			used[one.pid] = 0
		}
	}
	return used, nil
}

// work makes processes use processor time, or no more of it.
func (r *run) work(works bool, names ...string) {
	r.t.Helper()
	for _, name := range names {
		one := r.find(name)
		r.mu.Lock()
		one.works = works
		r.mu.Unlock()
	}
}

// exit ends a process with a code.
func (r *run) exit(name string, code int) {
	r.t.Helper()
	r.find(name).exit <- code
}

// names returns the names in a directory of the run directory that contain a text.
func (r *run) names(dir, part string) (names []string) {
	r.t.Helper()
	all, err := r.access().FS.ListDir(r.dir.Path()+"/"+dir, nil)
	if err != nil {
		r.t.Fatal(err)
	}
	for _, name := range all {
		if strings.Contains(name, part) {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// cause returns the cause of the end of the run, or nil.
func (r *run) cause() *record.Failure {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.failures) == 0 {
		return nil
	}
	return &r.failures[0]
}

// wantCause checks the cause of the end of the run: the child, the kind and the code, as far as they are
// given, and parts of its message.
func (r *run) wantCause(want record.Failure, parts ...string) (cause record.Failure) {
	r.t.Helper()
	if r.cause() == nil {
		r.t.Fatalf("the run has not ended, want %+v", want)
	}
	cause = *r.cause()
	isIn := func(part string) bool { return strings.Contains(cause.Message, part) }
	if want.Child != "" && cause.Child != want.Child || want.Kind != "" && cause.Kind != want.Kind ||
		want.Code != 0 && cause.Code != want.Code ||
		slices.ContainsFunc(parts, func(part string) bool { return !isIn(part) }) {
		r.t.Errorf("the cause is %+v, want %+v and %q", cause, want, parts)
	}
	return cause
}

// goesOn checks that the run has not ended.
func (r *run) goesOn() {
	r.t.Helper()
	if cause := r.cause(); cause != nil {
		r.t.Fatalf("the run has ended: %+v", cause)
	}
}

// lose makes the head lose nodes, without which the run goes on.
func (r *run) lose(silent bool, nodes ...int) {
	r.t.Helper()
	if !r.head.LoseNodes(nodes, silent) {
		r.t.Fatalf("the loss of nodes %v was not tolerated", nodes)
	}
}

// wantStatuses checks the states of all instances, in the order of their numbers.
func (r *run) wantStatuses(want ...roles.InstanceStatus) {
	r.t.Helper()
	if got := r.statuses(); !slices.Equal(got, want) {
		r.t.Errorf("the states are %v, want %v", got, want)
	}
}

// testTasks runs tasks, each in a goroutine, until the test ends or cancel is called, which waits for them.
func testTasks(t *testing.T) (background func(task func(ctx context.Context)), cancel func()) {
	t.Helper()
	ctx, end := context.WithCancel(context.Background())
	var tasks sync.WaitGroup
	cancel = func() {
		end()
		tasks.Wait()
	}
	t.Cleanup(cancel)
	return func(task func(ctx context.Context)) { tasks.Go(func() { task(ctx) }) }, cancel
}

// later waits for a time in which everything that follows from an event has happened.
func (r *run) later() {
	time.Sleep(5 * time.Second)
	synctest.Wait()
}

// mark publishes a mark of a node.
func (r *run) mark(m record.InstanceMark) {
	r.t.Helper()
	n := r.nodes[m.Node]
	<-n.Report(signal.InstanceName(m, n.cfg.Size), nil, false)
}

// hangRead makes the next read of a file of this name hang, until the returned function is called.
func (r *run) hangRead(name string) (release func()) {
	released := make(chan struct{})
	var hangs atomic.Bool
	r.setFault(func(op signal.Op, path string) error {
		if op == signal.OpRead && strings.HasSuffix(path, "/"+name) && hangs.CompareAndSwap(false, true) {
			<-released
		}
		return nil
	})
	return func() { close(released) }
}
