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

// maxRows is the number of nodes with a row if not all nodes have one.
const maxRows = 24

// pageTemplateData is a view with the additional data of the HTML page.
type pageTemplateData struct {
	*View
	timeScale
	CSS    template.CSS
	JS     template.JS
	Policy string
	Rows   []NodeRow
	Map    []NodeRow     // all nodes by index; nil if all of them have a row
	Arrows []RecordArrow // to nodes that have a row
	Passed []CheckGroup
	Wrong  []CheckGroup
	Data   scriptData
	// ReloadMS is how often the page reloads itself, in milliseconds. 0 means that it is a file, or that
	// the run is over.
	ReloadMS int64

	barScale time.Duration // duration that the full width of a percentile bar stands for
}

// laneBar is a lane with its position in a row.
type laneBar struct {
	PhaseLane
	Named bool // the phase's name is written on the bar
	Style template.CSS
}

// scriptData is the data about all nodes that the page's script uses.
type scriptData struct {
	Nodes []scriptNode       `json:"nodes"`
	P50   map[string]float64 `json:"p50"`
}

// scriptNode is a NodeRow with short JSON keys, because the page contains all nodes.
type scriptNode struct {
	NodeIndex int      `json:"r"`
	Host      string   `json:"h"`
	State     string   `json:"s"`
	Tone      Severity `json:"t"`
	Ready     string   `json:"at,omitempty"`
	Slow      []string `json:"slow,omitempty"`
	// phase, class, left, width, start as text, duration as text, duration in ms
	Lanes    [][]any      `json:"l,omitempty"`
	Failures []CauseEntry `json:"f,omitempty"`
	Befell   []string     `json:"b,omitempty"`
	Checks   []string     `json:"c,omitempty"`
	Facts    [][]string   `json:"a,omitempty"`
	Logs     []string     `json:"g,omitempty"`
}

// writePage writes the view as an HTML page, which needs no other files.
func (v *View) writePage(w io.Writer) error { return v.writePageReloaded(w, 0) }

// WriteLivePage writes the page for a server: it reloads itself at an interval, unless the run is
// over.
func (v *View) WriteLivePage(w io.Writer, interval time.Duration) error {
	if v.hasEnded {
		interval = 0
	}
	return v.writePageReloaded(w, interval)
}

// writePageReloaded writes the page. If interval is positive, it reloads itself.
func (v *View) writePageReloaded(w io.Writer, interval time.Duration) error {
	css, _ := templateFiles.ReadFile("page.css") // embedded, so it cannot fail
	js, _ := templateFiles.ReadFile("page.js")
	p := pageTemplateData{
		View: v, timeScale: newTimeScale(v), CSS: template.CSS(css), JS: template.JS(js), Policy: contentSecurityPolicy(js), //nolint:gosec // our own files
		Rows: v.Nodes, ReloadMS: interval.Milliseconds(),
	}
	// Large runs have rows for some nodes only, and a map of all.
	if len(v.Nodes) > MaxFullRows {
		p.Rows = v.Nodes[:maxRows]
		p.Map = slices.SortedFunc(slices.Values(v.Nodes), func(a, b NodeRow) int { return cmp.Compare(a.NodeIndex, b.NodeIndex) })
	}
	p.Arrows = slices.DeleteFunc(slices.Clone(v.Seen), func(a RecordArrow) bool { return p.Middle(a.NodeIndex) == 0 })
	if interval > 0 {
		p.Policy += "; connect-src 'self'"
	}
	p.Wrong, p.Passed = v.splitChecks()
	p.Data = v.buildScriptData(p.timeScale)
	// The percentile bars are scaled to the slowest phase before the gate.
	for _, s := range v.Phases {
		if isBeforeGate(s.Phase) {
			p.barScale = max(p.barScale, s.Max)
		}
	}
	return template.Must(template.New("page.html").Funcs(templateFunctions).ParseFS(templateFiles, "page.html")).Execute(w, p)
}

// contentSecurityPolicy returns the content security policy of the page. It forbids to load
// anything, and to run any script but the page's own, even if a log line contains one.
func contentSecurityPolicy(script []byte) string {
	sum := sha256.Sum256(script)
	return fmt.Sprintf("default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-%s'; base-uri 'none'; form-action 'none'",
		base64.StdEncoding.EncodeToString(sum[:]))
}

// Heights in pixels. The arrows between the rows depend on them.
const (
	rowHeight   = 24 // of a row with one phase at a time, as in the page's CSS
	rowPadding  = 8  // of a higher row, above and below its phases together
	trackHeight = 14 // of each of several phases at the same time
	// maxHighRows is the number of rows up to which all rows are as high as their phases need. The
	// head's row always is.
	maxHighRows = 32
)

// RowHeight returns the height of a row in pixels: phases at the same time are one above the other.
func (p pageTemplateData) RowHeight(n NodeRow) int {
	_, tracks := assignTracks(n.Lanes)
	if tracks < 2 || len(p.Rows) > maxHighRows && n.NodeIndex != 0 {
		return rowHeight
	}
	return rowPadding + tracks*trackHeight
}

// LaneHeight returns the height of the phases in a row, or 0 if it is that of the page's CSS.
func (p pageTemplateData) LaneHeight(n NodeRow) int {
	if height := p.RowHeight(n); height != rowHeight {
		return height - rowPadding
	}
	return 0
}

// Height returns the height of all rows in pixels.
func (p pageTemplateData) Height() (height int) {
	for _, row := range p.Rows {
		height += p.RowHeight(row)
	}
	return height
}

// Middle returns the vertical middle of a node's row. If the node has no row, it returns 0, which
// is above the rows.
func (p pageTemplateData) Middle(node int) int {
	above := 0
	for _, row := range p.Rows {
		height := p.RowHeight(row)
		if row.NodeIndex == node {
			return above + height/2
		}
		above += height
	}
	return 0
}

