package ncclras

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/bringupd/bringupd/internal/textutil"
)

// Summary describes the answer of a job's NCCL: what is small enough to be passed on.
type Summary struct {
	Version       string    `json:"version"` // with the name of the library
	Communicators int       `json:"communicators"`
	Findings      []Finding `json:"findings"` // the most significant ones first; empty if all is well
	More          int       `json:"more,omitempty"`
	Problem       string    `json:"problem,omitempty"` // why there is no answer
	Host          string    `json:"host,omitempty"`    // of the process that was asked
}

// FindingKind is a kind of a Finding.
type FindingKind string

// The kinds of findings, the most significant ones first.
const (
	FindingMissing FindingKind = "missing" // nothing is known about these ranks
	FindingError   FindingKind = "error"   // they have an error, or abort
	FindingInit    FindingKind = "init"    // they have not initialised the communicator
	FindingBehind  FindingKind = "behind"  // they have not started a collective that others have started
	FindingLeaving FindingKind = "leaving" // they finalise the communicator, and others do not
)

// Finding is what distinguishes some ranks of a communicator from the others.
type Finding struct {
	Kind         FindingKind `json:"kind"`
	Communicator string      `json:"communicator"` // its hash, as NCCL's own log has it
	Size         int         `json:"size"`
	Ranks        []int       `json:"ranks"` // in the communicator, sorted
	// Members are the processes of the first of these ranks.
	Members []Member `json:"members"`
	Text    string   `json:"text"` // what these ranks have in common
}

const (
	// maxFindings and maxMembers are the maximum numbers of findings, and of processes of each, in a
	// summary.
	maxFindings = 20
	maxMembers  = 16
)

// Results of NCCL's functions.
const (
	ncclSuccess    = 0
	ncclInProgress = 7
)

// Summarize returns the findings about all communicators.
func (r Report) Summarize() Summary {
	s := Summary{Version: clean(r.Version()), Communicators: len(r.Communicators), Findings: []Finding{}}
	for _, c := range r.Communicators {
		s.Findings = append(s.Findings, c.findings()...)
	}
	order := []FindingKind{FindingMissing, FindingError, FindingInit, FindingBehind, FindingLeaving}
	slices.SortStableFunc(s.Findings, func(a, b Finding) int {
		return cmp.Or(slices.Index(order, a.Kind)-slices.Index(order, b.Kind), len(a.Ranks)-len(b.Ranks), b.Size-a.Size)
	})
	if s.More = len(s.Findings) - maxFindings; s.More > 0 {
		s.Findings = s.Findings[:maxFindings]
	}
	s.More = max(0, s.More)
	return s
}

func (c Communicator) findings() (all []Finding) {
	groups := make(map[[2]string][]Member)
	add := func(kind FindingKind, text string, m Member) {
		key := [2]string{string(kind), text}
		groups[key] = append(groups[key], m)
	}
	for _, m := range c.Missing {
		switch {
		case m.Status.Dead:
			add(FindingMissing, "NCCL considers it dead", m.Member)
		case m.Status.Unresponsive:
			add(FindingMissing, "no response", m.Member)
		default:
			add(FindingMissing, "it responds, but is not a member", m.Member)
		}
	}
	leaving := 0
	for _, rank := range c.Ranks {
		switch state := rank.Status; {
		case state.InitState != ncclSuccess && state.InitState != ncclInProgress:
			add(FindingError, "initialisation has failed: "+describeResult(state.InitState), rank.Member)
		case state.AsyncError != ncclSuccess && state.AsyncError != ncclInProgress:
			add(FindingError, describeResult(state.AsyncError), rank.Member)
		case state.Abort:
			add(FindingError, "aborted", rank.Member)
		case state.InitState == ncclInProgress:
			add(FindingInit, "still initialising", rank.Member)
		case state.Finalize || state.Destroy:
			leaving++
			add(FindingLeaving, "finalising the communicator, which others still use", rank.Member)
		}
	}
	if leaving == len(c.Ranks) {
		delete(groups, [2]string{string(FindingLeaving), "finalising the communicator, which others still use"})
	}
	c.compareCounts(func(text string, m Member) { add(FindingBehind, text, m) })
	for _, key := range slices.SortedFunc(maps.Keys(groups),
		func(a, b [2]string) int { return slices.Compare(a[:], b[:]) }) {
		all = append(all, c.newFinding(FindingKind(key[0]), key[1], groups[key]))
	}
	return all
}

