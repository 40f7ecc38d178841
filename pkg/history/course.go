package history

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/bringupd/bringupd/pkg/gpu"
	"github.com/bringupd/bringupd/pkg/prose"
)

// Course contains the counters of a GPU, or of a network card's links, during a job.
type Course struct {
	Looks  int           `json:"looks"`
	Slowed int           `json:"slowed"` // number of polls with clocks reduced by heat or a power brake
	Span   time.Duration `json:"span_ns"`
	// Grown has the increase of each counter; nil if it could not be read, or if the device does not
	// have it.
	Grown struct {
		Replays        *int `json:"pcie_replays,omitempty"`
		Rows           *int `json:"remapped_rows,omitempty"`
		Recoveries     *int `json:"nvlink_recoveries,omitempty"`
		LinkDowns      *int `json:"link_downs,omitempty"`
		LinkRecoveries *int `json:"link_recoveries,omitempty"`
	} `json:"grown"`
	// The values at the end, counted since the driver was loaded or the GPU was reset. Rows counts
	// since the GPU was made.
	Replays    gpu.Reading[int] `json:"pcie_replays"`
	Rows       gpu.Reading[int] `json:"remapped_rows"`
	Recoveries gpu.Reading[int] `json:"nvlink_recoveries"`
}

// Courses contains the counters of a node's GPUs and network cards, by device ID. The zero value is
// empty. It is not safe for concurrent use.
type Courses struct{ of map[string]*counted }

// tallied contains the counters of a GPU or of a network card's links at one time.
type tallied struct {
	gpu.Tally
	linkDowns, linkRecoveries gpu.Reading[int]
}

// counted contains the first and the last counters of a device.
type counted struct {
	first, last   tallied
	begun, ended  time.Time
	looks, slowed int // totals of earlier watches that have failed; a new watch counts from 0
}

// Take adds the counters that a watch has reported at the given time.
func (c *Courses) Take(tallies []gpu.Tally, at time.Time) {
	for _, t := range tallies {
		if t.UUID != "" {
			c.take(tallied{Tally: t}, at)
		}
	}
}

// TakeLinks adds how often the links of a network card have gone down and recovered until the given
// time. A parameter is nil if it could not be read.
func (c *Courses) TakeLinks(id string, downs, recoveries *int, at time.Time) {
	if downs != nil || recoveries != nil {
		c.take(tallied{gpu.Tally{UUID: id}, gpu.Reading[int]{Value: downs}, gpu.Reading[int]{Value: recoveries}}, at)
	}
}

// take adds the counters of one device.
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

// take adds the counters of the device. If they are from a new watch, it adds the polls of the old
// one to the totals.
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
		if r.now.Value == nil { // keep the last value that could be read
			*r.now = *r.last
		}
	}
	c.last, c.ended = t, at
}

// Counted returns the counters so far.
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

// grown returns the increase of a counter. If the last value is smaller than the first, the driver
// was reloaded or the device was reset, and it has counted from 0.
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
	// Throttling of a GPU is reported from 5 % of at least 6 polls (one minute). According to nvml.h a
	// slowdown is also reported during a change of clocks, so a single poll means nothing.
	toldPart, toldLooks = 0.05, 6
	// toldReplays is the tolerated number of PCIe replays per minute: "8 replays per minute is the
	// maximum recommended by RM" (NVIDIA's driver), according to DCGM, which warns above that
	// (dcgmlib/src/dcgm_gpu_hardware_limits.h).
	toldReplays = 8.0
	// suspectPart is gpud's limit for an unhealthy GPU: 0.6 slowdowns per minute, with one poll per
	// minute, over ten minutes (components/accelerator/nvidia/hw-slowdown). Heat in the whole node or
	// room is not the GPU's fault, so another GPU of the node must have less than half of it.
	suspectPart, suspectLooks = 0.6, 10
)

// part returns the fraction of polls at which the GPU was slowed down.
func (c *Course) part() float64 { return float64(c.Slowed) / float64(max(c.Looks, 1)) }

// Told returns a text about the counters that users should know about. It is empty if there is
// nothing to report, or if c is nil.
func (c *Course) Told() string {
	if c == nil {
		return ""
	}
	var told []string
	if c.Looks >= toldLooks && c.part() >= toldPart {
		told = append(told, throttled+" "+c.share())
	}
	// Errors that were repaired are reported from the first one on.
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
	// A few PCIe replays are normal. Only a high rate is reported.
	if c.Grown.Replays != nil && c.Span >= time.Minute {
		if rate := float64(*c.Grown.Replays) / c.Span.Minutes(); rate > toldReplays {
			told = append(told, fmt.Sprintf("%.0f PCIe replays a minute", rate))
		}
	}
	return strings.Join(told, ", ")
}

// share returns how much of the run the GPU was slowed down, as text.
func (c *Course) share() string {
	return fmt.Sprintf("%.0f %% of the run (%d of %d looks)", 100*c.part(), c.Slowed, c.Looks)
}

// times returns "1 time", "2 times" and so on.
func times(n int) string { return fmt.Sprintf("%d %s", n, prose.Noun(n, "time")) }

// plural returns the noun in the form that fits n.
func plural(n int, one string) string {
	if stem, y := strings.CutSuffix(one, "y"); y && n != 1 {
		return stem + "ies"
	}
	return prose.Noun(n, one)
}

// throttledAlone returns the GPUs that were slowed down while another GPU of the node was not, or
// much less.
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

// WithCourses returns the devices with the counters added.
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
