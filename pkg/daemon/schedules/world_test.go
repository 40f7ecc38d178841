package schedules

import (
	"fmt"
	"os"
	"path"
	"strings"
	"time"

	"github.com/bringupd/bringupd/test/memory"
)

const (
	mountPoint = "/share"
	logDir     = mountPoint + "/logs"
)

// world is a file system as its server sees it: its present contents, its earlier contents, and the
// maker of each file. All changes are steps, one at a time, each at an instant of its own.
type world struct {
	seed uint64
	over chan struct{} // closed when the schedule is torn down

	weather weather
	net     *memory.Net
	hosts   map[*memory.Host]*running // complete before any daemon starts

	// The lock of the shared file system guards the following fields, too.
	*memory.Share
	steps    int      // number of steps so far
	tracing  bool     // each step is printed
	breaches []breach // violations of the rules
}

type file = memory.File

func newWorld(p plan) *world {
	w := &world{
		seed: p.Seed + p.Shift, Share: memory.NewShare(mountPoint), over: make(chan struct{}),
		weather: p.Weather, hosts: make(map[*memory.Host]*running),
	}
	w.net = w.newNet(p.Weather.Latency)
	return w
}

// pause waits for a duration, or until the schedule is torn down.
func (w *world) pause(d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-w.over:
	}
}

// down reports whether the schedule is torn down.
func (w *world) down() bool {
	select {
	case <-w.over:
		return true
	default:
		return false
	}
}

// note records a step.
func (w *world) note(c *client, what, p string, err error) {
	w.steps++
	if w.tracing {
		fmt.Fprintf(os.Stderr, "%12v %-20s %s %s: %v\n", w.Now(), c.name(), what, strings.TrimPrefix(p, logDir), err)
	}
}

// mix spreads a number's bits over all of it (the last lines of splitmix64).
func mix(x uint64) uint64 {
	x += 0x9E3779B97F4A7C15
	x = (x ^ x>>30) * 0xBF58476D1CE4E5B9
	x = (x ^ x>>27) * 0x94D049BB133111EB
	return x ^ x>>31
}

// hash is FNV-1a.
func hash(s string, salt uint64) uint64 {
	h := 14695981039346656037 ^ salt
	for i := range len(s) {
		h = (h ^ uint64(s[i])) * 1099511628211
	}
	return h
}

// plainName returns the last element of a path without its random parts: a nonce follows a - or a
// +, or .result.json.
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
