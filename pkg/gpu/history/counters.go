package history

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/bringupd/bringupd/internal/textutil"
	"github.com/bringupd/bringupd/pkg/gpu"
)

// Counters contains the counters of a GPU, or of a network card's links, during a job.
type Counters struct {
	Polls int `json:"looks"`
	// number of polls with clocks reduced by heat or a power brake
	SlowedPolls int           `json:"slowed"`
	Span        time.Duration `json:"span_ns"`
	// Increase has the increase of each counter; nil if it could not be read, or if the device does
	// not have it.
	Increase struct {
		Replays        *int `json:"pcie_replays,omitempty"`
		Rows           *int `json:"remapped_rows,omitempty"`
		Recoveries     *int `json:"nvlink_recoveries,omitempty"`
		LinkDowns      *int `json:"link_downs,omitempty"`
		LinkRecoveries *int `json:"link_recoveries,omitempty"`
	} `json:"grown"`
	// The values at the end, counted since the driver was loaded or the GPU was reset. Rows counts
	// since the GPU was made.
	PCIeReplays      gpu.Reading[int] `json:"pcie_replays"`
	RemappedRows     gpu.Reading[int] `json:"remapped_rows"`
	NVLinkRecoveries gpu.Reading[int] `json:"nvlink_recoveries"`
}

// CounterSet contains the counters of a node's GPUs and network cards, by device ID. The zero value
// is empty. It is not safe for concurrent use.
type CounterSet struct{ byDevice map[string]*sampleRange }

// sample contains the counters of a GPU or of a network card's links at one time.
type sample struct {
	gpu.WatchCounters
	linkDowns, linkRecoveries gpu.Reading[int]
}

// sampleRange contains the first and the last counters of a device.
type sampleRange struct {
	first, last     sample
	firstAt, lastAt time.Time
	// totals of earlier watches that have failed; a new watch counts from 0
	earlierPolls, earlierSlowed int
}

// AddGPUCounters adds the counters that a watch has reported at the given time.
func (c *CounterSet) AddGPUCounters(tallies []gpu.WatchCounters, at time.Time) {
	for _, t := range tallies {
		if t.UUID != "" {
			c.addSample(sample{WatchCounters: t}, at)
		}
	}
}

// AddLinkCounts adds how often the links of a network card have gone down and recovered until the
// given time. A parameter is nil if it could not be read.
func (c *CounterSet) AddLinkCounts(id string, downs, recoveries *int, at time.Time) {
	if downs != nil || recoveries != nil {
		c.addSample(sample{gpu.WatchCounters{UUID: id}, gpu.Reading[int]{Value: downs}, gpu.Reading[int]{Value: recoveries}}, at)
	}
}

// addSample adds the counters of one device.
func (c *CounterSet) addSample(t sample, at time.Time) {
	is := c.byDevice[t.UUID]
	if is == nil {
		is = &sampleRange{first: t, firstAt: at}
		if c.byDevice == nil {
			c.byDevice = make(map[string]*sampleRange)
		}
		c.byDevice[t.UUID] = is
	}
	is.addSample(t, at)
}

