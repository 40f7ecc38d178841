package lifecycle

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"go.uber.org/zap"

	"github.com/bringupd/bringupd/internal/ctxutil"
	"github.com/bringupd/bringupd/internal/files"
	"github.com/bringupd/bringupd/pkg/signal/record"
)

// endedRunsTimeout limits the time in which a run is counted: another process may hold the lock,
// and the file system may hang.
const endedRunsTimeout = 2 * time.Second

// maxBlamedNodes is the maximum number of nodes in the file of ended runs. Then the counters of all
// nodes start again.
const maxBlamedNodes = 1000

// maxEndedRunsBytes is above the size of a file with as many nodes.
const maxEndedRunsBytes = 1 << 20

// The families of the file of ended runs. All users of a node must have the same texts.
const (
	runsEndedFamily = "bringupd_runs_ended_total"
	badNodeFamily   = "bringupd_bad_node_total"
	lastEndedFamily = "bringupd_last_run_ended_timestamp_seconds"
)

// CountEnd counts the end of a run, and the hosts that it blames, in a file of this user that stays
// in the metrics directory. The daemon that ends the run calls it. A launch counts at the end
// of its last attempt. An error is logged.
func (s *Telemetry) CountEnd(ctx context.Context, result *record.Result, blamed []string) {
	if s.path == "" || result.NextAttempt > 0 && len(blamed) == 0 {
		return
	}
	user := formatLabels("uid", strconv.Itoa(os.Geteuid()))
	// No run can have this name: those of daemons begin with "bringupd-".
	path := filepath.Join(filepath.Dir(s.path), fmt.Sprintf("bringupd_ended_%d.prom", os.Geteuid()))
	ctx, cancel := context.WithTimeoutCause(ctx, endedRunsTimeout,
		errors.New("the daemon does not wait longer"))
	defer cancel()
	_, err := ctxutil.CallBounded(ctx, endedRunsTimeout/10, func() (struct{}, error) {
		count := func(old []byte) []byte {
			counts, err := parseEndedRuns(old, user)
			if err != nil {
				s.daemon.Log.Warn("the metrics of ended runs start again from 0",
					zap.String("file", path), zap.Error(err))
			}
			counts.add(result, blamed, user, time.Now())
			return counts.format()
		}
		return struct{}{}, files.UpdateOwned(ctx, path, 0o644, maxEndedRunsBytes, count)
	})
	if err != nil {
		s.daemon.Log.Warn("cannot count this run in the metrics",
			zap.String("file", path), zap.Error(err))
	}
}

// endedRuns has the values of the file of ended runs, by the names of the series with their labels.
type endedRuns map[string]float64

// parseEndedRuns reads what [endedRuns.format] has written for a user, given as the formatted label.
// An error comes with an empty map.
func parseEndedRuns(text []byte, user string) (endedRuns, error) {
	families := strings.Join([]string{runsEndedFamily, badNodeFamily, lastEndedFamily}, "|")
	series := regexp.MustCompile(`^(?:` + families + `)\{` + user +
		`(?:,[a-z]+="(?:[^"\\]|\\[\\n"])*")+\}$`)
	counts := make(endedRuns)
	for line := range bytes.Lines(text) {
		line := strings.TrimSuffix(string(line), "\n")
		if strings.HasPrefix(line, "#") {
			continue
		}
		space := strings.LastIndexByte(line, ' ')
		value, err := strconv.ParseFloat(line[space+1:], 64)
		if isCount := value >= 0 && !math.IsInf(value, 0); space < 0 || err != nil || !isCount ||
			!series.MatchString(line[:space]) {
			return make(endedRuns), fmt.Errorf("cannot read %.200q: it is no sample of ended runs of "+
				"user %d", line, os.Geteuid())
		}
		counts[line[:space]] = value
	}
	return counts, nil
}

// add counts a run that has ended, unless another attempt follows, and the hosts that it blames.
func (e endedRuns) add(result *record.Result, blamed []string, user string, now time.Time) {
	series := func(family string, labels ...string) string {
		return family + "{" + user + "," + formatLabels(labels...) + "}"
	}
	if result.NextAttempt == 0 {
		e[series(runsEndedFamily, "outcome", result.Outcome, "code", strconv.Itoa(result.Code))]++
		e[series(lastEndedFamily, "outcome", result.Outcome)] = float64(now.Unix())
	}
	for _, host := range blamed {
		node := series(badNodeFamily, "node", host)
		if nodes := e.seriesOf(badNodeFamily); e[node] == 0 && len(nodes) >= maxBlamedNodes {
			for _, old := range nodes {
				delete(e, old)
			}
		}
		e[node]++
	}
}

// seriesOf returns the series of a family, sorted.
func (e endedRuns) seriesOf(family string) []string {
	return slices.DeleteFunc(slices.Sorted(maps.Keys(e)), func(series string) bool {
		return !strings.HasPrefix(series, family+"{")
	})
}

// format returns the text of the file.
func (e endedRuns) format() []byte {
	var t metricsText
	for _, family := range [][3]string{
		{runsEndedFamily, "counter", "Launches that have ended, by outcome and exit code."},
		{badNodeFamily, "counter", "Attempts whose outcome blames this node."},
		{lastEndedFamily, "gauge", "When the last launch with this outcome has ended."},
	} {
		t.startFamily(family[0], family[1], family[2])
		for _, series := range e.seriesOf(family[0]) {
			t.addSeries(series, e[series])
		}
	}
	return t.buffer.Bytes()
}
