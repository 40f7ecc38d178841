package runs

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/bringupd/bringupd/internal/ctxutil"
	"github.com/bringupd/bringupd/pkg/inspect/timeline"
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
)

type roleWatcher struct {
	RoleQuery
	openedRun
	planNumber, liveNumber int             // of the newest records that were read; -1: none
	plan                   *roles.Plan     // nil until it is known
	role                   *roles.RolePlan // the one that is watched
	ready                  []roles.Endpoint
	isKnown, hasEnded      bool
}

// watch prints the ready endpoints of a role whenever they change, in a line each, until the run
// ends. It prints nothing before one is ready.
func (q RoleQuery) watch(ctx context.Context) error {
	run, err := openRun(ctx, q.Path)
	if err != nil {
		return err
	}
	w := &roleWatcher{RoleQuery: q, openedRun: run, planNumber: -1, liveNumber: -1}
	w.Format = cmp.Or(w.Format, "%a")
	printed, lastShare := "", time.Time{}
	for !w.hasEnded {
		// A process of the run reads the file of its node. If that has an endpoint which is not planned, a
		// spare node has taken a place.
		pause, interval := shareInterval, shareInterval
		if isPlanned := w.readFile(); w.EndpointsFile != "" {
			pause = fileInterval
			if w.plan != nil && isPlanned {
				interval = slowShareInterval
			}
		}
		if isFirst := lastShare.IsZero(); time.Since(lastShare) >= interval {
			err := w.pollShare(ctx)
			if _, isRefusal := errors.AsType[refusalError](err); err != nil && (isFirst || isRefusal) {
				return err // errors of later polls may be temporary
			}
			lastShare = time.Now()
			w.readFile()
		}
		if line := w.formatReady(); w.isKnown && line != printed {
			if _, err := io.WriteString(q.Out, line+"\n"); err != nil {
				return err
			}
			printed = line
		}
		if !w.hasEnded && !ctxutil.SleepContext(ctx, pause) {
			return context.Cause(ctx)
		}
	}
	return nil
}

func (w *roleWatcher) formatReady() string {
	texts := make([]string, len(w.ready))
	for i, endpoint := range w.ready {
		texts[i] = w.Format.Of(endpoint)
	}
	return strings.Join(texts, " ")
}

// refusalError reports a mistake of the user, which does not go away.
type refusalError struct{ error }

// pollShare reads the newest plan and the newest list of ready instances, if they are new.
func (w *roleWatcher) pollShare(ctx context.Context) error {
	ctx, cancel := withPollTimeout(ctx)
	defer cancel()
	control, err := w.reader.ListDir(ctx, signal.ControlDir)
	if err != nil {
		return err
	}
	listing := control.ParseListing(w.job.Size)
	w.hasEnded = timeline.HasEnd(listing)
	if newest := listing.Newest(signal.SeriesPlan); newest > w.planNumber {
		if err := w.readPlan(ctx, control); err != nil {
			return err
		}
		w.planNumber = newest
	}
	newest := listing.Newest(signal.SeriesLive)
	if w.plan == nil || w.EndpointsFile != "" || newest <= w.liveNumber {
		return nil
	}
	live := new(record.LiveInstances)
	if _, err := control.ReadRecord(ctx, signal.SeriesLive.Name(newest), w.job.Nonce, live); err != nil {
		return err
	}
	w.liveNumber = newest
	w.setReady(func(endpoint roles.Endpoint) bool {
		return slices.Contains(live.Ready, w.role.Instances[endpoint.Instance].Number)
	})
	return nil
}

func (w *roleWatcher) setReady(isReady func(roles.Endpoint) bool) {
	unready := func(endpoint roles.Endpoint) bool { return !isReady(endpoint) }
	w.ready, w.isKnown = slices.DeleteFunc(w.plan.Endpoints(w.role), unready), true
}

func (w *roleWatcher) readPlan(ctx context.Context, control *signal.DirSnapshot) error {
	plan, rec, err := timeline.RoleFiles{Control: control, Size: w.job.Size, Nonce: w.job.Nonce}.ReadPlan(ctx)
	switch {
	case err != nil && rec != nil:
		return refusalError{err}
	case err != nil:
		return err
	}
	role := plan.FindRole(w.Role)
	if role == nil {
		return refusalError{timeline.UnknownRoleError(plan, w.Role)}
	}
	w.plan, w.role = plan, role
	return nil
}

// readFile takes over the endpoints in the file of the node. Without the file, which the end of the
// run removes, the records in the run directory count. It reports whether all endpoints are planned;
// otherwise the plan is not the newest one.
func (w *roleWatcher) readFile() (arePlanned bool) {
	if w.EndpointsFile == "" || w.plan == nil {
		return true
	}
	data, err := os.ReadFile(w.EndpointsFile)
	if err != nil {
		w.EndpointsFile = ""
		return true
	}
	listed := strings.Fields(string(data))
	w.setReady(func(endpoint roles.Endpoint) bool { return slices.Contains(listed, endpoint.HostPort()) })
	return len(w.ready) == len(listed)
}

// EndpointsVariable returns the name of the variable with the node's file of the endpoints of a
// role.
func EndpointsVariable(role string) string {
	return fmt.Sprintf("BRINGUPD_ENDPOINTS_FILE_%s", roles.VariableName(role))
}
