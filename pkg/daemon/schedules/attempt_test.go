package schedules

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/bringupd/bringupd/pkg/config"
	"github.com/bringupd/bringupd/pkg/daemon"
	"github.com/bringupd/bringupd/pkg/daemon/deps"
	"github.com/bringupd/bringupd/pkg/framework"
	"github.com/bringupd/bringupd/pkg/membership"
	"github.com/bringupd/bringupd/pkg/roles"
	"github.com/bringupd/bringupd/pkg/roles/launcher"
	"github.com/bringupd/bringupd/pkg/signal"
	"github.com/bringupd/bringupd/pkg/signal/record"
	"github.com/bringupd/bringupd/test/fakechild"
	"github.com/bringupd/bringupd/test/memory"
)

// peerTimeout is short, so that few steps occur until a death is noticed: each heartbeat and each
// poll is several steps.
const peerTimeout = 2 * time.Second

// times are the deadlines of all daemons.
var times = config.Timeouts{
	Join: 6 * time.Second, Start: 10 * time.Second,
	Peer: peerTimeout, DriverGrace: 2 * time.Second, StopGrace: time.Second,
}

// services is a framework whose services are up as soon as they are started.
type services struct{}

func (services) Name() string      { return "services" }
func (services) HasServices() bool { return true }
func (services) HeadService(n framework.Node) (*framework.Service, framework.Endpoint, error) {
	return nil, framework.Endpoint{Address: n.Address}, nil
}
func (services) WorkerService(framework.Node, framework.Endpoint) (*framework.Service, error) {
	return nil, nil
}

// attempt is one launch of all daemons.
type attempt struct {
	world   *world
	plan    attemptPlan
	number  int
	size    int
	needed  int
	daemons []*running
	roles   *jobRun       // nil: it has no roles
	changed chan struct{} // buffered by one: a daemon has returned or crashed

	// The following fields are guarded by the lock of the shared file system.
	run     string // the run directory, once it exists
	nonce   string
	jobFile *file
	shown   time.Duration // when the run directory appeared
	asked   time.Duration // when the end was requested; 0: not requested
	opened  time.Duration // when the gate was seen open; 0: never
	judged  time.Duration // when the head had its verdict; 0: it had none
	ended   time.Duration // when an end was published; 0: never
	over    bool          // the head has published that it is finished
}

// running is one daemon.
type running struct {
	*client
	host     *memory.Host
	children *fakechild.Supervisor
	signals  chan os.Signal
	leave    context.CancelFunc

	// The following fields are guarded by the lock of the shared file system.
	born      time.Duration // when it started
	termed    time.Duration // when it received its first signal; 0: none
	signalled int           // number of signals: a second signal ends every wait
	returned  time.Duration // 0: still running
	code      int
	left      bool // an end was published when it returned
	last      bool // the head had published before that it was finished
}

func newAttempt(w *world, p plan, number int, machines []*machine) *attempt {
	a := &attempt{world: w, plan: p.Attempts[number], number: number, size: p.Size,
		needed: cmp.Or(p.Needed, p.Size), changed: make(chan struct{}, 1)}
	for node := range p.Size {
		c := &client{
			world: w, machine: machines[node], attempt: a, rank: node,
			made: make(map[string]bool), knows: make(map[string]time.Duration), temporaries: make(map[string]bool),
		}
		c.Client = &memory.Client{Share: w.Share, Policy: c}
		a.daemons = append(a.daemons, &running{client: c, signals: make(chan os.Signal, 16)})
	}
	for _, f := range a.plan.Faults {
		if f.Rank < p.Size && f.Step > 0 {
			d := a.daemons[f.Rank]
			d.happens = append(d.happens, happening{f.Step, func() { d.happen(f) }})
		}
	}
	w.connect(a)
	return a
}

// happen makes the fault occur. The caller must hold the lock of the shared file system.
func (d *running) happen(f fault) {
	switch f.What {
	case crash:
		d.crashed, d.died = true, d.world.Now()
		d.attempt.roles.lose(d)
		time.AfterFunc(1, d.vanish)
		d.attempt.stir()
	case cut:
		d.cutConnections()
	case parted:
		d.part(f.For)
	case term:
		d.get(syscall.SIGTERM)
	case interrupt:
		d.get(syscall.SIGINT)
	case stall:
		d.world.note(nil, "stalls for "+f.For.String()+" the mount of", d.name(), nil)
		d.machine.stalled = max(d.machine.stalled, d.world.Now()+f.For)
		d.machine.sick = d.machine.sick || f.For > harmless
	}
}

