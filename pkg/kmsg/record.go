package kmsg

import (
	"cmp"
	"encoding/hex"
	"math"
	"strconv"
	"strings"
	"time"
)

// record is one of the kernel's log, in the form of https://www.kernel.org/doc/Documentation/ABI/testing/dev-kmsg
type record struct {
	// kernel says that the kernel has written it. A process that writes to the log, as a syslog daemon that passes on
	// whatever users give it, can't have that said of its own.
	kernel   bool
	sequence uint64        // counted from 0 since boot
	at       time.Duration // since boot
	text     string
}

// parse reads the line that a record begins with: "4,1234,56789,-;text". More fields may stand before the semicolon.
// The lines that follow, " KEY=value", have nothing that the text lacks: to whom they are given they are no record.
func parse(line string) (record, bool) {
	head, text, found := strings.Cut(line, ";")
	fields := strings.Split(head, ",")
	if !found || len(fields) < 3 {
		return record{}, false
	}
	priority, bad1 := strconv.ParseUint(fields[0], 10, 32)
	sequence, bad2 := strconv.ParseUint(fields[1], 10, 64)
	micros, bad3 := strconv.ParseUint(fields[2], 10, 64)
	if cmp.Or(bad1, bad2, bad3) != nil || micros > math.MaxInt64/uint64(time.Microsecond) {
		return record{}, false
	}
	return record{
		kernel:   priority>>3 == 0, // the facility; the lowest three bits are the level
		sequence: sequence,
		at:       time.Duration(micros) * time.Microsecond,
		text:     unescape(text),
	}, true
}

// unescape undoes what the kernel does to bytes that can't be shown: \x0a is the end of a line within a record.
func unescape(text string) string {
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
