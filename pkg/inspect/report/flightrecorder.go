package report

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/big"
	"slices"
	"strconv"
	"strings"

	ogórek "github.com/kisielk/og-rek"
	"golang.org/x/sync/errgroup"

	"github.com/bringupd/bringupd/internal/textutil"
	"github.com/bringupd/bringupd/pkg/signal"
)

// Limits for the dumps of torch's flight recorder.
const (
	maxDumps           = 1024     // files that are read
	maxDumpBytes       = 16 << 20 // bytes of a file
	maxConcurrentDumps = 4        // files that are read at the same time
	// maxDumpValues is the maximum number of values in a dump: one of 20,000 collectives has 2 million.
	// A pickle may refer to the same value many times.
	maxDumpValues = 10_000_000
	maxDumpDepth  = 8 // of nested values; entries have 5
	// maxFindings and maxDumpProblems are the maximum numbers of sentences.
	maxFindings     = 3
	maxDumpProblems = 2
	maxDumpText     = 300 // characters of a text in a dump
)

// flightDump is a dump of torch's flight recorder: the last collectives that a rank has entered.
type flightDump struct {
	rank int
	// groups are the ranks of the process groups, by the names of the groups. A group may be missing.
	groups      map[string][]int
	collectives []collective // in the order in which the rank has entered them
}

// collective is a collective that a rank has entered.
type collective struct {
	group       string // name of the process group, which is the same on all its ranks
	description string // the group's, such as default_pg
	sequence    int64  // number of the collective in its group
	name        string // such as nccl:all_reduce
	sizes       string // the inputs', such as [8, 4]
	createdAt   int64  // nanoseconds since 1970, by the clock of the node
	completed   bool
	caller      string // the innermost line outside of torch, such as train.py:10; empty if unknown
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
	unread := max(0, len(names)-maxDumps)
	dumps, problems := readDumps(ctx, folder, names[:len(names)-unread])
	sentences = limitSentences(mapSlice(findHungCollectives(dumps), collectiveFinding.String), maxFindings,
		"groups in which ranks differ")
	if len(sentences) == 0 && len(dumps) > 0 {
		sentences = []string{fmt.Sprintf("all %d ranks with a dump have entered the same collectives", len(dumps))}
	}
	sentences = append(sentences, limitSentences(problems, maxDumpProblems, "dumps that cannot be read")...)
	if unread > 0 {
		sentences = append(sentences, fmt.Sprintf("%d further dumps were not read", unread))
	}
	return sentences
}

// limitSentences replaces all but the first sentences by one with their number.
func limitSentences(sentences []string, limit int, what string) []string {
	if more := len(sentences) - limit; more > 0 {
		return append(sentences[:limit], fmt.Sprintf("and %d more %s", more, what))
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

func readDumps(
	ctx context.Context, folder *signal.DirSnapshot, names []string,
) (dumps []flightDump, problems []string) {
	all, failed := make([]flightDump, len(names)), make([]error, len(names))
	var reads errgroup.Group
	reads.SetLimit(maxConcurrentDumps)
	for i, name := range names {
		reads.Go(func() error {
			content, err := folder.ReadFile(ctx, name, maxDumpBytes)
			switch {
			case err != nil:
				failed[i] = err
			case len(content.Tail) > 0:
				failed[i] = fmt.Errorf("it is larger than %s", textutil.FormatSize(maxDumpBytes))
			default:
				all[i], failed[i] = parseDump(rankOfDump(name), content.Data)
			}
			return nil
		})
	}
	_ = reads.Wait() // the functions return no error
	for i, name := range names {
		if failed[i] != nil {
			problems = append(problems, cleanDumpText(fmt.Sprintf("cannot read the dump %s: %v", name, failed[i])))
			continue
		}
		if n := len(dumps); n > 0 && dumps[n-1].rank == all[i].rank {
			dumps = dumps[:n-1] // a later dump of the same rank counts
		}
		dumps = append(dumps, all[i])
	}
	return dumps, problems
}

// dumpFile is the content of a dump as far as it is used.
type dumpFile struct {
	Version string
	Groups  map[string]struct{ Ranks string } `json:"pg_config"`
	Entries []dumpEntry
}

// dumpEntry is an operation in a dump.
type dumpEntry struct {
	Group     any       `json:"process_group"` // its name, or a list of name and description
	Sequence  int64     `json:"collective_seq_id"`
	Name      string    `json:"profiling_name"`
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

// parseDump parses the dump of a rank, which is a pickle or JSON. Operations between two ranks are left
// out. A value of an unexpected type counts as missing.
func parseDump(rank int, data []byte) (flightDump, error) {
	if data = bytes.TrimSpace(data); len(data) == 0 || data[0] != '{' {
		var err error
		if data, err = convertPickle(data); err != nil {
			return flightDump{}, err
		}
	}
	var file dumpFile
	err := json.Unmarshal(data, &file)
	if _, isType := errors.AsType[*json.UnmarshalTypeError](err); err != nil && !isType {
		return flightDump{}, err
	}
	if file.Version == "" {
		return flightDump{}, errors.New("it has no version: it is no dump of a flight recorder")
	}
	d := flightDump{rank: rank, groups: make(map[string][]int)}
	for name, config := range file.Groups {
		var ranks []int
		if json.Unmarshal([]byte(config.Ranks), &ranks) == nil && len(ranks) > 0 && slices.Min(ranks) >= 0 {
			d.groups[cleanDumpText(name)] = ranks
		}
	}
	for _, entry := range file.Entries {
		if !entry.IsP2P {
			d.collectives = append(d.collectives, entry.collective())
		}
	}
	return d, nil
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
	convertAll := func(items []any) []any {
		return mapSlice(items, func(item any) any { return plainValue(item, depth-1, left) })
	}
	switch v := value.(type) {
	case string, bool, int64:
		return v
	case *big.Int:
		if v.IsInt64() {
			return v.Int64()
		}
	case []any:
		return convertAll(v)
	case ogórek.Tuple:
		return convertAll(v)
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

// collective returns the entry with texts for people.
func (e dumpEntry) collective() collective {
	c := collective{sequence: e.Sequence, name: cleanDumpText(e.Name), createdAt: e.CreatedAt}
	switch group := e.Group.(type) {
	case string:
		c.group = cleanDumpText(group)
	case []any:
		if len(group) == 2 {
			c.group, c.description = cleanDumpText(fmt.Sprint(group[0])), cleanDumpText(fmt.Sprint(group[1]))
		}
	}
	const maxTensors = 2
	c.sizes = textutil.JoinLimited(mapSlice(e.Sizes, func(sizes []int64) string {
		return "[" + strings.Join(mapSlice(sizes, func(n int64) string { return strconv.FormatInt(n, 10) }), ", ") + "]"
	}), maxTensors, " ")
	for _, frame := range e.Frames {
		if file := frame.Filename; file != "" && !strings.Contains(file, "/torch/") {
			c.caller = cleanDumpText(fmt.Sprintf("%s:%d", file[strings.LastIndexByte(file, '/')+1:], frame.Line))
			break
		}
	}
	// Gloo does not record states; an operation is retired when it has ended.
	c.completed = e.State == "completed" || e.State == "scheduled" && e.Retired
	return c
}

// cleanDumpText makes a text of a dump safe for one line.
func cleanDumpText(text string) string { return textutil.SingleLine(text, maxDumpText) }
