package schedules

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/bringupd/bringupd/pkg/config"
	"github.com/bringupd/bringupd/pkg/daemon/deps"
	"github.com/bringupd/bringupd/pkg/framework"
	"github.com/bringupd/bringupd/pkg/membership"
	"github.com/bringupd/bringupd/pkg/ranks"
	"github.com/bringupd/bringupd/pkg/ranks/rendezvous"
	"github.com/bringupd/bringupd/pkg/roles"
	"github.com/bringupd/bringupd/pkg/roles/rolefile"
	"github.com/bringupd/bringupd/test/fakechild"
)

// TestJobs runs jobs with roles, whose processes exit, and whose nodes are lost, as [TestSchedules]
// runs daemons alone:
//
//	go test ./pkg/daemon/schedules -run=TestJobs -schedules=5000  # random ones
//	go test ./pkg/daemon/schedules -run=TestJobs -seed=7          # one again; -args -trace
func TestJobs(t *testing.T) { testAll(t, jobPlanOf, usualJobs) }

// jobPlan has the roles of a schedule, and what happens to their processes.
type jobPlan struct {
	Spares int
	Roles  []jobRole
	Events []jobEvent // in order
	Early  bool       // the end is requested while things still happen
}

// jobRole is the definition of a role, without what does not differ between roles.
type jobRole struct {
	Name             string
	Count            int // number of instances
	Width            int // number of nodes of an instance, each with one process
	PerNode          int // number of instances of a node if Width is 1
	Restarts         int
	Start, Run       int // how many instances must be ready and left
	Primary, Oneshot bool
	Probed           bool
	After            bool          // it starts after the first role
	Slow             time.Duration // how long a process takes to stop
	StopCode         int           // with which it ends then
}

// jobEvent is something that happens to processes.
type jobEvent struct {
	At   time.Duration // from the start of the attempt
	Role int
	// Index and Rank select the process that exits with Code, if it runs.
	Index, Rank, Code int
	// If For is positive, the role's probe fails for that time instead.
	For time.Duration
}

const (
	readyTimeout = 6 * time.Second
	stopGrace    = 2 * time.Second
	oneshotTime  = 700 * time.Millisecond
	// quiet is how long after the last event everything that follows from it has happened.
	quiet = 40 * time.Second
)

// jobPlanOf draws a job.
func jobPlanOf(seed, shift uint64) plan {
	r := rand.New(rand.NewPCG(seed, 46))
	p := plan{Seed: seed, Shift: shift, Job: new(jobPlan)}
	nodes := 2 + r.IntN(4)
	for i := range 1 + r.IntN(3) {
		nodes = p.Job.drawRole(r, i, nodes)
	}
	p.Job.Spares = max(2-nodes, r.IntN(3)) // two nodes at least
	p.Size, p.Needed = nodes+p.Job.Spares, nodes
	isCalm := r.IntN(3) == 0
	for range p.Size {
		p.Moods = append(p.Moods, moodOf(r))
		if isCalm {
			p.Moods[len(p.Moods)-1] = mood{Latency: p.Moods[0].Latency}
		}
	}
	if !isCalm {
		p.belate(r)
	}
	p.Weather.Off = r.IntN(6) == 0
	p.Weather.Latency = oneOf(r, 20*time.Microsecond, 2*time.Millisecond)
	if p.Weather.Off { // in a minute, old listings of heartbeats make a node look lost
		for i := range p.Moods {
			p.Moods[i].Back, p.Moods[i].Jumps = 0, false
		}
	}
	a := attemptPlan{Start: time.Millisecond, End: oneOf(r, endStop, endStop, endLeave, endCancel)}
	for range p.Size {
		a.Late = append(a.Late, upTo(r, 100*time.Millisecond))
	}
	at := upTo(r, 4*time.Second)
	for range 1 + r.IntN(8) {
		switch k := r.IntN(10); {
		case k < 5:
			e := jobEvent{At: at, Role: r.IntN(len(p.Job.Roles))}
			role := p.Job.Roles[e.Role]
			e.Index, e.Rank, e.Code = r.IntN(role.Count), r.IntN(role.Width), oneOf(r, 0, 0, 1, 3, 9)
			p.Job.Events = append(p.Job.Events, e)
		case k < 7:
			e := jobEvent{At: at, Role: r.IntN(len(p.Job.Roles)), For: upTo(r, 2*readyTimeout)}
			p.Job.Events = append(p.Job.Events, e)
		default:
			a.Faults = append(a.Faults, jobFaults(r, p.Size, at)...)
		}
		at += upTo(r, oneOf(r, time.Millisecond, time.Second, 3*time.Second, 9*time.Second))
	}
	if p.Job.Early = r.IntN(4) == 0; p.Job.Early {
		a.After = upTo(r, at)
	} else {
		a.After = at + 2*readyTimeout + quiet
	}
	p.Attempts = []attemptPlan{a}
	return p
}

