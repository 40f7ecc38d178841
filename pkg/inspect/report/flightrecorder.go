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

// flightDump is a dump of torch's flight recorder, as far as it is used: the last operations that a
// rank has entered.
type flightDump struct {
	rank    int
	Version string
	Groups  map[string]struct{ Ranks string } `json:"pg_config"`
	Entries []dumpEntry
}

// dumpEntry is an operation in a dump.
type dumpEntry struct {
	Group     any       `json:"process_group"` // its name, or a list of name and description
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
	var dumps []flightDump
	var problems []string
	for _, name := range names[:min(len(names), maxDumps)] {
		content, err := folder.ReadFile(ctx, name, maxDumpBytes)
		if err == nil && len(content.Tail) > 0 {
			err = fmt.Errorf("it is larger than %s", textutil.FormatSize(maxDumpBytes))
		}
		d := flightDump{rank: rankOfDump(name)}
		if err == nil {
			err = d.parse(content.Data)
		}
		if err != nil {
			problems = append(problems, cleanDumpText(fmt.Sprintf("cannot read the dump %s: %v", name, err)))
			continue
		}
		dumps = append(dumps, d)
	}
	sentences = limitSentences(describeGroups(dumps), "groups in which ranks differ")
	if len(sentences) == 0 && len(dumps) > 0 {
		sentences = []string{fmt.Sprintf("all %d ranks with a dump have entered the same collectives", len(dumps))}
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

// parse parses a dump, which is a pickle or JSON. A value of an unexpected type counts as missing.
func (d *flightDump) parse(data []byte) error {
	if data = bytes.TrimSpace(data); len(data) == 0 || data[0] != '{' {
		var err error
		if data, err = convertPickle(data); err != nil {
			return err
		}
	}
	err := json.Unmarshal(data, d)
	if _, isType := errors.AsType[*json.UnmarshalTypeError](err); err != nil && !isType {
		return err
	}
	if d.Version == "" {
		return errors.New("it has no version: it is no dump of a flight recorder")
	}
	d.Entries = slices.DeleteFunc(d.Entries, func(e dumpEntry) bool { return e.IsP2P })
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
		return mapSlice(v, func(item any) any { return plainValue(item, depth-1, left) })
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

// describeGroups returns a sentence for each group whose ranks differ. The group in which a rank has
// waited longest comes first.
func describeGroups(dumps []flightDump) []string {
	groups := make(map[string]bool)
	for _, d := range dumps {
		for _, e := range d.Entries {
			name, _ := e.group()
			groups[name] = true
		}
	}
	var waits []groupWait
	for _, group := range slices.Sorted(maps.Keys(groups)) {
		if w := findWait(group, dumps); w.sentence != "" {
			waits = append(waits, w)
		}
	}
	slices.SortStableFunc(waits, func(a, b groupWait) int { return cmp.Compare(a.since, b.since) })
	return mapSlice(waits, func(w groupWait) string { return w.sentence })
}

// findWait finds the first collective of a group that a rank has not entered, or that ranks have
// entered by different names, and otherwise the first that has not completed.
func findWait(group string, dumps []flightDump) groupWait {
	members := membersOf(group, dumps)
	last := make(map[int]int64) // last collective of each rank
	entered := make(map[int64][]dumpEntry)
	others := make(map[int64][]string) // other names than that of the first rank
	for _, d := range dumps {
		if !slices.Contains(members, d.rank) {
			continue
		}
		last[d.rank] = 0
		for _, e := range d.Entries {
			if name, _ := e.group(); name != group {
				continue
			}
			last[d.rank] = max(last[d.rank], e.Sequence)
			entered[e.Sequence] = append(entered[e.Sequence], e)
			if e.Name != entered[e.Sequence][0].Name {
				others[e.Sequence] = append(others[e.Sequence], fmt.Sprintf("rank %d entered %s", d.rank, e.Name))
			}
		}
	}
	without := slices.DeleteFunc(slices.Clone(members), func(rank int) bool { _, has := last[rank]; return has })
	incomplete := groupWait{}
	for _, sequence := range slices.Sorted(maps.Keys(entered)) {
		entries := entered[sequence]
		missing := slices.DeleteFunc(slices.Clone(members), func(rank int) bool {
			newest, has := last[rank]
			return !has || newest >= sequence
		})
		parts := others[sequence]
		if len(missing) > 0 {
			parts = append([]string{fmt.Sprintf("%s of %d %s not entered it", textutil.FormatIndices("rank", missing),
				len(members), map[bool]string{true: "has", false: "have"}[len(missing) == 1])}, parts...)
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
func membersOf(group string, dumps []flightDump) (ranks []int) {
	all := false
	for _, d := range dumps {
		var listed []int
		if json.Unmarshal([]byte(d.Groups[group].Ranks), &listed) == nil && len(listed) > 0 && slices.Min(listed) >= 0 {
			return slices.Sorted(slices.Values(listed))
		}
		has := slices.ContainsFunc(d.Entries, func(e dumpEntry) bool {
			name, description := e.group()
			all = all || name == group && description == defaultGroup
			return name == group
		})
		if has {
			ranks = append(ranks, d.rank)
		}
	}
	if all {
		ranks = mapSlice(dumps, func(d flightDump) int { return d.rank })
	}
	return slices.Compact(ranks)
}

// defaultGroup is torch's description of the group of all ranks.
const defaultGroup = "default_pg"

func (e dumpEntry) group() (name, description string) {
	switch group := e.Group.(type) {
	case string:
		return group, ""
	case []any:
		if len(group) == 2 {
			return fmt.Sprint(group[0]), fmt.Sprint(group[1])
		}
	}
	return "", ""
}

// isOpen reports whether the operation has not completed. Gloo does not record states; an operation is
// retired when it has ended.
func (e dumpEntry) isOpen() bool {
	return e.State != "completed" && (e.State != "scheduled" || !e.Retired)
}

// String returns the collective, its group, the sizes of its inputs and the innermost line outside of
// torch, for people.
func (e dumpEntry) String() string {
	name, description := e.group()
	label := fmt.Sprintf("group %s (%s)", name, cmp.Or(description, "undescribed"))
	if description == defaultGroup {
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

// cleanDumpText makes a text of a dump safe for one line.
func cleanDumpText(text string) string { return textutil.SingleLine(text, maxDumpText) }
