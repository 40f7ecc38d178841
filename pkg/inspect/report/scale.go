package report

import (
	"fmt"
	"math"
	"time"

	"github.com/bringupd/bringupd/internal/textutil"
)

// timeScale maps times to percentages of the chart's width. A long driver phase is compressed,
// because readers look for the bring-up before it and the end after it.
type timeScale struct {
	segments []scaleSegment
}

// scaleSegment is a segment of the scale: it maps the times from-to linearly to the positions
// x0-x1.
type scaleSegment struct {
	from, to time.Duration
	x0, x1   float64
}

// minCompressRatio is the ratio of the driver's duration to the rest of the run above which the
// driver phase is compressed.
const minCompressRatio = 3

// newTimeScale returns the scale of a view. If it compresses, it has a segment up to the gate, one
// for the driver and, if the run has ended, one for its end.
func newTimeScale(v *View) timeScale {
	last := max(v.Last, v.End, time.Millisecond)
	gate, ending := v.Gate, v.endingTime(last)
	if gate == 0 || ending-gate < minCompressRatio*(gate+last-ending) {
		return timeScale{[]scaleSegment{{0, last, 0, 100}}}
	}
	gate += gate / 20   // keep the opening of the gate visible
	if ending == last { // the run goes on
		return timeScale{[]scaleSegment{{0, gate, 0, 72}, {gate, last, 72, 100}}}
	}
	return timeScale{[]scaleSegment{{0, gate, 0, 72}, {gate, ending, 72, 86}, {ending, last, 86, 100}}}
}

// endingTime returns when the end of the run began: the drain phase, the first cause or the
// recorded end.
func (v *View) endingTime(last time.Duration) time.Duration {
	// Take the earliest sign of the end after the gate, and leave some space before it.
	ending := last
	for _, n := range v.Nodes {
		for _, lane := range n.Lanes {
			if lane.Phase == "drain" && lane.From > v.Gate {
				ending = min(ending, lane.From)
			}
		}
	}
	for _, link := range v.Banner.Chain {
		if link.At > v.Gate {
			ending = min(ending, link.At)
		}
	}
	if v.End > v.Gate {
		ending = min(ending, v.End)
	}
	return max(ending-(last-ending)/10, v.Gate)
}

// Position returns the position of a time.
func (s timeScale) Position(t time.Duration) float64 {
	for i, p := range s.segments {
		if t <= p.to || i == len(s.segments)-1 {
			part := float64(t-p.from) / float64(max(1, p.to-p.from))
			return p.x0 + (p.x1-p.x0)*min(1, max(0, part))
		}
	}
	return 0
}

// axisTick is a vertical line of the chart, with a label above it.
type axisTick struct {
	X    float64
	Text string
	Wide float64 // width of the compressed segment, which is shown as a band
	End  bool    // the label is at the right edge
}

// Ticks returns the lines of the chart, at round times.
func (s timeScale) Ticks() (ticks []axisTick) {
	first := s.segments[0]
	step := roundStep(first.to)
	for t := time.Duration(0); s.Position(t) < first.x1-12; t += step {
		ticks = append(ticks, axisTick{X: s.Position(t), Text: formatTick(t, step)})
	}
	last := s.segments[len(s.segments)-1]
	if len(s.segments) > 1 {
		driver := s.segments[1]
		ticks = append(ticks, axisTick{
			X: driver.x0, Wide: driver.x1 - driver.x0, Text: "⋯ " + textutil.BriefDuration(driver.to-driver.from),
		})
	}
	return append(ticks, axisTick{X: last.x1, Text: textutil.BriefDuration(last.to), End: true})
}

// roundStep returns a step of 1, 2 or 5 times a unit that divides the duration into about five
// parts.
func roundStep(all time.Duration) time.Duration {
	for power := time.Duration(1); all <= 2*time.Minute; power *= 10 {
		for _, times := range []time.Duration{1, 2, 5} {
			if all <= 6*times*power {
				return times * power
			}
		}
	}
	for _, seconds := range []time.Duration{30, 60, 120, 300, 600, 1200, 1800, 3600, 7200, 6 * 3600} {
		if all <= 6*seconds*time.Second {
			return seconds * time.Second
		}
	}
	return (all / 5).Round(time.Hour) + time.Hour
}

// formatTick formats the time of a tick. The unit depends on the step between ticks.
func formatTick(t, step time.Duration) string {
	switch {
	case t == 0:
		return "0"
	case t >= 2*time.Minute && t%time.Minute == 0:
		return fmt.Sprintf("%d min", t/time.Minute)
	case t >= time.Second || step >= 100*time.Millisecond:
		return fmt.Sprintf("%g s", math.Round(t.Seconds()*1000)/1000)
	default:
		return fmt.Sprintf("%g ms", math.Round(float64(t)/1e3)/1e3)
	}
}
