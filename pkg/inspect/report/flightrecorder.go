package report

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math/big"
	"slices"
	"strconv"
	"strings"

	ogórek "github.com/kisielk/og-rek"

	"github.com/bringupd/bringupd/internal/textutil"
	"github.com/bringupd/bringupd/pkg/signal"
)

// Limits for the dumps of torch's flight recorder.
const (
	maxDumps     = 1024     // files that are read
	maxDumpBytes = 16 << 20 // bytes of a file
	// maxDumpValues is the maximum number of values in a dump: one of 20,000 collectives has 2 million.
	// A pickle may refer to the same value many times.
	maxDumpValues = 10_000_000
	maxDumpDepth  = 8   // of nested values; entries have 5
	maxDumpText   = 300 // characters of a text in a dump
)

// flightDumps are the dumps of torch's flight recorder, as far as they are used: the last
// collectives that the ranks have entered.
type flightDumps struct {
	ranks   []int                  // those with a dump, in order
	listed  map[string][]int       // keyed by group: the ranks that a dump lists
	entries map[string][]dumpEntry // keyed by group, in the order of ranks
}

type dumpEntry struct {
	rank      int
	Group     dumpGroup `json:"process_group"`
	Sequence  int64     `json:"collective_seq_id"`
	Name      string    `json:"profiling_name"` // such as nccl:all_reduce
	Sizes     [][]int64 `json:"input_sizes"`
	CreatedAt int64     `json:"time_created_ns"`
	Frames    []struct {
		Filename string
		Line     int64
	}
	State   string
	Retired bool
	IsP2P   bool `json:"is_p2p"`
}

// dumpGroup is a process group: its name, or a list of name and description.
type dumpGroup struct{ name, description string }

// UnmarshalJSON reads a group of either form. One of another type has no name.
func (g *dumpGroup) UnmarshalJSON(data []byte) error {
	var parts [2]string
	if json.Unmarshal(data, &parts) != nil {
		_ = json.Unmarshal(data, &parts[0])
	}
	g.name, g.description = parts[0], parts[1]
	return nil
}

// DescribeFlightRecorder returns sentences about the dumps of torch's flight recorder in a run
// directory, or nil if there are none: the first collectives that not all ranks of a group have entered.
func DescribeFlightRecorder(ctx context.Context, runDir string) (sentences []string) {
	reader, err := signal.OpenReader(ctx, runDir)
	if err != nil {
		return nil
	}
	folder, err := reader.ListDir(ctx, signal.LogsDir)
	if err != nil {
		return nil
	}
	names := slices.DeleteFunc(slices.Clone(folder.Names), func(name string) bool { return rankOfDump(name) < 0 })
	slices.SortFunc(names, func(a, b string) int { return rankOfDump(a) - rankOfDump(b) })
	dumps := flightDumps{listed: make(map[string][]int), entries: make(map[string][]dumpEntry)}
	var problems []string
	for _, name := range names[:min(len(names), maxDumps)] {
		content, err := folder.ReadFile(ctx, name, maxDumpBytes)
		if err == nil && len(content.Tail) > 0 {
			err = fmt.Errorf("it is larger than %s", textutil.FormatSize(maxDumpBytes))
		}
		if err == nil {
			err = dumps.add(rankOfDump(name), content.Data)
		}
		if err != nil {
			problems = append(problems, cleanDumpText(fmt.Sprintf("cannot read the dump %s: %v", name, err)))
		}
	}
	sentences = limitSentences(dumps.describe(), "groups in which ranks differ")
	if len(sentences) == 0 && len(dumps.ranks) > 0 {
		sentences = []string{fmt.Sprintf("all %d ranks with a dump have entered the same collectives",
			len(dumps.ranks))}
	}
	return append(sentences, limitSentences(problems, "dumps that cannot be read")...)
}

// limitSentences replaces all but the first two sentences by one with their number.
func limitSentences(sentences []string, what string) []string {
	if more := len(sentences) - 2; more > 0 {
		return append(sentences[:2], fmt.Sprintf("and %d more %s", more, what))
	}
	return sentences
}

