package membership

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bringupd/bringupd/internal/textutil"
	"github.com/bringupd/bringupd/pkg/health"
	"github.com/bringupd/bringupd/pkg/signal"
	"github.com/bringupd/bringupd/pkg/signal/record"
)

// TestSandboxesAwait verifies how long the gate waits for the sandboxes of another step, and the
// message of its failure (J11).
func TestSandboxesAwait(t *testing.T) {
	type appearance struct {
		name string
		at   time.Duration
	}
	const joined0, joined1 = "0000-1.joined", "0001-1.joined"
	for name, tc := range map[string]struct {
		seen   []appearance
		within time.Duration // until the wait ends
		says   []string      // parts of its failure; empty: it does not fail
	}{
		"no daemon appears": {nil, 70 * time.Second, []string{
			"the sandbox of all, and after 1m10s the sandbox of nodes 0-1 is not ready (--start-timeout=1m)",
			"no daemon of the sandbox's step (--role=sandbox) has appeared on nodes 0-1",
		}},
		"one daemon appears": {[]appearance{{joined0, 50 * time.Second}}, 2 * time.Minute, []string{
			"has appeared on node 1:",
		}},
		"all appear, and one is not ready": {[]appearance{{joined0, 0}, {joined1, 30 * time.Second}, {"0000.sandbox", 40 * time.Second}},
			100 * time.Second, []string{"after 1m40s the sandbox of node 1 is not ready"}},
		"all are ready": {[]appearance{{"0000.sandbox", 20 * time.Second}, {"0001.sandbox", 65 * time.Second}}, 65 * time.Second, nil},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				place := signal.Location{LogDir: t.TempDir(), Run: "17.0", Key: "k", Size: 2, Host: "n0", Access: signal.Access{NoHints: true}}
				dir, err := signal.CreateRun(t.Context(), place, record.Job{})
				if err != nil {
					t.Fatal(err)
				}
				ctx, cancel := context.WithCancel(t.Context())
				defer cancel()
				watch := dir.NewWatch(signal.NodesDir, signal.HeadPace)
				go watch.Run(ctx)
				began := time.Now()
				go func() {
					for _, a := range tc.seen {
						time.Sleep(time.Until(began.Add(a.at)))
						if err := dir.WriteMark(ctx, signal.NodesDir, a.name); err != nil {
							t.Error(err)
						}
					}
				}()
				require, err := ParseSandboxQuorum("all")
				if err != nil {
					t.Fatal(err)
				}
				err = SandboxGate{
					Quorum: require, Size: 2, SeparateStep: true, AppearTimeout: time.Minute, Timeout: time.Minute, ReportSlack: 10 * time.Second,
					IsMet:         func(l signal.Listing) bool { return require.IsMet(l.NodesIn(record.StateSandboxReady), 2) },
					NotReadyNodes: func(l signal.Listing) []int { return l.NodesNotIn(record.StateSandboxReady, 2) },
					HostNames:     func(nodes []int) string { return textutil.FormatIndices("node", nodes) },
				}.AwaitReady(ctx, watch)
				if took := time.Since(began); took < tc.within || took > tc.within+3*time.Second {
					t.Errorf("the wait ended after %s, want %s; its error is %v", took, tc.within, err)
				}
				if len(tc.says) == 0 {
					if err != nil {
						t.Error(err)
					}
					return
				}
				f, is := errors.AsType[*health.Failure](err)
				if !is || f.Kind != health.DeadlinePassed || f.Phase != record.PhaseSandbox {
					t.Fatalf("the error is %v, of %+v", err, f)
				}
				for _, part := range tc.says {
					if !strings.Contains(f.Message, part) {
						t.Errorf("%q is missing in: %s", part, f.Message)
					}
				}
			})
		})
	}
}