// vanish makes everything of the daemon vanish: its kernel closes its connections, and its guard
// kills its children.
func (d *running) vanish() {
	d.host.Vanish()
	if d.children != nil {
		_ = d.children.EndAll(context.Background())
	}
}

// happenAt makes a fault occur at a given time if the daemon runs then.
func (d *running) happenAt(at time.Duration, f fault) {
	d.world.pause(at)
	d.world.Lock()
	defer d.world.Unlock()
	if d.born > 0 && d.returned == 0 && !d.crashed && !d.world.down() {
		d.world.note(nil, f.What+" strikes", d.name(), nil)
		d.happen(f)
	}
}

// get sends the daemon a signal. The caller must hold the lock of the shared file system.
func (d *running) get(sig syscall.Signal) {
	if d.termed == 0 {
		d.termed = d.world.Now()
	}
	d.signalled++
	d.world.note(nil, sig.String()+" to", d.name(), nil)
	select {
	case d.signals <- sig:
	default:
	}
}

func (a *attempt) stir() {
	select {
	case a.changed <- struct{}{}:
	default:
	}
}

// name returns the daemon's name in messages of the test.
func (c *client) name() string {
	if c == nil {
		return "somebody"
	}
	return fmt.Sprintf("node %d of attempt %d", c.rank, c.attempt.number)
}

func (a *attempt) job() *file { return a.jobFile }

func (a *attempt) path(sub, name string) string { return path.Join(a.run, sub, name) }

func (a *attempt) joinedPath(node int) string {
	if a.run == "" {
		return ""
	}
	return a.path(signal.NodesDir, signal.NodeName(node, a.size, record.StateJoined))
}

// appeared is called when a name has become visible.
func (a *attempt) appeared(p string, f *file) {
	s := spotOf(p)
	if s.sub == "" && s.name == "" && f.Kind.IsDir() {
		a.run, a.shown = p, a.world.Now()
		if job := a.world.Find(a.path(signal.ControlDir, signal.NameJob)); job != nil {
			var rec record.Job
			_ = json.Unmarshal(job.Data, &rec)
			a.nonce, a.jobFile = rec.Nonce, job
		}
	}
	if s.sub == signal.ControlDir && a.ended == 0 &&
		(s.name == signal.NameOrderlyEnd || strings.HasPrefix(s.name, "abort.")) {
		a.ended = a.world.Now()
	}
	if s.sub == signal.ControlDir && s.name == signal.NameGateOpen {
		a.opened = a.world.Now()
		if a.roles == nil {
			a.mustBeUp()
		} else {
			a.roles.mustBeReady()
		}
	}
	if s.sub == signal.NodesDir && a.roles != nil {
		a.roles.marked(s.name)
	}
	if s.sub == signal.ControlDir && s.name == signal.NameHeadFinished {
		a.over = true
		a.mustHaveResult()
	}
}

// begins is called before a file is written.
func (a *attempt) begins(c *client, p string) {
	if c.rank == 0 && strings.Contains(p, "/."+signal.AbortName(0, a.size)+".") {
		a.world.Lock()
		defer a.world.Unlock()
		if a.judged == 0 {
			a.judged = a.world.Now()
		}
	}
}

// identity returns the identity of a node. Attempts differ as requeues do.
func (a *attempt) identity(node int) launcher.Identity {
	id := launcher.Identity{
		Launcher: launcher.LauncherSlurm, NodeIndex: node, Size: a.size, Job: "17", Step: "0", Restart: a.number,
		LaunchKey: fmt.Sprintf("facts of launch %d", a.number), LocalSize: 1, GPUs: -1,
	}
	for node := range a.size {
		id.Hosts = append(id.Hosts, fmt.Sprintf("n%d", node))
	}
	id.Host = id.Hosts[node]
	return id
}