// rankOfDump returns the rank that has written a dump, or -1 if the name is not that of a dump. torch
// may add a dot or an underscore and more to the rank.
func rankOfDump(name string) int {
	rest, is := strings.CutPrefix(name, signal.FlightRecorderPrefix)
	digits, _, _ := strings.Cut(strings.ReplaceAll(rest, ".", "_"), "_")
	rank, err := strconv.Atoi(digits)
	if !is || err != nil || rank < 0 {
		return -1
	}
	return rank
}

// add adds the dump of a rank, which is a pickle or JSON. A value of an unexpected type counts as
// missing.
func (d *flightDumps) add(rank int, data []byte) (err error) {
	if data = bytes.TrimSpace(data); len(data) == 0 || data[0] != '{' {
		if data, err = convertPickle(data); err != nil {
			return err
		}
	}
	var dump struct {
		Version string
		Groups  map[string]struct{ Ranks string } `json:"pg_config"`
		Entries []dumpEntry
	}
	err = json.Unmarshal(data, &dump)
	if _, isType := errors.AsType[*json.UnmarshalTypeError](err); err != nil && !isType {
		return err
	}
	if dump.Version == "" {
		return errors.New("it has no version: it is no dump of a flight recorder")
	}
	d.ranks = append(d.ranks, rank)
	for name, group := range dump.Groups {
		var ranks []int
		err := json.Unmarshal([]byte(group.Ranks), &ranks)
		if err == nil && len(ranks) > 0 && slices.Min(ranks) >= 0 {
			d.listed[name] = slices.Sorted(slices.Values(ranks))
		}
	}
	for _, e := range dump.Entries {
		if e.rank = rank; !e.IsP2P {
			d.entries[e.Group.name] = append(d.entries[e.Group.name], e)
		}
	}
	return nil
}

// convertPickle returns a pickle of plain data as JSON. Nothing that it names is imported or called.
func convertPickle(data []byte) ([]byte, error) {
	value, err := ogórek.NewDecoder(bytes.NewReader(data)).Decode()
	if err != nil {
		return nil, fmt.Errorf("cannot read the pickle: %w", err)
	}
	left := maxDumpValues
	plain := plainValue(value, maxDumpDepth, &left)
	if left < 0 {
		return nil, fmt.Errorf("it has more than %d values", maxDumpValues)
	}
	return json.Marshal(plain)
}

// plainValue returns a value of a pickle for JSON, or nil if it has another type than plain data or
// is nested too deeply. left is the number of values that are still allowed.
func plainValue(value any, depth int, left *int) any {
	if *left--; *left < 0 || depth == 0 {
		return nil
	}
	switch v := value.(type) {
	case string, bool, int64:
		return v
	case *big.Int:
		if v.IsInt64() {
			return v.Int64()
		}
	case ogórek.Tuple:
		return plainValue([]any(v), depth, left)
	case []any:
		return textutil.MapSlice(v, func(item any) any { return plainValue(item, depth-1, left) })
	case map[any]any:
		plain := make(map[string]any)
		for key, item := range v {
			if name, isText := key.(string); isText {
				plain[name] = plainValue(item, depth-1, left)
			}
		}
		return plain
	}
	return nil
}

// groupWait is what distinguishes the ranks of a process group.
type groupWait struct {
	sentence string
	since    int64 // nanoseconds since 1970 at which a rank has entered the collective
}

// describe returns a sentence for each group whose ranks differ. The group in which a rank has
// waited longest comes first.
func (d *flightDumps) describe() []string {
	var waits []groupWait
	for _, group := range slices.Sorted(maps.Keys(d.entries)) {
		if w := d.findWait(group); w.sentence != "" {
			waits = append(waits, w)
		}
	}
	slices.SortStableFunc(waits, func(a, b groupWait) int { return cmp.Compare(a.since, b.since) })
	return textutil.MapSlice(waits, func(w groupWait) string { return w.sentence })
}

