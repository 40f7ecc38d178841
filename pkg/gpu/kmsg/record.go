package kmsg

import (
	"cmp"
	"encoding/hex"
	"math"
	"strconv"
	"strings"
	"time"
)

// logRecord is a record of the kernel log. For its format see
// https://www.kernel.org/doc/Documentation/ABI/testing/dev-kmsg
type logRecord struct {
	// fromKernel says that the kernel itself has written the record. A process cannot set this for its
	// own records, for example a syslog daemon that forwards the messages of users.
	fromKernel bool
	sequence   uint64        // starts at 0 after boot
	sinceBoot  time.Duration // time since boot
	text       string
}

// parseRecord parses the first line of a record: "4,1234,56789,-;text". There may be more fields
// before the semicolon. For other lines it returns false: the following lines, " KEY=value", do not
// contain anything that is not in the text.
func parseRecord(line string) (logRecord, bool) {
	head, text, found := strings.Cut(line, ";")
	fields := strings.Split(head, ",")
	if !found || len(fields) < 3 {
		return logRecord{}, false
	}
	priority, bad1 := strconv.ParseUint(fields[0], 10, 32)
	sequence, bad2 := strconv.ParseUint(fields[1], 10, 64)
	micros, bad3 := strconv.ParseUint(fields[2], 10, 64)
	if cmp.Or(bad1, bad2, bad3) != nil || micros > math.MaxInt64/uint64(time.Microsecond) {
		return logRecord{}, false
	}
	return logRecord{
		fromKernel: priority>>3 == 0, // the upper bits are the facility, the lowest three the level
		sequence:   sequence,
		sinceBoot:  time.Duration(micros) * time.Microsecond,
		text:       unescapeText(text),
	}, true
}

// unescapeText decodes the kernel's escapes of unprintable bytes. For example, \x0a is a line feed
// within a record.
func unescapeText(text string) string {
	const escape = `\x`
	var b strings.Builder
	for {
		before, rest, found := strings.Cut(text, escape)
		b.WriteString(before)
		if !found {
			return b.String()
		}
		if code, err := hex.DecodeString(rest[:min(2, len(rest))]); err == nil && len(code) == 1 {
			b.WriteByte(code[0])
			rest = rest[2:]
		} else {
			b.WriteString(escape)
		}
		text = rest
	}
}
