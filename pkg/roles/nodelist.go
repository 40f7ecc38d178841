package roles

import (
	"fmt"
	"strconv"
	"strings"
)

const (
	defaultNodeLimit = 65536 // default maximum number of names from ExpandNodeList
	highestNodeLimit = 1 << 30
	maxNodeName      = 253 // maximum length of a DNS name
	maxNodeDigits    = 18  // any number with so many digits fits an int64
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
	names, err := expandNodeList(s, uint64(min(limit, highestNodeLimit)))
	if err != nil {
		return nil, fmt.Errorf("cannot read node list %q: %v", clip(s), err)
	}
	return names, nil
}

func expandNodeList(s string, limit uint64) ([]string, error) {
	p := listParser{text: s}
	entries, err := p.list()
	if err != nil {
		return nil, err
	}
	total := uint64(0)
	for _, e := range entries {
		names, longest := e.size(limit)
		if total += names; total > limit {
			return nil, fmt.Errorf("it names more than %d nodes", limit)
		}
		if longest > maxNodeName {
			return nil, fmt.Errorf("it has a name of %d bytes; %d is the most", longest, maxNodeName)
		}
	}
	names := make([]string, 0, total)
	for _, e := range entries {
		names = e.expand(names, "")
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
	width     int // of the numbers; 0: plain text
}

func (p namePart) at(n uint64) string {
	if p.width == 0 {
		return p.text
	}
	return padded(n, p.width)
}

// size returns the number of names, or limit+1 if there are more, and the length of the longest
// one.
func (e nodeEntry) size(limit uint64) (names uint64, longest int) {
	names = 1
	for _, part := range e {
		sum, widest := uint64(0), 0
		for _, one := range part {
			// No range is above 10^18, and a text has too few ranges to overflow before the limit.
			sum = min(sum+(one.high-one.low+1), limit+1)
			widest = max(widest, len(one.at(one.high)))
		}
		names = min(names*sum, limit+1) // both are at most limit+1, so the product fits
		longest += widest
	}
	return names, longest
}

func (e nodeEntry) expand(names []string, prefix string) []string {
	if len(e) == 0 {
		return append(names, prefix)
	}
	for _, one := range e[0] {
		for n := one.low; n <= one.high; n++ {
			names = e[1:].expand(names, prefix+one.at(n))
		}
	}
	return names
}

// padded writes n with leading zeros, with at least width digits.
func padded(n uint64, width int) string {
	s := strconv.FormatUint(n, 10)
	return strings.Repeat("0", max(0, width-len(s))) + s
}

// listParser parses a node list from left to right.
type listParser struct {
	text string
	at   int
}

func (p *listParser) errorf(format string, args ...any) error {
	return fmt.Errorf("at character %d: %s", p.at+1, fmt.Sprintf(format, args...))
}

// take consumes and returns the following bytes that satisfy is.
func (p *listParser) take(is func(byte) bool) string {
	start := p.at
	for p.at < len(p.text) && is(p.text[p.at]) {
		p.at++
	}
	return p.text[start:p.at]
}

// skip consumes the next byte if it is c.
func (p *listParser) skip(c byte) bool {
	if p.at == len(p.text) || p.text[p.at] != c {
		return false
	}
	p.at++
	return true
}

// seen describes the next byte for an error.
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
			entry = append(entry, []namePart{{text: text}})
		}
		if !p.skip('[') {
			break
		}
		ranges, err := p.bracket()
		if err != nil {
			return nil, err
		}
		entry = append(entry, ranges)
	}
	if len(entry) == 0 {
		return nil, p.errorf("%s where a host name was expected", p.seen())
	}
	return entry, nil
}

// bracket parses "0-3,7]".
func (p *listParser) bracket() (ranges []namePart, err error) {
	for more := true; more; more = p.skip(',') {
		start := p.at
		var r namePart
		if r.low, r.width, err = p.number(); err != nil {
			return nil, err
		}
		r.high = r.low
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

// clip shortens a long list for an error.
func clip(s string) string {
	const most = 200
	if len(s) <= most {
		return s
	}
	return s[:most] + "…"
}
