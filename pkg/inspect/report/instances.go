package report

import (
	"cmp"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/bringupd/bringupd/internal/textutil"
	"github.com/bringupd/bringupd/pkg/health"
	"github.com/bringupd/bringupd/pkg/inspect/timeline"
	"github.com/bringupd/bringupd/pkg/roles"
)

// InstanceRow is an instance of a role, and its states over time.
type InstanceRow struct {
	Instance string        `json:"instance" max:"80"` // such as judge.1
	Role     string        `json:"role" max:"80"`
	Index    int           `json:"index"` // in its role
	Nodes    []int         `json:"node_indices"`
	On       string        `json:"on"` // the nodes as text
	State    string        `json:"state" max:"80"`
	Tone     Severity      `json:"tone"`
	Ready    time.Duration `json:"ready_ns"` // when it first became ready; 0 if it never did
	Restarts int           `json:"restarts,omitempty"`
	Lanes    []StateLane   `json:"lanes,omitempty"`
}

// StateLane is a time in which an instance was in one state.
type StateLane struct {
	State      roles.InstanceStatus `json:"state" max:"80"`
	Generation int                  `json:"generation,omitempty"`
	From       time.Duration        `json:"from_ns"`
	To         time.Duration        `json:"to_ns"`
}

// Took returns the duration of the state.
func (l StateLane) Took() time.Duration { return l.To - l.From }

// Class returns the CSS class of a lane.
func (l StateLane) Class() string { return "s-" + string(l.State) }

// laneStates are the states that have a bar, in the order in which an instance reaches them. In the
// others it does not run.
var laneStates = []roles.InstanceStatus{
	roles.StatusWaiting, roles.StatusStarting, roles.StatusReady, roles.StatusUnready, roles.StatusRestarting,
}

// buildInstances returns the rows of all instances, by role. The lanes of those that run end at the
// given time.
func (l viewBuilder) buildInstances(last time.Duration) (rows []InstanceRow) {
	if l.run.Roles == nil {
		return nil
	}
	spans, labels := l.run.InstanceSpans(), l.nodeLabels()
	for i := range l.run.Roles.Roles {
		role := &l.run.Roles.Roles[i]
		for j := range role.Instances {
			instance := &role.Instances[j]
			row := l.buildInstance(role, instance, spans[instance.Number], last)
			if nodes := instance.Nodes; len(nodes) == 1 && nodes[0] < len(labels) {
				row.On = labels[nodes[0]]
			} else {
				row.On = l.formatNodes(nodes)
			}
			rows = append(rows, row)
		}
	}
	return rows
}

// nodeLabels returns the hosts of all nodes, or names with their indices if several have the same
// host.
func (l viewBuilder) nodeLabels() (labels []string) {
	count := make(map[string]int)
	for i := range l.run.Nodes {
		count[l.run.Nodes[i].Host]++
	}
	for i := range l.run.Nodes {
		label := nodeName(i, "")
		if host := l.run.Nodes[i].Host; host != "" && count[host] == 1 {
			label = host
		}
		labels = append(labels, label)
	}
	return labels
}

func (l viewBuilder) buildInstance(
	role *timeline.Role, instance *timeline.Instance, spans []timeline.InstanceSpan, last time.Duration,
) InstanceRow {
	row := InstanceRow{
		Instance: fmt.Sprintf("%s.%d", role.Name, instance.Index), Role: role.Name, Index: instance.Index,
		Nodes: instance.Nodes, State: string(instance.Status),
	}
	status := instance.Status
	for _, span := range spans {
		if span.Status == roles.StatusLost && status == roles.StatusStopped { // with the run, which it has ended
			status = roles.StatusLost
		}
		from, to := l.sinceStart(span.From), l.sinceStart(span.To)
		if span.To.IsZero() {
			to = last
		}
		isReady := span.Status == roles.StatusReady || span.Status == roles.StatusDone
		if isReady && row.Ready == 0 {
			row.Ready = from
		}
		if slices.Contains(laneStates, span.Status) {
			row.Lanes = append(row.Lanes, StateLane{span.Status, span.Generation, from, max(from, to)})
		}
	}
	if !role.BuiltIn.IsService() { // their generations say for which team they are up
		row.Restarts = instance.Generation
	}
	if status == roles.StatusDone && role.Primary && l.hasDriverFailed() {
		status = roles.StatusLost
	}
	row.setTone(status, l.run.HasEnded())
	return row
}

