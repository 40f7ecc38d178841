package report

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/bringupd/bringupd/internal/textutil"
	"github.com/bringupd/bringupd/pkg/eventlog"
	"github.com/bringupd/bringupd/pkg/progress"
	"github.com/bringupd/bringupd/pkg/roles"
)

// progressData has the steps of the program over time, and when processes of it were started again.
type progressData struct {
	Steps    []StepPoint     `json:"steps,omitempty"`
	Restarts []time.Duration `json:"restarts_ns,omitempty"`
}

// StepPoint is a step that the program had reached.
type StepPoint struct {
	At   time.Duration `json:"at_ns"`
	Step float64       `json:"step"`
}

// buildProgress returns the steps, up to the newest one, and the restarts of the ranks or of the
// primary roles.
func (l viewBuilder) buildProgress(instances []InstanceRow, last time.Duration) (data progressData) {
	for _, e := range l.run.Events {
		if e.Name == eventlog.StepReached && e.Step != nil && !math.IsNaN(*e.Step) && !math.IsInf(*e.Step, 0) {
			data.Steps = append(data.Steps, StepPoint{l.sinceStart(e.At), *e.Step})
		}
	}
	if len(data.Steps) == 0 {
		return progressData{}
	}
	if p := l.run.Progress(); p != nil {
		data.Steps = append(data.Steps, StepPoint{max(last, data.Steps[len(data.Steps)-1].At), p.Step})
	}
	for _, row := range instances {
		generation := 0
		for _, lane := range row.Lanes {
			if l.isPrimary(row.Role) && lane.Generation > generation {
				data.Restarts, generation = append(data.Restarts, lane.From), lane.Generation
			}
		}
	}
	if len(data.Restarts) == 0 { // the roles of the run are unknown
		data.Restarts = textutil.MapSlice(l.rankRestarts(), l.sinceStart)
	}
	slices.Sort(data.Restarts)
	return data
}

func (l viewBuilder) isPrimary(name string) bool {
	if l.run.Roles == nil {
		return false
	}
	role, err := l.run.Roles.FindRole(name)
	return err == nil && role.Primary
}

// plotHeight and plotWidth are the size of a plot in its own units.
const plotHeight, plotWidth = 100, 1000

// Plot is a line over time.
type Plot struct {
	timeScale
	Label string // in words, for those who cannot see the line
	Max   string // the value at its top
	Line  string // path
	Area  string // path of the area below the line
	Marks []float64
}

// newPlot returns a plot of points by time. If it is stepped, a value holds until the next one.
func newPlot(scale timeScale, points []StepPoint, maximum float64, isStepped bool) Plot {
	var line strings.Builder
	first, last := "", ""
	for i, point := range points {
		x := fmt.Sprintf("%.4g", scale.Position(point.At)*plotWidth/100)
		y := fmt.Sprintf("%.4g", plotHeight-point.Step/max(maximum, math.SmallestNonzeroFloat64)*(plotHeight-4))
		switch {
		case i == 0:
			first = x
			fmt.Fprintf(&line, "M%s %s", x, y)
		case x == last && i < len(points)-1 && isStepped: // nobody would see it
			continue
		case isStepped:
			fmt.Fprintf(&line, "H%sV%s", x, y)
		default:
			fmt.Fprintf(&line, "L%s %s", x, y)
		}
		last = x
	}
	path := line.String()
	return Plot{timeScale: scale, Line: path, Area: fmt.Sprintf("%sV%dH%sZ", path, plotHeight, first)}
}

// Readiness returns the plot of the number of instances that are ready or, in a run without roles,
// of nodes. It is nil if there is nothing to show.
func (p pageTemplateData) Readiness() *Plot {
	changes, what, all := p.readinessChanges()
	if len(changes) == 0 {
		return nil
	}
	slices.SortStableFunc(changes, func(a, b StepPoint) int { return cmp.Compare(a.At, b.At) })
	points, ready := []StepPoint{{}}, 0.0
	for _, change := range changes {
		ready += change.Step
		if newest := len(points) - 1; points[newest].At == change.At {
			points[newest].Step = ready
		} else {
			points = append(points, StepPoint{change.At, ready})
		}
	}
	points = append(points, StepPoint{cmp.Or(p.End, p.Last), ready})
	plot := newPlot(p.timeScale, points, float64(all), true)
	plot.Max = textutil.GroupThousands(all)
	isUp := func(c StepPoint) bool { return c.Step > 0 }
	first, last := changes[slices.IndexFunc(changes, isUp)], changes[lastIndex(changes, isUp)]
	plot.Label = fmt.Sprintf("%s ready over time: the first after %s, the last after %s; in the end %.0f of %d",
		what, textutil.BriefDuration(first.At), textutil.BriefDuration(last.At), ready, all)
	if p.Gate > 0 {
		plot.Marks = []float64{p.Position(p.Gate) * plotWidth / 100}
		plot.Label += ". The gate opened after " + textutil.BriefDuration(p.Gate)
	}
	return &plot
}

func lastIndex[T any](all []T, so func(T) bool) int {
	for i, one := range slices.Backward(all) {
		if so(one) {
			return i
		}
	}
	return -1
}

// readinessChanges returns when the number of those that are ready changes, and by how much.
func (v *View) readinessChanges() (changes []StepPoint, what string, all int) {
	if len(v.Instances) == 0 {
		for _, n := range v.Nodes {
			if n.Ready > 0 {
				changes = append(changes, StepPoint{n.Ready, 1})
			}
		}
		return changes, "nodes", len(v.Nodes)
	}
	for _, row := range v.Instances {
		for i, lane := range row.Lanes {
			if lane.State != roles.StatusReady {
				continue
			}
			changes = append(changes, StepPoint{lane.From, 1})
			if i < len(row.Lanes)-1 || row.Tone == SeverityBad {
				changes = append(changes, StepPoint{lane.To, -1})
			}
		}
	}
	return changes, "instances", len(v.Instances)
}

// Progress returns the plot of the steps since the gate, or nil if there are none.
func (p pageTemplateData) Progress() *Plot {
	if len(p.Steps) < 2 {
		return nil
	}
	begin, end := p.Gate, p.Steps[len(p.Steps)-1].At
	scale := timeScale{[]scaleSegment{{0, max(end-begin, 1), 0, 100}}}
	maximum := 0.0
	points := textutil.MapSlice(p.Steps, func(point StepPoint) StepPoint {
		maximum = max(maximum, point.Step)
		return StepPoint{point.At - begin, max(point.Step, 0)}
	})
	plot := newPlot(scale, points, maximum, false)
	plot.Max = progress.FormatStep(maximum)
	for _, at := range p.Restarts {
		plot.Marks = append(plot.Marks, scale.Position(at-begin)*plotWidth/100)
	}
	last := p.Steps[len(p.Steps)-1]
	plot.Label = fmt.Sprintf("steps since the gate: step %s after %s, with %d %s", progress.FormatStep(last.Step),
		textutil.BriefDuration(end-begin), len(p.Restarts), textutil.PluralForm(len(p.Restarts), "restart"))
	return &plot
}
