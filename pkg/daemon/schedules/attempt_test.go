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
	"github.com/bringupd/bringupd/pkg/health"
	"github.com/bringupd/bringupd/pkg/membership"
	"github.com/bringupd/bringupd/pkg/roles"
	"github.com/bringupd/bringupd/pkg/signal"
	"github.com/bringupd/bringupd/pkg/signal/record"
	"github.com/bringupd/bringupd/test/memory"
)

// peerTimeout is short, so that little happens until a death is noticed: each
// beat and each look is several steps.
const peerTimeout = 2 * time.Second

// times are the deadlines of all daemons.
var times = config.Timeouts{
	Join: 6 * time.Second, Setup: 10 * time.Second, Sandbox: 10 * time.Second, Service: 10 * time.Second,
	Peer: peerTimeout, Settle: 0, DriverGrace: 2 * time.Second, StopGrace: time.Second,
}

// services is a framework whose services are up as soon as they are wanted.
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
	changed chan struct{} // buffered by one: somebody has returned or crashed

	// These are guarded by the share's lock.
	run     string // the run directory, once it is there
	nonce   string
	jobFile *file
	shown   time.Duration // when that was
	asked   time.Duration // when the end was asked for; 0: it was not
	opened  time.Duration // when the gate was seen open; 0: it was not
	judged  time.Duration // when the head had its verdict; 0: it had none
	ended   time.Duration // when an end was published; 0: none was
	over    bool          // the head has told that it has done all that it will do
}

// running is one daemon.
type running struct {
	*client
	host    *memory.Host
	signals chan os.Signal
	leave   context.CancelFunc

	// These are guarded by the share's lock.
	born      time.Duration // when it started
	termed    time.Duration // when it was first told to end by a signal; 0: it was not
	signalled int           // how often it was: a second signal ends every wait
	returned  time.Duration // 0: it has not
	code      int
	left      bool // an end was published when it returned
	last      bool // the head had told before that it has done all it will do
}

