package roles

import (
	"fmt"
	"strconv"
	"strings"
)

const (
	defaultNodeLimit = 65536 // names ExpandNodeList returns at most, unless told otherwise
	highestNodeLimit = 1 << 30
	maxNodeName      = 253 // the longest name DNS has
	maxNodeDigits    = 18  // what fits an int64 whatever the digits
)

// ExpandNodeList returns the names of a Slurm node list such as "n[0-3,7],r[1-2]gpu-a[01-12]-ib", in the order
// of the list; where a name has several brackets the last one runs fastest, and numbers keep the width of their
// range's first. A list of more than limit names (65536 where limit is 0) is an error, found before anything is
// made of it, as is a name of more than 253 bytes.
func ExpandNodeList(s string, limit int) ([]string, error) {
	if limit <= 0 {
		limit = defaultNodeLimit
	}
	limit = min(limit, highestNodeLimit)
	p := listParser{text: s}
	entries, err := p.list()
	if err != nil {
		return nil, fmt.Errorf("cannot read node list %q: %v", clip(s), err)
	}
	total := 0
	for _, e := range entries {
		n := e.count(limit)
		if total += n; total > limit {
			return nil, fmt.Errorf("cannot read node list %q: it names more than %d nodes", clip(s), limit)
		}
		if n := e.longest(); n > maxNodeName {
			return nil, fmt.Errorf("cannot read node list %q: it has a name of %d bytes; %d is the most", clip(s), n, maxNodeName)
		}
	}
	names := make([]string, 0, total)
	for _, e := range entries {
		names = e.expand(names, "")
	}
	return names, nil
}

// nodeEntry is one name of a list, with or without brackets: plain text and brackets in turns.
type nodeEntry []namePart

// namePart is plain text, or the ranges of one bracket.
type namePart struct {
	text   string
	ranges []nodeRange
}

type nodeRange struct {
	low, high uint64
	width     int
}

func (e nodeEntry) count(limit int) int {
	total := uint64(1)
	for _, part := range e {
		if part.ranges == nil {
			continue
		}
		sum := uint64(0)
		for _, r := range part.ranges {
			// No range is above 10^18, and a text has too few ranges to overflow before the limit.
			sum = min(sum+(r.high-r.low+1), uint64(limit)+1)
		}
		// Both are at most limit+1, so that their product fits.
		if total *= sum; total > uint64(limit) {
			return limit + 1
		}
	}
	return int(total)
}

func (e nodeEntry) longest() int {
	total := 0
	for _, part := range e {
		longest := len(part.text)
		for _, r := range part.ranges {
			longest = max(longest, r.width, len(strconv.FormatUint(r.high, 10)))
		}
		total += longest
	}
	return total
}

func (e nodeEntry) expand(names []string, prefix string) []string {
	if len(e) == 0 {
		return append(names, prefix)
	}
	if e[0].ranges == nil {
		return e[1:].expand(names, prefix+e[0].text)
	}
	for _, r := range e[0].ranges {
		for n := r.low; n <= r.high; n++ {
			names = e[1:].expand(names, prefix+padded(n, r.width))
		}
	}
	return names
}

// padded writes n with zeros to at least width digits.
func padded(n uint64, width int) string {
	s := strconv.FormatUint(n, 10)
	return strings.Repeat("0", max(0, width-len(s))) + s
}

// listParser reads a node list from left to right.
type listParser struct {
	text string
	at   int
}

func (p *listParser) errorf(format string, args ...any) error {
	return fmt.Errorf("at character %d: %s", p.at+1, fmt.Sprintf(format, args...))
}

// take reads the bytes that are so, if any.
func (p *listParser) take(is func(byte) bool) string {
	start := p.at
	for p.at < len(p.text) && is(p.text[p.at]) {
		p.at++
	}
	return p.text[start:p.at]
}

// skip reads one byte, where it is this one.
func (p *listParser) skip(c byte) bool {
	if p.at == len(p.text) || p.text[p.at] != c {
		return false
	}
	p.at++
	return true
}

// seen says what is to be read, for an error.
func (p *listParser) seen() string {
	if p.at == len(p.text) {
		return "the end"
	}
	return strconv.QuoteRune([]rune(p.text[p.at:min(len(p.text), p.at+4)])[0])
}

func (p *listParser) list() ([]nodeEntry, error) {
	var entries []nodeEntry
	for more := true; more; more = p.skip(',') {
		entry, err := p.entry()
		if err != nil {
			return nil, err
		}
		entries = append(entries, entry)
	}
	if p.at != len(p.text) {
		return nil, p.errorf("%s where a host name, a bracket, a comma or the end was expected", p.seen())
	}
	return entries, nil
}

func (p *listParser) entry() (nodeEntry, error) {
	var entry nodeEntry
	for {
		text := p.take(isNameByte)
		if text != "" && len(entry) == 0 && (text[0] == '-' || text[0] == '.') {
			p.at -= len(text)
			return nil, p.errorf("%s where a host name was expected, which begins with a letter or a digit", p.seen())
		}
		if text != "" {
			entry = append(entry, namePart{text: text})
		}
		if !p.skip('[') {
			break
		}
		ranges, err := p.bracket()
		if err != nil {
			return nil, err
		}
		entry = append(entry, namePart{ranges: ranges})
	}
	if len(entry) == 0 {
		return nil, p.errorf("%s where a host name was expected", p.seen())
	}
	return entry, nil
}

// bracket reads "0-3,7]".
func (p *listParser) bracket() ([]nodeRange, error) {
	var ranges []nodeRange
	for more := true; more; more = p.skip(',') {
		start := p.at
		low, width, err := p.number()
		if err != nil {
			return nil, err
		}
		r := nodeRange{low: low, high: low, width: width}
		if p.skip('-') {
			if r.high, _, err = p.number(); err != nil {
				return nil, err
			}
		}
		if r.high < r.low {
			text := p.text[start:p.at]
			p.at = start
			return nil, p.errorf("range %s runs backwards, and LOW-HIGH was expected", text)
		}
		ranges = append(ranges, r)
	}
	if !p.skip(']') {
		return nil, p.errorf("%s where a digit, a comma, a dash or the closing bracket was expected", p.seen())
	}
	return ranges, nil
}

func (p *listParser) number() (n uint64, width int, err error) {
	digits := p.take(isDigit)
	switch width = len(digits); {
	case width == 0:
		return 0, 0, p.errorf("%s where a number was expected", p.seen())
	case width > maxNodeDigits:
		p.at -= width
		return 0, 0, p.errorf("a number of %d digits, and %d are the most", width, maxNodeDigits)
	}
	n, err = strconv.ParseUint(digits, 10, 64)
	return n, width, err
}

func isNameByte(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || isDigit(c) || c == '-' || c == '_' || c == '.'
}

// clip keeps a long list from filling the error.
func clip(s string) string {
	const most = 200
	if len(s) <= most {
		return s
	}
	return s[:most] + "…"
}
