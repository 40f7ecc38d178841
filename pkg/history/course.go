package history

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/bringupd/bringupd/pkg/gpu"
	"github.com/bringupd/bringupd/pkg/prose"
)

// Course is what was counted of a GPU, or of a network card's links, while a job ran.
type Course struct {
	Looks  int           `json:"looks"`
	Slowed int           `json:"slowed"` // looks at which heat or a power brake kept its clocks down
	Span   time.Duration `json:"span_ns"`
	// Grown is by how much what the driver counts has grown; nil where that could not be read, or the device has none.
	Grown struct {
		Replays        *int `json:"pcie_replays,omitempty"`
		Rows           *int `json:"remapped_rows,omitempty"`
		Recoveries     *int `json:"nvlink_recoveries,omitempty"`
		LinkDowns      *int `json:"link_downs,omitempty"`
		LinkRecoveries *int `json:"link_recoveries,omitempty"`
	} `json:"grown"`
	// The same at the end, since the driver was loaded or the GPU was reset; the rows, since it was made.
	Replays    gpu.Reading[int] `json:"pcie_replays"`
	Rows       gpu.Reading[int] `json:"remapped_rows"`
	Recoveries gpu.Reading[int] `json:"nvlink_recoveries"`
}

// Courses are those of a node's GPUs and network cards, by their IDs. The zero value is empty. It is not safe for
// concurrent use.
type Courses struct{ of map[string]*counted }

// tallied is a GPU's tally, or what the links of a network card have counted.
type tallied struct {
	gpu.Tally
	linkDowns, linkRecoveries gpu.Reading[int]
}

// counted is the first and the last tally of a device.
type counted struct {
	first, last   tallied
	begun, ended  time.Time
	looks, slowed int // of watches that have died: the next one counts from 0
}

// Take takes in what a watch has counted by then.
func (c *Courses) Take(tallies []gpu.Tally, at time.Time) {
	for _, t := range tallies {
		if t.UUID != "" {
			c.take(tallied{Tally: t}, at)
		}
	}
}

// TakeLinks takes in how often the links of a network card have gone down and recovered by then; nil: that could not be
// read.
func (c *Courses) TakeLinks(id string, downs, recoveries *int, at time.Time) {
	if downs != nil || recoveries != nil {
		c.take(tallied{gpu.Tally{UUID: id}, gpu.Reading[int]{Value: downs}, gpu.Reading[int]{Value: recoveries}}, at)
	}
}

func (c *Courses) take(t tallied, at time.Time) {
	is := c.of[t.UUID]
	if is == nil {
		is = &counted{first: t, begun: at}
		if c.of == nil {
			c.of = make(map[string]*counted)
		}
		c.of[t.UUID] = is
	}
	is.take(t, at)
}

func (c *counted) take(t tallied, at time.Time) {
	if t.Looks < c.last.Looks {
		c.looks, c.slowed = c.looks+c.last.Looks, c.slowed+c.last.Slowed
	}
	for _, r := range []struct {
		first, last, now *gpu.Reading[int]
	}{
		{&c.first.Replays, &c.last.Replays, &t.Replays},
		{&c.first.Remapped, &c.last.Remapped, &t.Remapped},
		{&c.first.Recoveries, &c.last.Recoveries, &t.Recoveries},
		{&c.first.linkDowns, &c.last.linkDowns, &t.linkDowns},
		{&c.first.linkRecoveries, &c.last.linkRecoveries, &t.linkRecoveries},
	} {
		if r.first.Value == nil {
			*r.first = *r.now
		}
		if r.now.Value == nil { // the last that could be read counts
			*r.now = *r.last
		}
	}
	c.last, c.ended = t, at
}

// Counted returns what was counted so far.
func (c *Courses) Counted() map[string]Course {
	all := make(map[string]Course)
	for id, is := range c.of {
		course := Course{
			Looks: is.looks + is.last.Looks, Slowed: is.slowed + is.last.Slowed, Span: is.ended.Sub(is.begun),
			Replays: is.last.Replays, Rows: is.last.Remapped, Recoveries: is.last.Recoveries,
		}
		course.Grown.Replays = grown(is.first.Replays, is.last.Replays)
		course.Grown.Rows = grown(is.first.Remapped, is.last.Remapped)
		course.Grown.Recoveries = grown(is.first.Recoveries, is.last.Recoveries)
		course.Grown.LinkDowns = grown(is.first.linkDowns, is.last.linkDowns)
		course.Grown.LinkRecoveries = grown(is.first.linkRecoveries, is.last.linkRecoveries)
		all[id] = course
	}
	return all
}

