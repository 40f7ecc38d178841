package flightrecorder

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/bringupd/bringupd/internal/textutil"
)

// Dump is the dump of one rank.
type Dump struct {
	Rank    int
	Version string
	// Groups are the ranks of the process groups, by the names of the groups. A group may be missing.
	Groups  map[string][]int
	Entries []Entry // in the order in which the rank has entered them
}

// Entry is a collective that a rank has entered.
type Entry struct {
	Group       string // the name of the process group, which is the same on all its ranks
	Description string // of the group, such as default_pg
	Sequence    int64  // the number of the collective in its group
	Name        string // such as nccl:all_reduce
	Sizes       string // of the inputs, such as [8, 4]
	CreatedAt   int64  // nanoseconds since 1970, by the clock of the node
	Completed   bool
	Caller      string // the innermost line outside of torch, such as train.py:10; empty if unknown
}

// parseDump parses the dump of a rank. Operations between two ranks are left out.
func parseDump(rank int, data []byte) (Dump, error) {
	var top any
	var err error
	if trimmed := bytes.TrimSpace(data); len(trimmed) > 0 && trimmed[0] == '{' {
		decoder := json.NewDecoder(bytes.NewReader(trimmed))
		decoder.UseNumber()
		err = decoder.Decode(&top)
	} else {
		top, err = decodePickle(data)
	}
	if err != nil {
		return Dump{}, err
	}
	d := Dump{Rank: rank, Version: text(lookup(top, "version")), Groups: make(map[string][]int)}
	if d.Version == "" {
		return Dump{}, errors.New("it has no version: it is no dump of a flight recorder")
	}
	for name, config := range pairs(lookup(top, "pg_config")) {
		if ranks := parseRanks(text(lookup(config, "ranks"))); name != "" && len(ranks) > 0 {
			d.Groups[name] = ranks
		}
	}
	for _, item := range elements(lookup(top, "entries")) {
		if p2p, _ := lookup(item, "is_p2p").(bool); !p2p {
			d.Entries = append(d.Entries, parseEntry(item))
		}
	}
	return d, nil
}

// parseEntry parses one entry.
func parseEntry(item any) Entry {
	e := Entry{
		Sequence: integer(lookup(item, "collective_seq_id")), Name: text(lookup(item, "profiling_name")), Sizes: formatSizes(lookup(item, "input_sizes")),
		CreatedAt: integer(lookup(item, "time_created_ns")), Caller: findCaller(elements(lookup(item, "frames"))),
	}
	switch group := lookup(item, "process_group").(type) {
	case string:
		e.Group = clean(group)
	default:
		if parts := elements(group); len(parts) == 2 {
			e.Group, e.Description = text(parts[0]), text(parts[1])
		}
	}
	// Gloo does not record states; an operation is retired when it has ended.
	retired, _ := lookup(item, "retired").(bool)
	state := text(lookup(item, "state"))
	e.Completed = state == "completed" || state == "scheduled" && retired
	return e
}

// findCaller returns the innermost line of a stack outside of torch.
func findCaller(frames []any) string {
	for _, frame := range frames {
		file := text(lookup(frame, "filename"))
		if file == "" || strings.Contains(file, "/torch/") {
			continue
		}
		return fmt.Sprintf("%s:%d", file[strings.LastIndexByte(file, '/')+1:], integer(lookup(frame, "line")))
	}
	return ""
}

// formatSizes formats the sizes of tensors.
func formatSizes(value any) string {
	var tensors []string
	for _, tensor := range elements(value) {
		var sizes []string
		for _, size := range elements(tensor) {
			sizes = append(sizes, strconv.FormatInt(integer(size), 10))
		}
		tensors = append(tensors, "["+strings.Join(sizes, ", ")+"]")
	}
	const most = 2
	return textutil.JoinLimited(tensors, most, " ")
}

// parseRanks parses a list of ranks, such as [0, 1].
func parseRanks(list string) (ranks []int) {
	for part := range strings.SplitSeq(strings.Trim(list, "[]"), ",") {
		rank, err := strconv.Atoi(strings.TrimSpace(part))
		if err != nil || rank < 0 {
			return nil
		}
		ranks = append(ranks, rank)
	}
	return ranks
}

// The functions below access values of a pickle or of JSON. A value of another type than expected
// counts as missing.

func lookup(value any, key string) any {
	switch v := value.(type) {
	case *dict:
		return v.values[key]
	case map[string]any:
		return v[key]
	}
	return nil
}

func pairs(value any) map[string]any {
	switch v := value.(type) {
	case *dict:
		found := make(map[string]any)
		for key, item := range v.values {
			if name, is := key.(string); is {
				found[clean(name)] = item
			}
		}
		return found
	case map[string]any:
		return v
	}
	return nil
}

func elements(value any) []any {
	switch v := value.(type) {
	case *list:
		return v.items
	case []any:
		return v
	}
	return nil
}

func text(value any) string {
	v, _ := value.(string)
	return clean(v)
}

func integer(value any) int64 {
	switch v := value.(type) {
	case int64:
		return v
	case json.Number:
		n, _ := v.Int64() // 0 if it is no whole number
		return n
	}
	return 0
}

// clean makes a text safe for one line.
func clean(value string) string {
	const maxLength = 300
	return textutil.SingleLine(value, maxLength)
}