// addSample adds the counters of the device. If they are from a new watch, it adds the polls of the
// old one to the totals.
func (c *sampleRange) addSample(t sample, at time.Time) {
	if t.Polls < c.last.Polls {
		c.earlierPolls, c.earlierSlowed = c.earlierPolls+c.last.Polls, c.earlierSlowed+c.last.SlowedPolls
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
	c.last, c.lastAt = t, at
}

// AllCounters returns the counters so far.
func (c *CounterSet) AllCounters() map[string]Counters {
	all := make(map[string]Counters)
	for id, is := range c.byDevice {
		course := Counters{
			Polls: is.earlierPolls + is.last.Polls, SlowedPolls: is.earlierSlowed + is.last.SlowedPolls, Span: is.lastAt.Sub(is.firstAt),
			PCIeReplays: is.last.Replays, RemappedRows: is.last.Remapped, NVLinkRecoveries: is.last.Recoveries,
		}
		course.Increase.Replays = counterIncrease(is.first.Replays, is.last.Replays)
		course.Increase.Rows = counterIncrease(is.first.Remapped, is.last.Remapped)
		course.Increase.Recoveries = counterIncrease(is.first.Recoveries, is.last.Recoveries)
		course.Increase.LinkDowns = counterIncrease(is.first.linkDowns, is.last.linkDowns)
		course.Increase.LinkRecoveries = counterIncrease(is.first.linkRecoveries, is.last.linkRecoveries)
		all[id] = course
	}
	return all
}

// counterIncrease returns the increase of a counter. If the last value is smaller than the first,
// the driver was reloaded or the device was reset, and it has counted from 0.
func counterIncrease(first, last gpu.Reading[int]) *int {
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
	minReportedFraction, minReportedPolls = 0.05, 6
	// maxReplayRate is the tolerated number of PCIe replays per minute: "8 replays per minute is the
	// maximum recommended by RM" (NVIDIA's driver), according to DCGM, which warns above that
	// (dcgmlib/src/dcgm_gpu_hardware_limits.h).
	maxReplayRate = 8.0
	// minSuspectFraction is gpud's limit for an unhealthy GPU: 0.6 slowdowns per minute, with one poll
	// per minute, over ten minutes (components/accelerator/nvidia/hw-slowdown). Heat in the whole node
	// or room is not the GPU's fault, so another GPU of the node must have less than half of it.
	minSuspectFraction, minSuspectPolls = 0.6, 10
)

// slowedFraction returns the fraction of polls at which the GPU was slowed down.
func (c *Counters) slowedFraction() float64 { return float64(c.SlowedPolls) / float64(max(c.Polls, 1)) }

// SummaryText returns a text about the counters that users should know about. It is empty if there
// is nothing to report, or if c is nil.
func (c *Counters) SummaryText() string {
	if c == nil {
		return ""
	}
	var told []string
	if c.Polls >= minReportedPolls && c.slowedFraction() >= minReportedFraction {
		told = append(told, kindThrottled+" "+c.slowedText())
	}
	// Errors that were repaired are reported from the first one on.
	for _, grown := range []struct {
		by        *int
		one, many string
	}{{c.Increase.Rows, "remapped row", "remapped rows"}, {c.Increase.Recoveries, "NVLink recovery", "NVLink recoveries"}} {
		if grown.by != nil && *grown.by == 1 {
			told = append(told, "1 "+grown.one)
		} else if grown.by != nil && *grown.by > 1 {
			told = append(told, fmt.Sprintf("%d %s", *grown.by, grown.many))
		}
	}
	for _, grown := range []struct {
		by   *int
		what string
	}{{c.Increase.LinkDowns, "link went down"}, {c.Increase.LinkRecoveries, "link recovered from errors"}} {
		if grown.by != nil && *grown.by > 0 {
			told = append(told, grown.what+" "+formatTimes(*grown.by))
		}
	}
	// A few PCIe replays are normal. Only a high rate is reported.
	if c.Increase.Replays != nil && c.Span >= time.Minute {
		if rate := float64(*c.Increase.Replays) / c.Span.Minutes(); rate > maxReplayRate {
			told = append(told, fmt.Sprintf("%.0f PCIe replays per minute", rate))
		}
	}
	return strings.Join(told, ", ")
}

// slowedText returns how much of the run the GPU was slowed down, as text.
func (c *Counters) slowedText() string {
	return fmt.Sprintf("%.0f %% of the run (%d of %d readings)", 100*c.slowedFraction(), c.SlowedPolls, c.Polls)
}

// formatTimes returns "1 time", "2 times" and so on.
func formatTimes(n int) string { return fmt.Sprintf("%d %s", n, textutil.PluralForm(n, "time")) }

// throttledAlone returns the GPUs that were slowed down while another GPU of the node was not, or
// much less.
func throttledAlone(devices []Device) (alone []Device) {
	least := 1.0
	for _, d := range devices {
		if d.Counters != nil && d.Counters.Polls >= minSuspectPolls {
			least = min(least, d.Counters.slowedFraction())
		}
	}
	for _, d := range devices {
		if c := d.Counters; c != nil && c.Polls >= minSuspectPolls && c.slowedFraction() >= minSuspectFraction && least < c.slowedFraction()/2 {
			alone = append(alone, d)
		}
	}
	return alone
}

// WithCounters returns the devices with the counters added.
func WithCounters(devices []Device, counted map[string]Counters) []Device {
	devices = slices.Clone(devices)
	for i, d := range devices {
		if c, ok := counted[d.ID]; ok {
			devices[i].Counters = &c
			if c.RemappedRows.Value != nil {
				devices[i].RemappedRows = c.RemappedRows
			}
		}
	}
	return devices
}
