package pmi1

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"strings"

	"github.com/bringupd/bringupd/pkg/prose"
)

// Maximum lengths of names, keys and values in bytes, as announced to clients. Some clients crash
// if values may be longer.
const (
	longestName  = 256
	longestKey   = 64
	longestValue = 1024
)

// longestLine is the maximum length of a line in bytes. The kernel limits one argument of a command
// to 128 KiB.
const longestLine = 128<<10 + 64

// message is a line "cmd=NAME key=value key=value", or the lines of one block of a spawn. Values
// are not unescaped, because clients that expect escapes have also written them.
type message struct {
	command string
	fields  map[string]string
}

// rest are the fields whose values extend to the end of the line, including spaces. Such a field is
// the last of its message.
var rest = map[string]bool{"value": true, "port": true, "message": true, "error_msg": true}

// parse parses the line of a message.
func parse(line string) (message, error) {
	m := message{fields: make(map[string]string)}
	for line = strings.TrimLeft(line, " "); line != ""; line = strings.TrimLeft(line, " ") {
		field, after, _ := strings.Cut(line, " ")
		key, value, found := strings.Cut(field, "=")
		if rest[key] && found {
			value, after = line[len(key)+1:], ""
		}
		if key == "cmd" {
			m.command = value
		} else {
			m.fields[key] = value
		}
		line = after
	}
	if m.command == "" {
		return message{}, fmt.Errorf("cannot tell what %q asks for: it has no cmd=NAME", prose.Line(line, 80))
	}
	return m, nil
}

// scanner returns a scanner for complete lines, without their line ends. It ignores an incomplete
// last line.
func scanner(r io.Reader) *bufio.Scanner {
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, longestLine)
	lines.Split(func(data []byte, _ bool) (advance int, token []byte, err error) {
		if end := bytes.IndexByte(data, '\n'); end >= 0 {
			return end + 1, data[:end], nil
		}
		return 0, nil, nil
	})
	return lines
}

// lineOf formats a message with a command and pairs of keys and values.
func lineOf(command string, pairs ...string) string {
	var b strings.Builder
	b.WriteString("cmd=" + command)
	for i := 0; i+1 < len(pairs); i += 2 {
		b.WriteString(" " + pairs[i] + "=" + pairs[i+1])
	}
	return inOneLine.Replace(b.String()) + "\n"
}

var inOneLine = strings.NewReplacer("\n", "_", "\x00", "_")

// word replaces spaces with underscores, because clients before MPICH 4.1 accept no spaces in
// values.
func word(text string) string { return strings.Join(strings.Fields(text), "_") }
