package history

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/bringupd/bringupd/pkg/check"
	"github.com/bringupd/bringupd/pkg/gpu"
	"github.com/bringupd/bringupd/pkg/prose"
)

// hardware are the checks that examine the device itself. Others examine its configuration or its
// users. Their findings return in every job until an administrator changes something, and are no
// sign of a faulty device.
var hardware = []string{
	"gpu.clocks", "gpu.count", "gpu.ecc_corr", "gpu.ecc_unc", "gpu.fabric", "gpu.nvlink", "gpu.pcie", "gpu.recovery", "gpu.remap",
	"gpu.retired", "net.ib", "net.ib_err",
}

// Kinds of suspicions that may be detected only at the end of a run.
const (
	throttled = "throttled"
	linkDown  = "link down"
)

// linkFlaps is the number of times that a link goes down in a run from which on the card is
// suspected: gpud's limit for a flapping link, within 12 h (components/infiniband). When a switch
// is rebooted, the links of all its nodes go down once, and no card is faulty.
const linkFlaps = 3

// WithFindings returns the devices with the problems that the checks have found.
func WithFindings(devices []Device, found []check.Finding) []Device {
	devices = slices.Clone(devices)
	for _, f := range check.Of(found, check.Warn, check.Fail) {
		if i := meant(devices, f.Device); i >= 0 && len(devices[i].Findings) < mostOf {
			devices[i].Findings = append(slices.Clip(devices[i].Findings),
				Finding{ID: f.ID, Verdict: f.Verdict, Class: f.Class, Observed: prose.Line(f.Observed, mostWords)})
		}
	}
	return devices
}

// WithEvents returns the devices with their events. Events that the user's program has caused, and
// those without a meaning, are omitted.
func WithEvents(devices []Device, events []gpu.Judged) []Device {
	devices = slices.Clone(devices)
	for _, e := range events {
		device := e.Device()
		i := meant(devices, &device)
		if i < 0 || e.Effect == gpu.EffectApp || e.Effect == gpu.EffectIgnore {
			continue
		}
		// Count the event. If events of one kind differ, the effects of a suspicious one are kept.
		kind := string(e.Kind)
		if e.Kind == gpu.KindXid {
			kind = fmt.Sprintf("xid %d", e.Xid)
		}
		before := slices.Clone(devices[i].Events)
		at := slices.IndexFunc(before, func(h Happened) bool { return h.Kind == kind })
		switch {
		case at >= 0:
			before[at].Times += max(e.Count, 1)
			if suspect(Happened{Effect: e.Effect, Next: e.Next}) { // keep the effects of the worst event
				before[at].Effect, before[at].Next = e.Effect, e.Next
			}
		case len(before) < mostOf:
			before = append(before, Happened{Kind: kind, Effect: e.Effect, Next: e.Next, Times: max(e.Count, 1)})
		}
		devices[i].Events = before
	}
	return devices
}

// meant returns the index of the device that of refers to, or -1 if there is none.
func meant(devices []Device, of *check.Device) int {
	if of == nil {
		return -1
	}
	card, _, _ := strings.Cut(of.Name, " ") // for "mlx4_0 port 2"
	return slices.IndexFunc(devices, func(d Device) bool {
		switch {
		case of.UUID != "":
			return d.ID == of.UUID
		case card != "":
			return !d.gpu() && d.Name == card
		case of.Bus != "":
			return d.gpu() && d.Bus == of.Bus
		default:
			return d.gpu() && d.Index == of.Index
		}
	})
}

// suspect reports whether an event is a sign of a faulty device.
func suspect(h Happened) bool { return h.Effect == gpu.EffectFatal || h.Next == gpu.NextUnfit }

// Suspects returns the suspicions that a run's observations give rise to. A finding with the same
// text as in the previous run is no new suspicion, for example for a card without a cable or a
// counter that does not change. The checks report it each time anyway.
func (r Record) Suspects(run string, at time.Time, devices []Device) (found []Suspicion) {
	add := func(d Device, kind, what string) {
		found = append(found, Suspicion{Run: run, At: at, Device: d.ID, Kind: kind, What: what})
	}
	for _, d := range devices {
		was, _ := r.device(d.ID)
		for _, f := range d.Findings {
			said := slices.ContainsFunc(was.Findings, func(w Finding) bool { return w.ID == f.ID && w.Observed == f.Observed })
			if !said && f.Class == check.Node && slices.Contains(hardware, f.ID) {
				add(d, f.ID, f.Observed)
			}
		}
		for _, h := range d.Events {
			if suspect(h) {
				add(d, h.Kind, times(h.Times))
			}
		}
		if c := d.Course; c != nil && c.Grown.LinkDowns != nil && *c.Grown.LinkDowns >= linkFlaps {
			add(d, linkDown, times(*c.Grown.LinkDowns))
		}
	}
	for _, d := range throttledAlone(devices) {
		add(d, throttled, d.Course.share())
	}
	return distinct(found, Suspicion.key)
}

// Like reports whether both suspicions are of the same run, device and kind.
func (s Suspicion) Like(other Suspicion) bool { return s.key() == other.key() }

// Again returns the suspicions that an earlier run had as well, for the same device and of the same
// kind, with the evidence as text. The next job should then avoid the device.
func (r Record) Again(found []Suspicion, devices []Device) (again []News) {
	for _, s := range found {
		i := slices.IndexFunc(r.Suspicions, func(was Suspicion) bool {
			return was.Device == s.Device && was.Kind == s.Kind && was.Run != s.Run
		})
		d := slices.IndexFunc(devices, func(d Device) bool { return d.ID == s.Device })
		if i < 0 || d < 0 {
			continue
		}
		was := r.Suspicions[i]
		again = append(again, News{Device: devices[d].Device(), What: fmt.Sprintf("%s: %s, and in run %s of %s: %s",
			s.Kind, s.What, was.Run, was.At.Format(time.DateOnly), was.What)})
	}
	return again
}

// Late returns the suspicions that the last run detected only at its end, too late to report the
// node as bad itself.
func (r Record) Late() []Suspicion {
	return slices.DeleteFunc(slices.Clone(r.Suspicions), func(s Suspicion) bool {
		return s.Kind != throttled && s.Kind != linkDown || s.Run != r.Runs[0]
	})
}
