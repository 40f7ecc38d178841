package report

import (
	"cmp"
	"crypto/sha256"
	"embed"
	"encoding/base64"
	"fmt"
	"html/template"
	"io"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/bringupd/bringupd/internal/textutil"
	"github.com/bringupd/bringupd/pkg/roles"
)

// templateFiles has the page. It alone decides how the content of a View is presented.
//
//go:embed page.html page.css page.js
var templateFiles embed.FS

var templateFunctions = template.FuncMap{
	"brief": textutil.BriefDuration, "name": nodeName, "grouped": textutil.GroupThousands[int], "join": strings.Join,
	"class": phaseClass, "meaning": func(phase string) string { return phaseMeanings[phase] },
	"box":   func(label, log string, lines []string) lineBox { return lineBox{label, log, lines} },
	"lines": countLines, "fileLink": fileLink, "plural": textutil.PluralForm,
	"states": func() []roles.InstanceStatus { return laneStates },
}

func countLines(lines []string) string {
	if len(lines) == 1 {
		return "line"
	}
	return fmt.Sprintf("%d lines", len(lines))
}

// lineBox is a box with last lines, of which it shows the end if there is no room for all.
type lineBox struct {
	Label string // for screen readers
	Log   string // the name of the log, if the box has the lines of a whole LogTail
	Lines []string
}

// maxRows is the number of nodes with a row if not all nodes have one.
const maxRows = 24

type pageTemplateData struct {
	*View
	timeScale
	CSS    template.CSS
	JS     template.JS
	Policy string
	ByRole []RoleLanes
	Rows   []NodeRow
	Map    []NodeRow // all nodes by index; nil if all of them have a row
	Passed []CheckGroup
	Wrong  []CheckGroup
	Data   scriptData
	// ReloadMS is how often the page reloads itself, in milliseconds. 0 means that it is a file, or that
	// the run is over.
	ReloadMS int64
}

// scriptData is the data about all nodes that the page's script uses.
type scriptData struct {
	Nodes []scriptNode       `json:"nodes"`
	P50   map[string]float64 `json:"p50"`
}

// scriptNode is a NodeRow with what the script writes of its times.
type scriptNode struct {
	NodeRow
	ReadyText string `json:"ready,omitempty"`
	// phase, class, left, width, start as text, duration as text, duration in ms
	Lanes [][]any `json:"lanes,omitempty"`
}

// writePage writes the view as an HTML page, which needs no other files. If interval is positive and
// the run is not over, the page is that of a server, and reloads itself.
func (v *View) writePage(w io.Writer, interval time.Duration) error {
	if v.hasEnded {
		interval = 0
	}
	css, _ := templateFiles.ReadFile("page.css") // embedded, so it cannot fail
	js, _ := templateFiles.ReadFile("page.js")
	p := pageTemplateData{
		View: v, timeScale: newTimeScale(v), Policy: contentSecurityPolicy(js),
		CSS: template.CSS(css), JS: template.JS(js), //nolint:gosec // our own files
		ByRole: v.groupByRole(), Rows: v.Nodes, ReloadMS: interval.Milliseconds(),
	}
	// Large runs have rows for some nodes only, and a map of all.
	if len(v.Nodes) > MaxFullRows {
		p.Rows = v.Nodes[:maxRows]
		p.Map = slices.SortedFunc(slices.Values(v.Nodes), func(a, b NodeRow) int {
			return cmp.Compare(a.NodeIndex, b.NodeIndex)
		})
	}
	if interval > 0 {
		p.Policy += "; connect-src 'self'"
	}
	p.Wrong, p.Passed = v.splitChecks()
	p.Data = v.buildScriptData(p.timeScale)
	// The template is parsed here, because work at program start would slow down every command.
	parsed := template.Must(template.New("page.html").Funcs(templateFunctions).ParseFS(templateFiles, "page.html"))
	return parsed.Execute(w, p)
}

// contentSecurityPolicy returns the content security policy of the page. It forbids to load
// anything, and to run any script but the page's own, even if a log line contains one.
func contentSecurityPolicy(script []byte) string {
	sum := sha256.Sum256(script)
	return fmt.Sprintf("default-src 'none'; style-src 'unsafe-inline'; script-src 'sha256-%s'; base-uri 'none'; "+
		"form-action 'none'", base64.StdEncoding.EncodeToString(sum[:]))
}

// Heights in pixels.
const (
	rowPadding  = 8  // of a row with several phases at the same time, above and below them together
	trackHeight = 14 // of each of several phases at the same time
)

// pageRow is the bars of a row, with its height and theirs in pixels. Both are 0 if they are those of
// the page's CSS.
type pageRow struct {
	Height, LaneHeight int
	Bars               []laneBar
}

type laneBar struct {
	PhaseLane
	Named bool // the phase's name is written on the bar
	Style template.CSS
}