// hasDriverFailed reports whether the driver's exit code has ended the run.
func (l viewBuilder) hasDriverFailed() bool {
	r := l.run.Result
	return r != nil && r.Code != 0 && r.Cause == nil && r.Outcome == health.DriverOutcomeName
}

// setTone sets the severity of the state. An instance that was stopped has the state before.
func (r *InstanceRow) setTone(status roles.InstanceStatus, hasEnded bool) {
	if status == roles.StatusStopped && len(r.Lanes) > 0 {
		status = r.Lanes[len(r.Lanes)-1].State
	}
	switch {
	case status == roles.StatusLost && r.State == string(roles.StatusLost):
		r.Tone = SeverityBad
	case status == roles.StatusLost:
		r.Tone, r.State = SeverityBad, "failed"
	case status == roles.StatusUnready, status == roles.StatusRestarting:
		r.Tone, r.State = SeverityAttention, string(status)
	case r.Ready > 0:
		r.Tone = SeverityGood
	case hasEnded:
		r.Tone, r.State = SeverityAttention, "never ready"
	default:
		r.Tone = SeverityNeutral
	}
}

// maxInstanceRows is the number of instances of a role up to which each has a row. If there are
// more, up to this number of those that need attention have one, and the others share a row with
// those that are alike; maxGroupRows limits the number of such rows.
const maxInstanceRows, maxGroupRows = 12, 6

// RoleLanes has the rows of a role in the chart.
type RoleLanes struct {
	Name string
	What string // the state of the role
	Rows []LaneRow
	All  []InstanceRow // all instances by index, if not all have rows of their own
}

// LaneRow is a row of one instance, or of several that are alike.
type LaneRow struct {
	InstanceRow
	Count    int
	MaxReady time.Duration // when the last of them became ready
}

// groupByRole returns the rows of each role.
func (v *View) groupByRole() (all []RoleLanes) {
	for rest := v.Instances; len(rest) > 0; {
		isOther := func(row InstanceRow) bool { return row.Role != rest[0].Role }
		end := slices.IndexFunc(rest, isOther)
		if end < 0 {
			end = len(rest)
		}
		lanes := RoleLanes{Name: rest[0].Role, Rows: groupInstances(rest[:end])}
		if end > maxInstanceRows {
			lanes.All = rest[:end]
		}
		for _, role := range v.Roles {
			if role.Name == lanes.Name {
				lanes.What = role.Describe()
			}
		}
		all, rest = append(all, lanes), rest[end:]
	}
	return all
}

// groupInstances returns the rows of the instances of a role.
func groupInstances(rows []InstanceRow) (lanes []LaneRow) {
	single := func(row InstanceRow) LaneRow { return LaneRow{InstanceRow: row, Count: 1, MaxReady: row.Ready} }
	if len(rows) <= maxInstanceRows {
		return textutil.MapSlice(rows, single)
	}
	sorted := slices.SortedStableFunc(slices.Values(rows), func(a, b InstanceRow) int {
		return cmp.Or(a.Tone.compare(b.Tone), b.Restarts-a.Restarts)
	})
	for _, row := range sorted[:maxInstanceRows] {
		if row.Tone == SeverityBad || row.Tone == SeverityAttention || row.Restarts > 0 {
			lanes = append(lanes, single(row))
		}
	}
	return append(lanes, groupAlike(sorted[len(lanes):])...)
}

