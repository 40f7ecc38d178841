package report

import (
	"cmp"
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"html/template"
	"io"
	"math"
	"slices"
	"time"

	"github.com/bringupd/bringupd/internal/textutil"
)

// mostRows is the number of nodes with a row if not all nodes have one.
const mostRows = 24

// page is a view with the additional data of the HTML page.
type page struct {
	*View
	scale
	CSS    template.CSS
	JS     template.JS
	Policy string
	Rows   []Node
	Map    []Node  // all nodes by index; nil if all of them have a row
	Arrows []Arrow // to nodes that have a row
	Passed []CheckGroup
	Wrong  []CheckGroup
	Data   data

	full time.Duration // duration that the full width of a percentile bar stands for
}

// bar is a lane with its position in a row.
type bar struct {
	Lane
	Named bool // the phase's name is written on the bar
	Style template.CSS
}

// data is the data about all nodes that the page's script uses.
type data struct {
	Nodes []brieflyNode      `json:"nodes"`
	P50   map[string]float64 `json:"p50"`
}

// brieflyNode is a Node with short JSON keys, because the page contains all nodes.
type brieflyNode struct {
	Rank     int        `json:"r"`
	Host     string     `json:"h"`
	State    string     `json:"s"`
	Tone     Tone       `json:"t"`
	Ready    string     `json:"at,omitempty"`
	Slow     []string   `json:"slow,omitempty"`
	Lanes    [][]any    `json:"l,omitempty"` // phase, class, left, width, start as text, duration as text, duration in ms
	Failures []Link     `json:"f,omitempty"`
	Befell   []string   `json:"b,omitempty"`
	Checks   []string   `json:"c,omitempty"`
	Facts    [][]string `json:"a,omitempty"`
	Logs     []string   `json:"g,omitempty"`
}

// asPage writes the view as an HTML page, which needs no other files.
func (v *View) asPage(w io.Writer) error {
	css, _ := parts.ReadFile("page.css") // embedded, so it cannot fail
	js, _ := parts.ReadFile("page.js")
	p := page{
		View: v, scale: newScale(v), CSS: template.CSS(css), JS: template.JS(js), Policy: policy(js), //nolint:gosec // our own files
		Rows: v.Nodes,
	}
	// Large runs have rows for some nodes only, and a map of all.
	if len(v.Nodes) > AllRows {
		p.Rows = v.Nodes[:mostRows]
		p.Map = slices.SortedFunc(slices.Values(v.Nodes), func(a, b Node) int { return cmp.Compare(a.Rank, b.Rank) })
	}
	p.Arrows = slices.DeleteFunc(slices.Clone(v.Seen), func(a Arrow) bool { return p.Middle(a.Rank) == 0 })
	p.Wrong, p.Passed = v.sortedOut()
	p.Data = v.data(p.scale)
	// The percentile bars are scaled to the slowest phase before the gate.
	for _, s := range v.Phases {
		if brings(s.Phase) {
			p.full = max(p.full, s.Max)
		}
	}
	return template.Must(template.New("page.html").Funcs(functions).ParseFS(parts, "page.html")).Execute(w, p)
}

// policy returns the content security policy of the page. It forbids to load anything, and to run
// any script but the page's own, even if a log line contains one.
func policy(script []byte) string {
	sum := sha256.Sum256(script)
	return fmt.Sprintf("default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-%s'; base-uri 'none'; form-action 'none'",
		base64.StdEncoding.EncodeToString(sum[:]))
}

// rowHeight is the height of a row in pixels, as in the page's CSS. The arrows between the rows
// depend on it.
const rowHeight = 24

// Height returns the height of all rows in pixels.
func (p page) Height() int { return len(p.Rows) * rowHeight }

// Middle returns the vertical middle of a node's row. If the node has no row, it returns 0, which
// is above the rows.
func (p page) Middle(rank int) int {
	at := slices.IndexFunc(p.Rows, func(n Node) bool { return n.Rank == rank })
	if at < 0 {
		return 0
	}
	return at*rowHeight + rowHeight/2
}

// Part returns a duration as a percentage of the widest percentile bar. The driver's duration does
// not count for that scale.
func (p page) Part(d time.Duration) string {
	return fmt.Sprintf("%.4g", 100*float64(d)/float64(max(1, p.full)))
}

// brings reports whether a phase is part of the bring-up, before the gate.
func brings(phase string) bool { return phase != "driver" && phase != "drain" }

// Bars positions the lanes of a row. Lanes that overlap are placed one above the other.
func (s scale) Bars(lanes []Lane) (bars []bar) {
	track, tracks := stack(lanes)
	high := 100 / float64(max(1, tracks))
	for i, lane := range lanes {
		b := bar{Lane: lane, Style: s.Span(lane.From, lane.To)}
		b.Style += template.CSS(fmt.Sprintf(";top:%.4g%%;height:%.4g%%", float64(track[i])*high, high)) //nolint:gosec // numbers
		// A name would be unreadable on a pattern.
		b.Named = tracks == 1 && !lane.Failed && lane.Phase != "drain" && s.Wide(lane.From, lane.To)
		bars = append(bars, b)
	}
	return bars
}

// Class returns the CSS classes of a lane.
func (l Lane) Class() string {
	c := class(l.Phase)
	if l.Failed {
		c += " failed"
	}
	if l.Open {
		c += " open"
	}
	if l.Cut {
		c += " cut"
	}
	return c
}

// class returns the CSS class of a phase. It never contains the text of a file, because names of
// unknown phases are untrusted.
func class(phase string) string {
	if slices.Contains(order, phase) {
		return "p-" + phase
	}
	return "p-other"
}

// Span returns the horizontal position and the width of a bar.
func (s scale) Span(from, to time.Duration) template.CSS {
	left, right := s.at(from), s.at(to)
	return template.CSS(fmt.Sprintf("left:%.5g%%;width:%.5g%%", hundredths(left), hundredths(right-left))) //nolint:gosec // numbers
}

// Wide reports whether a bar is wide enough for a name.
func (s scale) Wide(from, to time.Duration) bool { return s.at(to)-s.at(from) > 6 }

// Across returns the position of a time in thousandths of the width.
func (s scale) Across(t time.Duration) float64 { return 10 * hundredths(s.at(t)) }

// hundredths rounds to two decimals.
func hundredths(x float64) float64 { return math.Round(x*100) / 100 }

// data returns the data of all nodes for the page's script.
func (v *View) data(s scale) data {
	d := data{P50: make(map[string]float64)}
	for _, p := range v.Phases {
		d.P50[p.Phase] = millis(p.P50)
	}
	for _, n := range v.Nodes {
		b := brieflyNode{
			Rank: n.Rank, Host: n.Host, State: n.State, Tone: n.Tone, Slow: n.Slow, Failures: n.Failures, Befell: n.Befell,
			Checks: n.Checks, Logs: n.Logs,
		}
		if n.Ready > 0 {
			b.Ready = textutil.BriefDuration(n.Ready)
		}
		b.Facts = mapped(n.Facts, func(f Fact) []string { return []string{f.Name, f.Value} })
		for _, lane := range n.Lanes {
			left, right := s.at(lane.From), s.at(lane.To)
			b.Lanes = append(b.Lanes, []any{lane.Phase, lane.Class(), hundredths(left), hundredths(right - left), textutil.BriefDuration(lane.From), textutil.BriefDuration(lane.Took()), millis(lane.Took())})
		}
		d.Nodes = append(d.Nodes, b)
	}
	return d
}

// millis returns a duration in milliseconds with one decimal.
func millis(d time.Duration) float64 { return math.Round(float64(d)/1e5) / 10 }
