//go:build browser

package report

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/bringupd/bringupd/pkg/inspect/runs"
	"github.com/bringupd/bringupd/pkg/inspect/timeline"
	"github.com/bringupd/bringupd/pkg/signal"
	"github.com/bringupd/bringupd/test/simulate"
)

// simulated returns the view of a run with this number of real daemons in this process.
func simulated(t *testing.T, nodes int) *View {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 2*time.Minute)
	defer cancel()
	cfg, room := simulate.Config{Nodes: nodes, JoinTimeout: 90 * time.Second, Peer: 30 * time.Second}, t.TempDir()
	if _, err := simulate.Run(ctx, room, cfg); err != nil {
		t.Fatal(err)
	}
	dir, err := runs.Find(ctx, "", room)
	if err != nil {
		t.Fatal(err)
	}
	run, err := timeline.Read(ctx, dir, timeline.Options{Depth: timeline.DepthFull})
	if err != nil {
		t.Fatal(err)
	}
	touched, err := signal.LastChangeTime(ctx, dir)
	if err != nil {
		t.Fatal(err)
	}
	return NewView(run, ReadLogs(ctx, run), touched)
}

// TestSimulatedPagesInABrowser verifies that real run directories of all sizes yield pages that are
// small and load quickly.
func TestSimulatedPagesInABrowser(t *testing.T) {
	b := startBrowser(t)
	for _, size := range []int{4, 128, 1024} {
		t.Run(fmt.Sprint(size, " nodes"), func(t *testing.T) {
			b.t = t
			v := simulated(t, size)
			path := filepath.Join(t.TempDir(), "report.html")
			page := pageOf(t, v)
			if err := os.WriteFile(path, []byte(page), 0o644); err != nil {
				t.Fatal(err)
			}
			if len(page) >= 2_000_000 {
				t.Errorf("the page has %d bytes", len(page))
			}
			b.load(path, 1280, 900, false)
			b.shoot(fmt.Sprintf("simulated-%d", size), true)
			b.click(`.row[data-rank]`)
			b.until("a node is shown", `!document.getElementById('drawer').hidden`)
			shown := eval[string](b, `document.getElementById('drawer').innerText`)
			for _, want := range []string{"join", "workers", "driver", "phase join is over"} {
				// With many nodes, the page does not contain all logs.
				if !strings.Contains(shown, want) && (size <= MaxFullRows || want != "phase join is over") {
					t.Errorf("the node does not show %q:\n%s", want, shown)
				}
			}
			if all := b.complaints(); len(all) > 0 {
				t.Errorf("the page complains: %s", strings.Join(all, "\n"))
			}
			paint := slices.Min(b.paints(path, 3))
			t.Logf("%d nodes: %d bytes, first paint after %.0f ms", size, len(page), paint)
		})
	}
}

// paints returns the times of the first paint, in milliseconds.
func (b *browser) paints(path string, times int) (took []float64) {
	b.t.Helper()
	for range times {
		b.load(path, 1280, 900, false)
		took = append(took, eval[float64](b, `performance.getEntriesByName('first-contentful-paint')[0].startTime`))
	}
	return took
}
