package report

import (
	"cmp"
	"crypto/sha256"
	_ "embed" // the page's parts
	"encoding/base64"
	"fmt"
	"html/template"
	"io"
	"math"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/bringupd/bringupd/pkg/prose"
)

//go:embed page.html
var pageHTML string

//go:embed page.css
var pageCSS string

//go:embed page.js
var pageJS string

// pageTemplate is parsed by who writes a page: every command pays for what the
// program does at its start.
var pageTemplate = sync.OnceValue(func() *template.Template {
	return template.Must(template.New("page").Funcs(template.FuncMap{
		"brief": prose.Brief, "name": nameOf, "grouped": prose.Grouped[int], "calls": prose.Grouped[int64], "join": strings.Join,
	}).Parse(pageHTML))
})

// mostRows is how many nodes have a row where not all have.
const mostRows = 24

// page is a view with what only a page needs.
type page struct {
	*View
	CSS    template.CSS
	JS     template.JS
	Policy string
	Ticks  []tick
	Path   []bar
	Rows   []row
	Map    []Node // of all nodes by rank, where not all have a row
	Arrows []arrow
	Height int
	Stats  []stat
	Passed []CheckGroup
	Wrong  []CheckGroup
	Data   data
}

type row struct {
	*Node
	Bars   []bar
	Tracks int
}

// bar is a lane or a step, in hundredths of the width.
type bar struct {
	Class, Text, Title string
	Style              template.CSS
}

type arrow struct {
	X1, X2 float64
	Y1, Y2 int
	All    bool // shown though nobody has asked for it
	Rank   int
	Record string
}

type stat struct {
	PhaseStat
	Half, Most, Full template.CSS // of its bar
	Shown            bool
}

// data is what the page's script knows of all nodes.
type data struct {
	Nodes []brieflyNode      `json:"nodes"`
	P50   map[string]float64 `json:"p50"`
}

type brieflyNode struct {
	Rank     int        `json:"r"`
	Host     string     `json:"h"`
	State    string     `json:"s"`
	Tone     Tone       `json:"t"`
	Ready    string     `json:"at,omitempty"`
	Slow     []string   `json:"slow,omitempty"`
	Lanes    [][]any    `json:"l,omitempty"` // phase, class, left, width, when, took in words, took in ms
	Failures []Link     `json:"f,omitempty"`
	Befell   []string   `json:"b,omitempty"`
	Checks   []string   `json:"c,omitempty"`
	Facts    [][]string `json:"a,omitempty"`
	Logs     []string   `json:"g,omitempty"`
}

// policy lets nothing be loaded, and no script run but the page's own, whatever
// a log line says.
func policy() string {
	sum := sha256.Sum256([]byte(pageJS))
	return fmt.Sprintf("default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-%s'; base-uri 'none'; form-action 'none'",
		base64.StdEncoding.EncodeToString(sum[:]))
}

func (v *View) asPage(w io.Writer) error {
	s := newScale(v)
	p := page{
		View: v, CSS: template.CSS(pageCSS), JS: template.JS(pageJS), Policy: policy(), //nolint:gosec // our own files
		Ticks: s.ticks(), Stats: v.stats(), Data: v.data(s),
	}
	for _, step := range v.Critical {
		p.Path = append(p.Path, s.step(step))
	}
	for i := range v.shown() {
		p.Rows = append(p.Rows, s.row(&v.Nodes[i]))
	}
	if len(v.Nodes) > AllRows {
		p.Map = slices.SortedFunc(slices.Values(v.Nodes), func(a, b Node) int { return cmp.Compare(a.Rank, b.Rank) })
	}
	p.Arrows, p.Height = v.paths(s, p.Rows), len(p.Rows)*rowHeight
	for _, g := range v.Checks {
		if g.Tone == Good {
			p.Passed = append(p.Passed, g)
		} else {
			p.Wrong = append(p.Wrong, g)
		}
	}
	return pageTemplate().Execute(w, p)
}

// step is a part of the critical path.
func (s scale) step(step Step) bar {
	b := bar{
		Class: class(step.Phase), Style: s.span(step.From, step.To),
		Title: fmt.Sprintf("%s: all waited for %s, %s", step.Phase, nameOf(step.Rank, step.Host), prose.Brief(step.Took())),
	}
	if s.at(step.To)-s.at(step.From) > 6 {
		b.Text = step.Phase + " · " + cmp.Or(step.Host, fmt.Sprint("rank ", step.Rank))
	}
	return b
}

// shown is how many of the nodes, in their order, have a row.
func (v *View) shown() int {
	if len(v.Nodes) <= AllRows {
		return len(v.Nodes)
	}
	return mostRows
}

