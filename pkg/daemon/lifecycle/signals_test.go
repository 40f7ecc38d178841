package lifecycle

import (
	"context"
	"os"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"

	"github.com/bringupd/bringupd/internal/ctxutil"
	"github.com/bringupd/bringupd/pkg/health"
)

// TestHeedLaunchFailed verifies that the launcher's message is the cause, whatever signal follows
// it.
func TestHeedLaunchFailed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		signals := make(chan os.Signal)
		r := &Publisher{Lifetime: NewLifetime(t.Context()), Log: zap.NewNop(), LauncherTitle: "Slurm"}
		r.Background(func(ctx context.Context) {
			r.HandleSignals(ctx, signals, "n0", time.Second,
				func(syscall.Signal) {})
		})
		signals <- health.LaunchFailureSignal("cannot reach b: no way")
		signals <- syscall.SIGTERM
		<-r.RunCtx.Done()
		f := health.AsFailure(context.Cause(r.RunCtx))
		if f.Kind != health.Launch || f.Message != "cannot reach b: no way" {
			t.Errorf("it ended by %s: %s", f.Kind, f.Message)
		}
		r.Close()
	})
}

// notice is a signal and its time since the first.
type notice struct {
	sig syscall.Signal
	at  time.Duration
}

// TestHeed verifies that the grace periods end at the times that the notices require.
func TestHeed(t *testing.T) {
	const byTERM, bySlurm = "node 0 (n0) was told to end by SIGTERM", "Slurm ended the job: node 0 (n0) got SIGTERM"
	// Two simultaneous signals may be received in any order.
	const hurried = 6*time.Second + 50*time.Millisecond
	for _, tc := range []struct {
		name        string
		seen        []notice
		driver, all time.Duration
		what        string
	}{
		{"early", []notice{{syscall.SIGTERM, 0}}, time.Hour, time.Hour, byTERM},
		{"final", []notice{{syscall.SIGCONT, 0}, {syscall.SIGTERM, 0}}, 15 * time.Second, 20 * time.Second, bySlurm},
		{"final, told in the other order", []notice{{syscall.SIGTERM, 0}, {syscall.SIGCONT, 0}},
			15 * time.Second, 20 * time.Second, bySlurm},
		{"early, then final", []notice{{syscall.SIGTERM, 0}, {syscall.SIGCONT, time.Minute},
			{syscall.SIGTERM, time.Minute}}, 75 * time.Second, 80 * time.Second, byTERM},
		{"final, then hurried", []notice{{syscall.SIGCONT, 0}, {syscall.SIGTERM, 0},
			{syscall.SIGINT, 6 * time.Second}}, hurried, hurried, bySlurm},
		{"INT", []notice{{syscall.SIGINT, 0}}, time.Hour, time.Hour, "node 0 (n0) was told to end by SIGINT"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				signals := make(chan os.Signal)
				r := &Publisher{Lifetime: NewLifetime(t.Context()), Log: zap.NewNop(), LauncherTitle: "Slurm"}
				r.Background(func(ctx context.Context) {
					r.HandleSignals(ctx, signals, "n0",
						5*time.Second, func(syscall.Signal) {})
				})
				start := time.Now()
				for _, seen := range tc.seen {
					time.Sleep(time.Until(start.Add(seen.at)))
					signals <- seen.sig
				}
				ends := func(ctx context.Context) time.Duration {
					ctxutil.SleepContext(ctx, time.Until(start.Add(time.Hour)))
					return time.Since(start)
				}
				driver := ends(r.DriverGraceCtx)
				if all := ends(r.GraceCtx); driver != tc.driver || all != tc.all {
					t.Errorf("the driver's grace ended after %s, all after %s; want %s and %s",
						driver, all, tc.driver, tc.all)
				}
				if f := health.AsFailure(context.Cause(r.RunCtx)); f.Message != tc.what {
					t.Errorf("the run ended by %q, want %q", f.Message, tc.what)
				}
				if grace := r.CutGrace(time.Hour); grace != tc.driver {
					t.Errorf("the driver's grace is reported as %s, want %s", grace, tc.driver)
				}
				r.Close()
			})
		})
	}
}
