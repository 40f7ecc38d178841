package launcher

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/bringupd/bringupd/internal/textutil"
)

const (
	defaultNodeLimit = 65536 // default maximum number of names from ExpandNodeList
	maxNodeLimit     = 1 << 30
	maxNodeName      = 253 // maximum length of a DNS name
)

const (
	nodeRange  = `[0-9]{1,18}(?:-[0-9]{1,18})?` // any number with so many digits fits an int64
	nodeRanges = `\[` + nodeRange + `(?:,` + nodeRange + `)*\]`
)

var (
	// nodeEntryPattern matches an entry of a node list, and the comma after it.
	nodeEntryPattern = textutil.CompileLazily(
		`^((?:[A-Za-z0-9_]|` + nodeRanges + `)(?:[A-Za-z0-9_.-]|` + nodeRanges + `)*)(,|$)`)
	// nodePartPattern matches a part of an entry: plain text, or ranges in brackets.
	nodePartPattern = textutil.CompileLazily(`[^\[\]]+|\[[^\]]*\]`)
	// lastNumberPattern matches a name with a number in its first label.
	lastNumberPattern = textutil.CompileLazily(`(?s)^([^.]*?)([0-9]{1,18})([^.0-9]*(?:\..*)?)$`)
)

// ExpandNodeList returns the names of a Slurm node list such as "n[0-3,7],r[1-2]gpu-a[01-12]-ib",
// in the order of the list. In a name with several brackets, the last bracket varies fastest.
// Numbers keep the width of the first number of their range. A list with more than limit names
// (65536 if limit is 0) is an error, which is detected before any name is made, and so is a name of
// more than 253 bytes.
func ExpandNodeList(s string, limit int) ([]string, error) {
	if limit <= 0 {
		limit = defaultNodeLimit
	}
	names, err := expandNodeList(s, uint64(min(limit, maxNodeLimit)))
	if err != nil {
		return nil, fmt.Errorf("cannot read node list %q: %v", shortenText(s), err)
	}
	return names, nil
}

func expandNodeList(s string, limit uint64) ([]string, error) {
	var entries []nodeEntry
	total := uint64(0)
	for rest, more := s, true; more; {
		found := nodeEntryPattern().FindStringSubmatch(rest)
		if found == nil {
			return nil, fmt.Errorf("at character %d: %q is not a host name, which may have ranges "+
				"such as n[0-3,7]", len(s)-len(rest)+1, rest[:min(len(rest), 40)])
		}
		entry, err := parseEntry(found[1])
		if err != nil {
			return nil, err
		}
		names, longest := entry.countNames(limit)
		if total += names; total > limit {
			return nil, fmt.Errorf("it names more than %d nodes", limit)
		}
		if longest > maxNodeName {
			return nil, fmt.Errorf("it has a name of %d bytes; at most %d are accepted", longest, maxNodeName)
		}
		entries = append(entries, entry)
		rest, more = rest[len(found[0]):], found[2] == ","
	}
	names := make([]string, 0, total)
	for _, entry := range entries {
		names = entry.appendNames(names, "")
	}
	return names, nil
}

// nodeEntry is one entry of a list, with or without brackets: its parts, each with its
// alternatives.
type nodeEntry [][]namePart

// namePart is plain text, or one range of a bracket.
type namePart struct {
	text      string
	low, high uint64
	width     int // the numbers'; 0: plain text
}

func parseEntry(text string) (entry nodeEntry, err error) {
	for _, part := range nodePartPattern().FindAllString(text, -1) {
		if part[0] != '[' {
			entry = append(entry, []namePart{{text: part}})
			continue
		}
		var ranges []namePart
		for one := range strings.SplitSeq(strings.Trim(part, "[]"), ",") {
			low, high, isRange := strings.Cut(one, "-")
			if !isRange {
				high = low
			}
			r := namePart{width: len(low)}
			r.low, _ = strconv.ParseUint(low, 10, 64) // the pattern admits only such numbers
			r.high, _ = strconv.ParseUint(high, 10, 64)
			if r.high < r.low {
				return nil, fmt.Errorf("range %s runs backwards, and LOW-HIGH was expected", one)
			}
			ranges = append(ranges, r)
		}
		entry = append(entry, ranges)
	}
	return entry, nil
}

func (p namePart) numberedText(n uint64) string {
	if p.width == 0 {
		return p.text
	}
	return padNumber(n, p.width)
}

