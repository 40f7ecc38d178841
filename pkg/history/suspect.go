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

// hardware are the checks that speak of a device itself. The others speak of how it is set up, or of who uses it: that
// comes again in every job until somebody changes it, and says nothing of the device.
var hardware = []string{
	"gpu.clocks", "gpu.count", "gpu.ecc_corr", "gpu.ecc_unc", "gpu.fabric", "gpu.nvlink", "gpu.pcie", "gpu.recovery", "gpu.remap",
	"gpu.retired", "net.ib", "net.ib_err",
}

// The kinds of the suspicions that may be seen no sooner than at a run's end.
const (
	throttled = "throttled"
	linkDown  = "link down"
)

// linkFlaps is how often a link goes down in a run that is to be suspected: gpud's measure of one that flaps, within 12 h
// (components/infiniband). A switch that is rebooted takes the links of all its nodes down, once, and no card is to blame.
const linkFlaps = 3

// WithFindings gives the devices what the checks have said that is wrong with them.
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

// WithEvents gives the devices what befell them. What is the program's own affair, or means nothing, is left out.
func WithEvents(devices []Device, events []gpu.Judged) []Device {
	devices = slices.Clone(devices)
	for _, e := range events {
		device := e.Device()
		i := meant(devices, &device)
		if i < 0 || e.Effect == gpu.EffectApp || e.Effect == gpu.EffectIgnore {
			continue
		}
		kind := string(e.Kind)
		if e.Kind == gpu.KindXid {
			kind = fmt.Sprintf("xid %d", e.Xid)
		}
		before := slices.Clone(devices[i].Events)
		at := slices.IndexFunc(before, func(h Happened) bool { return h.Kind == kind })
		switch {
		case at >= 0:
			before[at].Times += max(e.Count, 1)
			if suspect(Happened{Effect: e.Effect, Next: e.Next}) { // as the worst of them was
				before[at].Effect, before[at].Next = e.Effect, e.Next
			}
		case len(before) < mostOf:
			before = append(before, Happened{Kind: kind, Effect: e.Effect, Next: e.Next, Times: max(e.Count, 1)})
		}
		devices[i].Events = before
	}
	return devices
}

// meant returns the place of the device that somebody speaks of; -1 where there is none.
func meant(devices []Device, of *check.Device) int {
	if of == nil {
		return -1
	}
	card, _, _ := strings.Cut(of.Name, " ") // "mlx4_0 port 2"
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

func suspect(h Happened) bool { return h.Effect == gpu.EffectFatal || h.Next == gpu.NextUnfit }

// Suspects are what a run has seen of devices that makes them suspicious, where it is new. What a check says of a device
// in the same words as in the run before is no second thing: a card without a cable, a count that stands still. The
// checks tell of it each time.
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

// Like tells whether another suspicion is the same, of the same device and run.
func (s Suspicion) Like(other Suspicion) bool { return s.key() == other.key() }

// Again has those of the suspicions of a run whose like an earlier one had, of the same device, with the evidence in
// words. So much of a device means that the next job is better off elsewhere.
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

// Late are the suspicions that the last run has had at its end, when it was late for its own bad nodes.
func (r Record) Late() []Suspicion {
	return slices.DeleteFunc(slices.Clone(r.Suspicions), func(s Suspicion) bool {
		return s.Kind != throttled && s.Kind != linkDown || s.Run != r.Runs[0]
	})
}
