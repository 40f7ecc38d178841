package launcher

import (
	"fmt"
	"strconv"
	"strings"
)

const (
	defaultNodeLimit = 65536 // default maximum number of names from ExpandNodeList
	maxNodeLimit     = 1 << 30
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
	names, err := expandNodeList(s, uint64(min(limit, maxNodeLimit)))
	if err != nil {
		return nil, fmt.Errorf("cannot read node list %q: %v", shortenText(s), err)
	}
	return names, nil
}

func expandNodeList(s string, limit uint64) ([]string, error) {
	p := listParser{text: s}
	entries, err := p.parseList()
	if err != nil {
		return nil, err
	}
	total := uint64(0)
	for _, e := range entries {
		names, longest := e.countNames(limit)
		if total += names; total > limit {
			return nil, fmt.Errorf("it names more than %d nodes", limit)
		}
		if longest > maxNodeName {
			return nil, fmt.Errorf("it has a name of %d bytes; at most %d are accepted", longest, maxNodeName)
		}
	}
	names := make([]string, 0, total)
	for _, e := range entries {
		names = e.appendNames(names, "")
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
func padNumber(n uint64, width int) string {
	s := strconv.FormatUint(n, 10)
	return strings.Repeat("0", max(0, width-len(s))) + s
}

// listParser parses a node list from left to right.
type listParser struct {
	text     string
	position int
}

func (p *listParser) positionErrorf(format string, args ...any) error {
	return fmt.Errorf("at character %d: %s", p.position+1, fmt.Sprintf(format, args...))
}

// takeWhile consumes and returns the following bytes that satisfy is.
func (p *listParser) takeWhile(is func(byte) bool) string {
	start := p.position
	for p.position < len(p.text) && is(p.text[p.position]) {
		p.position++
	}
	return p.text[start:p.position]
}

// skipByte consumes the next byte if it is c.
func (p *listParser) skipByte(c byte) bool {
	if p.position == len(p.text) || p.text[p.position] != c {
		return false
	}
	p.position++
	return true
}

// expected returns the error for the next byte, where something else was expected.
func (p *listParser) expected(what string) error {
	next := "the end"
	if p.position < len(p.text) {
		following := p.text[p.position:min(len(p.text), p.position+4)]
		next = strconv.QuoteRune([]rune(following)[0])
	}
	return p.positionErrorf("%s where %s expected", next, what)
}

func (p *listParser) parseList() ([]nodeEntry, error) {
	var entries []nodeEntry
	for more := true; more; more = p.skipByte(',') {
		entry, err := p.parseEntry()
		if err != nil {
			return nil, err
		}
		entries = append(entries, entry)
	}
	if p.position != len(p.text) {
		return nil, p.expected("a host name, a bracket, a comma or the end was")
	}
	return entries, nil
}

func (p *listParser) parseEntry() (nodeEntry, error) {
	var entry nodeEntry
	for {
		text := p.takeWhile(isNameByte)
		if text != "" && len(entry) == 0 && (text[0] == '-' || text[0] == '.') {
			p.position -= len(text)
			return nil, p.expected("a host name, which begins with a letter or a digit, was")
		}
		if text != "" {
			entry = append(entry, []namePart{{text: text}})
		}
		if !p.skipByte('[') {
			break
		}
		ranges, err := p.parseBracket()
		if err != nil {
			return nil, err
		}
		entry = append(entry, ranges)
	}
	if len(entry) == 0 {
		return nil, p.expected("a host name was")
	}
	return entry, nil
}

// parseBracket parses "0-3,7]".
func (p *listParser) parseBracket() (ranges []namePart, err error) {
	for more := true; more; more = p.skipByte(',') {
		start := p.position
		var r namePart
		if r.low, r.width, err = p.parseNumber(); err != nil {
			return nil, err
		}
		r.high = r.low
		if p.skipByte('-') {
			if r.high, _, err = p.parseNumber(); err != nil {
				return nil, err
			}
		}
		if r.high < r.low {
			text := p.text[start:p.position]
			p.position = start
			return nil, p.positionErrorf("range %s runs backwards, and LOW-HIGH was expected", text)
		}
		ranges = append(ranges, r)
	}
	if !p.skipByte(']') {
		return nil, p.expected("a digit, a comma, a dash or the closing bracket was")
	}
	return ranges, nil
}

func (p *listParser) parseNumber() (n uint64, width int, err error) {
	digits := p.takeWhile(isDigit)
	switch width = len(digits); {
	case width == 0:
		return 0, 0, p.expected("a number was")
	case width > maxNodeDigits:
		p.position -= width
		return 0, 0, p.positionErrorf("a number of %d digits; at most %d are accepted", width, maxNodeDigits)
	}
	n, err = strconv.ParseUint(digits, 10, 64)
	return n, width, err
}

func isNameByte(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || isDigit(c) || c == '-' || c == '_' || c == '.'
}

// shortenText shortens a long list for an error.
func shortenText(s string) string {
	const limit = 200
	if len(s) <= limit {
		return s
	}
	return s[:limit] + "…"
}
