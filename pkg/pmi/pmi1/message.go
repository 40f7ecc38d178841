package pmi1

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"strings"

	"github.com/bringupd/bringupd/pkg/prose"
)

// The most bytes of names, keys and values that clients are told of. Some crash with longer values.
const (
	longestName  = 256
	longestKey   = 64
	longestValue = 1024
)

// longestLine bounds a line, in bytes: the kernel lets an argument of a command have 128 KiB.
const longestLine = 128<<10 + 64

// message is a line, "cmd=NAME key=value key=value", or the lines of a block of a spawn. Values are
// kept as they came: a client that reads escapes has written them, too.
type message struct {
	command string
	fields  map[string]string
}

// rest are fields that take the rest of their line, spaces and all: each is the last of its message.
var rest = map[string]bool{"value": true, "port": true, "message": true, "error_msg": true}

// parse reads a message from its line.
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

// scanner reads whole lines, without their ends. An unfinished line at the end is not returned.
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

// lineOf returns the line of a message with a command and pairs of a key and its value.
func lineOf(command string, pairs ...string) string {
	var b strings.Builder
	b.WriteString("cmd=" + command)
	for i := 0; i+1 < len(pairs); i += 2 {
		b.WriteString(" " + pairs[i] + "=" + pairs[i+1])
	}
	return inOneLine.Replace(b.String()) + "\n"
}

var inOneLine = strings.NewReplacer("\n", "_", "\x00", "_")

// word makes a text one word: clients before MPICH 4.1 accept no spaces in values.
func word(text string) string { return strings.Join(strings.Fields(text), "_") }
