// Package wire is how PMI-1 is written: one line a message, "cmd=NAME key=value key=value"; a spawn alone has many. Values are kept
// as they came: a client that reads escapes has written them, too.
package wire

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"strings"

	"github.com/bringupd/bringupd/pkg/prose"
)

// What clients are told that names, keys and values may have at most. With longer values than that some crash.
const (
	LongestName  = 256
	LongestKey   = 64
	LongestValue = 1024
)

// longest bounds a line: an argument of a command that is spawned has 128 KiB at most, which is the kernel's limit.
const longest = 128<<10 + 64

// Message is a line, or the lines of a block of a spawn.
type Message struct {
	Command string
	Fields  map[string]string
}

// rest are fields that take the rest of their line, spaces and all: each is the last of its message.
var rest = map[string]bool{"value": true, "port": true, "message": true, "error_msg": true}

// Parse reads a message from its line.
func Parse(line string) (Message, error) {
	m := Message{Fields: make(map[string]string)}
	for line = strings.TrimLeft(line, " "); line != ""; line = strings.TrimLeft(line, " ") {
		word, after, _ := strings.Cut(line, " ")
		key, value, found := strings.Cut(word, "=")
		if rest[key] && found {
			value, after = line[len(key)+1:], ""
		}
		if key == "cmd" {
			m.Command = value
		} else {
			m.Fields[key] = value
		}
		line = after
	}
	if m.Command == "" {
		return Message{}, fmt.Errorf("cannot tell what %q asks for: it has no cmd=NAME", prose.Line(line, 80))
	}
	return m, nil
}

// Scanner reads whole lines, without their ends: the beginning of one, before the end of what is read, is none.
func Scanner(r io.Reader) *bufio.Scanner {
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, longest)
	lines.Split(func(data []byte, _ bool) (advance int, token []byte, err error) {
		if end := bytes.IndexByte(data, '\n'); end >= 0 {
			return end + 1, data[:end], nil
		}
		return 0, nil, nil
	})
	return lines
}

// Line writes a message: its command, and keys with their values by turns.
func Line(command string, pairs ...string) string {
	var b strings.Builder
	b.WriteString("cmd=" + command)
	for i := 0; i+1 < len(pairs); i += 2 {
		b.WriteString(" " + pairs[i] + "=" + pairs[i+1])
	}
	return inOneLine.Replace(b.String()) + "\n"
}

var inOneLine = strings.NewReplacer("\n", "_", "\x00", "_")

// Word makes a text one word: clients of before MPICH 4.1 know no spaces in values.
func Word(text string) string { return strings.Join(strings.Fields(text), "_") }