// compareCounts reports the ranks that have started fewer collectives of a kind than others.
func (c Communicator) compareCounts(add func(text string, m Member)) {
	newest := make(map[string]uint64)
	for _, rank := range c.Ranks {
		for operation, count := range rank.Counts {
			newest[operation] = max(newest[operation], count)
		}
	}
	format := func(count uint64) string { return textutil.GroupThousands(int64(count)) } //nolint:gosec // a count
	for _, operation := range slices.Sorted(maps.Keys(newest)) {
		for _, rank := range c.Ranks {
			if count, is := rank.Counts[operation]; is && count < newest[operation] {
				add(fmt.Sprintf("started %s of the %s %s that others have started",
					format(count), format(newest[operation]), clean(operation)), rank.Member)
			}
		}
	}
}

func (c Communicator) newFinding(kind FindingKind, text string, members []Member) Finding {
	slices.SortFunc(members, func(a, b Member) int { return a.Rank - b.Rank })
	f := Finding{Kind: kind, Communicator: clean(c.Hash), Size: c.Size, Text: text}
	for _, m := range members {
		m.Host = clean(m.Host)
		f.Ranks = append(f.Ranks, m.Rank)
		if len(f.Members) < maxMembers {
			f.Members = append(f.Members, m)
		}
	}
	return f
}

func describeResult(result int) string {
	words := map[int]string{1: "a CUDA or HIP error", 2: "a system error", 3: "an internal error",
		4: "an invalid argument", 5: "invalid usage", 6: "an error of another rank's process"}
	if text := words[result]; text != "" {
		return text
	}
	return fmt.Sprintf("error %d", result)
}

// clean makes a text from another process safe for one line.
func clean(text string) string {
	const maxLength = 80
	return textutil.StripControls(textutil.SingleLine(text, maxLength))
}

// FormatText returns the summary as lines for people. worldRank returns the rank in the world of a
// member's process, or -1 if it is unknown.
func (s Summary) FormatText(worldRank func(m Member) int) string {
	var b strings.Builder
	fmt.Fprintf(&b, "communicators, by %s", cmp.Or(s.Version, "NCCL"))
	if s.Host != "" {
		fmt.Fprintf(&b, " on %s", s.Host)
	}
	switch {
	case s.Problem != "":
		fmt.Fprintf(&b, ": %s\n", s.Problem)
		return b.String()
	case s.Communicators == 0:
		b.WriteString(": none\n")
		return b.String()
	case len(s.Findings) == 0:
		fmt.Fprintf(&b, ": %d; no rank is missing in any, and all ranks have started the "+
			"same collectives\n", s.Communicators)
		return b.String()
	}
	fmt.Fprintf(&b, ": %d\n", s.Communicators)
	for _, finding := range s.FormatFindings(worldRank) {
		b.WriteString("    " + finding + "\n")
	}
	if s.More > 0 {
		fmt.Fprintf(&b, "    and %d more\n", s.More)
	}
	return b.String()
}

// FormatFindings returns the findings as sentences. worldRank is as for FormatText.
func (s Summary) FormatFindings(worldRank func(m Member) int) []string {
	return textutil.MapSlice(s.Findings, func(f Finding) string { return f.formatText(worldRank) })
}

func (f Finding) formatText(worldRank func(m Member) int) string {
	const maxRanges = 60
	ranges := textutil.FormatIndices("rank", f.Ranks)
	if len(ranges) > maxRanges {
		ranges = ranges[:strings.LastIndexByte(ranges[:maxRanges], ',')+1] + "…"
	}
	verb := ": "
	if f.Kind == FindingMissing {
		verb = " lacks "
	}
	words := fmt.Sprintf("communicator %s of %d %s%s%s: %s", f.Communicator, f.Size,
		textutil.PluralForm(f.Size, "rank"), verb, ranges, f.Text)
	// Name the processes of a few.
	const maxNamed = 3
	var names []string
	for _, m := range f.Members[:min(len(f.Members), maxNamed)] {
		switch rank := worldRank(m); {
		case rank >= 0:
			names = append(names, fmt.Sprintf("rank %d of the world", rank))
		case m.PID >= 0:
			names = append(names, fmt.Sprintf("pid %d on %s", m.PID, m.Host))
		}
	}
	if len(names) > 0 && len(f.Ranks) <= maxNamed {
		words += " (" + strings.Join(names, ", ") + ")"
	}
	return words
}
