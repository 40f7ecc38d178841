package planning_test

import (
	"context"
	"errors"
	"path/filepath"
	"testing"

	"github.com/bringupd/bringupd/pkg/daemon/lifecycle"
	"github.com/bringupd/bringupd/pkg/daemon/planning"
	"github.com/bringupd/bringupd/pkg/signal"
	"github.com/bringupd/bringupd/pkg/signal/record"
)

// TestReadPlanAtTheEnd verifies that a plan which cannot be read because the run ends is no
// failure.
func TestReadPlanAtTheEnd(t *testing.T) {
	place := signal.Location{LogDir: filepath.Join(t.TempDir(), "logs"), Run: "j", Key: "k", Size: 2, Host: "n"}
	dir, err := signal.CreateRun(t.Context(), place, record.Job{})
	if err != nil {
		t.Fatal(err)
	}
	end := &lifecycle.Outcome{Orderly: true, Reason: "the driver has ended"}
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(end)
	if _, err := planning.ReadPlan(ctx, dir, 0); !errors.Is(err, end) {
		t.Errorf("the error is %v", err)
	}
}
