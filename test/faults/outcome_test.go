package faults

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/bringupd/bringupd/pkg/health"
	"github.com/bringupd/bringupd/pkg/signal"
	"github.com/bringupd/bringupd/pkg/signal/record"
	"github.com/bringupd/bringupd/test/jobtest"
)

// outcome describes how a job has ended.
type outcome struct {
	codes  [size]int
	killed []int          // daemons that did not end by themselves
	cause  record.Failure // empty if the driver has ended the job
	took   time.Duration  // until the end of the last daemon
	// shared is set if several nodes have met the cause; which of them reports it is not determined.
	shared bool
}

// code returns the job's exit code as srun computes it: the highest code of its tasks, without
// those that were killed.
func (o outcome) code() int {
	most := 0
	for node, code := range o.codes {
		if !slices.Contains(o.killed, node) {
			most = max(most, code)
		}
	}
	return most
}

// String returns the text for the table: the exit code, the reported cause, and the named nodes.
func (o outcome) String() string {
	switch o.cause.Kind {
	case "":
		return fmt.Sprintf("%d", o.code())
	case health.PeerLost:
		return fmt.Sprintf("%d: %s lost", o.code(), nodesText(o.cause.LostNodes))
	}
	if len(o.cause.LostNodes) > 0 {
		return fmt.Sprintf("%d: %s, %s missing", o.code(), o.cause.Kind,
			nodesText(o.cause.LostNodes))
	}
	if o.shared {
		return fmt.Sprintf("%d: %s", o.code(), o.cause.Kind)
	}
	return fmt.Sprintf("%d: %s, reported by %s", o.code(), o.cause.Kind,
		nodesText([]int{o.cause.NodeIndex}))
}

func nodesText(nodes []int) string {
	return "node " + strings.Trim(strings.Join(strings.Fields(fmt.Sprint(nodes)), ","), "[]")
}

// outcome waits until all daemons have ended, ends all stalls, and reads the outcome of the job.
// The duration is measured from begin.
func (j *job) outcome(begin time.Time) outcome {
	j.t.Helper()
	o := outcome{took: j.allGone().Sub(begin), killed: j.killed}
	j.release()
	for node, d := range j.daemons {
		o.codes[node] = d.code()
	}
	o.cause = j.cause(o)
	return o
}

// cause returns the cause that the records give for the job's code, or else the last error of a
// daemon that exited with this code.
func (j *job) cause(o outcome) record.Failure {
	j.t.Helper()
	var result record.Result
	if j.record(signal.NameResult, &result) && result.Code == o.code() {
		if result.Cause == nil {
			return record.Failure{}
		}
		return *result.Cause
	}
	for node := range size {
		var abort record.Abort
		if j.record(filepath.Join(signal.ControlDir, signal.AbortName(node, size)), &abort) &&
			abort.Code == o.code() {
			return abort.Cause
		}
	}
	for node, code := range o.codes {
		if code == o.code() {
			if said := j.lastError(node); said.Kind != "" {
				return said
			}
		}
	}
	return record.Failure{}
}

// record reads a record behind the mounts, and reports whether it exists.
func (j *job) record(name string, into any) bool {
	j.t.Helper()
	data, err := os.ReadFile(filepath.Join(j.runDir(), name))
	if err != nil {
		return false
	}
	if err := json.Unmarshal(data, into); err != nil {
		j.t.Errorf("the record %s is not whole: %q: %v", name, data, err)
		return false
	}
	return true
}

// lastError returns the last error that a daemon has written to its standard error.
func (j *job) lastError(node int) (last record.Failure) {
	for _, said := range j.saidBy(node) {
		if said.Kind != "" {
			last = record.Failure{Kind: said.Kind, Message: said.Message}
			last.NodeIndex = node
			last.LostNodes = lostIn(said.Message)
		}
	}
	return last
}

// lostIn returns the lost nodes that a message names.
func lostIn(sentence string) (lost []int) {
	found := regexp.MustCompile(`node (\d+)[^:]*? is lost`).FindStringSubmatch(sentence)
	if found == nil {
		return nil
	}
	var node int
	if _, err := fmt.Sscan(found[1], &node); err == nil {
		lost = append(lost, node)
	}
	return lost
}

// said is a line of a daemon's standard error.
type said struct {
	Message string      `json:"msg"`
	Kind    health.Kind `json:"kind"`
	Error   string      `json:"error"`
}

func (j *job) saidBy(node int) (lines []said) {
	stderr, err := os.ReadFile(j.path(fmt.Sprintf("err.%d", node)))
	if err != nil {
		j.t.Error(err)
	}
	for text := range strings.Lines(string(stderr)) {
		var line said
		if json.Unmarshal([]byte(text), &line) == nil {
			lines = append(lines, line)
		}
	}
	return lines
}

// checkRecords checks that the run directory contains no incomplete record.
func (j *job) checkRecords() {
	j.t.Helper()
	for _, sub := range []string{signal.ControlDir, signal.NodesDir} {
		names, err := os.ReadDir(filepath.Join(j.runDir(), sub))
		if err != nil {
			continue // was not created
		}
		for _, name := range names {
			j.checkRecord(filepath.Join(sub, name.Name()), name)
		}
	}
}

func (j *job) checkRecord(path string, entry fs.DirEntry) {
	j.t.Helper()
	name := entry.Name()
	if strings.HasPrefix(name, ".") || strings.Contains(name, string(record.StateHeartbeat)) {
		return // temporary file of a dead daemon, or a heartbeat
	}
	if info, err := entry.Info(); err == nil && info.Size() == 0 && jobtest.MayBeEmpty(name) {
		return
	}
	var rec record.Mark
	if !j.record(path, &rec) {
		j.t.Errorf("the record %s can't be read", path)
	} else if rec.Nonce == "" {
		j.t.Errorf("the record %s has no header", path)
	}
}
