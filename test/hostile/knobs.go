package hostile

import (
	"fmt"
	"math"
	"math/rand/v2"
	"syscall"
	"time"
)

// Knobs say what is wrong with a mount. The zero value is nothing at all.
type Knobs struct {
	// Latency is added to every call.
	Latency Latency `json:"latency,omitzero"`

	// Negative is for how long this mount goes on answering "no such file"
	// for a name that it has once not found, whoever has made it meanwhile.
	// Listings show it all the same.
	Negative time.Duration `json:"negative,omitzero"`
	// Listing is how old the listing of a directory may be. What this mount
	// itself has changed there is in it, where it was told of the success.
	Listing time.Duration `json:"listing,omitzero"`
	// Attributes is for how long this mount goes on answering what it once
	// knew of a name that it has found: what it is, its size, its times.
	Attributes time.Duration `json:"attributes,omitzero"`

	// Stale, IO and Missing are the fractions, from 0 to 1, of the calls that
	// are not made and answered with ESTALE, EIO or ENOENT: of those calls
	// that can fail so. See fallible.
	Stale   float64 `json:"stale,omitzero"`
	IO      float64 `json:"io,omitzero"`
	Missing float64 `json:"missing,omitzero"`
	// Seed makes another sequence of latencies and errors.
	Seed uint64 `json:"seed,omitzero"`

	// Forgets has every file that was opened while it was less answer ESTALE, for
	// good: what opens it anew gets on.
	Forgets int `json:"forgets,omitzero"`

	// RenameLies has every rename answered with ENOENT, though it worked.
	RenameLies bool `json:"rename_lies,omitzero"`
	// NoLinks is what hard links are answered with, EPERM or ENOTSUP, where
	// there are none.
	NoLinks syscall.Errno `json:"no_links,omitzero"`

	// Full is what is answered, ENOSPC or EDQUOT, to what needs room: to make
	// a name, and to write.
	Full syscall.Errno `json:"full,omitzero"`
	// FullAtClose has Full said late: files can be made, what is written to
	// them is taken and lost, and the sync or the close says so.
	FullAtClose bool `json:"full_at_close,omitzero"`
	// ReadOnly has every change answered with EROFS.
	ReadOnly bool `json:"read_only,omitzero"`

	// NoFlush has the kernel told, at the first close, that it need not tell of
	// any. Or else who ends with a file open that is on a stalled mount stays
	// until the release, which no network file system asks of who is killed.
	NoFlush bool `json:"no_flush,omitzero"`
	// Unread has no call taken, until it is false again: who waits for one can
	// be killed, as on a network file system that is mounted "hard".
	Unread bool `json:"unread,omitzero"`
	// Held has every call taken and not answered, until it is false again: not
	// even a KILL ends who waits for one.
	Held bool `json:"held,omitzero"`
}

// Latency is how long a call takes longer: a time between Min and Max.
type Latency struct {
	Min time.Duration `json:"min,omitzero"`
	Max time.Duration `json:"max,omitzero"` // Min where it is less
	// Tail is the exponent of a Pareto distribution that begins at Min and is
	// cut off at Max: 1 is a heavy tail. 0 is no Pareto distribution: all
	// times between Min and Max are as likely.
	Tail float64 `json:"tail,omitzero"`
}

// check returns an error for the first knob that makes no sense.
func (k Knobs) check() error {
	for _, row := range []struct {
		name  string
		value float64
	}{{"stale", k.Stale}, {"io", k.IO}, {"missing", k.Missing}} {
		if !(row.value >= 0 && row.value <= 1) {
			return fmt.Errorf("cannot answer a fraction of %v with an error (%s): give one from 0 to 1", row.value, row.name)
		}
	}
	for _, row := range []struct {
		name  string
		value time.Duration
	}{
		{"latency.min", k.Latency.Min}, {"latency.max", k.Latency.Max},
		{"negative", k.Negative}, {"listing", k.Listing}, {"attributes", k.Attributes},
	} {
		if row.value < 0 {
			return fmt.Errorf("cannot have a time of %s (%s): give 0 or more", row.value, row.name)
		}
	}
	if k.Latency.Tail < 0 || k.Latency.Tail > 0 && k.Latency.Min <= 0 {
		return fmt.Errorf("cannot have a tail of %v that begins at %s: both must be more than 0", k.Latency.Tail, k.Latency.Min)
	}
	if k.Unread && k.Held {
		return fmt.Errorf("cannot hold calls that are not taken: give unread or held")
	}
	if k.FullAtClose && k.Full == 0 {
		return fmt.Errorf("cannot have a close that tells nothing: give full as well, %d or %d", syscall.ENOSPC, syscall.EDQUOT)
	}
	return nil
}

// draw returns the latency of one call.
func (l Latency) draw(random *rand.Rand) time.Duration {
	if l.Max <= l.Min {
		return l.Min
	}
	if l.Tail == 0 {
		return l.Min + time.Duration(random.Float64()*float64(l.Max-l.Min))
	}
	// 1-Float64() is never 0.
	drawn := float64(l.Min) * math.Pow(1-random.Float64(), -1/l.Tail)
	return time.Duration(min(drawn, float64(l.Max)))
}

// operation is a kind of call.
type operation int

const (
	opLookup operation = iota
	opGetattr
	opSetattr
	opReadlink
	opMkdir
	opUnlink
	opRmdir
	opRename
	opLink
	opSymlink
	opCreate
	opOpen
	opRead
	opWrite
	opFlush
	opFsync
	opOpendir
	opReaddir
	opFsyncdir
	opStatfs
)

// traits are how a kind of call can go wrong.
type traits struct {
	stale   bool // it works on a handle, which the server may have forgotten
	missing bool // it begins with a name
	changes bool // it changes the file system
	room    bool // it needs room on it
}

// fallible says which calls can fail how. Any can fail with EIO. A close can't
// be stale: the data have been taken. A listing or a file that is open has no
// name that could be missing any more.
var fallible = map[operation]traits{
	opLookup:   {stale: true, missing: true},
	opGetattr:  {stale: true},
	opSetattr:  {stale: true, changes: true},
	opReadlink: {stale: true},
	opMkdir:    {stale: true, changes: true, room: true},
	opUnlink:   {stale: true, missing: true, changes: true},
	opRmdir:    {stale: true, missing: true, changes: true},
	opRename:   {stale: true, missing: true, changes: true},
	opLink:     {stale: true, missing: true, changes: true, room: true},
	opSymlink:  {stale: true, changes: true, room: true},
	opCreate:   {stale: true, changes: true, room: true},
	opOpen:     {stale: true, missing: true},
	opRead:     {stale: true},
	opWrite:    {stale: true, changes: true, room: true},
	opFlush:    {},
	opFsync:    {stale: true},
	opOpendir:  {stale: true, missing: true},
	opReaddir:  {stale: true},
	opFsyncdir: {stale: true},
	opStatfs:   {stale: true},
}

// fault returns what a call is answered with that is not made; 0 for one that
// is.
func (k Knobs) fault(op operation, random *rand.Rand) syscall.Errno {
	can := fallible[op]
	switch {
	case can.changes && k.ReadOnly:
		return syscall.EROFS
	case can.room && k.Full != 0 && !k.FullAtClose:
		return k.Full
	case op == opLink && k.NoLinks != 0:
		return k.NoLinks
	case can.stale && random.Float64() < k.Stale:
		return syscall.ESTALE
	case random.Float64() < k.IO:
		return syscall.EIO
	case can.missing && random.Float64() < k.Missing:
		return syscall.ENOENT
	}
	return 0
}
