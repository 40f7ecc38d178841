package faults

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/bringupd/bringupd/pkg/health"
	"github.com/bringupd/bringupd/pkg/signal"
	"github.com/bringupd/bringupd/pkg/signal/record"
)

// mostTime is the maximum time for the end of a job after its mounts are broken: the join timeout,
// the peer timeout and the grace periods add up to 14 s.
const mostTime = 20 * time.Second

var (
	shareCode = health.OutcomeOfKind(health.ShareUnusable).Code
	lostCode  = health.OutcomeOfKind(health.PeerLost).Code
)

// common checks the requirements that apply to every outcome.
func (j *job) common(o outcome) {
	j.t.Helper()
	if o.took > mostTime {
		j.t.Errorf("it took %s", o.took)
	}
	internal := health.OutcomeOfKind(health.Internal).Code
	for node := range size {
		if o.codes[node] == internal {
			j.t.Errorf("node %d has ended by an internal error", node)
		}
		for _, said := range j.saidBy(node) {
			if said.Kind == health.Internal {
				j.t.Errorf("node %d reports an internal error: %s", node, said.Message)
			}
		}
	}
}

// endedWell checks that a job has ended with its driver's code, as if no fault had occurred.
func (j *job) endedWell(o outcome, code int) {
	j.t.Helper()
	j.common(o)
	if want := [size]int{code}; o.codes != want || o.cause.Kind != "" {
		j.t.Errorf("it ended with %v (%s), want %v", o.codes, o.cause.Message, want)
	}
	if stdout, err := os.ReadFile(j.path("out.0")); err != nil ||
		string(stdout) != "the driver's own line\n" {
		j.t.Errorf("its standard output is %q (%v)", stdout, err)
	}
}

// endedBy checks that a job has ended because of the fault: with the right code, with a message of
// the affected node, and without blaming another node.
func (j *job) endedBy(o outcome, r row, phase string) {
	j.t.Helper()
	j.common(o)
	for node, code := range o.codes {
		if code != shareCode && code != lostCode {
			j.t.Errorf("node %d ended with %d, want %d or %d", node, code, shareCode, lostCode)
		}
		if code != o.code() && !r.breaks(node) {
			j.t.Errorf("node %d ended with %d, and its mount was well: want %d", node,
				code, o.code())
		}
	}
	if r.stall != "" {
		j.blamesTheStalled(o, r, phase)
	}
	for _, node := range named(o) {
		if !r.breaks(node) {
			j.t.Errorf("it names node %d, whose mount was well: %s", node, o.cause.Message)
		}
	}
	if !slices.ContainsFunc(r.where.nodes(), func(node int) bool { return j.says(node, r.says) }) {
		j.t.Errorf("no node with a faulty mount reported %q", r.says)
	}
}

// blamesTheStalled checks which node is named if mounts do not respond: the other nodes name the
// affected one. If all mounts are affected, no node is named.
func (j *job) blamesTheStalled(o outcome, r row, phase string) {
	j.t.Helper()
	code, lost := lostCode, r.where.nodes()
	if phase == join || r.where == atAll {
		code = shareCode
	}
	if r.where == atAll || phase == join && r.where == atHead {
		lost = nil
	}
	if o.code() != code || !slices.Equal(o.cause.LostNodes, lost) {
		j.t.Errorf("it ended with %d, and %v are lost: want %d and %v", o.code(),
			o.cause.LostNodes, code, lost)
	}
	if r.where != atAll {
		return
	}
	for node := range size {
		if !j.says(node, "has not responded") {
			j.t.Errorf("node %d does not say that the shared file system has not responded", node)
		}
		if j.says(node, " lost") {
			j.t.Errorf("node %d blames a peer", node)
		}
	}
}

// named returns the nodes that an outcome names.
func named(o outcome) []int {
	if len(o.cause.LostNodes) > 0 {
		return o.cause.LostNodes
	}
	return []int{o.cause.NodeIndex}
}

// says reports whether a daemon has written the text to its standard error.
func (j *job) says(node int, what string) bool {
	for _, line := range j.saidBy(node) {
		if strings.Contains(line.Message, what) || strings.Contains(line.Error, what) {
			return true
		}
	}
	return false
}

// hasResult checks that the result record agrees with the exit codes.
func (j *job) hasResult(o outcome) {
	j.t.Helper()
	var result record.Result
	if !j.record(signal.NameResult, &result) || result.Code != o.code() {
		j.t.Errorf("%s says %d, want %d", filepath.Join(j.runDir(), signal.NameResult),
			result.Code, o.code())
	}
}
