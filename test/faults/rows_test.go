package faults

import (
	"slices"
	"syscall"
	"time"

	"github.com/bringupd/bringupd/test/hostile"
)

// where is which mounts are broken.
type where string

const (
	atWorker where = "rank 2"
	atHead   where = "the head"
	atAll    where = "all"
)

func (w where) ranks() []int {
	switch w {
	case atWorker:
		return []int{2}
	case atHead:
		return []int{0}
	default:
		return []int{0, 1, 2, 3}
	}
}

// row is a way to break mounts.
type row struct {
	name  string
	where where
	knobs hostile.Knobs
	// stall, where there is one, lasts until the release, or for good.
	stall   hostile.StallKind
	release time.Duration
	// harmless ones must not be noticed. Others must be told of by who meets
	// them, in words that have says in them.
	harmless bool
	says     string
	// unread is that nobody reads the daemons' standard error.
	unread bool
}

const (
	ms   = time.Millisecond
	ever = time.Hour // longer than any job
)

// harmless are the rows that a job must survive.
var harmless = []row{
	{name: "nothing"},
	{name: "every call takes 20 ms longer", knobs: hostile.Knobs{Latency: hostile.Latency{Min: 20 * ms}}},
	{name: "every call takes up to 50 ms longer", knobs: hostile.Knobs{Latency: hostile.Latency{Max: 50 * ms}}},
	{name: "calls take 1 ms longer, some up to 1 s (a heavy tail)", knobs: hostile.Knobs{Latency: hostile.Latency{Min: ms, Max: time.Second, Tail: 1}}},
	{name: "a name once missing stays missing", knobs: hostile.Knobs{Negative: ever}},
	{name: "listings are up to 1 s old", knobs: hostile.Knobs{Listing: time.Second}},
	{name: "what was once known of a name stays so", knobs: hostile.Knobs{Attributes: ever}},
	{name: "5 % of the calls answer ESTALE", knobs: hostile.Knobs{Stale: 0.05}},
	{name: "5 % of the calls answer EIO", knobs: hostile.Knobs{IO: 0.05}},
	{name: "5 % of the calls answer ENOENT", knobs: hostile.Knobs{Missing: 0.05}},
	{name: "every rename works and answers ENOENT", knobs: hostile.Knobs{RenameLies: true}},
	{name: "hard links answer EPERM", knobs: hostile.Knobs{NoLinks: syscall.EPERM}},
	{name: "hard links answer ENOTSUP", knobs: hostile.Knobs{NoLinks: syscall.ENOTSUP}},
	{name: "nothing answers for 1 s", stall: hostile.Unread, knobs: hostile.Knobs{NoFlush: true}, release: time.Second},
	{name: "nothing answers for 1 s, not even a KILL helps", stall: hostile.Held, release: time.Second},
	// Not with renames that lie: Linux's FUSE remembers that the new name was
	// missing when the rename began, which no file system does.
	{name: "much of this at once", knobs: hostile.Knobs{
		Latency: hostile.Latency{Max: 20 * ms}, Negative: ever, Listing: 500 * ms, Attributes: ever,
		Stale: 0.02, IO: 0.02, NoLinks: syscall.EPERM,
	}},
}

// beside are rows of what is wrong beside the share, which a job must survive,
// too.
var beside = []row{
	{name: "nobody reads standard error", unread: true},
}

// harmful are those that it can't, where they break one mount or all.
var harmful = []row{
	{name: "full: ENOSPC", knobs: hostile.Knobs{Full: syscall.ENOSPC}, says: "no space left"},
	{name: "over quota: EDQUOT", knobs: hostile.Knobs{Full: syscall.EDQUOT}, says: "quota exceeded"},
	{name: "full, which only the close says", knobs: hostile.Knobs{Full: syscall.ENOSPC, FullAtClose: true}, says: "no space left"},
	{name: "read-only: EROFS", knobs: hostile.Knobs{ReadOnly: true}, says: "read-only"},
	{name: "nothing answers", stall: hostile.Unread, knobs: hostile.Knobs{NoFlush: true}, says: "has not answered"},
	{name: "nothing answers, not even a KILL helps", stall: hostile.Held, says: "has not answered"},
}

// rows are those of the matrix.
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

// title names the row in the table.
func (r row) title() string { return r.name + " | " + string(r.where) }

// breaks tells whether a rank's mount is broken.
func (r row) breaks(rank int) bool { return slices.Contains(r.where.ranks(), rank) }

// before are the knobs of a mount that is not broken yet.
func (r row) before(int) hostile.Knobs { return hostile.Knobs{NoFlush: r.knobs.NoFlush} }

// after are those of a rank's mount once they have been turned. Each mount has
// a sequence of errors of its own.
func (r row) after(rank int) hostile.Knobs {
	if !r.breaks(rank) {
		return r.before(rank)
	}
	knobs := r.knobs
	knobs.Seed = uint64(rank)
	knobs.Unread, knobs.Held = r.stall == hostile.Unread, r.stall == hostile.Held
	return knobs
}

// endsDriver tells whether a driver that runs for ever is to be ended by it.
func (r row) endsDriver() bool { return r.knobs.ReadOnly || r.stall != "" && r.release == 0 }

// survived tells whether a job that meets it in a phase must end as its driver
// does. What is broken once the drain is published is nobody's business any
// more. A driver whose share runs full goes on, and its end is the job's: beats
// need no room. Once a node has joined, and the head's service is known, what
// is written until then says all by its name.
func (r row) survived(phase string) bool {
	switch {
	case r.harmless, phase == drain:
		return true
	case r.knobs.FullAtClose && r.where == atWorker && phase != join, r.knobs.FullAtClose && phase == workers:
		return true
	default:
		return r.knobs.Full != 0 && phase == driver
	}
}