// Layout positions the lanes of a row. Lanes that overlap are placed one above the other.
func (p pageTemplateData) Layout(n NodeRow) (row pageRow) {
	track, tracks := assignTracks(n.Lanes)
	if tracks > 1 {
		row.LaneHeight = tracks * trackHeight
		row.Height = row.LaneHeight + rowPadding
	}
	high := 100 / float64(max(1, tracks))
	for i, lane := range n.Lanes {
		vertical := fmt.Sprintf(";top:%.4g%%;height:%.4g%%", float64(track[i])*high, high)
		row.Bars = append(row.Bars, laneBar{
			PhaseLane: lane, Style: p.Span(lane.From, lane.To) + template.CSS(vertical), //nolint:gosec // numbers
			// A name would be unreadable on a pattern, and without space for it.
			Named: !lane.Failed && lane.Phase != phaseDrain && p.Wide(lane.From, lane.To),
		})
	}
	return row
}

// assignTracks assigns the lanes to tracks, such that the lanes of a track do not overlap. It uses
// as few tracks as possible.
func assignTracks(lanes []PhaseLane) (track []int, tracks int) {
	track = make([]int, len(lanes))
	var until []time.Duration
	for i, lane := range lanes {
		at := 0
		for at < len(until) && until[at] > lane.From {
			at++
		}
		if at == len(until) {
			until = append(until, 0)
		}
		until[at], track[i] = max(lane.To, lane.From), at
	}
	return track, len(until)
}

// StateName returns the name of a state on its bar, if it is wide enough.
func (s timeScale) StateName(lane StateLane) string {
	if !s.Wide(lane.From, lane.To) || lane.State == roles.StatusRestarting { // which has a pattern
		return ""
	}
	return string(lane.State)
}

// exitMark is an exit with its position in the chart.
type exitMark struct {
	RoleExit
	Position float64
}

// Mark positions an exit.
func (s timeScale) Mark(exit RoleExit) exitMark { return exitMark{exit, s.Position(exit.At)} }

// Describe counts the states of instances.
func (p pageTemplateData) Describe(rows []InstanceRow) string {
	counts := make(map[string]int)
	for _, row := range rows {
		counts[row.State]++
	}
	parts := []string{fmt.Sprintf("%d instances", len(rows))}
	for _, state := range slices.Sorted(maps.Keys(counts)) {
		parts = append(parts, fmt.Sprintf("%d %s", counts[state], state))
	}
	return strings.Join(parts, ", ")
}

// ExitsOf returns the exits of an instance.
func (p pageTemplateData) ExitsOf(instance string) []RoleExit {
	return slices.DeleteFunc(slices.Clone(p.Exits), func(exit RoleExit) bool { return exit.Instance != instance })
}

// ExitsOn returns the exits of instances on a node.
func (p pageTemplateData) ExitsOn(node int) []RoleExit {
	return slices.DeleteFunc(slices.Clone(p.Exits), func(exit RoleExit) bool { return exit.NodeIndex != node })
}

// Settings that are at the top of the page, by their names in Config.
const (
	factJobName = "job name"
	factDriver  = "driver"
	factRoles   = "roles"
	factFlags   = "flags"
)

// Setting returns a value of Config, or an empty string.
func (p pageTemplateData) Setting(name string) string {
	for _, f := range p.Config {
		if f.Name == name {
			return f.Value
		}
	}
	return ""
}

// OtherConfig returns the values of Config that are not at the top of the page.
func (p pageTemplateData) OtherConfig() []Fact {
	shown := []string{factJobName, factDriver, factRoles, factFlags}
	return slices.DeleteFunc(slices.Clone(p.Config), func(f Fact) bool { return slices.Contains(shown, f.Name) })
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
	left, width := s.extent(from, to)
	return template.CSS(fmt.Sprintf("left:%.5g%%;width:%.5g%%", left, width)) //nolint:gosec // numbers
}

// extent returns the position and the width of a bar, rounded to two decimals.
func (s timeScale) extent(from, to time.Duration) (left, width float64) {
	round := func(x float64) float64 { return math.Round(x*100) / 100 }
	return round(s.Position(from)), round(s.Position(to) - s.Position(from))
}

// Wide reports whether a bar is wide enough for a name.
func (s timeScale) Wide(from, to time.Duration) bool { return s.Position(to)-s.Position(from) > 6 }

func (v *View) buildScriptData(s timeScale) scriptData {
	d := scriptData{P50: make(map[string]float64)}
	for _, p := range v.Phases {
		d.P50[p.Phase] = toMilliseconds(p.P50)
	}
	for _, n := range v.Nodes {
		b := scriptNode{NodeRow: n}
		if n.Ready > 0 {
			b.ReadyText = textutil.BriefDuration(n.Ready)
		}
		b.Lanes = textutil.MapSlice(n.Lanes, func(lane PhaseLane) []any {
			left, width := s.extent(lane.From, lane.To)
			return []any{
				lane.Phase, lane.Class(), left, width, textutil.BriefDuration(lane.From),
				textutil.BriefDuration(lane.Took()), toMilliseconds(lane.Took()),
			}
		})
		d.Nodes = append(d.Nodes, b)
	}
	return d
}

func toMilliseconds(d time.Duration) float64 { return math.Round(float64(d)/1e5) / 10 }