// compare compares severities: the worse one comes first.
func (s Severity) compare(other Severity) int {
	order := []Severity{SeverityBad, SeverityAttention, SeverityNeutral, SeverityGood}
	return slices.Index(order, s) - slices.Index(order, other)
}

// groupAlike returns one row for all instances that have been in the same states.
func groupAlike(rows []InstanceRow) (lanes []LaneRow) {
	groups := make(map[string][]InstanceRow)
	var shapes []string // by severity, and by the number of instances
	for _, row := range rows {
		states := textutil.MapSlice(row.Lanes, func(lane StateLane) string { return string(lane.State) })
		shape := strings.Join(append(states, row.State), " ")
		if groups[shape] == nil {
			shapes = append(shapes, shape)
		}
		groups[shape] = append(groups[shape], row)
	}
	slices.SortStableFunc(shapes, func(a, b string) int {
		return cmp.Or(groups[a][0].Tone.compare(groups[b][0].Tone), len(groups[b])-len(groups[a]))
	})
	for i, shape := range shapes {
		if i == maxGroupRows-1 && len(shapes) > maxGroupRows {
			var others []InstanceRow
			for _, other := range shapes[i:] {
				others = append(others, groups[other]...)
			}
			row := mergeRows(others)
			row.State = "various"
			return append(lanes, row)
		}
		row := mergeRows(groups[shape])
		row.Lanes = medianLanes(groups[shape])
		lanes = append(lanes, row)
	}
	return lanes
}

// mergeRows returns the row of several instances, without lanes.
func mergeRows(rows []InstanceRow) LaneRow {
	merged := LaneRow{InstanceRow: rows[0], Count: len(rows), MaxReady: rows[0].Ready}
	merged.Lanes = nil
	if len(rows) == 1 {
		return merged
	}
	indices := textutil.MapSlice(rows, func(row InstanceRow) int { return row.Index })
	slices.Sort(indices)
	merged.Instance = merged.Role + "." + textutil.FormatRanges(indices)
	merged.Nodes, merged.On = nil, ""
	for _, row := range rows {
		merged.Ready, merged.MaxReady = min(merged.Ready, row.Ready), max(merged.MaxReady, row.Ready)
	}
	return merged
}

// medianLanes returns the lanes of instances that have been in the same states: each begins and
// ends at the median.
func medianLanes(rows []InstanceRow) []StateLane {
	lanes := slices.Clone(rows[0].Lanes)
	median := func(timeOf func(row InstanceRow) time.Duration) time.Duration {
		times := textutil.MapSlice(rows, timeOf)
		slices.Sort(times)
		return times[len(times)/2]
	}
	for i := range lanes {
		lanes[i].From = median(func(row InstanceRow) time.Duration { return row.Lanes[i].From })
		lanes[i].To = median(func(row InstanceRow) time.Duration { return row.Lanes[i].To })
	}
	return lanes
}

// ReadyText describes when the instances of the row became ready; it is empty if one never did.
func (r LaneRow) ReadyText() string {
	switch {
	case r.Ready == 0:
		return ""
	case textutil.BriefDuration(r.Ready) == textutil.BriefDuration(r.MaxReady):
		return textutil.BriefDuration(r.Ready)
	default:
		return textutil.BriefDuration(r.Ready) + " – " + textutil.BriefDuration(r.MaxReady)
	}
}

// instancesOn describes the instances on a node.
func (l viewBuilder) instancesOn(node int) string {
	if l.run.Roles == nil {
		return ""
	}
	var names []string
	for _, role := range l.run.Roles.Roles {
		for _, instance := range role.Instances {
			if slices.Contains(instance.Nodes, node) {
				names = append(names, fmt.Sprintf("%s.%d %s", role.Name, instance.Index, instance.Status))
			}
		}
	}
	return strings.Join(names, ", ")
}
