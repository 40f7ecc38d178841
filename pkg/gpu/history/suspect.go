package history

import (
	"fmt"
	"slices"
	"strings"
	"time"
	"unicode"

	"github.com/bringupd/bringupd/internal/textutil"
	"github.com/bringupd/bringupd/pkg/check"
	"github.com/bringupd/bringupd/pkg/gpu"
)

// hardwareChecks are the checks that examine the device itself. Others examine its configuration or
// its users. Their findings return in every job until an administrator changes something, and are
// no sign of a faulty device.
var hardwareChecks = []string{
	"gpu.clocks", "gpu.count", "gpu.ecc_corr", "gpu.ecc_unc", "gpu.fabric", "gpu.nvlink", "gpu.pcie", "gpu.recovery", "gpu.remap",
	"gpu.retired", "net.ib", "net.ib_err",
}

// Kinds of suspicions that may be detected only at the end of a run.
const (
	kindThrottled = "throttled"
	kindLinkDown  = "link down"
)

// minLinkFlaps is the number of times that a link goes down in a run from which on the card is
// suspected: gpud's limit for a flapping link, within 12 h (components/infiniband). When a switch
// is rebooted, the links of all its nodes go down once, and no card is faulty.
const minLinkFlaps = 3

// WithFindings returns the devices with the problems that the checks have found.
func WithFindings(devices []Device, found []check.Finding) []Device {
	devices = slices.Clone(devices)
	for _, f := range check.FilterByVerdict(found, check.Warn, check.Fail) {
		if i := findDeviceIndex(devices, f.Device); i >= 0 && len(devices[i].Findings) < maxEntries {
			devices[i].Findings = append(slices.Clip(devices[i].Findings),
				Finding{ID: f.ID, Verdict: f.Verdict, Class: f.Class, Observed: textutil.SingleLine(f.Observed, maxTextLength)})
		}
	}
	return devices
}

// WithEvents returns the devices with their events. Events that the user's program has caused, and
// those without a meaning, are omitted.
func WithEvents(devices []Device, events []gpu.ClassifiedEvent) []Device {
	devices = slices.Clone(devices)
	for _, e := range events {
		device := e.Device()
		i := findDeviceIndex(devices, &device)
		if i < 0 || e.Effect == gpu.EffectApp || e.Effect == gpu.EffectIgnore {
			continue
		}
		// Count the event. If events of one kind differ, the effects of a suspicious one are kept.
		kind := string(e.Kind)
		if e.Kind == gpu.KindXid {
			kind = fmt.Sprintf("xid %d", e.Xid)
		}
		before := slices.Clone(devices[i].Events)
		at := slices.IndexFunc(before, func(h EventCount) bool { return h.Kind == kind })
		switch {
		case at >= 0:
			before[at].Count += max(e.Count, 1)
			if isSuspect(EventCount{Effect: e.Effect, Next: e.Next}) { // keep the effects of the worst event
				before[at].Effect, before[at].Next = e.Effect, e.Next
			}
		case len(before) < maxEntries:
			before = append(before, EventCount{Kind: kind, Effect: e.Effect, Next: e.Next, Count: max(e.Count, 1)})
		}
		devices[i].Events = before
	}
	return devices
}

// findDeviceIndex returns the index of the device that of refers to, or -1 if there is none.
func findDeviceIndex(devices []Device, of *check.Device) int {
	if of == nil {
		return -1
	}
	card, _, _ := strings.Cut(of.Name, " ") // for "mlx4_0 port 2"
	return slices.IndexFunc(devices, func(d Device) bool {
		switch {
		case of.UUID != "":
			return d.ID == of.UUID
		case card != "":
			return !d.isGPU() && d.Name == card
		case of.Bus != "":
			return d.isGPU() && d.Bus == of.Bus
		default:
			return d.isGPU() && d.Index == of.Index
		}
	})
}

// isSuspect reports whether an event is a sign of a faulty device.
func isSuspect(h EventCount) bool { return h.Effect == gpu.EffectFatal || h.Next == gpu.NextUnfit }

// numbersIn returns the numbers in a text.
func numbersIn(text string) []string {
	return strings.FieldsFunc(text, func(r rune) bool { return !unicode.IsDigit(r) })
}

// FindSuspicions returns the suspicions that a run's observations give rise to. A finding with the
// same numbers as in the previous run is no new suspicion, for example for a card without a cable
// or a counter that does not change. The checks report it each time anyway. The texts are not
// compared, because another version may have other words.
func (r Record) FindSuspicions(run string, at time.Time, devices []Device) (found []Suspicion) {
	add := func(d Device, kind, what string) {
		found = append(found, Suspicion{Run: run, At: at, Device: d.ID, Kind: kind, What: what})
	}
	for _, d := range devices {
		was, _ := r.findDevice(d.ID)
		for _, f := range d.Findings {
			said := slices.ContainsFunc(was.Findings, func(w Finding) bool {
				return w.ID == f.ID && slices.Equal(numbersIn(w.Observed), numbersIn(f.Observed))
			})
			if !said && f.Class == check.ClassNode && slices.Contains(hardwareChecks, f.ID) {
				add(d, f.ID, f.Observed)
			}
		}
		for _, h := range d.Events {
			if isSuspect(h) {
				add(d, h.Kind, formatTimes(h.Count))
			}
		}
		if c := d.Counters; c != nil && c.Increase.LinkDowns != nil && *c.Increase.LinkDowns >= minLinkFlaps {
			add(d, kindLinkDown, formatTimes(*c.Increase.LinkDowns))
		}
	}
	for _, d := range throttledAlone(devices) {
		add(d, kindThrottled, d.Counters.slowedText())
	}
	return removeDuplicates(found, Suspicion.identityKey)
}

// IsSame reports whether both suspicions are of the same run, device and kind.
func (s Suspicion) IsSame(other Suspicion) bool { return s.identityKey() == other.identityKey() }

// RepeatedSuspicions returns the suspicions that an earlier run had as well, for the same device
// and of the same kind, with the evidence as text. The next job should then avoid the device.
func (r Record) RepeatedSuspicions(found []Suspicion, devices []Device) (again []Change) {
	for _, s := range found {
		i := slices.IndexFunc(r.Suspicions, func(was Suspicion) bool {
			return was.Device == s.Device && was.Kind == s.Kind && was.Run != s.Run
		})
		d := slices.IndexFunc(devices, func(d Device) bool { return d.ID == s.Device })
		if i < 0 || d < 0 {
			continue
		}
		was := r.Suspicions[i]
		again = append(again, Change{Device: devices[d].CheckDevice(), What: fmt.Sprintf("%s: %s; also in run %s of %s: %s",
			s.Kind, s.What, was.Run, was.At.Format(time.DateOnly), was.What)})
	}
	return again
}

// LateSuspicions returns the suspicions that the last run detected only at its end, too late to
// report the node as bad itself.
func (r Record) LateSuspicions() []Suspicion {
	return slices.DeleteFunc(slices.Clone(r.Suspicions), func(s Suspicion) bool {
		return s.Kind != kindThrottled && s.Kind != kindLinkDown || s.Run != r.Runs[0]
	})
}
