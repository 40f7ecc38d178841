package schedules

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path"
	"strings"
	"syscall"
	"time"

	"github.com/bringupd/bringupd/pkg/signal"
)

// machine is a node as a client of the share: what it believes of it outlives
// the daemons that run there.
type machine struct {
	number int
	mood   mood
	shown  map[string]bool          // the paths that a listing has shown
	absent map[string]time.Duration // the paths that were asked for in vain, and until when that is the answer
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
	Back    int           // of a thousand listings, so many are as old as backMost, and the next is not
	Late    time.Duration // for how long a record of which the name is shown may be missing, or cut short
	Torn    bool          // a listing takes two steps, between which names change
	Passing int           // of a thousand looks and reads, so many fail in passing
	Refuse  int           // of a thousand writes and changes, so many fail in passing
	Lost    int           // of a thousand renames, the answer of so many is lost and the second one is no
}

// client is one daemon's access to the share.
type client struct {
	world   *world
	machine *machine
	attempt *attempt
	rank    int

	// All of these are guarded by the world's mu.
	steps       int
	happens     []happening              // what comes with a step of this client's, by its number
	crashed     bool                     // nothing that it asks for has any effect, or an answer
	gone        bool                     // it has returned: its process is no more, and nothing that is under way is done
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

var _ signal.Share = (*client)(nil)

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
	h = mix(h ^ uint64(c.world.now()))
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

// step waits for the step's time and makes it, if the daemon lives to see it.
func (c *client) step(what, p string, effect func() error) error {
	w := c.world
	w.pause(c.delay(what, p))
	w.mu.Lock()
	for c.machine.stalled > w.now() && !w.down() {
		left := c.machine.stalled - w.now()
		w.mu.Unlock()
		w.pause(left + c.delay(what, p))
		w.mu.Lock()
	}
	if !c.alive(what, p) {
		w.mu.Unlock()
		<-w.over
		return errDown
	}
	err := effect()
	w.note(c, what, p, err)
	w.mu.Unlock()
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

// reply is the way back of an answer, on which the daemon can crash, too.
func (c *client) reply(p string) {
	if c.chance(250, "a slow reply", p) {
		_ = c.step("reply", p, func() error { return nil })
	}
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

// open finds what has that path, as this client's machine believes it.
func (c *client) open(what, p string) (*file, error) {
	c.world.mustHaveSeen(c, what, p)
	if err := c.passing(p); err != nil {
		return nil, err
	}
	m, now := c.machine, c.world.now()
	f := c.world.find(p)
	if what == "read" && f != nil && c.late(p, f) && c.draw("whether it is there", p)%2 == 0 {
		return nil, syscall.ENOENT
	}
	if f == nil || m.absent[p] > now {
		m.absent[p] = max(m.absent[p], now+m.mood.Absent)
		return nil, syscall.ENOENT
	}
	return f, nil
}

// List implements signal.Lookup.
func (c *client) List(p string, vet func(signal.Facts) error) ([]string, error) {
	var dir *file
	err := c.step("open to list", p, func() (err error) {
		dir, err = c.open("list", p)
		c.world.mayList(c, p)
		if err == nil && !dir.kind.IsDir() {
			err = syscall.ENOTDIR
		}
		return err
	})
	if err == nil && vet != nil {
		err = vet(facts(dir))
	}
	if err != nil {
		return nil, err
	}
	var names []string
	parts := uint64(1)
	if c.machine.mood.Torn {
		parts = 2
	}
	for number := range parts {
		err := c.step("list", p, func() error {
			names = append(names, c.view(dir, p, number, parts)...)
			return nil
		})
		if err != nil {
			return nil, err
		}
	}
	return names, nil
}

// view returns the names of a part of a directory, as they were at a time that
// this machine's mount makes of now.
func (c *client) view(dir *file, p string, number, parts uint64) (names []string) {
	m, now := c.machine, c.world.now()
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
	for _, e := range dir.past {
		if e.name[0] != '.' && e.shows(at) && hash(plainName(e.name), 0)%parts == number {
			names = append(names, e.name)
			m.shown[p+"/"+e.name] = true
		}
	}
	return names
}

func facts(f *file) signal.Facts {
	mode := fs.FileMode(0o600)
	if f.kind.IsDir() {
		mode = 0o700
	}
	return signal.Facts{Mode: f.kind | mode, Owner: os.Geteuid()}
}

// Look implements signal.Lookup.
func (c *client) Look(p string) (seen signal.Facts, err error) {
	err = c.step("look", p, func() error {
		f, err := c.open("look at", p)
		if err == nil {
			seen = facts(f)
		}
		return err
	})
	return seen, err
}

// Read implements signal.Lookup.
func (c *client) Read(p string) (data []byte, err error) {
	var f *file
	err = c.step("open to read", p, func() (err error) {
		c.world.mayRead(c, p)
		f, err = c.open("read", p)
		return err
	})
	if err != nil {
		return nil, err
	}
	whole := true
	err = c.step("read", p, func() error {
		c.world.mustBeWhole(c, p, f)
		if whole = !c.late(p, f); !whole {
			data = append(data, f.data[:c.draw("how much is there", p)%uint64(len(f.data))]...)
			return nil
		}
		data = append(data, f.data...)
		c.met = c.met || c.attempt.job() == f
		return nil
	})
	if err != nil {
		return nil, err
	}
	c.reply(p)
	if whole {
		c.world.mu.Lock()
		defer c.world.mu.Unlock()
		c.knows[p] = c.world.now()
	}
	return data, nil
}

// late tells whether a record of another machine's is not all there yet for this
// one, which knows its name: half of those of the last while are.
func (c *client) late(p string, f *file) bool {
	most := uint64(c.machine.mood.Late)
	if most == 0 || len(f.data) == 0 || f.maker != nil && f.maker.machine == c.machine {
		return false
	}
	h := mix(c.world.seed ^ hash(plainName(p), uint64(c.machine.number)) ^ uint64(f.born))
	return h>>63 == 0 && c.world.now() < f.born+time.Duration(h%most)
}

// Part implements signal.Lookup. No daemon's protocol hangs on it.
func (c *client) Part(p string, offset, most int64) ([]byte, signal.Facts, error) {
	seen, err := c.Look(p)
	if err != nil || !seen.Mode.IsRegular() {
		return nil, seen, err
	}
	data, err := c.Read(p)
	seen.Size = int64(len(data))
	from := min(offset, seen.Size)
	return data[from:min(from+most, seen.Size)], seen, err
}

// Target implements signal.Lookup.
func (c *client) Target(p string) (target string, err error) {
	err = c.step("follow", p, func() error {
		f := c.world.find(p)
		switch {
		case f == nil:
			return syscall.ENOENT
		case f.kind&fs.ModeSymlink == 0:
			return syscall.EINVAL
		}
		target = f.target
		return nil
	})
	return target, err
}

// Kind implements signal.Lookup.
func (c *client) Kind(p string) (signal.FileSystem, error) {
	return signal.FileSystem{Name: "nfs"}, c.step("statfs", p, func() error { return nil })
}

// Space implements signal.Lookup.
func (c *client) Space(p string) (signal.Space, error) {
	return signal.Space{Size: 1 << 40, Free: 1 << 39}, c.step("statfs", p, func() error { return nil })
}

// Write implements signal.Mutation. What the disk does in several calls takes
// several steps here: the file is there and empty, then it has a part of its
// data, then all of it, and then it is closed.
func (c *client) Write(p string, data []byte, durable bool) error {
	c.attempt.begins(c, p)
	var f *file
	err := c.step("create", p, func() (err error) {
		if err := c.refused("create", p); err != nil {
			return err
		}
		c.world.mayCreate(c, p, len(data) == 0)
		if f, err = c.create(p); err == nil {
			f.data, f.open = nil, len(data) > 0
		}
		return err
	})
	if err == nil && len(data) > 0 {
		err = c.fill(p, f, data)
	}
	if err == nil && durable {
		err = c.step("sync", p, func() error { return c.refused("sync", p) })
	}
	if err != nil {
		return err
	}
	return c.step("close", p, func() error {
		err := c.refused("close", p)
		f.open = err != nil && len(data) > 0
		return err
	})
}

// fill writes data in two parts, of which the first may be empty.
func (c *client) fill(p string, f *file, data []byte) error {
	cut := int(c.draw("where to cut", p) % uint64(len(data)))
	for _, part := range [][]byte{data[:cut], data[cut:]} {
		err := c.step("write", p, func() error {
			err := c.refused("write", p)
			if err == nil {
				f.data = append(f.data, part...)
			}
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// create makes a plain file where there is none.
func (c *client) create(p string) (*file, error) {
	dir, err := c.world.parent(p)
	if err != nil {
		return nil, err
	}
	f := c.world.find(p)
	if f == nil {
		f = &file{maker: c}
		c.world.put(p, f)
		c.attempt.appeared(p, f)
	}
	c.change(dir, p)
	c.made[p] = true
	if path.Base(p)[0] == '.' {
		c.temporaries[p] = true
	}
	return f, nil
}

// change notes that this machine has changed a name: it knows of that one.
func (c *client) change(dir *file, p string) {
	c.machine.changed[dir] = c.world.now()
	delete(c.machine.absent, p)
	dir.forget(c.world.now())
	if c.told == 0 && p == c.attempt.joinedPath(c.rank) {
		c.told = c.world.now()
	}
}

// Extend implements signal.Mutation.
func (c *client) Extend(p string) (io.WriteCloser, error) {
	var f *file
	err := c.step("open to append", p, func() (err error) {
		if err := c.refused("open to append", p); err != nil {
			return err
		}
		c.world.mayExtend(c, p)
		f, err = c.create(p)
		return err
	})
	if err != nil {
		return nil, err
	}
	return appender{c, p, f}, nil
}

type appender struct {
	client *client
	path   string
	file   *file
}

func (a appender) Write(data []byte) (int, error) {
	err := a.client.step("append", a.path, func() error {
		err := a.client.refused("append", a.path)
		if err == nil {
			a.file.data = append(a.file.data, data...)
		}
		return err
	})
	if err != nil {
		return 0, err
	}
	return len(data), nil
}

func (a appender) Close() error { return a.client.step("close", a.path, func() error { return nil }) }

// Change implements signal.Mutation.
func (c *client) Change(how signal.Change, from, to string) error {
	err := c.step(string(how), to, func() error {
		c.came = c.came || how == signal.MakeDir && to == logDir
		if err := c.refused(string(how), to); err != nil {
			return err
		}
		return c.changed(how, from, to)
	})
	if err == nil {
		c.reply(to)
	}
	return err
}

func (c *client) changed(how signal.Change, from, to string) error {
	switch how {
	case signal.MakeDir:
		return c.makeDir(to)
	case signal.Rename:
		return c.rename(from, to)
	case signal.Link:
		return c.link(from, to)
	case signal.Symlink:
		return c.symlink(from, to)
	case signal.Remove:
		return c.remove(to)
	case signal.Settle:
		return nil
	default:
		return errors.New("the test knows no such change: " + string(how))
	}
}

func (c *client) makeDir(p string) error {
	dir, err := c.world.parent(p)
	if err != nil {
		return err
	}
	if dir.live[path.Base(p)] != nil {
		return syscall.EEXIST
	}
	if p != logDir {
		c.world.mayCreate(c, p, true)
	}
	c.world.put(p, newDir(c))
	c.change(dir, p)
	c.made[p] = true
	return nil
}

func (c *client) rename(from, to string) error {
	f := c.world.find(from)
	dir, err := c.world.parent(to)
	if f == nil || err != nil {
		return syscall.ENOENT
	}
	if old := c.world.find(to); old != nil && old.kind.IsDir() && len(old.live) > 0 {
		return syscall.ENOTEMPTY
	}
	c.world.mayRename(c, from, to, f)
	c.world.drop(from)
	c.world.drop(to)
	c.world.put(to, f)
	delete(c.temporaries, from)
	c.change(dir, to)
	c.made[to] = true
	c.attempt.appeared(to, f)
	if c.chance(c.machine.mood.Lost, "a lost answer", to) {
		return syscall.ENOENT
	}
	return nil
}

func (c *client) link(from, to string) error {
	f := c.world.find(from)
	dir, err := c.world.parent(to)
	if f == nil || err != nil {
		return syscall.ENOENT
	}
	c.machine.changed[dir] = c.world.now()
	if old := c.world.find(to); old != nil && old != f {
		return syscall.EEXIST
	}
	c.world.mayLink(c, from, to, f)
	c.world.put(to, f)
	c.change(dir, to)
	return nil
}

func (c *client) symlink(target, p string) error {
	dir, err := c.world.parent(p)
	if err != nil {
		return err
	}
	if dir.live[path.Base(p)] != nil {
		return syscall.EEXIST
	}
	c.world.mayCreate(c, p, true)
	c.world.put(p, &file{kind: fs.ModeSymlink, target: target, maker: c})
	c.change(dir, p)
	return nil
}

func (c *client) remove(p string) error {
	c.world.mayRemove(c, p)
	c.world.drop(p)
	delete(c.temporaries, p)
	if dir, err := c.world.parent(p); err == nil {
		c.change(dir, p)
	}
	return nil
}

// hidden tells whether no reader looks at that path.
func hidden(p string) bool { return strings.Contains(p, "/.") }