// grown is by how much a count has grown; a driver that was loaded anew, or a device that was reset, counts from 0.
func grown(first, last gpu.Reading[int]) *int {
	before, ok := first.Get()
	after, okAfter := last.Get()
	if !ok || !okAfter {
		return nil
	}
	if after >= before {
		after -= before
	}
	return &after
}

const (
	// A GPU's throttling is told of from 5 % of the looks on, of at least 6: a minute. nvml.h has a slowdown reported
	// during a change of clocks, too, so that one look of a few means nothing.
	toldPart, toldLooks = 0.05, 6
	// toldReplays is how many PCIe replays a minute are borne: "8 replays per minute is the maximum recommended by RM",
	// NVIDIA's driver, says DCGM (dcgmlib/src/dcgm_gpu_hardware_limits.h), and warns of more.
	toldReplays = 8.0
	// suspectPart is gpud's measure of an unhealthy GPU: 0.6 slowdowns a minute, at a look each minute, over ten of them
	// (components/accelerator/nvidia/hw-slowdown). Heat of the whole node, or of the hall, is not the GPU's fault: another
	// GPU of the node must have had less than half of it.
	suspectPart, suspectLooks = 0.6, 10
)

// part is that of the looks at which the GPU was slowed down.
func (c *Course) part() float64 { return float64(c.Slowed) / float64(max(c.Looks, 1)) }

// Told is what of it matters to people; empty where nothing does, or nothing was counted.
func (c *Course) Told() string {
	if c == nil {
		return ""
	}
	var told []string
	if c.Looks >= toldLooks && c.part() >= toldPart {
		told = append(told, throttled+" "+c.share())
	}
	for _, grown := range []struct {
		by   *int
		what string
	}{{c.Grown.Rows, "remapped row"}, {c.Grown.Recoveries, "NVLink recovery"}} {
		if grown.by != nil && *grown.by > 0 {
			told = append(told, fmt.Sprintf("%d %s", *grown.by, plural(*grown.by, grown.what)))
		}
	}
	for _, grown := range []struct {
		by   *int
		what string
	}{{c.Grown.LinkDowns, "its link went down"}, {c.Grown.LinkRecoveries, "its link recovered from errors"}} {
		if grown.by != nil && *grown.by > 0 {
			told = append(told, grown.what+" "+times(*grown.by))
		}
	}
	if c.Grown.Replays != nil && c.Span >= time.Minute {
		if rate := float64(*c.Grown.Replays) / c.Span.Minutes(); rate > toldReplays {
			told = append(told, fmt.Sprintf("%.0f PCIe replays a minute", rate))
		}
	}
	return strings.Join(told, ", ")
}

func (c *Course) share() string {
	return fmt.Sprintf("%.0f %% of the run (%d of %d looks)", 100*c.part(), c.Slowed, c.Looks)
}

func times(n int) string { return fmt.Sprintf("%d %s", n, prose.Noun(n, "time")) }

func plural(n int, one string) string {
	if stem, y := strings.CutSuffix(one, "y"); y && n != 1 {
		return stem + "ies"
	}
	return prose.Noun(n, one)
}

// throttledAlone are the GPUs that were slowed down where another of the node was not, or much less.
func throttledAlone(devices []Device) (alone []Device) {
	least := 1.0
	for _, d := range devices {
		if d.Course != nil && d.Course.Looks >= suspectLooks {
			least = min(least, d.Course.part())
		}
	}
	for _, d := range devices {
		if c := d.Course; c != nil && c.Looks >= suspectLooks && c.part() >= suspectPart && least < c.part()/2 {
			alone = append(alone, d)
		}
	}
	return alone
}

// WithCourses gives the devices what was counted of them.
func WithCourses(devices []Device, counted map[string]Course) []Device {
	devices = slices.Clone(devices)
	for i, d := range devices {
		if c, ok := counted[d.ID]; ok {
			devices[i].Course = &c
			if c.Rows.Value != nil {
				devices[i].Rows = c.Rows
			}
		}
	}
	return devices
}
