package schedules

import (
	"path"
	"strings"
	"syscall"
	"time"

	"github.com/bringupd/bringupd/pkg/signal"
	"github.com/bringupd/bringupd/test/memory"
)

// machine is a node as a client of the share: what it believes of it outlives
// the daemons that run there.
type machine struct {
	number int
	mood   mood
	shown  map[string]bool // the paths that a listing has shown
	// the paths that were asked for in vain, and until when that is the answer
	absent map[string]time.Duration
	// changed and viewed tell of each directory when a name in it was last
	// changed from here, and what time's state the newest listing has shown.
	changed   map[*file]time.Duration
	viewed    map[*file]time.Duration
	back      map[part]bool // the newest listing went back
	stalled   time.Duration // until when its mount answers nobody
	sick      bool          // that was for longer than others don't notice
	parted    parting       // the last one
	disturbed bool          // something has become of its network
}

func newMachine(number int, m mood) *machine {
	return &machine{
		number: number, mood: m, shown: make(map[string]bool), absent: make(map[string]time.Duration),
		changed: make(map[*file]time.Duration), viewed: make(map[*file]time.Duration), back: make(map[part]bool),
	}
}

// part is one of those that a listing of a directory comes in.
type part struct {
	dir    *file
	number uint64
}

// mood is how a machine's mount lies.
type mood struct {
	Latency time.Duration // mean of a step
	Absent  time.Duration // for how long a name that was missed is missing
	Stale   time.Duration // how old a listing may be
	Jumps   bool          // a listing may be older than the one before
	// of a thousand listings, so many are as old as backMost, and the next is not
	Back int
	// for how long a record of which the name is shown may be missing, or cut short
	Late    time.Duration
	Torn    bool // a listing takes two steps, between which names change
	Passing int  // of a thousand looks and reads, so many fail in passing
	Refuse  int  // of a thousand writes and changes, so many fail in passing
	// of a thousand renames, the answer of so many is lost and the second one is no
	Lost int
}

// client is one daemon's access to the share.
type client struct {
	*memory.Client
	world   *world
	machine *machine
	attempt *attempt
	rank    int

	// All of these are guarded by the share's lock.
	steps   int
	happens []happening // what comes with a step of this client's, by its number
	crashed bool        // nothing that it asks for has any effect, or an answer
	// it has returned: its process is no more, and nothing that is under way is done
	gone        bool
	died        time.Duration            // when it crashed
	met         bool                     // it has read the attempt's job
	told        time.Duration            // when its name appeared as joined; 0: it did not
	made        map[string]bool          // the paths that it has made
	knows       map[string]time.Duration // the paths that it has read, and when it had last
	temporaries map[string]bool          // those of them that are there for now
	came        bool                     // it has asked for the log directory to be made
}

// happening is what comes with a client's step.
type happening struct {
	step int
	what func()
}

var _ memory.Policy = (*client)(nil)

// errDown is what a call is answered when the schedule is torn down.
var errDown error = syscall.EIO

func (c *client) number() int {
	if c == nil {
		return -1
	}
	return c.attempt.number<<8 | c.rank
}

// draw is a number at random that depends on the seed, on what is done and when,
// and on nothing that differs when the schedule is gone through again.
func (c *client) draw(what, p string) uint64 {
	h := mix(c.world.seed ^ hash(what, uint64(c.number())))
	h = mix(h ^ uint64(c.world.Now()))
	return mix(h ^ hash(plainName(p), 0))
}

// chance draws whether something happens that does so many times of a thousand.
func (c *client) chance(ofThousand int, what, p string) bool {
	return ofThousand > 0 && int(c.draw("chance of "+what, p)%1000) < ofThousand
}

// delay is how long a step takes: its mean mostly, and ten times as much now
// and then.
func (c *client) delay(what, p string) time.Duration {
	h := c.draw(what, p)
	mean := uint64(c.machine.mood.Latency)
	if h>>56 < 4 {
		mean *= 10
	}
	return time.Duration(1 + h%(2*mean))
}

// Step implements memory.Policy: it waits for the step's time and makes it, if the daemon lives to
// see it.
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

