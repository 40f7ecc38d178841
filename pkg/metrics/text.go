package metrics

import (
	"bytes"
	"fmt"
	"strconv"
	"strings"
)

// Source returns the metrics of a daemon as they are at the moment. It may be called
// from any goroutine, and must not wait for a file system or a network.
type Source func() []byte

// Text is metrics as Prometheus reads them. It bears no times: a collector of text
// files refuses them. A family without a sample is left out.
type Text struct {
	text    bytes.Buffer
	common  string // labels of every sample
	name    string
	heading string // of the family, until it has a sample
}

// NewText returns one without a family; each of its samples has the labels, which
// are names and values in turns.
func NewText(labels ...string) *Text { return &Text{common: pairs(labels...)} }

// Family begins one, of the samples that follow.
func (t *Text) Family(name, kind, help string) {
	t.name = name
	t.heading = fmt.Sprintf("# HELP %s %s\n# TYPE %s %s\n", name, help, name, kind)
}

// Sample adds one, with labels of its own.
func (t *Text) Sample(value float64, labels ...string) {
	t.text.WriteString(t.heading)
	t.heading = ""
	all := t.common
	if len(labels) > 0 {
		all += "," + pairs(labels...)
	}
	fmt.Fprintf(&t.text, "%s{%s} %s\n", t.name, all, strconv.FormatFloat(value, 'g', -1, 64))
}

// Bytes returns what was told.
func (t *Text) Bytes() []byte { return t.text.Bytes() }

// pairs are labels, of names and values in turns.
func pairs(labels ...string) string {
	var parts []string
	for i := 0; i+1 < len(labels); i += 2 {
		parts = append(parts, labels[i]+`="`+escape.Replace(strings.ToValidUTF8(labels[i+1], "\uFFFD"))+`"`)
	}
	return strings.Join(parts, ",")
}

var escape = strings.NewReplacer(`\`, `\\`, "\n", `\n`, `"`, `\"`)
