package hostile

import (
	"fmt"
	"math"
	"math/rand/v2"
	"syscall"
	"time"
)

// Knobs describes the faults of a mount. The zero value has no faults.
type Knobs struct {
	// Latency is added to every call.
	Latency Latency `json:"latency,omitzero"`

	// Negative is how long this mount caches a missing name, even if another mount creates it
	// meanwhile. Listings show the name nevertheless.
	Negative time.Duration `json:"negative,omitzero"`
	// Listing is the maximum age of a directory's cached listing. It contains changes by this mount
	// for which it received a success.
	Listing time.Duration `json:"listing,omitzero"`
	// Attributes is how long this mount caches a name that it has found, with its type, size and
	// times.
	Attributes time.Duration `json:"attributes,omitzero"`

	// Stale, IO and Missing are the fractions, from 0 to 1, of calls that are not executed and
	// answered with ESTALE, EIO or ENOENT. They apply only to calls that can fail in this way; see
	// fallible.
	Stale   float64 `json:"stale,omitzero"`
	IO      float64 `json:"io,omitzero"`
	Missing float64 `json:"missing,omitzero"`
	// Seed selects the random sequence of latencies and errors.
	Seed uint64 `json:"seed,omitzero"`

	// Forgets makes every file that was opened when Forgets had a lower value fail with ESTALE
	// permanently. Opening the file again helps.
	Forgets int `json:"forgets,omitzero"`

	// RenameLies makes every rename return ENOENT, although it succeeded.
	RenameLies bool `json:"rename_lies,omitzero"`
	// NoLinks is the error of hard links if they are not supported: EPERM or ENOTSUP.
	NoLinks syscall.Errno `json:"no_links,omitzero"`

	// Full is the error, ENOSPC or EDQUOT, of calls that need space: creating a name, and writing.
	Full syscall.Errno `json:"full,omitzero"`
	// FullAtClose delays the error Full: files can be created, data written to them is accepted and
	// discarded, and the sync or the close fails.
	FullAtClose bool `json:"full_at_close,omitzero"`
	// ReadOnly makes every change fail with EROFS.
	ReadOnly bool `json:"read_only,omitzero"`

	// NoFlush makes the first close tell the kernel that it need not report closes. Otherwise a
	// process that ends with an open file on a stalled mount stays until the release, which no network
	// file system does to a killed process.
	NoFlush bool `json:"no_flush,omitzero"`
	// Unread stops the reading of calls while it is set. A process that waits for a call can be
	// killed, as on a network file system that is mounted "hard".
	Unread bool `json:"unread,omitzero"`
	// Held takes every call and does not answer it while it is set. Not even KILL ends a process that
	// waits for a call.
	Held bool `json:"held,omitzero"`
}

// Latency is the additional duration of a call: a time between Min and Max.
type Latency struct {
	Min time.Duration `json:"min,omitzero"`
	Max time.Duration `json:"max,omitzero"` // a value less than Min means Min
	// Tail is the exponent of a Pareto distribution that begins at Min and is cut off at Max; 1 is a
	// heavy tail. 0 means a uniform distribution between Min and Max.
	Tail float64 `json:"tail,omitzero"`
}

// check returns an error for the first invalid value.
func (k Knobs) check() error {
	for _, row := range []struct {
		name  string
		value float64
	}{{"stale", k.Stale}, {"io", k.IO}, {"missing", k.Missing}} {
		if !(row.value >= 0 && row.value <= 1) {
			return fmt.Errorf("cannot answer a fraction of %v with an error (%s): give one from "+
				"0 to 1", row.value, row.name)
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
		return fmt.Errorf("cannot have a tail of %v that begins at %s: both must be more than 0",
			k.Latency.Tail, k.Latency.Min)
	}
	if k.Unread && k.Held {
		return fmt.Errorf("cannot hold calls that are not taken: give unread or held")
	}
	if k.FullAtClose && k.Full == 0 {
		return fmt.Errorf("cannot have a close that tells nothing: give full as well, %d or %d",
			syscall.ENOSPC, syscall.EDQUOT)
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

// traits describes how a kind of call can fail.
type traits struct {
	stale   bool // uses a handle, which the server may have forgotten
	missing bool // looks up a name first
	changes bool // changes the file system
	room    bool // needs space
}

// fallible maps calls to the errors that are possible. EIO is always possible. A close cannot
// return ESTALE, because the data has been accepted. Calls on an open directory or file use no name
// that could be missing.
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

// fault returns the error of a call that must not be executed, or 0 if the call must be executed.
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
