package schedules

import (
	"path"
	"strings"
	"syscall"
	"time"

	"github.com/bringupd/bringupd/pkg/signal"
	"github.com/bringupd/bringupd/test/memory"
)

// machine is a node as a client of the shared file system: its cached state outlives the daemons
// that run on it.
type machine struct {
	number int
	mood   mood
	shown  map[string]bool // the paths that a listing has shown
	// The paths whose lookup failed, and the time until which that answer is cached.
	absent map[string]time.Duration
	// For each directory, changed is the time of the last change of a name from this machine, and
	// viewed is the time whose state the newest listing has shown.
	changed   map[*file]time.Duration
	viewed    map[*file]time.Duration
	back      map[part]bool // the newest listing was old
	stalled   time.Duration // time until which its mount does not answer
	sick      bool          // it hung for longer than can pass unnoticed
	parted    parting       // the latest one
	disturbed bool          // its network was disturbed
}

func newMachine(number int, m mood) *machine {
	return &machine{
		number: number, mood: m, shown: make(map[string]bool), absent: make(map[string]time.Duration),
		changed: make(map[*file]time.Duration), viewed: make(map[*file]time.Duration), back: make(map[part]bool),
	}
}

// part is one of the parts in which a listing of a directory is returned.
type part struct {
	dir    *file
	number uint64
}

// mood describes how a machine's mount misbehaves.
type mood struct {
	Latency time.Duration // mean of a step
	Absent  time.Duration // how long a failed lookup is cached
	Stale   time.Duration // maximum age of a listing
	Jumps   bool          // a listing may be older than the one before
	// Number of listings per thousand that are as old as backMost; the next one is not.
	Back int
	// How long a record may be missing or truncated after its name is shown.
	Late    time.Duration
	Torn    bool // a listing takes two steps, between which names change
	Passing int  // number of inspections and reads per thousand that fail temporarily
	Refuse  int  // number of writes and changes per thousand that fail temporarily
	// Number of renames per thousand whose answer is lost, so that the repeated one fails.
	Lost int
}

// client is one daemon's access to the shared file system.
type client struct {
	*memory.Client
	world   *world
	machine *machine
	attempt *attempt
	rank    int

	// The following fields are guarded by the lock of the shared file system.
	steps   int
	happens []happening // events at this client's steps, by step number
	crashed bool        // its calls have no effect and get no answer
	// It has returned: its process has ended, and calls in progress have no effect.
	gone        bool
	died        time.Duration            // when it crashed
	met         bool                     // it has read the attempt's job
	told        time.Duration            // when its name appeared as joined; 0: never
	made        map[string]bool          // the paths that it has made
	knows       map[string]time.Duration // the paths that it has read, and when it did so last
	temporaries map[string]bool          // its temporary paths that exist
	came        bool                     // it has requested the creation of the log directory
}

// happening is an event at a client's step.
type happening struct {
	step int
	what func()
}

var _ memory.Policy = (*client)(nil)

// errDown is the error of all calls after the schedule is torn down.
var errDown error = syscall.EIO

func (c *client) number() int {
	if c == nil {
		return -1
	}
	return c.attempt.number<<8 | c.rank
}

// draw returns a pseudo-random number that depends on the seed, the operation and its time, and on
// nothing that differs when the schedule is run again.
func (c *client) draw(what, p string) uint64 {
	h := mix(c.world.seed ^ hash(what, uint64(c.number())))
	h = mix(h ^ uint64(c.world.Now()))
	return mix(h ^ hash(plainName(p), 0))
}

// chance reports true in the given number of a thousand cases.
func (c *client) chance(ofThousand int, what, p string) bool {
	return ofThousand > 0 && int(c.draw("chance of "+what, p)%1000) < ofThousand
}

// delay returns the duration of a step: usually about its mean, and sometimes ten times as long.
func (c *client) delay(what, p string) time.Duration {
	h := c.draw(what, p)
	mean := uint64(c.machine.mood.Latency)
	if h>>56 < 4 {
		mean *= 10
	}
	return time.Duration(1 + h%(2*mean))
}