// alive tells whether the client's next step is made, after what comes with it.
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

// passing is an error that goes away by itself, or none.
func (c *client) passing(p string) error {
	if !c.chance(c.machine.mood.Passing, "a passing error", p) {
		return nil
	}
	return []error{syscall.ESTALE, syscall.EIO, syscall.ENOENT}[c.draw("which error", p)%3]
}

// refused is an error of a write or a change that goes away by itself, or none.
func (c *client) refused(what, p string) error {
	if !c.chance(c.machine.mood.Refuse, "refusing to "+what, p) {
		return nil
	}
	return []error{syscall.ESTALE, syscall.EIO}[c.draw("which error", p)%2]
}

// Resolve implements memory.Policy: what has a path, as this client's machine believes it.
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

// view returns the names of a part of a directory, as they were at a time that
// this machine's mount makes of now.
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

// late tells whether a record of another machine's is not all there yet for this
// one, which knows its name: half of those of the last while are.
func (c *client) late(p string, f *file) bool {
	most := uint64(c.machine.mood.Late)
	if most == 0 || len(f.Data) == 0 || maker(f) != nil && maker(f).machine == c.machine {
		return false
	}
	h := mix(c.world.seed ^ hash(plainName(p), uint64(c.machine.number)) ^ uint64(f.Born))
	return h>>63 == 0 && c.world.Now() < f.Born+time.Duration(h%most)
}

// maker is who has made a file, nil where that is no client.
func maker(f *file) *client {
	if f.Maker == nil {
		return nil
	}
	return f.Maker.Policy.(*client)
}

// Reply implements memory.Policy: the way back of an answer, on which the daemon can crash, too.
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
	c.came = c.came || what == memory.Step(signal.MakeDir) && p == logDir
	if err := c.refused(string(what), p); err != nil {
		return err
	}
	if dir, err := c.world.Parent(p); what == memory.Step(signal.MakeLink) && c.world.Find(from) != nil && err == nil {
		c.machine.changed[dir] = c.world.Now()
	}
	return nil
}

// Cut implements memory.Policy: two parts, of which the first may be empty.
func (c *client) Cut(p string, data []byte) [][]byte {
	cut := int(c.draw("where to cut", p) % uint64(len(data)))
	return [][]byte{data[:cut], data[cut:]}
}

// May implements memory.Policy.
func (c *client) May(what memory.Step, from, p string, f *file, empty bool) {
	w := c.world
	switch signal.NameChange(what) {
	case signal.RenamePath:
		w.mayRename(c, from, p, f)
	case signal.MakeLink:
		w.mayLink(c, from, p, f)
	case signal.RemoveTree:
		w.mayRemove(c, p)
	case signal.MakeDir:
		if p != logDir {
			w.mayCreate(c, p, true)
		}
	case signal.NameChange(memory.OpenToAppend):
		w.mayExtend(c, p)
	default:
		w.mayCreate(c, p, empty)
	}
}

// Happened implements memory.Policy.
func (c *client) Happened(what memory.Step, from, p string, dir, f *file, fresh bool) error {
	switch signal.NameChange(what) {
	case signal.RenamePath:
		delete(c.temporaries, from)
		c.change(dir, p)
		c.made[p] = true
		c.attempt.appeared(p, f)
		if c.chance(c.machine.mood.Lost, "a lost answer", p) {
			return syscall.ENOENT
		}
		return nil
	case signal.RemoveTree:
		delete(c.temporaries, p)
		if dir != nil {
			c.change(dir, p)
		}
		return nil
	case signal.MakeLink, signal.MakeSymlink:
		c.change(dir, p)
		return nil
	case signal.MakeDir:
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

// change notes that this machine has changed a name: it knows of that one.
func (c *client) change(dir *file, p string) {
	c.machine.changed[dir] = c.world.Now()
	delete(c.machine.absent, p)
	dir.Forget(c.world.Now())
	if c.told == 0 && p == c.attempt.joinedPath(c.rank) {
		c.told = c.world.Now()
	}
}

// hidden tells whether no reader looks at that path.
func hidden(p string) bool { return strings.Contains(p, "/.") }
