package schedules

import (
	"io/fs"
	"path"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/bringupd/bringupd/test/memory"
)

const (
	mountPoint = "/share"
	logDir     = mountPoint + "/logs"
)

// world is a file system as its server has it: what is there, what was there a
// while ago, and who made it. All that happens to it happens in steps, one at a
// time, each at an instant of its own.
type world struct {
	seed  uint64
	began time.Time
	over  chan struct{} // closed when the schedule is torn down

	weather weather
	net     *memory.Net
	hosts   map[*memory.Host]*running // complete before anybody starts

	mu       sync.Mutex
	root     *file    // the directory at mountPoint
	steps    int      // made so far
	sum      uint64   // of all steps so far: what tells two interleavings apart
	trace    []step   // kept where somebody wants to read it
	tracing  bool     // somebody does
	breaches []breach // of the rules
}

// step is one that was made.
type step struct {
	at   time.Duration
	who  *client // nil: somebody outside the job
	what string
	path string
	err  error
}

// file is a directory, a link or a plain file.
type file struct {
	kind   fs.FileMode // of its type
	data   []byte
	target string        // of a link
	maker  *client       // nil: it was there before
	born   time.Duration // when it got its newest name
	open   bool          // what is to be in it is not yet, or its writer has not closed it

	live map[string]*entry // of a directory
	past []*entry          // the same and those that were there lately, in the order of their births
}

// entry is a name in a directory, for as long as it is there.
type entry struct {
	name string
	file *file
	born time.Duration
	died time.Duration // 0: it is there
}

func newWorld(p plan) *world {
	w := &world{
		seed: p.Seed + p.Shift, began: time.Now(), over: make(chan struct{}), weather: p.Weather, hosts: make(map[*memory.Host]*running),
	}
	w.net = w.newNet(p.Weather.Latency)
	w.root = newDir(nil)
	return w
}

func newDir(maker *client) *file {
	return &file{kind: fs.ModeDir, maker: maker, live: make(map[string]*entry)}
}

// now is the time since the schedule's beginning.
func (w *world) now() time.Duration { return time.Since(w.began) }

// pause waits for so long, or until the schedule is torn down.
func (w *world) pause(d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-w.over:
	}
}

// down tells whether the schedule is torn down.
func (w *world) down() bool {
	select {
	case <-w.over:
		return true
	default:
		return false
	}
}

// find returns what has that path, nil where there is nothing.
func (w *world) find(p string) *file {
	at := w.root
	rest, inside := strings.CutPrefix(p, mountPoint)
	if !inside {
		return nil
	}
	for rest != "" {
		var name string
		name, rest, _ = strings.Cut(rest[1:], "/")
		if rest != "" {
			rest = "/" + rest
		}
		e := at.live[name]
		if e == nil {
			return nil
		}
		at = e.file
	}
	return at
}

// parent returns the directory that p is in or would be in.
func (w *world) parent(p string) (*file, error) {
	dir := w.find(path.Dir(p))
	switch {
	case dir == nil:
		return nil, syscall.ENOENT
	case !dir.kind.IsDir():
		return nil, syscall.ENOTDIR
	default:
		return dir, nil
	}
}

// put makes p a name of f.
func (w *world) put(p string, f *file) {
	dir, err := w.parent(p)
	if err != nil {
		panic("the test put " + p + " where there is no directory")
	}
	e := &entry{name: path.Base(p), file: f, born: w.now()}
	f.born = e.born
	dir.live[e.name] = e
	dir.past = append(dir.past, e)
}

// drop makes p no name any more.
func (w *world) drop(p string) {
	dir, err := w.parent(p)
	if err != nil {
		return
	}
	if e := dir.live[path.Base(p)]; e != nil {
		e.died = max(w.now(), 1)
		delete(dir.live, e.name)
	}
}

// remembered is how long a listing may be told of what was there.
const remembered = 5 * time.Second

// shows tells whether the entry was there at that time.
func (e *entry) shows(at time.Duration) bool {
	return e.born <= at && (e.died == 0 || e.died > at)
}

// forget drops what no listing can show any more.
func (f *file) forget(now time.Duration) {
	if len(f.past) < 2*len(f.live)+32 {
		return
	}
	kept := f.past[:0]
	for _, e := range f.past {
		if e.died == 0 || e.died > now-remembered {
			kept = append(kept, e)
		}
	}
	clear(f.past[len(kept):])
	f.past = kept
}

// note takes a step down.
func (w *world) note(c *client, what, p string, err error) {
	w.steps++
	w.sum = mix(w.sum ^ uint64(w.now()))
	w.sum = mix(w.sum ^ hash(what, 0) ^ hash(plainName(p), uint64(c.number())))
	if w.tracing {
		w.trace = append(w.trace, step{w.now(), c, what, p, err})
	}
}

// mix spreads a number's bits over all of it (splitmix64's last lines).
func mix(x uint64) uint64 {
	x += 0x9E3779B97F4A7C15
	x = (x ^ x>>30) * 0xBF58476D1CE4E5B9
	x = (x ^ x>>27) * 0x94D049BB133111EB
	return x ^ x>>31
}

// hash is FNV-1a's.
func hash(s string, salt uint64) uint64 {
	h := 14695981039346656037 ^ salt
	for i := range len(s) {
		h = (h ^ uint64(s[i])) * 1099511628211
	}
	return h
}

// plainName is the last part of a path without what is drawn anew at every
// run: a nonce comes after a - or a +, or after .result.json.
func plainName(p string) string {
	name := path.Base(p)
	if at := strings.IndexAny(name, "-+"); at >= 0 {
		return name[:at]
	}
	return name[:min(len(name), len(".result.json."))]
}