// Step implements memory.Policy: it waits for the step's time and makes the step if the daemon has
// not crashed by then.
func (c *client) Step(step memory.Step, p string, effect func() error) error {
	what := string(step)
	w := c.world
	w.pause(c.delay(what, p))
	w.Lock()
	for c.machine.stalled > w.Now() && !w.down() {
		left := c.machine.stalled - w.Now()
		w.Unlock()
		w.pause(left + c.delay(what, p))
		w.Lock()
	}
	if !c.alive(what, p) {
		w.Unlock()
		<-w.over
		return errDown
	}
	err := effect()
	w.note(c, what, p, err)
	w.Unlock()
	return err
}

// alive runs the events of the client's next step and reports whether the step is made.
func (c *client) alive(what, p string) bool {
	if c.world.down() || c.crashed || c.gone {
		return false
	}
	c.steps++
	for _, h := range c.happens {
		if h.step == c.steps {
			h.what()
		}
	}
	if c.crashed {
		c.world.note(c, "crashes instead of: "+what, p, nil)
	}
	return !c.crashed
}

// passing returns a temporary error or nil.
func (c *client) passing(p string) error {
	if !c.chance(c.machine.mood.Passing, "a passing error", p) {
		return nil
	}
	return []error{syscall.ESTALE, syscall.EIO, syscall.ENOENT}[c.draw("which error", p)%3]
}

// refused returns a temporary error of a write or a change, or nil.
func (c *client) refused(what, p string) error {
	if !c.chance(c.machine.mood.Refuse, "refusing to "+what, p) {
		return nil
	}
	return []error{syscall.ESTALE, syscall.EIO}[c.draw("which error", p)%2]
}

// Resolve implements memory.Policy: it returns the error that the client's machine, with its cached
// state, gets for a path.
func (c *client) Resolve(what memory.Step, p string, f *file) error {
	if what == memory.Read {
		c.world.mayRead(c, p)
	}
	err := c.believed(what, p, f)
	if what == memory.List {
		c.world.mayList(c, p)
	}
	return err
}

func (c *client) believed(what memory.Step, p string, f *file) error {
	c.world.mustHaveSeen(c, string(what), p)
	if err := c.passing(p); err != nil {
		return err
	}
	m, now := c.machine, c.world.Now()
	if what == memory.Read && f != nil && c.late(p, f) && c.draw("whether it is there", p)%2 == 0 {
		return syscall.ENOENT
	}
	if f == nil || m.absent[p] > now {
		m.absent[p] = max(m.absent[p], now+m.mood.Absent)
		return syscall.ENOENT
	}
	return nil
}

// View implements memory.Policy.
func (c *client) View(dir *file, p string, number int) (names []string, more bool) {
	parts := 1
	if c.machine.mood.Torn {
		parts = 2
	}
	return c.view(dir, p, uint64(number), uint64(parts)), number+1 < parts
}

// view returns the names of a part of a directory, as they were at the time that this machine's
// mount takes for the present.
func (c *client) view(dir *file, p string, number, parts uint64) (names []string) {
	m, now := c.machine, c.world.Now()
	at := now
	if m.mood.Stale > 0 && c.chance(500, "an old listing", p) {
		at -= time.Duration(c.draw("how old", p) % uint64(m.mood.Stale))
	}
	here := part{dir, number}
	m.back[here] = !m.back[here] && c.chance(m.mood.Back, "going back", p)
	if m.back[here] {
		at = now - time.Duration(c.draw("how far back", p)%uint64(backMost))
	}
	at = max(at, m.changed[dir])
	if !m.mood.Jumps && !m.back[here] {
		at = max(at, m.viewed[dir])
	}
	m.viewed[dir] = max(at, m.viewed[dir])
	for _, name := range dir.Names(at) {
		if hash(plainName(name), 0)%parts == number {
			names = append(names, name)
			m.shown[p+"/"+name] = true
		}
	}
	return names
}

// Content implements memory.Policy.
func (c *client) Content(p string, f *file) (data []byte, whole bool) {
	c.world.mustBeWhole(c, p, f)
	if c.late(p, f) {
		return append(data, f.Data[:c.draw("how much is there", p)%uint64(len(f.Data))]...), false
	}
	c.met = c.met || c.attempt.job() == f
	return append(data, f.Data...), true
}