// oneOf draws one of several values.
func oneOf[T any](r *rand.Rand, of ...T) T { return of[r.IntN(len(of))] }

// drawRole adds a role on at most that many nodes, and returns how many nodes there must be: the
// first role has all of them, which the others share.
func (j *jobPlan) drawRole(r *rand.Rand, i, nodes int) int {
	role := jobRole{
		Name: string(rune('a' + i)), Width: 1 + r.IntN(min(3, nodes)), PerNode: 1,
		Restarts: oneOf(r, 0, 1, 3, 100), Probed: r.IntN(2) == 0,
		After: i > 0 && !j.Roles[0].Primary && r.IntN(2) == 0,
		Slow:  oneOf(r, 0, stopGrace/4, 2*stopGrace), StopCode: oneOf(r, 0, 0, 5),
	}
	if role.Width == 1 {
		role.PerNode = 1 + r.IntN(2)
	}
	switch r.IntN(5) {
	case 0, 1:
		role.Primary = true
	case 2:
		role.Oneshot, role.Probed = true, false
	}
	// Four instances that fail together would have a common cause.
	used := max(1, min(nodes/role.Width, 3/role.PerNode))
	role.Count = used * role.PerNode
	role.Run = r.IntN(role.Count + 1)
	if role.Primary {
		role.Run = max(1, role.Run)
	}
	role.Start = oneOf(r, role.Count, role.Run)
	j.Roles = append(j.Roles, role)
	if i == 0 {
		return used * role.Width
	}
	return nodes
}

// jobFaults draws a loss of nodes, or another fault of daemons, at a time.
func jobFaults(r *rand.Rand, size int, at time.Duration) (faults []fault) {
	node := 1 + r.IntN(size-1)
	switch r.IntN(8) {
	case 0, 1:
		faults = []fault{{Rank: node, At: at, What: crash}}
	case 2, 3: // two at once, often of one instance
		for _, lost := range []int{node, 1 + (node+r.IntN(2))%(size-1)} {
			later := oneOf(r, 0, upTo(r, time.Second))
			faults = append(faults, fault{Rank: lost, At: at + later, What: crash})
		}
	case 4: // it falls silent, and its processes go on for a while
		long := upTo(r, 6*peerTimeout)
		for _, what := range []string{stall, parted} {
			faults = append(faults, fault{Rank: node, At: at, What: what, For: long})
		}
	case 5:
		faults = []fault{{Rank: r.IntN(size), At: at, What: stall, For: upTo(r, harmless)}}
	case 6:
		faults = []fault{{Rank: r.IntN(size), At: at, What: cut}}
	default:
		faults = []fault{{Rank: r.IntN(size), At: at, What: oneOf(r, crash, parted)}}
		faults[0].For = upTo(r, peerTimeout)
	}
	return faults
}

