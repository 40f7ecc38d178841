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

// seen is all that is known of a job after its end.
type seen struct {
	Struck bool // the faults: or else the job ended before
	// Codes are how each rank's daemon has ended, and Srun is the code of srun;
	// nil and -1 where srun had to be ended.
	Codes []int
	Srun  int
	// Ended is when the last process of each rank was gone, from the last
	// fault, and of a victim from the undoing; negative where it never was.
	Ended []time.Duration
	Told  []told   // who has told of the end
	Torn  []string // records that are not whole, or another attempt's
	Left  []string // what is left on the nodes
}

// told is the end as one daemon tells of it.
type told struct {
	By    int
	Where string // the record, or its standard error
	Code  int
	Cause *record.Failure // nil: the driver has ended it
	Lost  []int           // those that the cause and its consequences say are lost
	Bad   []string        // the hosts that another job should stay away from
}

// byCode tells whether that daemon knew no more than the code, by its lifeline:
// its share did not answer.
func (t told) byCode() bool { return t.Cause != nil && t.Cause.Kind == health.Aborted }

func (t told) String() string {
	if t.Cause == nil {
		return fmt.Sprintf("%s of rank %d: %d", t.Where, t.By, t.Code)
	}
	return fmt.Sprintf("%s of rank %d: %d, %s of rank %d, lost %v: %s", t.Where, t.By, t.Code, t.Cause.Kind,
		t.Cause.NodeIndex, t.Cause.LostNodes, t.Cause.Message)
}

// judge says what is wrong with how a job has ended.
func judge(e expectation, o seen) (wrong []string) {
	complain := func(format string, args ...any) { wrong = append(wrong, fmt.Sprintf(format, args...)) }
	if !o.Struck {
		complain("the job ended before the faults")
	}
	for rank, after := range o.Ended {
		most := e.Within
		if slices.Contains(e.Victims, rank) {
			most = e.Freed
		}
		switch {
		case after < 0:
			complain("rank %d has not ended", rank)
		case after > most:
			complain("rank %d ended after %s, want at most %s", rank, after.Round(time.Millisecond), most)
		}
	}
	if apart := slices.Max(o.Ended) - slices.Min(o.Ended); e.Apart > 0 && apart > e.Apart {
		complain("the first has ended %s before the last, want at most %s", apart.Round(time.Millisecond), e.Apart)
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
		excused := func(rank int) bool {
			return strings.HasPrefix(left, fmt.Sprintf("rank %d: file /tmp/", rank)) && strings.Contains(left, "/bu-")
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
		if missed := without(e.All, t.Lost); t.Where == signal.NameResult && (len(missed) > 0 || len(t.Bad) < len(e.All)) {
			complain("the result does not tell of the ranks %v, or has too few bad nodes: %v", missed, t.Bad)
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

func without(ranks, others []int) []int {
	return slices.DeleteFunc(slices.Clone(ranks), func(rank int) bool { return slices.Contains(others, rank) })
}

// eachExplains tells whether all have ended by one of the verdicts, each by its
// own, and one has told of it.
func (e expectation) eachExplains(o seen) bool {
	for _, t := range o.Told {
		if !slices.ContainsFunc(e.Any, func(v verdict) bool { return t.Code == v.Code && (t.byCode() || v.fits(t.Cause)) }) {
			return false
		}
	}
	for rank, code := range o.Codes {
		if !slices.ContainsFunc(e.Any, func(v verdict) bool { return code == v.codeOf(rank) }) {
			return false
		}
	}
	return slices.ContainsFunc(o.Told, func(t told) bool { return !t.byCode() })
}

// explains tells whether the job has ended by this verdict: all who tell of the
// end tell the same, and all have ended with its code. Victims may do as they
// can.
func (v verdict) explains(e expectation, o seen) bool {
	victim := func(rank int) bool { return slices.Contains(e.Victims, rank) }
	heard := false
	for _, t := range o.Told {
		fits := t.Code == v.Code && v.fits(t.Cause)
		if t.Code == v.Code && t.byCode() {
			continue
		}
		if victim(t.By) {
			heard = heard || e.Two && fits
			continue
		}
		heard = true
		if !fits {
			return false
		}
	}
	for rank, code := range o.Codes {
		if !victim(rank) && code != v.codeOf(rank) {
			return false
		}
	}
	// Of an orderly end only the head tells.
	return heard || len(v.Kinds) == 0 && (victim(0) || e.Mute)
}

// codeOf is what a rank ends with. In an abort it is everybody's.
func (v verdict) codeOf(rank int) int {
	if len(v.Kinds) == 0 && rank != 0 {
		return 0
	}
	return v.Code
}

// fits tells whether the verdict may have this cause.
func (v verdict) fits(cause *record.Failure) bool {
	if cause == nil || len(v.Kinds) == 0 {
		return cause == nil && len(v.Kinds) == 0
	}
	if !slices.Contains(v.Kinds, cause.Kind) {
		return false
	}
	if v.Ranks == nil {
		return true
	}
	named := cause.LostNodes
	if len(named) == 0 {
		named = []int{cause.NodeIndex}
	}
	return !slices.ContainsFunc(named, func(rank int) bool { return !slices.Contains(v.Ranks, rank) })
}

// outcome is what the table says of it, in a few words: what was told by those
// that are no victims.
func (o seen) outcome(victims []int) string {
	heard := slices.DeleteFunc(slices.Clone(o.Told), func(t told) bool { return slices.Contains(victims, t.By) })
	if knows := slices.IndexFunc(heard, func(t told) bool { return !t.byCode() }); knows > 0 {
		heard = heard[knows:]
	}
	switch {
	case len(heard) == 0 && len(o.Codes) > 0:
		return fmt.Sprintf("%d, untold", o.Codes[0])
	case len(heard) == 0:
		return "untold"
	case heard[0].Cause == nil:
		return fmt.Sprintf("%d", heard[0].Code)
	default:
		return fmt.Sprintf("%d %s", heard[0].Code, heard[0].Cause.Kind)
	}
}

// took is how long the last of those ran on that are no victims.
func (o seen) took(victims []int) (most time.Duration) {
	for rank, after := range o.Ended {
		if !slices.Contains(victims, rank) {
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
		any = append(any, fmt.Sprintf("%d with %v of ranks %v", v.Code, v.Kinds, v.Ranks))
	}
	return fmt.Sprintf("%s; within %s; victims %v, within %s; %s apart", strings.Join(any, ", or "), e.Within, e.Victims, e.Freed, e.Apart)
}

func (o seen) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "srun ended with %d, its tasks with %v; the nodes were empty after %v\n", o.Srun, o.Codes, o.Ended)
	for _, t := range o.Told {
		fmt.Fprintln(&b, t)
	}
	return b.String()
}