func newAttempt(w *world, p plan, number int, machines []*machine) *attempt {
	a := &attempt{world: w, plan: p.Attempts[number], number: number, size: p.Size, needed: cmp.Or(p.Needed, p.Size), changed: make(chan struct{}, 1)}
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

// happen needs the share's lock.
func (d *running) happen(f fault) {
	switch f.What {
	case crash:
		d.crashed, d.died = true, d.world.Now()
		time.AfterFunc(1, d.host.Vanish) // its kernel closes its connections
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

// happenAt has a fault happen at a time of its own, where the daemon runs then.
func (d *running) happenAt(at time.Duration, f fault) {
	d.world.pause(at)
	d.world.Lock()
	defer d.world.Unlock()
	if d.born > 0 && d.returned == 0 && !d.crashed && !d.world.down() {
		d.world.note(nil, f.What+" strikes", d.name(), nil)
		d.happen(f)
	}
}

// get needs the share's lock.
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

// name is how the test speaks of a daemon.
func (c *client) name() string {
	if c == nil {
		return "somebody"
	}
	return fmt.Sprintf("rank %d of attempt %d", c.rank, c.attempt.number)
}

func (a *attempt) job() *file { return a.jobFile }

func (a *attempt) path(sub, name string) string { return path.Join(a.run, sub, name) }

func (a *attempt) joinedPath(node int) string {
	if a.run == "" {
		return ""
	}
	return a.path(signal.NodesDir, signal.NodeName(node, a.size, record.StateJoined))
}

// appeared learns of a name that has become visible.
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
	if s.sub == signal.ControlDir && a.ended == 0 && (s.name == signal.NameOrderlyEnd || strings.HasPrefix(s.name, "abort.")) {
		a.ended = a.world.Now()
	}
	if s.sub == signal.ControlDir && s.name == signal.NameGateOpen {
		a.opened = a.world.Now()
		a.mustBeUp()
	}
	if s.sub == signal.ControlDir && s.name == signal.NameHeadFinished {
		a.over = true
		a.mustHaveResult()
	}
}

// begins learns of what is about to be written.
func (a *attempt) begins(c *client, p string) {
	if c.rank == 0 && strings.Contains(p, "/."+signal.AbortName(0, a.size)+".") {
		a.world.Lock()
		defer a.world.Unlock()
		if a.judged == 0 {
			a.judged = a.world.Now()
		}
	}
}

// identity is who a rank is. Attempts differ as requeues do.
func (a *attempt) identity(node int) roles.Identity {
	id := roles.Identity{
		Launcher: roles.LauncherSlurm, NodeIndex: node, Size: a.size, Job: "17", Step: "0", Restart: a.number,
		LaunchKey: fmt.Sprintf("facts of launch %d", a.number), LocalSize: 1, GPUs: -1,
	}
	for node := range a.size {
		id.Hosts = append(id.Hosts, fmt.Sprintf("n%d", node))
	}
	id.Host = id.Hosts[node]
	return id
}

func (a *attempt) config(d *running, tempDir string, said *os.File) deps.Config {
	// What a pause is shortened by comes from the seed, too.
	jitter := func() float64 { return float64(d.draw("jitter", "")>>11) / (1 << 53) }
	mode := config.LinkAuto
	if a.world.weather.Off {
		mode = config.LinkOff
	}
	return deps.Config{Config: config.Config{
		Identity: a.identity(d.rank), LogDir: logDir, Program: "test",
		Team: membership.NodeRange{Min: a.needed, Max: a.size}, Framework: services{}, Lifeline: mode, Times: times,
		Output:  config.Output{Streams: config.Streams{Err: said}},
		TempDir: tempDir,
	}, Set: deps.Set{
		Network: d.host, Signals: d.signals,
		Address: func() (string, error) { return fmt.Sprintf("n%d", d.rank), nil },
		Access:  signal.Access{FS: d.client, NoHints: true, Jitter: jitter},
	}}
}

// start starts all daemons, and what ends them if nothing else does.
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
	for _, f := range a.plan.Faults {
		if f.Rank < a.size && f.Step == 0 {
			all.Go(func() { a.daemons[f.Rank].happenAt(a.plan.Start+f.At, f) })
		}
	}
	if a.plan.Stray {
		all.Go(a.stray)
	}
}

// strange is a rank that this attempt does not have.
const strange = 42

// stray writes what a daemon of another attempt may have left, or writes late:
// by the path, which says nothing of the attempt where somebody has removed its
// directory, and another one has taken the name.
func (a *attempt) stray() {
	time.Sleep(a.plan.Start + a.plan.After/2)
	a.world.Lock()
	defer a.world.Unlock()
	if a.run == "" {
		return
	}
	header := record.Header{Version: record.FormatVersion, Nonce: "another attempt's", NodeIndex: strange, Host: "n42"}
	cause := record.Failure{Header: header, Kind: health.Internal, Message: "that was another attempt"}
	a.world.Put(a.path(signal.ControlDir, signal.AbortName(strange, a.size)), &file{
		Data: encoded(record.Abort{Header: header, Code: health.OutcomeOfKind(health.Internal).Code, Cause: cause}),
	})
	a.world.Put(a.path(signal.NodesDir, signal.NodeName(strange, a.size, record.StateFailed)), &file{Data: encoded(cause)})
	a.world.note(nil, "leaves records of another attempt in", a.run, nil)
}

// encoded is a record as it is in its file.
func encoded(record any) []byte {
	data, err := json.Marshal(record)
	if err != nil {
		panic(fmt.Sprint("the test can't encode a record: ", err))
	}
	return append(data, '\n')
}

// finish asks for the end when it is time.
func (a *attempt) finish() {
	time.Sleep(a.plan.Start + a.plan.After)
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

// stop asks for the orderly end as soon as there is something to be stopped.
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

// settled tells whether every daemon has returned or crashed.
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

// await waits for that until the deadline.
func (a *attempt) await(deadline <-chan time.Time) {
	for !a.settled() {
		select {
		case <-a.changed:
		case <-deadline:
			return
		}
	}
}
