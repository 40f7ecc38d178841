// Package roleview shows the roles of a run to observers outside of its daemons: their planned
// endpoints, and the state of their instances. It needs only the run directory, not the file in
// which the roles are defined.
package roleview

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"golang.org/x/sync/errgroup"

	"github.com/bringupd/bringupd/pkg/roles"
	"github.com/bringupd/bringupd/pkg/signal"
	"github.com/bringupd/bringupd/pkg/signal/record"
)

// ErrNoPlan reports that a run has no plan of roles: it has none, or has not made the plan yet, or
// an older bringupd has made it.
var ErrNoPlan = errors.New("it has published no plan of roles")

// Files are the directories of a run directory from which a view is read.
type Files struct {
	Control, Nodes *signal.DirSnapshot
	Size           int    // number of nodes of the run
	Nonce          string // of the attempt; empty: any
	MaxExits       int    // number of records of exits that are read at most
}

// maxConcurrentReads is the number of records that are read at the same time.
const maxConcurrentReads = 16

// ReadPlan reads the newest plan of the roles of a run. If there is none, the error is [ErrNoPlan].
func (f Files) ReadPlan(ctx context.Context) (*record.RolePlan, error) {
	newest := f.Control.ParseListing(f.Size).NewestPlan()
	if newest < 0 {
		return nil, ErrNoPlan
	}
	rec := new(record.RolePlan)
	if _, err := f.Control.ReadRecord(ctx, signal.PlanName(newest), f.Nonce, rec); err != nil {
		return nil, err
	}
	if len(rec.Roles) == 0 {
		return nil, ErrNoPlan
	}
	return rec, nil
}

// Read reads the roles of a run and the states of their instances. If the run has no plan, the error
// is [ErrNoPlan].
func Read(ctx context.Context, f Files) (*View, error) {
	rec, err := f.ReadPlan(ctx)
	if err != nil {
		return nil, err
	}
	plan, err := roles.PlanFromRecord(rec)
	if err != nil {
		return nil, err
	}
	// Sort the marks by instance.
	control := f.Control.ParseListing(f.Size)
	seen := evidence{control: control, orders: control.InstanceOrders(), marks: make(map[int][]record.InstanceMark), moved: rec.Generations, hasEnded: hasEnded(control)}
	for _, offer := range rec.Offers {
		seen.members = append(seen.members, offer.NodeIndex)
	}
	for _, mark := range f.Nodes.ParseListing(f.Size).Instances() {
		seen.marks[mark.Instance] = append(seen.marks[mark.Instance], mark)
	}
	// Read which instances are lost, and the newest exits.
	if newest := control.NewestLive(); newest >= 0 {
		live := new(record.LiveInstances)
		if _, err := f.Control.ReadRecord(ctx, signal.LiveName(newest), f.Nonce, live); err == nil { // otherwise the exits say it
			seen.lost = live.Lost
		}
	}
	seen.exits = f.readExits(ctx, seen.marks)
	if err := context.Cause(ctx); err != nil {
		return nil, fmt.Errorf("cannot read the roles to the end: %w", err)
	}
	return newView(plan, seen), nil
}

// hasEnded reports whether a listing of the control directory shows the end of the run.
func hasEnded(control signal.Listing) bool {
	return control.HasName(signal.NameOrderlyEnd) || control.HasName(signal.NameHeadFinished) || len(control.NodesWithAbort()) > 0
}

// readExits reads the newest exit of each instance, as far as that is possible.
func (f Files) readExits(ctx context.Context, marks map[int][]record.InstanceMark) map[int]*record.InstanceExit {
	var newest []record.InstanceMark
	for _, of := range marks {
		if exit := newestExit(of); exit != nil {
			newest = append(newest, *exit)
		}
	}
	slices.SortFunc(newest, func(a, b record.InstanceMark) int { return a.Instance - b.Instance })
	newest = newest[:min(len(newest), f.MaxExits)]
	records := make([]*record.InstanceExit, len(newest))
	var reads errgroup.Group
	reads.SetLimit(maxConcurrentReads)
	for i, mark := range newest {
		reads.Go(func() error {
			rec := new(record.InstanceExit)
			if _, err := f.Nodes.ReadRecord(ctx, signal.InstanceName(mark, f.Size), f.Nonce, rec); err == nil {
				records[i] = rec
			}
			return nil
		})
	}
	_ = reads.Wait() // the reads return no error
	exits := make(map[int]*record.InstanceExit)
	for i, mark := range newest {
		if records[i] != nil {
			exits[mark.Instance] = records[i]
		}
	}
	return exits
}
