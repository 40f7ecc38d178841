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
)

// outcome is how a job has ended.
type outcome struct {
	codes  [size]int
	killed []int          // the daemons that did not end by themselves
	cause  record.Failure // empty where the driver has ended it
	took   time.Duration  // to the end of the last daemon
	// Several have met the cause, and it is a matter of luck who told of it.
	shared bool
}

// code is the job's code, as srun has it: the highest of its tasks', but for
// those that were killed.
func (o outcome) code() int {
	most := 0
	for rank, code := range o.codes {
		if !slices.Contains(o.killed, rank) {
			most = max(most, code)
		}
	}
	return most
}

// String is what the table says: the code, what is given as the cause, and who
// is named.
func (o outcome) String() string {
	switch o.cause.Kind {
	case "":
		return fmt.Sprintf("%d", o.code())
	case health.PeerLost:
		return fmt.Sprintf("%d: %s lost", o.code(), ranksText(o.cause.LostNodes))
	}
	if len(o.cause.LostNodes) > 0 {
		return fmt.Sprintf("%d: %s, %s missed", o.code(), o.cause.Kind, ranksText(o.cause.LostNodes))
	}
	if o.shared {
		return fmt.Sprintf("%d: %s", o.code(), o.cause.Kind)
	}
	return fmt.Sprintf("%d: %s, told by %s", o.code(), o.cause.Kind, ranksText([]int{o.cause.NodeIndex}))
}

func ranksText(ranks []int) string {
	return "rank " + strings.Trim(strings.Join(strings.Fields(fmt.Sprint(ranks)), ","), "[]")
}

// outcome waits until all daemons have ended, lets go of what stalls hold, and
// reads how the job has ended. It took the time from begin.
func (j *job) outcome(begin time.Time) outcome {
	j.t.Helper()
	o := outcome{took: j.allGone().Sub(begin), killed: j.killed}
	j.release()
	for rank, d := range j.daemons {
		o.codes[rank] = d.code()
	}
	o.cause = j.cause(o)
	return o
}

// cause is the one that the records give for the job's code, or else what a
// daemon with that code has said last.
func (j *job) cause(o outcome) record.Failure {
	j.t.Helper()
	var result record.Result
	if j.record(signal.NameResult, &result) && result.Code == o.code() {
		if result.Cause == nil {
			return record.Failure{}
		}
		return *result.Cause
	}
	for rank := range size {
		var abort record.Abort
		if j.record(filepath.Join(signal.ControlDir, signal.AbortName(rank, size)), &abort) && abort.Code == o.code() {
			return abort.Cause
		}
	}
	for rank, code := range o.codes {
		if code == o.code() {
			if said := j.lastError(rank); said.Kind != "" {
				return said
			}
		}
	}
	return record.Failure{}
}

// record reads a record behind the mounts, and tells whether there is one.
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

// lastError is the last error that a daemon has written to its standard error.
func (j *job) lastError(rank int) (last record.Failure) {
	for _, said := range j.saidBy(rank) {
		if said.Kind != "" {
			last = record.Failure{Kind: said.Kind, Message: said.Message}
			last.NodeIndex = rank
			last.LostNodes = lostIn(said.Message)
		}
	}
	return last
}

// lostIn are the ranks that a sentence says are lost.
func lostIn(sentence string) (lost []int) {
	found := regexp.MustCompile(`rank (\d+)[^:]*? is lost`).FindStringSubmatch(sentence)
	if found == nil {
		return nil
	}
	var rank int
	if _, err := fmt.Sscan(found[1], &rank); err == nil {
		lost = append(lost, rank)
	}
	return lost
}

// said is a line of a daemon's standard error.
type said struct {
	Message string `json:"msg"`
	Kind    health.Kind `json:"kind"`
	Error   string `json:"error"`
}

func (j *job) saidBy(rank int) (lines []said) {
	stderr, err := os.ReadFile(j.path(fmt.Sprintf("err.%d", rank)))
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

// checkRecords checks that nothing in the run directory is half a record.
func (j *job) checkRecords() {
	j.t.Helper()
	for _, sub := range []string{signal.ControlDir, signal.NodesDir} {
		names, err := os.ReadDir(filepath.Join(j.runDir(), sub))
		if err != nil {
			continue // it was never made
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
		return // a temporary of who died, or a pulse
	}
	if info, err := entry.Info(); err == nil && info.Size() == 0 && saysAll(name) {
		return
	}
	var rec record.Mark
	if !j.record(path, &rec) {
		j.t.Errorf("the record %s can't be read", path)
	} else if rec.Nonce == "" {
		j.t.Errorf("the record %s has no header", path)
	}
}

// saysAll tells whether a record of that name has nothing in it.
func saysAll(name string) bool {
	_, state, isNode := strings.Cut(name, ".")
	switch {
	case isNode:
		// That of a checked node has more to say, too, but on a share that is full.
		return strings.HasPrefix(state, string(record.StateChecked)) || record.State(state) == record.StateSandboxReady || record.State(state) == record.StateServiceUp
	default:
		// That of the drain has more to say, but on a share that is full.
		return name == signal.NameGateOpen || name == signal.NameOrderlyEnd || name == signal.NameHeadFinished || name == signal.NameStop
	}
}
