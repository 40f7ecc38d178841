package pmi

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"strings"

	"github.com/bringupd/bringupd/internal/textutil"
)

// Maximum lengths of names, keys and values in bytes, as announced to clients. Some clients crash
// if values may be longer.
const (
	maxPMI1Name  = 256
	maxPMI1Key   = 64
	maxPMI1Value = 1024
)

// maxPMI1Line is the maximum length of a line in bytes. The kernel limits one argument of a
// command to 128 KiB.
const maxPMI1Line = 128<<10 + 64

// message is a line "cmd=NAME key=value key=value", or the lines of one block of a spawn. Values
// are not unescaped, because clients that expect escapes have also written them.
type message struct {
	command string
	fields  map[string]string
}

// restOfLineFields are the fields whose values extend to the end of the line, including spaces.
// Such a field is the last of its message.
var restOfLineFields = map[string]bool{"value": true, "port": true, "message": true, "error_msg": true}

func parseMessage(line string) (message, error) {
	m := message{fields: make(map[string]string)}
	for line = strings.TrimLeft(line, " "); line != ""; line = strings.TrimLeft(line, " ") {
		field, after, _ := strings.Cut(line, " ")
		key, value, found := strings.Cut(field, "=")
		if restOfLineFields[key] && found {
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
		return message{}, fmt.Errorf("cannot parse the PMI request %q: it has no cmd=NAME",
			textutil.SingleLine(line, 80))
	}
	return m, nil
}

// newLineScanner returns a scanner for complete lines, without their line ends. It ignores an
// incomplete last line.
func newLineScanner(r io.Reader) *bufio.Scanner {
	lines := bufio.NewScanner(r)
	lines.Buffer(nil, maxPMI1Line)
	lines.Split(func(data []byte, _ bool) (advance int, token []byte, err error) {
		if end := bytes.IndexByte(data, '\n'); end >= 0 {
			return end + 1, data[:end], nil
		}
		return 0, nil, nil
	})
	return lines
}

func formatLine(command string, pairs ...string) string {
	var b strings.Builder
	b.WriteString("cmd=" + command)
	for i := 0; i+1 < len(pairs); i += 2 {
		b.WriteString(" " + pairs[i] + "=" + pairs[i+1])
	}
	return lineReplacer.Replace(b.String()) + "\n"
}

var lineReplacer = strings.NewReplacer("\n", "_", "\x00", "_")

// joinWords replaces spaces with underscores, because clients before MPICH 4.1 accept no spaces in
// values.
func joinWords(text string) string { return strings.Join(strings.Fields(text), "_") }
