package lifecycle

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/bringupd/bringupd/internal/files"
	"github.com/bringupd/bringupd/pkg/eventlog"
	"github.com/bringupd/bringupd/pkg/roles"
	"github.com/bringupd/bringupd/pkg/roles/launcher"
	"github.com/bringupd/bringupd/pkg/signal"
	"github.com/bringupd/bringupd/pkg/signal/record"
)

func TestMetricsText(t *testing.T) {
	text := &metricsText{common: formatLabels("run", "17.0")}
	text.startFamily("bringupd_info", "gauge", "Always 1.")
	text.addSample(1, "version", "a\"b\\c\nd\xff", "role", "head")
	text.startFamily("bringupd_empty", "gauge", "It has no sample.")
	text.startFamily("bringupd_seconds_total", "counter", "How long they took.")
	text.addSample(2e-05)
	text.addSample(12345678)
	want := `# HELP bringupd_info Always 1.
# TYPE bringupd_info gauge
bringupd_info{run="17.0",version="a\"b\\c\nd` + "\uFFFD" + `",role="head"} 1
# HELP bringupd_seconds_total How long they took.
# TYPE bringupd_seconds_total counter
bringupd_seconds_total{run="17.0"} 2e-05
bringupd_seconds_total{run="17.0"} 1.2345678e+07
`
	if got := text.buffer.String(); got != want {
		t.Errorf("the text is %s", got)
	}
}

func TestProgressMetrics(t *testing.T) {
	text := new(metricsText)
	text.addProgress(nil)
	text.addProgress(new(record.Progress))
	if text.buffer.Len() > 0 {
		t.Error("there are metrics although no step was reported")
	}
	text.addProgress(&record.Progress{
		Step: 1200, MaxStep: 1250.5, Rate: 3.5, Goodput: 0.91, Reports: 1200,
		Lost:    []record.LostSteps{{Steps: 10}, {Steps: 2}},
		Slowest: &record.SlowestRank{Rank: 12, NodeIndex: 3, Step: 1190, Median: 1200},
	})
	for _, want := range []string{
		`bringupd_step{} 1200`, `bringupd_step_max{} 1250.5`, `bringupd_steps_per_second{} 3.5`,
		`bringupd_goodput_ratio{} 0.91`, `bringupd_lost_steps{} 12`, `bringupd_median_step{} 1200`,
		`bringupd_slowest_step{,world_rank="12",node="3"} 1190`,
	} {
		if !strings.Contains(text.buffer.String(), want+"\n") {
			t.Errorf("there is no %s in\n%s", want, text.buffer.String())
		}
	}
}

// TestMetricsFile verifies that an unwritable directory is logged once and used as soon as it is
// writable, that other users can read the file, and that Close removes it, or gives it up in time.
func TestMetricsFile(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "late")
	core, logs := observer.New(zap.WarnLevel)
	info := TelemetrySource{ID: launcher.Identity{Job: "17", Step: "0", Size: 4}, Role: roles.RoleHead,
		Events: eventlog.New(), Meter: new(signal.CallMeter), Log: zap.New(core)}
	var owned string
	s := StartTelemetry(dir, info, func(p files.OwnedPath) { owned = p.Path })
	until := func(reached func() bool) {
		t.Helper()
		for deadline := time.Now().Add(30 * time.Second); !reached(); time.Sleep(time.Millisecond) {
			if time.Now().After(deadline) {
				t.Fatal("it was not reached")
			}
		}
	}
	until(func() bool { return logs.Len() == 1 })
	s.ReportUp(false)
	until(func() bool { return len(s.writeRequested) == 0 })
	if err := os.Mkdir(dir, 0o700); err != nil {
		t.Fatal(err)
	}
	s.ReportUp(true)
	until(func() bool {
		text, _ := os.ReadFile(owned)
		return strings.Contains(string(text), "\nbringupd_up{run=\"17.0\",rank=\"0\"} 1\n")
	})
	if file, err := os.Stat(owned); err != nil || file.Mode() != 0o644 {
		t.Errorf("the file is %v, %v", file, err)
	}
	s.Close(t.Context())
	if left, _ := os.ReadDir(dir); len(left) > 0 || logs.Len() > 1 {
		t.Errorf("left are %v, and logged is %v", left, logs.All())
	}
	late, cancel := context.WithCancel(t.Context())
	cancel()
	hanging := &Telemetry{stopped: make(chan struct{}), ended: make(chan struct{})}
	hanging.Close(late)
}
