package schedules

import (
	"path"
	"strings"
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
	seed uint64
	over chan struct{} // closed when the schedule is torn down

	weather weather
	net     *memory.Net
	hosts   map[*memory.Host]*running // complete before anybody starts

	// The share's lock guards what follows, too.
	*memory.Share
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

type file = memory.File

func newWorld(p plan) *world {
	w := &world{
		seed: p.Seed + p.Shift, Share: memory.NewShare(mountPoint), over: make(chan struct{}), weather: p.Weather, hosts: make(map[*memory.Host]*running),
	}
	w.net = w.newNet(p.Weather.Latency)
	return w
}

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

// note takes a step down.
func (w *world) note(c *client, what, p string, err error) {
	w.steps++
	w.sum = mix(w.sum ^ uint64(w.Now()))
	w.sum = mix(w.sum ^ hash(what, 0) ^ hash(plainName(p), uint64(c.number())))
	if w.tracing {
		w.trace = append(w.trace, step{w.Now(), c, what, p, err})
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
	if name[0] == '.' {
		return strings.TrimSuffix(name, path.Ext(name)) // a draft ends with a tag
	}
	return name
}
