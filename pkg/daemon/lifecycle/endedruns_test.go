package lifecycle_test

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/bringupd/bringupd/internal/files"
	"github.com/bringupd/bringupd/pkg/daemon/lifecycle"
	"github.com/bringupd/bringupd/pkg/eventlog"
	"github.com/bringupd/bringupd/pkg/roles/launcher"
	"github.com/bringupd/bringupd/pkg/signal"
	"github.com/bringupd/bringupd/pkg/signal/record"
)

var (
	// endedUser replaces "@" by the label of this user. endedTime matches the samples of times.
	endedUser = strings.NewReplacer("@", fmt.Sprintf("uid=%q", fmt.Sprint(os.Geteuid())))
	endedTime = regexp.MustCompile(`(?m)^(bringupd_last_run_ended\S+) [0-9.e+]+$`)
)

// TestCountEnd counts the ends of runs. The file stays, and what cannot be used is reported once.
func TestCountEnd(t *testing.T) {
	t.Parallel()
	lost := &record.Result{Outcome: "peer-lost", Code: 76}
	continued := &record.Result{Outcome: "peer-lost", Code: 76, Succession: record.Succession{NextAttempt: 1}}
	const n1 = "bringupd_bad_node_total{@,node=\"n1\"} 1\n"
	var full strings.Builder
	for node := range 1000 {
		fmt.Fprintf(&full, "bringupd_bad_node_total{@,node=\"n%d\"} 7\n", node)
	}
	for _, tc := range []struct {
		name    string
		before  string
		result  *record.Result
		blamed  []string
		want    string // without comments and times
		reports int
	}{
		{name: "the first run", result: lost, blamed: []string{"n1", `n"2\`},
			want: "bringupd_runs_ended_total{@,outcome=\"peer-lost\",code=\"76\"} 1\n" +
				"bringupd_bad_node_total{@,node=\"n1\"} 1\nbringupd_bad_node_total{@,node=\"n\\\"2\\\\\"} 1\n" +
				"bringupd_last_run_ended_timestamp_seconds{@,outcome=\"peer-lost\"}\n"},
		{name: "another run", result: &record.Result{Outcome: "driver", Code: 3},
			before: "# HELP x y\nbringupd_runs_ended_total{@,outcome=\"driver\",code=\"3\"} 4\n" +
				"bringupd_runs_ended_total{@,outcome=\"driver\",code=\"0\"} 2e+07\n" +
				"bringupd_bad_node_total{@,node=\"n\\\"2\\\\\"} 1\n" +
				"bringupd_last_run_ended_timestamp_seconds{@,outcome=\"driver\"} 1.7e+09\n",
			want: "bringupd_runs_ended_total{@,outcome=\"driver\",code=\"0\"} 2e+07\n" +
				"bringupd_runs_ended_total{@,outcome=\"driver\",code=\"3\"} 5\n" +
				"bringupd_bad_node_total{@,node=\"n\\\"2\\\\\"} 1\n" +
				"bringupd_last_run_ended_timestamp_seconds{@,outcome=\"driver\"}\n"},
		{name: "another attempt follows", result: continued, blamed: []string{"n1"},
			want: "bringupd_bad_node_total{@,node=\"n1\"} 1\n"},
		{name: "another attempt follows, and no node is blamed", result: continued},
		{name: "of another user", before: "bringupd_bad_node_total{uid=\"x\",node=\"n1\"} 1\n",
			result: continued, blamed: []string{"n1"}, want: n1, reports: 1},
		{name: "a negative number", before: "bringupd_bad_node_total{@,node=\"n1\"} -1\n",
			result: continued, blamed: []string{"n1"}, want: n1, reports: 1},
		{name: "no number", before: "bringupd_bad_node_total{@,node=\"n1\"} NaN\n",
			result: continued, blamed: []string{"n1"}, want: n1, reports: 1},
		{name: "an unknown metric", before: "bringupd_up{@,node=\"n1\"} 1\n",
			result: continued, blamed: []string{"n1"}, want: n1, reports: 1},
		{name: "another format", before: "\x00\x01\n\n", result: continued, blamed: []string{"n1"},
			want: n1, reports: 1},
		{name: "too many nodes", before: full.String(), result: continued, blamed: []string{"n1000"},
			want: "bringupd_bad_node_total{@,node=\"n1000\"} 1\n"},
		{name: "a node that is there already", before: full.String(), result: continued,
			blamed: []string{"n999"}, want: func() string {
				lines := strings.SplitAfter(strings.TrimSuffix(full.String(), "\n"), "\n")
				lines[len(lines)-1] = "bringupd_bad_node_total{@,node=\"n999\"} 8\n"
				slices.Sort(lines)
				return strings.Join(lines, "")
			}()},
	} {
		t.Run(tc.name, func(t *testing.T) {
			dir := t.TempDir()
			path := filepath.Join(dir, fmt.Sprintf("bringupd_ended_%d.prom", os.Geteuid()))
			if tc.before != "" {
				if err := os.WriteFile(path, []byte(endedUser.Replace(tc.before)), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			reports := countEnd(t, dir, tc.result, tc.blamed)
			text, _ := os.ReadFile(path)
			got := regexp.MustCompile(`(?m)^#.*\n`).ReplaceAllString(string(text), "")
			got = endedTime.ReplaceAllString(got, "$1")
			if got != endedUser.Replace(tc.want) || reports != tc.reports {
				t.Errorf("the file has, after %d reports:\n%s", reports, got)
			}
			if info, err := os.Lstat(path); tc.want != "" && (err != nil || info.Mode() != 0o644) {
				t.Errorf("the file is %v, %v", info, err)
			}
		})
	}
	t.Run("a link", func(t *testing.T) {
		dir := t.TempDir()
		if err := os.Symlink(filepath.Join(dir, "other"),
			filepath.Join(dir, fmt.Sprintf("bringupd_ended_%d.prom", os.Geteuid()))); err != nil {
			t.Fatal(err)
		}
		if reports := countEnd(t, dir, lost, nil); reports != 1 {
			t.Errorf("there are %d reports", reports)
		}
		if _, err := os.Lstat(filepath.Join(dir, "other")); err == nil {
			t.Error("the link was followed")
		}
	})
}

// countEnd counts a run in a directory, and returns the number of warnings.
func countEnd(t *testing.T, dir string, result *record.Result, blamed []string) (reports int) {
	t.Helper()
	core, logs := observer.New(zap.WarnLevel)
	s := lifecycle.StartTelemetry(dir, lifecycle.TelemetrySource{
		ID: launcher.Identity{Job: "17", Step: "0", Size: 4}, Events: eventlog.New(),
		Meter: new(signal.CallMeter), Log: zap.New(core)}, func(files.OwnedPath) {})
	s.CountEnd(t.Context(), result, blamed)
	s.Close(t.Context())
	return logs.Len()
}
