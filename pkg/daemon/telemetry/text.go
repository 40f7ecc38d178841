package telemetry

import (
	"bytes"
	"fmt"
	"strconv"
	"strings"
)

// Source is a function that returns the present metrics of a daemon in the text format. It must be
// safe for concurrent use, and must not wait for a file system or a network.
type Source func() []byte

// Text builds metrics in the text format of Prometheus. Samples have no timestamps, because a
// textfile collector rejects them. A family without samples is left out.
type Text struct {
	buffer       bytes.Buffer
	commonLabels string // formatted labels of every sample
	family       string
	heading      string // the family's comment lines; empty after its first sample
}

// NewText returns an empty Text. Each sample gets the given labels, which are alternating names and
// values.
func NewText(labels ...string) *Text { return &Text{commonLabels: formatLabels(labels...)} }

// StartFamily begins a family of  The following samples belong to it.
func (t *Text) StartFamily(name, kind, help string) {
	t.family = name
	t.heading = fmt.Sprintf("# HELP %s %s\n# TYPE %s %s\n", name, help, name, kind)
}

// AddSample adds a sample to the family, with additional labels.
func (t *Text) AddSample(value float64, labels ...string) {
	t.buffer.WriteString(t.heading)
	t.heading = ""
	all := t.commonLabels
	if len(labels) > 0 {
		all += "," + formatLabels(labels...)
	}
	fmt.Fprintf(&t.buffer, "%s{%s} %s\n", t.family, all, strconv.FormatFloat(value, 'g', -1, 64))
}

// Bytes returns the text.
func (t *Text) Bytes() []byte { return t.buffer.Bytes() }

// formatLabels formats labels, given as alternating names and values.
func formatLabels(labels ...string) string {
	var parts []string
	for i := 0; i+1 < len(labels); i += 2 {
		parts = append(parts, labels[i]+`="`+labelEscaper.Replace(strings.ToValidUTF8(labels[i+1], "\uFFFD"))+`"`)
	}
	return strings.Join(parts, ",")
}

var labelEscaper = strings.NewReplacer(`\`, `\\`, "\n", `\n`, `"`, `\"`)
