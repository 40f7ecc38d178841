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

// mostRows is how many nodes have a row where not all have.
const mostRows = 24

// page is a view with what only a page needs.
type page struct {
	*View
	scale
	CSS    template.CSS
	JS     template.JS
	Policy string
	Rows   []Node
	Map    []Node  // of all nodes by rank, where not all have a row
	Arrows []Arrow // to the nodes that have a row
	Passed []CheckGroup
	Wrong  []CheckGroup
	Data   data

	full time.Duration // of the percentile bars
}

// bar is a lane in its row.
type bar struct {
	Lane
	Named bool // the phase's name stands in it
	Style template.CSS
}

// data is what the page's script knows of all nodes.
type data struct {
	Nodes []brieflyNode      `json:"nodes"`
	P50   map[string]float64 `json:"p50"`
}

type brieflyNode struct {
	Rank  int      `json:"r"`
	Host  string   `json:"h"`
	State string   `json:"s"`
	Tone  Tone     `json:"t"`
	Ready string   `json:"at,omitempty"`
	Slow  []string `json:"slow,omitempty"`
	// phase, class, left, width, when, took in words, took in ms
	Lanes    [][]any    `json:"l,omitempty"`
	Failures []Link     `json:"f,omitempty"`
	Befell   []string   `json:"b,omitempty"`
	Checks   []string   `json:"c,omitempty"`
	Facts    [][]string `json:"a,omitempty"`
	Logs     []string   `json:"g,omitempty"`
}

func (v *View) asPage(w io.Writer) error {
	css, _ := parts.ReadFile("page.css") // it is there, as long as this compiles
	js, _ := parts.ReadFile("page.js")
	p := page{
		View: v, scale: newScale(v), CSS: template.CSS(css), JS: template.JS(js), Policy: policy(js), //nolint:gosec // our own files
		Rows: v.Nodes,
	}
	if len(v.Nodes) > AllRows {
		p.Rows = v.Nodes[:mostRows]
		p.Map = slices.SortedFunc(slices.Values(v.Nodes), func(a, b Node) int { return cmp.Compare(a.Rank, b.Rank) })
	}
	p.Arrows = slices.DeleteFunc(slices.Clone(v.Seen), func(a Arrow) bool { return p.Middle(a.Rank) == 0 })
	p.Wrong, p.Passed = v.sortedOut()
	p.Data = v.data(p.scale)
	for _, s := range v.Phases {
		if brings(s.Phase) {
			p.full = max(p.full, s.Max)
		}
	}
	return template.Must(template.New("page.html").Funcs(functions).ParseFS(parts, "page.html")).Execute(w, p)
}

// policy lets nothing be loaded, and no script run but the page's own, whatever
// a log line says.
func policy(script []byte) string {
	sum := sha256.Sum256(script)
	return fmt.Sprintf("default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-%s'; base-uri 'none'; form-action 'none'",
		base64.StdEncoding.EncodeToString(sum[:]))
}

// rowHeight is the page's, as its CSS has it; arrows run from row to row.
const rowHeight = 24

// Height is that of all rows.
func (p page) Height() int { return len(p.Rows) * rowHeight }

// Middle is that of a node's row; 0, which is above them, where it has none.
func (p page) Middle(rank int) int {
	at := slices.IndexFunc(p.Rows, func(n Node) bool { return n.Rank == rank })
	if at < 0 {
		return 0
	}
	return at*rowHeight + rowHeight/2
}

// Part is how much of the widest percentile bar a time takes, in hundredths. What
// the driver took is no part of their scale.
func (p page) Part(d time.Duration) string {
	return fmt.Sprintf("%.4g", 100*float64(d)/float64(max(1, p.full)))
}

// brings tells whether a phase is on the way to the gate.
func brings(phase string) bool { return phase != "driver" && phase != "drain" }

// Bars are the lanes of a row, those that overlap one above the other.
func (s scale) Bars(lanes []Lane) (bars []bar) {
	track, tracks := stack(lanes)
	high := 100 / float64(max(1, tracks))
	for i, lane := range lanes {
		b := bar{Lane: lane, Style: s.Span(lane.From, lane.To)}
		b.Style += template.CSS(fmt.Sprintf(";top:%.4g%%;height:%.4g%%", float64(track[i])*high, high)) //nolint:gosec // numbers
		// On a pattern no word can be read.
		b.Named = tracks == 1 && !lane.Failed && lane.Phase != "drain" && s.Wide(lane.From, lane.To)
		bars = append(bars, b)
	}
	return bars
}

// Class has what a lane looks like.
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

// class is the one of a phase; what a file calls a phase is never a class.
func class(phase string) string {
	if slices.Contains(order, phase) {
		return "p-" + phase
	}
	return "p-other"
}

// Span is where a bar lies.
func (s scale) Span(from, to time.Duration) template.CSS {
	left, right := s.at(from), s.at(to)
	return template.CSS(fmt.Sprintf("left:%.5g%%;width:%.5g%%", hundredths(left), hundredths(right-left))) //nolint:gosec // numbers
}

// Wide tells whether a word fits into a bar.
func (s scale) Wide(from, to time.Duration) bool { return s.at(to)-s.at(from) > 6 }

// Across is where a time is, in thousandths of the width.
func (s scale) Across(t time.Duration) float64 { return 10 * hundredths(s.at(t)) }

func hundredths(x float64) float64 { return math.Round(x*100) / 100 }

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

func millis(d time.Duration) float64 { return math.Round(float64(d)/1e5) / 10 }
