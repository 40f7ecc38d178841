package roleview

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/bringupd/bringupd/internal/ctxutil"
	"github.com/bringupd/bringupd/pkg/roles"
	"github.com/bringupd/bringupd/pkg/signal"
	"github.com/bringupd/bringupd/pkg/signal/record"
)

const (
	// shareInterval is the interval between two listings of the run directory, and
	// slowShareInterval that of a process of the run, which reads the file of its node meanwhile.
	shareInterval     = time.Second
	slowShareInterval = 10 * time.Second
	// fileInterval is the interval between two readings of the file of the node.
	fileInterval = 200 * time.Millisecond
	// pollTimeout is the timeout of one poll of the shared file system.
	pollTimeout = 30 * time.Second
)

var errPollTimeout = errors.New("timed out")

// watcher follows the endpoints of a role that are ready.
type watcher struct {
	Query
	source
	planNumber, liveNumber int // of the newest records that were read; -1: none
	view                   *View
	ready                  []roles.Endpoint
	isKnown, hasEnded      bool
}

// watch prints the ready endpoints of a role whenever they change, in a line each, until the run
// ends. It prints nothing before one is ready.
func (q Query) watch(ctx context.Context, run source) error {
	w := &watcher{Query: q, source: run, planNumber: -1, liveNumber: -1}
	printed, nextShare := "", time.Now()
	for isFirst := true; ; isFirst = false {
		// Look at the run directory, and at the file of the node.
		if !time.Now().Before(nextShare) {
			// Errors of later polls may be temporary.
			if err := w.pollShare(ctx); err != nil && (isFirst || isRefusal(err)) {
				return err
			}
			nextShare = time.Now().Add(w.shareInterval())
		}
		if !w.readFile() && nextShare.After(time.Now().Add(shareInterval)) {
			nextShare = time.Now().Add(shareInterval) // a spare node may have taken a place
		}
		// Print what has changed.
		line := q.joinEndpoints(w.ready)
		if w.isKnown && line != printed {
			if _, err := io.WriteString(q.Out, line+"\n"); err != nil {
				return err
			}
			printed = line
		}
		pause := shareInterval
		if w.EndpointsFile != "" {
			pause = fileInterval
		}
		if w.hasEnded {
			return nil
		}
		if !ctxutil.SleepContext(ctx, pause) {
			return context.Cause(ctx)
		}
	}
}

// shareInterval returns the time until the next look at the run directory.
func (w *watcher) shareInterval() time.Duration {
	if w.EndpointsFile != "" && w.view != nil {
		return slowShareInterval
	}
	return shareInterval
}

// refusalError reports a mistake of the user, which does not go away.
type refusalError struct{ error }

// isRefusal reports whether an error is a mistake of the user.
func isRefusal(err error) bool {
	_, is := errors.AsType[refusalError](err)
	return is
}

// pollShare reads the newest plan and the newest list of ready instances, if they are new.
func (w *watcher) pollShare(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, pollTimeout, errPollTimeout)
	defer cancel()
	control, err := w.reader.ListDir(ctx, signal.ControlDir)
	if err != nil {
		return err
	}
	listing := control.ParseListing(w.job.Size)
	w.hasEnded = hasEnded(listing)
	if err := w.readPlan(ctx, control, listing.NewestPlan()); err != nil || w.view == nil {
		return err
	}
	if newest := listing.NewestLive(); w.EndpointsFile == "" && newest > w.liveNumber {
		live := new(record.LiveInstances)
		if _, err := control.ReadRecord(ctx, signal.LiveName(newest), w.job.Nonce, live); err != nil {
			return err
		}
		w.liveNumber, w.isKnown = newest, true
		w.ready = w.view.readyEndpoints(w.view.FindRole(w.Role), live.Ready)
	}
	return nil
}

// readPlan reads the plan with the given number, if it is newer than the one that is known.
func (w *watcher) readPlan(ctx context.Context, control *signal.DirSnapshot, number int) error {
	if number <= w.planNumber {
		return nil
	}
	rec, err := Files{Control: control, Size: w.job.Size, Nonce: w.job.Nonce}.ReadPlan(ctx)
	if err != nil {
		return err
	}
	plan, err := roles.PlanFromRecord(rec)
	if err != nil {
		return refusalError{err}
	}
	view := newPlannedView(plan)
	if view.FindRole(w.Role) == nil {
		return refusalError{view.refuseRole(w.Role)}
	}
	w.planNumber, w.view = number, view
	return nil
}

// newPlannedView returns a view of a plan without the states of the instances.
func newPlannedView(plan *roles.Plan) *View {
	v := &View{Plan: plan}
	for i := range plan.Roles {
		role := Role{RolePlan: &plan.Roles[i]}
		for j := range role.RolePlan.Instances {
			role.Instances = append(role.Instances, Instance{Instance: &role.RolePlan.Instances[j]})
		}
		v.Roles = append(v.Roles, role)
	}
	return v
}

// readFile takes over the endpoints in the file of the node. Without the file, which the end of the
// run removes, the records in the run directory count. It reports whether all endpoints are planned;
// otherwise the plan is not the newest one.
func (w *watcher) readFile() (arePlanned bool) {
	if w.EndpointsFile == "" || w.view == nil {
		return true
	}
	data, err := os.ReadFile(w.EndpointsFile)
	if err != nil {
		w.EndpointsFile = ""
		return true
	}
	listed := strings.Fields(string(data))
	w.ready, w.isKnown = nil, true
	for _, endpoint := range w.view.Plan.Endpoints(w.view.FindRole(w.Role).RolePlan) {
		if slices.Contains(listed, endpoint.HostPort()) {
			w.ready = append(w.ready, endpoint)
		}
	}
	return len(w.ready) == len(listed)
}

// EndpointsVariable returns the name of the variable with the node's file of the endpoints of a
// role.
func EndpointsVariable(role string) string {
	return fmt.Sprintf("BRINGUPD_ENDPOINTS_FILE_%s", roles.VariableName(role))
}