// RowBars returns the bars of a row. Without space, several phases at the same time have no names.
func (p pageTemplateData) RowBars(n NodeRow) []laneBar {
	bars := p.Bars(n.Lanes)
	if _, tracks := assignTracks(n.Lanes); tracks > 1 && p.LaneHeight(n) == 0 {
		for i := range bars {
			bars[i].Named = false
		}
	}
	return bars
}

// ShareTable returns the calls to the shared file system as text.
func (p pageTemplateData) ShareTable() string { return p.shareTable }

// Settings that are at the top of the page, by their names in Config.
const (
	factJobName = "job name"
	factDriver  = "driver"
	factFlags   = "flags"
)

// configValue returns a value of Config, or an empty string.
func (p pageTemplateData) configValue(name string) string {
	for _, f := range p.Config {
		if f.Name == name {
			return f.Value
		}
	}
	return ""
}

// JobName returns the user's name of the job.
func (p pageTemplateData) JobName() string { return p.configValue(factJobName) }

// Command returns the command line of the driver.
func (p pageTemplateData) Command() string { return p.configValue(factDriver) }

// Flags returns the settings that are not defaults.
func (p pageTemplateData) Flags() string { return p.configValue(factFlags) }

// OtherConfig returns the rest of Config.
func (p pageTemplateData) OtherConfig() []Fact {
	return slices.DeleteFunc(slices.Clone(p.Config), func(f Fact) bool { return f.Name == factJobName || f.Name == factDriver || f.Name == factFlags })
}

// Part returns a duration as a percentage of the widest percentile bar. The driver's duration does
// not count for that scale.
func (p pageTemplateData) Part(d time.Duration) string {
	return fmt.Sprintf("%.4g", 100*float64(d)/float64(max(1, p.barScale)))
}

// isBeforeGate reports whether a phase is part of the bring-up, before the gate.
func isBeforeGate(phase string) bool { return phase != "driver" && phase != "drain" }

// Bars positions the lanes of a row. Lanes that overlap are placed one above the other.
func (s timeScale) Bars(lanes []PhaseLane) (bars []laneBar) {
	track, tracks := assignTracks(lanes)
	high := 100 / float64(max(1, tracks))
	for i, lane := range lanes {
		b := laneBar{PhaseLane: lane, Style: s.Span(lane.From, lane.To)}
		b.Style += template.CSS(fmt.Sprintf(";top:%.4g%%;height:%.4g%%", float64(track[i])*high, high)) //nolint:gosec // numbers
		// A name would be unreadable on a pattern.
		b.Named = !lane.Failed && lane.Phase != "drain" && s.Wide(lane.From, lane.To)
		bars = append(bars, b)
	}
	return bars
}

// Class returns the CSS classes of a lane.
func (l PhaseLane) Class() string {
	c := phaseClass(l.Phase)
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

// phaseClass returns the CSS class of a phase. It never contains the text of a file, because names
// of unknown phases are untrusted.
func phaseClass(phase string) string {
	if slices.Contains(phaseOrder, phase) {
		return "p-" + phase
	}
	return "p-other"
}

// Span returns the horizontal position and the width of a bar.
func (s timeScale) Span(from, to time.Duration) template.CSS {
	left, right := s.position(from), s.position(to)
	return template.CSS(fmt.Sprintf("left:%.5g%%;width:%.5g%%", roundToHundredths(left), roundToHundredths(right-left))) //nolint:gosec // numbers
}

// Point returns the horizontal position of a time.
func (s timeScale) Point(at time.Duration) template.CSS {
	return template.CSS(fmt.Sprintf("left:%.5g%%", roundToHundredths(s.position(at)))) //nolint:gosec // a number
}

// Wide reports whether a bar is wide enough for a name.
func (s timeScale) Wide(from, to time.Duration) bool { return s.position(to)-s.position(from) > 6 }

// Across returns the position of a time in thousandths of the width.
func (s timeScale) Across(t time.Duration) float64 { return 10 * roundToHundredths(s.position(t)) }

// roundToHundredths rounds to two decimals.
func roundToHundredths(x float64) float64 { return math.Round(x*100) / 100 }

// buildScriptData returns the data of all nodes for the page's script.
func (v *View) buildScriptData(s timeScale) scriptData {
	d := scriptData{P50: make(map[string]float64)}
	for _, p := range v.Phases {
		d.P50[p.Phase] = toMilliseconds(p.P50)
	}
	for _, n := range v.Nodes {
		b := scriptNode{
			NodeIndex: n.NodeIndex, Host: n.Host, State: n.State, Tone: n.Tone, Slow: n.Slow, Failures: n.Failures, Befell: n.Befell,
			Checks: n.Checks, Logs: n.Logs,
		}
		if n.Ready > 0 {
			b.Ready = textutil.BriefDuration(n.Ready)
		}
		b.Facts = mapSlice(n.Facts, func(f Fact) []string { return []string{f.Name, f.Value} })
		for _, lane := range n.Lanes {
			left, right := s.position(lane.From), s.position(lane.To)
			b.Lanes = append(b.Lanes, []any{lane.Phase, lane.Class(), roundToHundredths(left), roundToHundredths(right - left), textutil.BriefDuration(lane.From), textutil.BriefDuration(lane.Took()), toMilliseconds(lane.Took())})
		}
		d.Nodes = append(d.Nodes, b)
	}
	return d
}

// toMilliseconds returns a duration in milliseconds with one decimal.
func toMilliseconds(d time.Duration) float64 { return math.Round(float64(d)/1e5) / 10 }
