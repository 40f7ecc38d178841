package timeline

import (
	"errors"
	"time"

	"github.com/bringupd/bringupd/pkg/signal"
)

// readControl reads what the head has published.
func (r *reading) readControl(control *signal.Folder) {
	size := len(r.Nodes)
	l := control.Listing(size)
	r.control = l
	c := &r.Control
	c.Beat = l.Beats(signal.BeatState)[0]
	service, drain := new(signal.HeadRecord), new(signal.DrainRecord)
	for _, name := range []struct {
		name string
		mark *Mark
		rec  signal.Record
		use  func()
	}{
		{signal.NameHead, &c.Head, service, func() { c.Service = service }},
		{signal.NameDrain, &c.Drain, drain, func() { c.Ending = drain }},
		{signal.NameGo, &c.Go, new(signal.State), nil},
		{signal.NameOver, &c.Over, new(signal.State), nil},
		{signal.NameStop, &c.Stop, new(signal.State), nil},
	} {
		if !l.Has(name.name) {
			continue
		}
		at, whole := r.record(control, name.name, name.rec)
		*name.mark = Mark{There: true, At: at}
		if whole && name.use != nil {
			name.use()
		}
	}
	for _, rank := range l.Aborts() {
		var abort signal.AbortRecord
		if _, whole := r.record(control, signal.AbortName(rank, size), &abort); !whole {
			abort.Rank, abort.Code = rank, 0
		}
		if c.Aborts = append(c.Aborts, abort); len(c.Aborts) >= quickRecords {
			break
		}
	}
	r.readTeams(control, l.Team())
}

// record reads a record of this attempt, and tells when it was written and
// whether there is something in it.
func (r *reading) record(in *signal.Folder, name string, rec signal.Record) (at time.Time, whole bool) {
	at, err := in.Record(r.ctx, name, r.nonce, rec)
	if err != nil {
		r.problem(err)
		return at, false
	}
	if header := signal.HeaderOf(rec); header.Version > 0 {
		return header.At, true
	}
	return at, false
}

// readTeams reads the newest team, and when each was published.
func (r *reading) readTeams(control *signal.Folder, newest int) {
	if newest < 0 {
		return
	}
	for generation := max(0, newest-quickRecords); generation <= newest; generation++ {
		team := new(signal.TeamRecord)
		at, whole := r.record(control, signal.TeamName(generation), team)
		r.Control.Teams = append(r.Control.Teams, Mark{There: whole, At: at})
		if whole {
			r.Control.Team = team
		}
	}
	if r.Control.Team == nil {
		r.problem(errors.New("the team can't be read: who is in it is not known"))
	}
}