// file returns the definitions of the roles. dir has the files that the probes look for.
func (j *jobPlan) file(dir string) string {
	var b strings.Builder
	for i, r := range j.Roles {
		place := fmt.Sprintf("nodes: %d, nodes-per-instance: %d", r.Count/r.PerNode*r.Width, r.Width)
		if r.PerNode > 1 {
			place = fmt.Sprintf("nodes: %d, per-node: %d", r.Count/r.PerNode, r.PerNode)
		}
		if i > 0 {
			place = "with: a, " + place
		}
		fmt.Fprintf(&b, "- {name: %s, %s, command: serve, primary: %t, grace: %s",
			r.Name, place, r.Primary, stopGrace)
		fmt.Fprintf(&b, ", require: {start: %d, run: %d}", r.Start, r.Run)
		fmt.Fprintf(&b, ", restarts: {max: %d, window: 10h, backoff: 1s..3s}", r.Restarts)
		if r.Probed {
			fmt.Fprintf(&b, ", endpoints: all, ready: {probe: \"file:%s/%s\", timeout: %s}",
				dir, r.Name, readyTimeout)
		}
		if r.Oneshot {
			b.WriteString(", oneshot: true")
		}
		if r.After {
			b.WriteString(", after: [a]")
		}
		b.WriteString("}\n")
	}
	return b.String()
}

func (j *jobPlan) String() string {
	if j == nil {
		return ""
	}
	return fmt.Sprintf("  %d spares, early %t, events %+v\n%s",
		j.Spares, j.Early, j.Events, j.file("DIR"))
}

// jobRun is a job that runs. Its fields are guarded by the lock of the shared file system.
type jobRun struct {
	*jobPlan
	*attempt
	dir   string // with the files that the probes look for
	defs  []roles.Definition
	tasks []*task  // all processes, in the order of their starts
	off   [][]span // when the probe of each role failed
	// readyOn has the nodes on which a generation of an instance has been ready, by role, index and
	// generation; readyAt is when an instance was ready first, by role and index.
	readyOn map[[3]int]map[int]bool
	readyAt map[[2]int]time.Duration
	// doomed is when the run could not go on any more because of doomedBy; 0: never.
	doomed   time.Duration
	doomedBy string
}

// span is a period; its end is 0 while it lasts.
type span struct{ from, to time.Duration }

// task is a process of an instance.
type task struct {
	role, index, rank, generation int
	on                            *running
	exit                          chan int
	began                         time.Duration
	told                          time.Duration // when it was told to stop; 0: never
	ended                         time.Duration // 0: it runs
	code                          int
	byItself                      bool // it has ended because of an event, or because it is a oneshot
	killed                        bool // its node was lost while it ran
	isPublished                   bool // the record of its exit is
}

// String returns the name of a process.
func (k *task) String() string {
	return fmt.Sprintf("%c.%d.%d.g%d on node %d", 'a'+k.role, k.index, k.rank, k.generation, k.on.rank)
}

func newJobRun(a *attempt, p *jobPlan, dir string) *jobRun {
	j := &jobRun{
		jobPlan: p, attempt: a, dir: dir, off: make([][]span, len(p.Roles)),
		readyOn: make(map[[3]int]map[int]bool), readyAt: make(map[[2]int]time.Duration),
	}
	var list yaml.Node
	err := yaml.Unmarshal([]byte(p.file(dir)), &list)
	if err == nil {
		j.defs, err = rolefile.Parse(list.Content[0])
	}
	if err != nil {
		panic(fmt.Sprintf("the test draws wrong roles: %v\n%s", err, p.file(dir)))
	}
	for i, r := range p.Roles {
		j.defs[i].Program.Ports = nil // the listeners of the machine need not be read
		j.set(r.Name, true)
	}
	return j
}

// set makes the probe of a role succeed or fail.
func (j *jobRun) set(name string, on bool) {
	file := filepath.Join(j.dir, name)
	err := os.Remove(file)
	if on {
		err = os.WriteFile(file, nil, 0o600)
	}
	if err != nil && !os.IsNotExist(err) {
		panic(err)
	}
}