// rowHeight is the page's, as its CSS has it; arrows run from row to row.
const rowHeight = 24

func (s scale) row(n *Node) row {
	r := row{Node: n}
	track, tracks := stack(n.Lanes)
	r.Tracks = max(1, tracks)
	high := 100 / float64(r.Tracks)
	for i, lane := range n.Lanes {
		b := bar{Class: laneClass(lane), Title: title(lane), Style: s.span(lane.From, lane.To)}
		b.Style += template.CSS(fmt.Sprintf(";top:%.4g%%;height:%.4g%%", float64(track[i])*high, high)) //nolint:gosec // numbers
		// On a pattern no word can be read.
		if r.Tracks == 1 && !lane.Failed && lane.Phase != "drain" && s.at(lane.To)-s.at(lane.From) > 6 {
			b.Text = lane.Phase
		}
		r.Bars = append(r.Bars, b)
	}
	return r
}

func laneClass(lane Lane) string {
	c := class(lane.Phase)
	if lane.Failed {
		c += " failed"
	}
	if lane.Open {
		c += " open"
	}
	if lane.Cut {
		c += " cut"
	}
	return c
}

func title(lane Lane) string {
	said := fmt.Sprintf("%s: %s, from %s", lane.Phase, prose.Brief(lane.Took()), prose.Brief(lane.From))
	if lane.Sandbox {
		said += ", of the sandbox's daemon"
	}
	if lane.Failed {
		said += "; failed"
	}
	if lane.Cut {
		said += "; cut short by the end"
	}
	if lane.Open {
		said += "; no end"
	}
	return said
}

// class is the one of a phase; what a file calls a phase is never a class.
func class(phase string) string {
	if slices.Contains(order, phase) {
		return "p-" + phase
	}
	return "p-other"
}

// span is where a bar lies.
func (s scale) span(from, to time.Duration) template.CSS {
	left, right := s.at(from), s.at(to)
	return template.CSS(fmt.Sprintf("left:%.5g%%;width:%.5g%%", hundredths(left), hundredths(right-left))) //nolint:gosec // numbers
}

func hundredths(x float64) float64 { return math.Round(x*100) / 100 }

// mostArrows is for how many rows all arrows are shown at once.
const mostArrows = 16

// paths are the arrows from the head's row to those of the others.
func (v *View) paths(s scale, rows []row) (arrows []arrow) {
	at := make(map[int]int)
	for i, r := range rows {
		at[r.Rank] = i*rowHeight + rowHeight/2
	}
	head, shown := at[0]
	if !shown {
		head = 0 // from above
	}
	for _, a := range v.Seen {
		if y, shown := at[a.Rank]; shown {
			arrows = append(arrows, arrow{10 * hundredths(s.at(a.Wrote)), 10 * hundredths(s.at(a.Saw)), head, y, len(rows) <= mostArrows, a.Rank, a.Record})
		}
	}
	return arrows
}

// stats are the percentile bars. What the driver took is no part of their scale.
func (v *View) stats() (stats []stat) {
	var full time.Duration
	brings := func(phase string) bool { return phase != "driver" && phase != "drain" }
	for _, s := range v.Phases {
		if brings(s.Phase) {
			full = max(full, s.Max)
		}
	}
	width := func(d time.Duration) template.CSS {
		return template.CSS(fmt.Sprintf("width:%.4g%%", 100*float64(d)/float64(max(1, full)))) //nolint:gosec // numbers
	}
	for _, s := range v.Phases {
		stats = append(stats, stat{s, width(s.P50), width(s.P90), width(s.Max), brings(s.Phase)})
	}
	return stats
}

// Class is that of the phase.
func (s stat) Class() string { return class(s.Phase) }

// OthersFrom is the index of the first log that is not important; 0 where all are.
func (p page) OthersFrom() int {
	if len(p.Logs) > importantLogs {
		return importantLogs
	}
	return 0
}

// Note says what the lines are of the file.
func (l Log) Note() string { return strings.Trim(l.note(), " ()") }

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
			b.Ready = prose.Brief(n.Ready)
		}
		for _, f := range n.Facts {
			b.Facts = append(b.Facts, []string{f.Name, f.Value})
		}
		for _, lane := range n.Lanes {
			left, right := s.at(lane.From), s.at(lane.To)
			b.Lanes = append(b.Lanes, []any{lane.Phase, laneClass(lane), hundredths(left), hundredths(right - left), prose.Brief(lane.From), prose.Brief(lane.Took()), millis(lane.Took())})
		}
		d.Nodes = append(d.Nodes, b)
	}
	return d
}

func millis(d time.Duration) float64 { return math.Round(float64(d)/1e5) / 10 }
