package faults

import (
	"slices"
	"syscall"
	"time"

	"github.com/bringupd/bringupd/test/hostile"
)

// where selects the mounts that are broken.
type where string

const (
	atWorker where = "node 2"
	atHead   where = "the head"
	atAll    where = "all"
)

func (w where) nodes() []int {
	switch w {
	case atWorker:
		return []int{2}
	case atHead:
		return []int{0}
	default:
		return []int{0, 1, 2, 3}
	}
}

// row is one way to break mounts.
type row struct {
	name  string
	where where
	knobs hostile.Knobs
	// stall, if set, lasts for the duration release, or forever if release is 0.
	stall   hostile.StallKind
	release time.Duration
	// harmless faults must not be noticed. Others must be reported by the affected node, with a
	// message that contains says.
	harmless bool
	says     string
	// unread makes the daemons' standard error a full pipe without a reader.
	unread bool
}

const (
	ms   = time.Millisecond
	ever = time.Hour // longer than any job
)

// harmless lists the faults that a job must survive.
var harmless = []row{
	{name: "nothing"},
	{name: "every call takes 20 ms longer",
		knobs: hostile.Knobs{Latency: hostile.Latency{Min: 20 * ms}}},
	{name: "every call takes up to 50 ms longer",
		knobs: hostile.Knobs{Latency: hostile.Latency{Max: 50 * ms}}},
	{name: "calls take 1 ms longer, some up to 1 s (a heavy tail)",
		knobs: hostile.Knobs{Latency: hostile.Latency{Min: ms, Max: time.Second, Tail: 1}}},
	{name: "missing names stay cached", knobs: hostile.Knobs{Negative: ever}},
	{name: "listings are up to 1 s old", knobs: hostile.Knobs{Listing: time.Second}},
	{name: "names and attributes stay cached", knobs: hostile.Knobs{Attributes: ever}},
	{name: "5 % of the calls fail with ESTALE", knobs: hostile.Knobs{Stale: 0.05}},
	{name: "5 % of the calls fail with EIO", knobs: hostile.Knobs{IO: 0.05}},
	{name: "5 % of the calls fail with ENOENT", knobs: hostile.Knobs{Missing: 0.05}},
	{name: "every rename succeeds but returns ENOENT", knobs: hostile.Knobs{RenameLies: true}},
	{name: "hard links fail with EPERM", knobs: hostile.Knobs{NoLinks: syscall.EPERM}},
	{name: "hard links fail with ENOTSUP", knobs: hostile.Knobs{NoLinks: syscall.ENOTSUP}},
	{name: "no call returns for 1 s", stall: hostile.Unread, knobs: hostile.Knobs{NoFlush: true},
		release: time.Second},
	{name: "no call returns for 1 s, even after KILL", stall: hostile.Held, release: time.Second},
	// Do not combine these with RenameLies: Linux's FUSE remembers that the new name was missing when
	// the rename began, which no network file system does.
	{name: "several of these at once", knobs: hostile.Knobs{
		Latency: hostile.Latency{Max: 20 * ms}, Negative: ever, Listing: 500 * ms, Attributes: ever,
		Stale: 0.02, IO: 0.02, NoLinks: syscall.EPERM,
	}},
}

// beside lists faults outside the share that a job must survive, too.
var beside = []row{
	{name: "standard error is not read", unread: true},
}

// harmful lists the faults that end a job, whether they affect one mount or all.
var harmful = []row{
	{name: "full: ENOSPC", knobs: hostile.Knobs{Full: syscall.ENOSPC}, says: "no space left"},
	{name: "over quota: EDQUOT", knobs: hostile.Knobs{Full: syscall.EDQUOT},
		says: "quota exceeded"},
	{name: "full, reported only by close",
		knobs: hostile.Knobs{Full: syscall.ENOSPC, FullAtClose: true}, says: "no space left"},
	{name: "read-only: EROFS", knobs: hostile.Knobs{ReadOnly: true}, says: "read-only"},
	{name: "no call returns", stall: hostile.Unread, knobs: hostile.Knobs{NoFlush: true},
		says: "has not responded"},
	{name: "no call returns, even after KILL", stall: hostile.Held, says: "has not responded"},
}

// rows returns the rows of the matrix.
func rows() (all []row) {
	for _, r := range harmless {
		r.where, r.harmless = atAll, true
		all = append(all, r)
	}
	for _, r := range harmful {
		for _, w := range []where{atWorker, atHead, atAll} {
			r.where = w
			all = append(all, r)
		}
	}
	return all
}

// title returns the title of the row in the table.
func (r row) title() string { return r.name + " | " + string(r.where) }

// breaks reports whether the mount of a node is broken.
func (r row) breaks(node int) bool { return slices.Contains(r.where.nodes(), node) }

// before returns the knobs of a mount before the fault.
func (r row) before(int) hostile.Knobs { return hostile.Knobs{NoFlush: r.knobs.NoFlush} }

// after returns the knobs of a node's mount during the fault. Each mount has its own sequence of
// errors.
func (r row) after(node int) hostile.Knobs {
	if !r.breaks(node) {
		return r.before(node)
	}
	knobs := r.knobs
	knobs.Seed = uint64(node)
	knobs.Unread, knobs.Held = r.stall == hostile.Unread, r.stall == hostile.Held
	return knobs
}

// endsDriver reports whether the fault must end a driver that runs forever.
func (r row) endsDriver() bool { return r.knobs.ReadOnly || r.stall != "" && r.release == 0 }

// survived reports whether a job with this fault in the given phase must end as its driver does.
// After the drain is published, faults have no effect. A driver on a full share continues, and its
// end is the end of the job, because heartbeat files need no space. After a node has joined and the
// head's service is known, the records up to that point need no content, because their names carry
// the state.
func (r row) survived(phase string) bool {
	switch {
	case r.harmless, phase == drain:
		return true
	case r.knobs.FullAtClose && r.where == atWorker && phase != join,
		r.knobs.FullAtClose && phase == workers:
		return true
	default:
		return r.knobs.Full != 0 && phase == driver
	}
}
