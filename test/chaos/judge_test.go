package chaos

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/bringupd/bringupd/pkg/health"
	"github.com/bringupd/bringupd/pkg/signal"
	"github.com/bringupd/bringupd/pkg/signal/record"
)

// seen contains all observations of a job after its end.
type seen struct {
	Struck bool // the faults were injected before the job ended
	// Codes are the exit codes of the daemons by node, and Srun is that of srun. They are nil and -1
	// if srun had to be killed.
	Codes []int
	Srun  int
	// Ended is, by node, the time from the last fault (for a victim, from its removal) to the end of
	// the last process. It is negative if a process never ended.
	Ended []time.Duration
	Told  []told   // the daemons' reports of the end
	Torn  []string // records that are incomplete or belong to another attempt
	Left  []string // leftovers on the nodes
}

// told is one daemon's report of the end of the run.
type told struct {
	By    int
	Where string // the record, or its standard error
	Code  int
	Cause *record.Failure // nil if the driver ended the job
	Lost  []int           // lost nodes according to the cause and its consequences
	Bad   []string        // hosts that another job should avoid
}

// byCode reports whether the daemon knew only the exit code, from its peer link, because its shared
// file system did not respond.
func (t told) byCode() bool { return t.Cause != nil && t.Cause.Kind == health.Aborted }

func (t told) String() string {
	if t.Cause == nil {
		return fmt.Sprintf("%s of node %d: %d", t.Where, t.By, t.Code)
	}
	return fmt.Sprintf("%s of node %d: %d, %s of node %d, lost %v: %s", t.Where, t.By,
		t.Code, t.Cause.Kind,
		t.Cause.NodeIndex, t.Cause.LostNodes, t.Cause.Message)
}

// judge returns everything that is wrong with the outcome of a job.
func judge(e expectation, o seen) (wrong []string) {
	complain := func(format string, args ...any) {
		wrong = append(wrong, fmt.Sprintf(format, args...))
	}
	if !o.Struck {
		complain("the job ended before the faults")
	}
	for node, after := range o.Ended {
		most := e.Within
		if slices.Contains(e.Victims, node) {
			most = e.Freed
		}
		switch {
		case after < 0:
			complain("node %d has not ended", node)
		case after > most:
			complain("node %d ended after %s, want at most %s", node,
				after.Round(time.Millisecond), most)
		}
	}
	if apart := slices.Max(o.Ended) - slices.Min(o.Ended); e.Apart > 0 && apart > e.Apart {
		complain("the first has ended %s before the last, want at most %s",
			apart.Round(time.Millisecond), e.Apart)
	}
	if o.Srun < 0 {
		if !e.Cut {
			complain("srun did not end by itself")
		}
	} else if most := slices.Max(o.Codes); o.Srun != most {
		complain("srun ended with %d, its tasks with %v", o.Srun, o.Codes)
	}
	for _, torn := range o.Torn {
		complain("torn: %s", torn)
	}
	for _, left := range o.Left {
		excused := func(node int) bool {
			return strings.HasPrefix(left, fmt.Sprintf("node %d: file /tmp/", node)) &&
				strings.Contains(left, "/bu-")
		}
		if !slices.ContainsFunc(e.Leaves, excused) {
			complain("left: %s", left)
		}
	}
	for _, t := range o.Told {
		if t.Cause != nil && t.Cause.Kind == health.Internal {
			complain("an internal error: %s", t)
		}
	}
	for _, t := range o.Told {
		if missed := without(e.All, t.Lost); t.Where == signal.NameResult &&
			(len(missed) > 0 || len(t.Bad) < len(e.All)) {
			complain("the result does not name the nodes %v, or has too few bad nodes: %v",
				missed, t.Bad)
		}
	}
	fits := slices.ContainsFunc(e.Any, func(v verdict) bool { return v.explains(e, o) })
	if !fits && e.Each {
		fits = e.eachExplains(o)
	}
	if !fits {
		complain("no verdict that is expected fits")
	}
	return wrong
}

func without(nodes, others []int) []int {
	return slices.DeleteFunc(slices.Clone(nodes), func(node int) bool {
		return slices.Contains(others, node)
	})
}

