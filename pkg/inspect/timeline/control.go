package timeline

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/bringupd/bringupd/pkg/roles"
	"github.com/bringupd/bringupd/pkg/signal"
	"github.com/bringupd/bringupd/pkg/signal/record"
)

var errEmptyRecord = errors.New("it is empty")

// recordPointer constrains a type to be a pointer to T that implements signal.Record.
type recordPointer[T any] interface {
	*T
	record.Record
}

// readAttemptRecord reads a record of this attempt (of any attempt as long as no job record is
// known) and returns the time at which it was written. The error wraps errEmptyRecord if the record
// has no content.
func readAttemptRecord[T any, R recordPointer[T]](
	r *runReader, in *signal.DirSnapshot, name string,
) (rec R, at time.Time, err error) {
	rec = new(T)
	at, err = in.ReadRecord(r.ctx, name, r.nonce, rec)
	if header := record.HeaderOf(rec); err == nil && header.Version > 0 {
		return rec, header.WrittenAt, nil
	}
	if err == nil {
		err = fmt.Errorf("cannot use %s: %w", name, errEmptyRecord)
	}
	return nil, at, err
}

// readRecord reads a record that may be missing in the listing, or an empty mark: its name carries all
// information, and rec is nil. If the record cannot be read, readRecord notes a problem and returns
// nil, too.
func readRecord[T any, R recordPointer[T]](r *runReader, in *signal.DirSnapshot, name string) (rec R, m RecordTime) {
	if _, there := slices.BinarySearch(in.Names, name); !there {
		return nil, m
	}
	rec, at, err := readAttemptRecord[T, R](r, in, name)
	if !errors.Is(err, errEmptyRecord) {
		r.noteProblem(err)
	}
	return rec, RecordTime{Exists: true, At: at}
}

// readControl reads the records in control/: those of the head, and the abort records of all nodes.
func (r *runReader) readControl(control *signal.DirSnapshot) {
	size := len(r.Nodes)
	c, l := &r.Control, control.ParseListing(size)
	c.Heartbeat = l.Heartbeats()[0]
	c.HeadRecord, c.Head = readRecord[record.Head](r, control, signal.NameHead)
	c.DrainRecord, c.Drain = readRecord[record.OrderlyEnd](r, control, signal.NameOrderlyEnd)
	c.LingerRecord, _ = readRecord[record.OrderlyEnd](r, control, signal.NameDriverEnded)
	_, c.Go = readRecord[record.Mark](r, control, signal.NameGateOpen)
	_, c.Over = readRecord[record.Mark](r, control, signal.NameHeadFinished)
	for _, node := range l.NodesLost(size) {
		r.Nodes[node].isLost = true
	}
	aborts := l.NodesWithAbort()
	for _, node := range aborts[:min(len(aborts), maxQuickRecords)] {
		abort, _ := readRecord[record.Abort](r, control, signal.AbortName(node, size))
		if abort == nil {
			abort = &record.Abort{Header: record.Header{NodeIndex: node}}
		}
		c.Aborts = append(c.Aborts, *abort)
	}
	if newest := l.Newest(signal.SeriesProgress); newest >= 0 {
		mark, _, err := readAttemptRecord[record.ProgressMark](r, control, signal.SeriesProgress.Name(newest))
		if err == nil { // otherwise the head has replaced it in the meantime
			c.Progress = &mark.Progress
		}
	}
	if newest := l.Newest(signal.SeriesPlan); newest >= 0 && r.hasSpares() {
		if c.Team, _ = readRecord[roles.PlanRecord](r, control, signal.SeriesPlan.Name(newest)); c.Team != nil {
			c.Team.Number = newest
		}
	}
}

// hasSpares reports whether the driver needs fewer nodes than the run has.
func (r *runReader) hasSpares() bool {
	return r.Job != nil && r.Job.Plan != nil && r.Job.Plan.NodesNeeded < r.Job.Size
}

func (r *runReader) readRoles(control, nodes *signal.DirSnapshot) {
	files := RoleFiles{Control: control, Nodes: nodes, Size: len(r.Nodes), Nonce: r.nonce}
	files.HasChecks = r.Job.HasChecks()
	for i := range r.Nodes {
		files.Hosts = append(files.Hosts, r.Nodes[i].Host)
	}
	placed, err := files.ReadRoles(r.ctx)
	if !errors.Is(err, ErrNoPlan) {
		r.noteProblem(err)
	}
	r.Roles = placed
}