// countNames returns the number of names, or limit+1 if there are more, and the length of the
// longest one.
func (e nodeEntry) countNames(limit uint64) (names uint64, longest int) {
	names = 1
	for _, part := range e {
		sum, widest := uint64(0), 0
		for _, one := range part {
			// No range is above 10^18, and a text has too few ranges to overflow before the limit.
			sum = min(sum+(one.high-one.low+1), limit+1)
			widest = max(widest, len(one.numberedText(one.high)))
		}
		names = min(names*sum, limit+1) // both are at most limit+1, so the product fits
		longest += widest
	}
	return names, longest
}

func (e nodeEntry) appendNames(names []string, prefix string) []string {
	if len(e) == 0 {
		return append(names, prefix)
	}
	for _, one := range e[0] {
		for n := one.low; n <= one.high; n++ {
			names = e[1:].appendNames(names, prefix+one.numberedText(n))
		}
	}
	return names
}

// padNumber writes n with leading zeros, with at least width digits.
func padNumber(n uint64, width int) string { return fmt.Sprintf("%0*d", width, n) }

func shortenText(s string) string {
	const limit = 200
	if len(s) <= limit {
		return s
	}
	return s[:limit] + "…"
}

// numberedName is a host name, split at the last number of its first label: "gpu-a07.site" is
// "gpu-a", 7, ".site".
type numberedName struct {
	prefix, suffix string
	digits         string // empty if the name has no number
	number         uint64
}

// isLike reports whether two names differ at most in their numbers.
func (n numberedName) isLike(other numberedName) bool {
	return n.prefix == other.prefix && n.suffix == other.suffix && other.digits != ""
}

// CompactNodeList returns hosts, which may be unsorted and repeated, as a node list for
// ExpandNodeList: sorted, each host once, consecutive numbers as a range.
func CompactNodeList(hosts []string) string {
	names := make([]numberedName, 0, len(hosts))
	for _, host := range hosts {
		if host != "" {
			names = append(names, splitName(host))
		}
	}
	slices.SortFunc(names, func(a, b numberedName) int {
		return cmp.Or(cmp.Compare(a.prefix, b.prefix), cmp.Compare(a.suffix, b.suffix),
			cmp.Compare(a.number, b.number), cmp.Compare(len(a.digits), len(b.digits)))
	})
	names = slices.Compact(names)
	var parts []string
	for len(names) > 0 {
		alike := 1
		for alike < len(names) && names[alike].isLike(names[0]) {
			alike++
		}
		parts, names = append(parts, joinNames(names[:alike])), names[alike:]
	}
	return strings.Join(parts, ",")
}

// maxListBytes is the maximum total size in bytes of the host names in a record, which every node
// reads.
const maxListBytes = 128 << 10

// HostList returns the hosts of all nodes in order, in the shortest form that ExpandNodeList can
// read. It returns an empty string if a host is unknown, or if the list would be longer than 128
// KiB.
func HostList(hosts []string) string {
	list := CompactNodeList(hosts)
	if back, err := ExpandNodeList(list, len(hosts)); err != nil || !slices.Equal(back, hosts) {
		list = strings.Join(hosts, ",")
	}
	if len(list) > maxListBytes || slices.Contains(hosts, "") {
		return ""
	}
	return list
}

func splitName(host string) numberedName {
	parts := lastNumberPattern().FindStringSubmatch(host)
	if parts == nil {
		return numberedName{prefix: host}
	}
	number, _ := strconv.ParseUint(parts[2], 10, 64) // the pattern admits only such numbers
	return numberedName{prefix: parts[1], digits: parts[2], suffix: parts[3], number: number}
}

// joinNames writes names that differ only in their numbers.
func joinNames(names []numberedName) string {
	first := names[0]
	if len(names) == 1 {
		return first.prefix + first.digits + first.suffix
	}
	var ranges []string
	for len(names) > 0 {
		end := 1
		for end < len(names) && names[end].number == names[end-1].number+1 &&
			names[end].digits == padNumber(names[end].number, len(names[0].digits)) {
			end++
		}
		text := names[0].digits
		if end > 1 {
			text += "-" + names[end-1].digits
		}
		ranges, names = append(ranges, text), names[end:]
	}
	return first.prefix + "[" + strings.Join(ranges, ",") + "]" + first.suffix
}