func (a *attempt) config(d *running, tempDir string, said *os.File) deps.Config {
	// The jitter of pauses comes from the seed, too.
	jitter := func() float64 { return float64(d.draw("jitter", "")>>11) / (1 << 53) }
	mode := config.LinkAuto
	if a.world.weather.Off {
		mode = config.LinkOff
	}
	cfg := deps.Config{Config: config.Config{
		Identity: a.identity(d.rank), LogDir: logDir, Program: "test",
		Team: membership.NodeRange{Min: a.needed, Max: a.size}, Framework: services{}, Lifeline: mode, Times: times,
		Output:  config.Output{Streams: config.Streams{Err: said}},
		Process: config.Process{TempDir: tempDir},
	}, Set: deps.Set{
		Network: d.host, Signals: d.signals,
		Address: func() (launcher.NodeAddress, error) {
			return launcher.NodeAddress{Address: fmt.Sprintf("n%d", d.rank)}, nil
		},
		Access: signal.Access{FS: d.client, NoHints: true, Jitter: jitter},
	}}
	if a.roles != nil {
		a.roles.addTo(d, &cfg)
	}
	return cfg
}

// start starts all daemons, and the tasks that end them if no other event does.
func (a *attempt) start(all *sync.WaitGroup, tempDir string, said *os.File) {
	for node, d := range a.daemons {
		ctx, leave := context.WithCancel(context.Background())
		d.leave = leave
		role := roles.RoleWorker
		if node == 0 {
			role = roles.RoleHead
		}
		cfg := a.config(d, tempDir, said)
		all.Go(func() {
			time.Sleep(a.plan.Start + a.plan.Late[node])
			a.world.Lock()
			d.born = a.world.Now()
			a.world.Unlock()
			code := daemon.Run(ctx, cfg, role).Code
			a.world.Lock()
			defer a.world.Unlock()
			d.gone = true
			d.returned, d.code, d.left, d.last = a.world.Now(), code, a.ended > 0, a.over
			a.world.note(d.client, fmt.Sprint("returns ", code), "", nil)
			a.stir()
		})
	}
	all.Go(a.finish)
	if a.roles != nil {
		all.Go(a.roles.play)
	}
	for _, f := range a.plan.Faults {
		if f.Rank < a.size && f.Step == 0 {
			all.Go(func() { a.daemons[f.Rank].happenAt(a.plan.Start+f.At, f) })
		}
	}
}

// encoded returns a record in its file format.
func encoded(record any) []byte {
	data, err := json.Marshal(record)
	if err != nil {
		panic(fmt.Sprint("the test can't encode a record: ", err))
	}
	return append(data, '\n')
}

// finish requests the end at the planned time.
func (a *attempt) finish() {
	time.Sleep(a.plan.Start + a.plan.After)
	if a.roles != nil && !a.roles.Early {
		a.roles.checkUp()
	}
	switch a.plan.End {
	case endStop:
		a.stop()
	case endLeave:
		a.world.Lock()
		a.asked = a.world.Now()
		a.world.Unlock()
		a.daemons[0].leave()
	case endCancel:
		for _, d := range a.daemons {
			time.Sleep(time.Duration(d.draw("skew", "") % uint64(20*time.Millisecond)))
			a.world.Lock()
			d.get(syscall.SIGTERM)
			a.world.Unlock()
		}
	}
}

// stop requests the orderly end as soon as there is a run to stop.
func (a *attempt) stop() {
	tick := time.NewTicker(17*time.Millisecond + time.Nanosecond)
	defer tick.Stop()
	for {
		a.world.Lock()
		if a.run != "" {
			a.asked = a.world.Now()
			a.world.Put(a.path(signal.ControlDir, signal.NameStop), &file{Data: []byte("{}\n")})
			a.world.note(nil, "asks for a stop", "", nil)
			a.world.Unlock()
			return
		}
		a.world.Unlock()
		select {
		case <-a.world.over:
			return
		case <-tick.C:
		}
	}
}

// settled reports whether every daemon has returned or crashed.
func (a *attempt) settled() bool {
	a.world.Lock()
	defer a.world.Unlock()
	for _, d := range a.daemons {
		if d.returned == 0 && !d.crashed {
			return false
		}
	}
	return true
}

// await waits until the attempt is settled, or until the deadline.
func (a *attempt) await(deadline <-chan time.Time) {
	for !a.settled() {
		select {
		case <-a.changed:
		case <-deadline:
			return
		}
	}
}