// late reports whether another machine's record is not completely visible on this one, which knows
// its name. This applies to half of the recent records.
func (c *client) late(p string, f *file) bool {
	most := uint64(c.machine.mood.Late)
	if most == 0 || len(f.Data) == 0 || maker(f) != nil && maker(f).machine == c.machine {
		return false
	}
	h := mix(c.world.seed ^ hash(plainName(p), uint64(c.machine.number)) ^ uint64(f.Born))
	return h>>63 == 0 && c.world.Now() < f.Born+time.Duration(h%most)
}

// maker returns the client that has made a file, nil if it was not a client.
func maker(f *file) *client {
	if f.Maker == nil {
		return nil
	}
	return f.Maker.Policy.(*client)
}

// Reply implements memory.Policy: it simulates the way of an answer, during which the daemon can
// crash, too.
func (c *client) Reply(what memory.Step, p string, whole bool) {
	if c.chance(250, "a slow reply", p) {
		_ = c.Step("reply", p, func() error { return nil })
	}
	if what == memory.Read && whole {
		c.world.Lock()
		defer c.world.Unlock()
		c.knows[p] = c.world.Now()
	}
}

// Begin implements memory.Policy.
func (c *client) Begin(p string) { c.attempt.begins(c, p) }

// Refuse implements memory.Policy.
func (c *client) Refuse(what memory.Step, from, p string) error {
	c.came = c.came || what == memory.Step(signal.OpMkdir) && p == logDir
	if err := c.refused(string(what), p); err != nil {
		return err
	}
	if dir, err := c.world.Parent(p); what == memory.Step(signal.OpLink) && c.world.Find(from) != nil && err == nil {
		c.machine.changed[dir] = c.world.Now()
	}
	return nil
}

// Cut implements memory.Policy: it returns two parts, the first of which may be empty.
func (c *client) Cut(p string, data []byte) [][]byte {
	cut := int(c.draw("where to cut", p) % uint64(len(data)))
	return [][]byte{data[:cut], data[cut:]}
}

// May implements memory.Policy.
func (c *client) May(what memory.Step, from, p string, f *file, empty bool) {
	w := c.world
	switch signal.Op(what) {
	case signal.OpRename:
		w.mayRename(c, from, p, f)
	case signal.OpLink:
		w.mayLink(c, from, p, f)
	case signal.OpRemove:
		w.mayRemove(c, p)
	case signal.OpMkdir:
		if p != logDir {
			w.mayCreate(c, p, true)
		}
	case signal.Op(memory.OpenToAppend):
		w.mayExtend(c, p)
	default:
		w.mayCreate(c, p, empty)
	}
}

// Happened implements memory.Policy.
func (c *client) Happened(what memory.Step, from, p string, dir, f *file, fresh bool) error {
	switch signal.Op(what) {
	case signal.OpRename:
		delete(c.temporaries, from)
		c.change(dir, p)
		c.made[p] = true
		c.attempt.appeared(p, f)
		if c.chance(c.machine.mood.Lost, "a lost answer", p) {
			return syscall.ENOENT
		}
		return nil
	case signal.OpRemove:
		delete(c.temporaries, p)
		if dir != nil {
			c.change(dir, p)
		}
		return nil
	case signal.OpLink, signal.OpSymlink:
		c.change(dir, p)
		return nil
	case signal.OpMkdir:
		c.change(dir, p)
		c.made[p] = true
		return nil
	}
	if fresh {
		c.attempt.appeared(p, f)
	}
	c.change(dir, p)
	c.made[p] = true
	if path.Base(p)[0] == '.' {
		c.temporaries[p] = true
	}
	return nil
}

// change records that this machine has changed a name: it knows that name.
func (c *client) change(dir *file, p string) {
	c.machine.changed[dir] = c.world.Now()
	delete(c.machine.absent, p)
	dir.Forget(c.world.Now())
	if c.told == 0 && p == c.attempt.joinedPath(c.rank) {
		c.told = c.world.Now()
	}
}

// hidden reports whether readers ignore the path.
func hidden(p string) bool { return strings.Contains(p, "/.") }
