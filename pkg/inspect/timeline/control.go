package timeline

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/bringupd/bringupd/pkg/signal"
)

// errEmpty reports that a record has no content.
var errEmpty = errors.New("there is nothing in it")

// isRecord constrains a type to be a pointer to T that implements signal.Record.
type isRecord[T any] interface {
	*T
	signal.Record
}

// usable reads a record of this attempt (of any attempt as long as no job record is known) and
// returns the time at which it was written. The error wraps errEmpty if the record has no content.
func usable[T any, R isRecord[T]](r *reading, in *signal.DirSnapshot, name string) (rec R, at time.Time, err error) {
	rec = new(T)
	at, err = in.ReadRecord(r.ctx, name, r.nonce, rec)
	if header := signal.HeaderOf(rec); err == nil && header.Version > 0 {
		return rec, header.WrittenAt, nil
	}
	if err == nil {
		err = fmt.Errorf("cannot use %s: %w", name, errEmpty)
	}
	return nil, at, err
}

// record reads a record that may be an empty mark: its name carries all information, and rec is
// nil. If the record cannot be read, record notes a problem and returns nil, too.
func record[T any, R isRecord[T]](r *reading, in *signal.DirSnapshot, name string) (rec R, m Mark) {
	rec, at, err := usable[T, R](r, in, name)
	if !errors.Is(err, errEmpty) {
		r.problem(err)
	}
	return rec, Mark{There: true, At: at}
}

// listed is like record, but for a name that may be missing from the listing.
func listed[T any, R isRecord[T]](r *reading, in *signal.DirSnapshot, name string) (rec R, m Mark) {
	if _, there := slices.BinarySearch(in.Names, name); !there {
		return nil, m
	}
	return record[T, R](r, in, name)
}

// readControl reads the records in control/: those of the head, and the abort records of all nodes.
func (r *reading) readControl(control *signal.DirSnapshot) {
	size := len(r.Nodes)
	c, l := &r.Control, control.ParseListing(size)
	c.Beat = l.Heartbeats(signal.StateHeartbeat)[0]
	c.Service, c.Head = listed[signal.HeadRecord](r, control, signal.NameHead)
	c.Ending, c.Drain = listed[signal.OrderlyEndRecord](r, control, signal.NameOrderlyEnd)
	c.Look, _ = listed[signal.OrderlyEndRecord](r, control, signal.NameDriverEnded)
	_, c.Go = listed[signal.StateRecord](r, control, signal.NameGateOpen)
	_, c.Over = listed[signal.StateRecord](r, control, signal.NameHeadFinished)
	aborts := l.NodesWithAbort()
	for _, rank := range aborts[:min(len(aborts), quickRecords)] {
		abort, _ := record[signal.AbortRecord](r, control, signal.AbortName(rank, size))
		if abort == nil {
			abort = &signal.AbortRecord{Header: signal.Header{Rank: rank}}
		}
		c.Aborts = append(c.Aborts, *abort)
	}
	if newest := l.TeamGeneration(); newest >= 0 {
		r.readTeam(control, newest)
	}
}

// readTeam reads the newest readable membership record, at most quickRecords generations back.
func (r *reading) readTeam(control *signal.DirSnapshot, newest int) {
	for generation := newest; generation >= max(0, newest-quickRecords); generation-- {
		if r.Control.Team, _ = record[signal.TeamRecord](r, control, signal.TeamName(generation)); r.Control.Team != nil {
			return
		}
	}
	r.problem(errors.New("the team can't be read: who is in it is not known"))
}