// addTo makes a daemon one of the job.
func (j *jobRun) addTo(d *running, cfg *deps.Config) {
	cfg.Framework = framework.None{}
	cfg.Roles = config.RoleSet{Definitions: j.defs, Spares: roles.Spares{0: j.Spares}}
	cfg.Team = cfg.Roles.NodeRange(membership.NodeRange{}, j.size)
	cfg.Streams.Out = cfg.Streams.Err
	noRanks := func(context.Context, *rendezvous.Node, []ranks.Rank) error { return nil }
	cfg.Simulation = deps.SimHooks{NoSockets: true, FirstPort: 20000, RunRanks: noRanks}
	program := func(ctx context.Context, p *fakechild.Process) int { return j.runTask(ctx, p, d) }
	d.children = fakechild.New(map[string]fakechild.Program{"sh": program})
	cfg.ChildrenStarter = d.children
}

// runTask is the program of all processes: it exits when an event says so, and ends when it is told
// to stop, as its role says.
func (j *jobRun) runTask(ctx context.Context, p *fakechild.Process, d *running) int {
	stops := make(chan syscall.Signal, 1)
	p.Catch(syscall.SIGTERM, stops)
	number := func(name string) int {
		n, err := strconv.Atoi(p.Getenv(name))
		if err != nil {
			panic(err)
		}
		return n
	}
	own := &task{
		role: int(p.Getenv("BRINGUPD_ROLE")[0] - 'a'), index: number("BRINGUPD_ROLE_INDEX"),
		rank: number("BRINGUPD_INSTANCE_RANK"), generation: number("BRINGUPD_GENERATION"),
		on: d, exit: make(chan int, 1),
	}
	j.begin(own)
	role := &j.Roles[own.role]
	var done <-chan time.Time
	if role.Oneshot {
		done = time.After(oneshotTime)
	}
	select {
	case code := <-own.exit:
		return j.end(own, code, true)
	case <-done:
		return j.end(own, 0, true)
	case <-stops:
		j.world.Lock()
		own.told = j.world.Now()
		j.world.Unlock()
		if fakechild.Sleep(ctx, role.Slow) {
			return j.end(own, role.StopCode, false)
		}
	case <-ctx.Done():
	}
	return j.end(own, 137, false)
}

// play makes the events happen.
func (j *jobRun) play() {
	for _, e := range j.Events {
		j.world.pause(j.plan.Start + e.At - j.world.Now())
		j.world.Lock()
		switch {
		case j.world.down():
		case e.For > 0:
			j.flap(e)
		default:
			for _, one := range j.tasksOf(e.Role, e.Index) {
				if one.rank == e.Rank && one.isLive() && one.told == 0 {
					j.exit(one, e.Code)
				}
			}
		}
		j.world.Unlock()
	}
}

// exit makes a process exit. An end before it is ready is a failure. The caller holds the lock of
// the shared file system.
func (j *jobRun) exit(k *task, code int) {
	isReady := j.readyOn[[3]int{k.role, k.index, k.generation}][k.on.rank]
	if j.Roles[k.role].Probed && !isReady {
		code = max(code, 1)
	}
	j.world.note(nil, fmt.Sprintf("makes exit with %d", code), k.String(), nil)
	select {
	case k.exit <- code:
	default:
	}
}

// flap makes the probe of a role fail for a while, unless it fails already. The caller holds the
// lock of the shared file system.
func (j *jobRun) flap(e jobEvent) {
	if all := j.off[e.Role]; len(all) > 0 && all[len(all)-1].to == 0 {
		return
	}
	name := j.Roles[e.Role].Name
	j.world.note(nil, "lets fail for "+e.For.String()+" the probe of", name, nil)
	j.off[e.Role] = append(j.off[e.Role], span{from: j.world.Now()})
	j.set(name, false)
	time.AfterFunc(e.For, func() {
		j.world.Lock()
		defer j.world.Unlock()
		j.set(name, true)
		j.off[e.Role][len(j.off[e.Role])-1].to = j.world.Now()
	})
}
