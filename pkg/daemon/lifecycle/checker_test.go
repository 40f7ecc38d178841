package lifecycle_test

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/bringupd/bringupd/internal/files"
	"github.com/bringupd/bringupd/pkg/check"
	"github.com/bringupd/bringupd/pkg/daemon/lifecycle"
	"github.com/bringupd/bringupd/pkg/roles/launcher"
)

// quickChecks are checks without findings.
type quickChecks struct{ applied []check.Finding }

func (q *quickChecks) AwaitReady(context.Context, func(check.Report)) check.Report {
	return check.Report{Version: check.ReportVersion}
}

func (q *quickChecks) ApplyPolicy(findings []check.Finding) []check.Finding {
	q.applied = append(q.applied, findings...)
	return findings
}

func (q *quickChecks) MaxDuration() time.Duration { return time.Second }

// TestEndCutsOffQuery verifies that a query of the share that the end of the run has cut off is not
// a finding: the node publishes none.
func TestEndCutsOffQuery(t *testing.T) {
	errEnded := errors.New("the run has ended")
	inBubble(t, func(t *testing.T, r *reporter) {
		ctx, end := context.WithCancelCause(t.Context())
		defer end(nil)
		r.fs.onSpace = func() (files.Space, error) {
			end(errEnded)
			return files.Space{}, errEnded
		}
		checks := new(quickChecks)
		c := &lifecycle.Checker{
			Publisher: r.Publisher, ID: &launcher.Identity{Size: 2}, Checks: checks,
			WatchGPU: func(context.Context) error { return nil },
		}
		c.StartEarly()
		if err := c.PrepareNode(ctx); !errors.Is(err, errEnded) || len(checks.applied) > 0 {
			t.Errorf("the node ends with %v, and the findings are %v", err, checks.applied)
		}
		if names := r.published(); len(names) > 0 {
			t.Errorf("it has published %v", names)
		}
	})
}