// eachExplains reports whether each daemon has ended by one of the expected verdicts, not
// necessarily the same one, and at least one daemon has reported a cause.
func (e expectation) eachExplains(o seen) bool {
	for _, t := range o.Told {
		if !slices.ContainsFunc(e.Any, func(v verdict) bool {
			return t.Code == v.Code && (t.byCode() || v.fits(t.Cause))
		}) {
			return false
		}
	}
	for node, code := range o.Codes {
		if !slices.ContainsFunc(e.Any, func(v verdict) bool { return code == v.codeOf(node) }) {
			return false
		}
	}
	return slices.ContainsFunc(o.Told, func(t told) bool { return !t.byCode() })
}

// explains reports whether the job has ended by this verdict: all reports agree with it, and all
// daemons have exited with its code. The behaviour of victims is not checked.
func (v verdict) explains(e expectation, o seen) bool {
	victim := func(node int) bool { return slices.Contains(e.Victims, node) }
	heard := false
	for _, t := range o.Told {
		fits := t.Code == v.Code && v.fits(t.Cause)
		if t.Code == v.Code && t.byCode() {
			continue
		}
		if victim(t.By) {
			heard = heard || (e.Two || e.Mute) && fits
			continue
		}
		heard = true
		if !fits {
			return false
		}
	}
	for node, code := range o.Codes {
		if !victim(node) && code != v.codeOf(node) {
			return false
		}
	}
	// After an orderly end, only the head writes a report.
	return heard || len(v.Kinds) == 0 && (victim(0) || e.Mute)
}

// codeOf returns the exit code of a node's daemon. After an abort it is the same for all nodes.
func (v verdict) codeOf(node int) int {
	if len(v.Kinds) == 0 && node != 0 {
		return 0
	}
	return v.Code
}

// fits reports whether the cause agrees with the verdict.
func (v verdict) fits(cause *record.Failure) bool {
	if cause == nil || len(v.Kinds) == 0 {
		return cause == nil && len(v.Kinds) == 0
	}
	if !slices.Contains(v.Kinds, cause.Kind) {
		return false
	}
	if v.Nodes == nil {
		return true
	}
	named := cause.LostNodes
	if len(named) == 0 {
		named = []int{cause.NodeIndex}
	}
	return !slices.ContainsFunc(named, func(node int) bool {
		return !slices.Contains(v.Nodes, node)
	})
}

// outcome summarises the outcome for the table, from the reports of nodes that are not victims.
func (o seen) outcome(victims []int) string {
	heard := slices.DeleteFunc(slices.Clone(o.Told), func(t told) bool {
		return slices.Contains(victims, t.By)
	})
	if knows := slices.IndexFunc(heard, func(t told) bool { return !t.byCode() }); knows > 0 {
		heard = heard[knows:]
	}
	switch {
	case len(heard) == 0 && len(o.Codes) > 0:
		return fmt.Sprintf("%d, unrecorded", o.Codes[0])
	case len(heard) == 0:
		return "unrecorded"
	case heard[0].Cause == nil:
		return fmt.Sprintf("%d", heard[0].Code)
	default:
		return fmt.Sprintf("%d %s", heard[0].Code, heard[0].Cause.Kind)
	}
}

// took returns how long it took until the last daemon that is not a victim had ended.
func (o seen) took(victims []int) (most time.Duration) {
	for node, after := range o.Ended {
		if !slices.Contains(victims, node) {
			most = max(most, after)
		}
	}
	return most
}

func (e expectation) String() string {
	var any []string
	for _, v := range e.Any {
		if len(v.Kinds) == 0 {
			any = append(any, fmt.Sprintf("%d by the driver", v.Code))
			continue
		}
		any = append(any, fmt.Sprintf("%d with %v of nodes %v", v.Code, v.Kinds, v.Nodes))
	}
	return fmt.Sprintf("%s; within %s; victims %v, within %s; %s apart", strings.Join(any, ", or "),
		e.Within, e.Victims, e.Freed, e.Apart)
}

func (o seen) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "srun ended with %d, its tasks with %v; the nodes were empty after %v\n",
		o.Srun, o.Codes, o.Ended)
	for _, t := range o.Told {
		fmt.Fprintln(&b, t)
	}
	return b.String()
}