// findWait finds the first collective of a group that a rank has not entered, or that ranks have
// entered by different names, and otherwise the first that has not completed.
func (d *flightDumps) findWait(group string) (incomplete groupWait) {
	last := make(map[int]int64) // last collective of each rank
	entered := make(map[int64][]dumpEntry)
	for _, e := range d.entries[group] {
		last[e.rank] = max(last[e.rank], e.Sequence)
		entered[e.Sequence] = append(entered[e.Sequence], e)
	}
	var present, without []int // members with a dump, and without one
	members := d.membersOf(group)
	for _, rank := range members {
		if slices.Contains(d.ranks, rank) {
			present = append(present, rank)
		} else {
			without = append(without, rank)
		}
	}
	for _, sequence := range slices.Sorted(maps.Keys(entered)) {
		entries := entered[sequence]
		isBeyond := func(rank int) bool { return last[rank] >= sequence }
		var parts []string
		if missing := slices.DeleteFunc(slices.Clone(present), isBeyond); len(missing) > 0 {
			parts = append(parts, fmt.Sprintf("%s of %d %s not entered it",
				textutil.FormatIndices("rank", missing), len(members),
				map[bool]string{true: "has", false: "have"}[len(missing) == 1]))
		}
		for _, e := range entries {
			if e.Name != entries[0].Name {
				parts = append(parts, fmt.Sprintf("rank %d entered %s", e.rank, e.Name))
			}
		}
		differs := len(parts) > 0
		if len(without) > 0 {
			parts = append(parts, textutil.FormatIndices("rank", without)+" left no dump")
		}
		if len(parts) == 0 {
			parts = append(parts, "all ranks have entered it, and it has not completed")
		}
		first := slices.MinFunc(entries, func(a, b dumpEntry) int { return cmp.Compare(a.CreatedAt, b.CreatedAt) })
		wait := groupWait{cleanDumpText(entries[0].String() + ": " + strings.Join(parts, "; ")), first.CreatedAt}
		switch {
		case differs:
			return wait
		case incomplete.sentence == "" && slices.ContainsFunc(entries, dumpEntry.isOpen):
			incomplete = wait
		}
	}
	return incomplete
}

// membersOf returns the ranks of a group: those that a dump lists, or all ranks of the default
// group, or otherwise those that have entered a collective of it.
func (d *flightDumps) membersOf(group string) []int {
	entries := d.entries[group]
	isDefault := func(e dumpEntry) bool { return e.Group.description == defaultGroup }
	switch {
	case d.listed[group] != nil:
		return d.listed[group]
	case slices.ContainsFunc(entries, isDefault):
		return slices.Compact(slices.Clone(d.ranks))
	default:
		return slices.Compact(textutil.MapSlice(entries, func(e dumpEntry) int { return e.rank }))
	}
}

// defaultGroup is torch's description of the group of all ranks.
const defaultGroup = "default_pg"

// isOpen reports whether the operation has not completed. Gloo does not record states; an operation is
// retired when it has ended.
func (e dumpEntry) isOpen() bool {
	return e.State != "completed" && (e.State != "scheduled" || !e.Retired)
}

// String returns the collective, its group, the sizes of its inputs and the innermost line outside of
// torch, for people.
func (e dumpEntry) String() string {
	label := fmt.Sprintf("group %s (%s)", e.Group.name, cmp.Or(e.Group.description, "undescribed"))
	if e.Group.description == defaultGroup {
		label = "the default group"
	}
	text := fmt.Sprintf("collective %d of %s, %s", e.Sequence, label, e.Name)
	if len(e.Sizes) > 0 {
		text += " of " + strings.ReplaceAll(fmt.Sprint(e.Sizes[0]), " ", ", ")
	}
	for _, frame := range e.Frames {
		if file := frame.Filename; file != "" && !strings.Contains(file, "/torch/") {
			return fmt.Sprintf("%s at %s:%d", text, file[strings.LastIndexByte(file, '/')+1:], frame.Line)
		}
	}
	return text
}

func cleanDumpText(text string) string { return textutil.SingleLine(text, maxDumpText) }
