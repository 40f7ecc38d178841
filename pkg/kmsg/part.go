package kmsg

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bringupd/bringupd/pkg/check"
	"github.com/bringupd/bringupd/pkg/prose"
)

// ID is the ID of the check.
const ID = "host.kernel"

// Part is the check of the kernel log since boot. Past events do not fail a node: the problem may
// have been fixed, and other jobs have run since then.
type Part struct {
	Root string // directory that contains /dev; empty: /
	// Judge classifies an Xid with the given severity: it returns the meaning, the operator's next
	// action, and whether the GPU is unusable until then.
	Judge func(xid int, severity string) (meaning, action string, bad bool)
}

// Traits returns nil: nodes are not compared by their events.
func (*Part) Traits() []check.Trait { return nil }

// Look reads the log once, within 2 s. It returns one finding for each device and kind of event
// that matters, or a single one if nothing matters.
func (p *Part) Look(context.Context, func([]check.Finding)) []check.Finding {
	sheet := check.Sheet{Each: check.Finding{ID: ID, Source: path(p.Root)}}
	log, err := Read(p.Root)
	if err != nil {
		sheet.Skip(refusal(err))
		return sheet.Found
	}
	var now unix.Timespec
	// Get the time since boot. According to its documentation the log uses the monotonic clock. In
	// fact it uses local_clock (kernel/printk/printk.c), which starts together with the monotonic
	// clock but drifts.
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &now); err != nil {
		sheet.Skip(fmt.Sprintf("cannot tell how long ago the kernel has said what it says: %v", err))
		return sheet.Found
	}
	p.judge(&sheet, log, time.Duration(now.Nano()))
	return sheet.Found
}

// refusal returns the reason why the log cannot be read, and a remedy.
func refusal(err error) string {
	switch {
	case errors.Is(err, fs.ErrPermission):
		return err.Error() + ": it takes CAP_SYSLOG, or kernel.dmesg_restrict=0 and a container that is given it"
	case errors.Is(err, fs.ErrNotExist):
		return err.Error() + ": a container has it where it is given it, as by --device=/dev/kmsg"
	default:
		return err.Error()
	}
}

const (
	mostFindings = 8 // maximum number of devices with a finding of their own: the GPUs of a node
	mostOfDevice = 3 // maximum number of events in the finding of a device
)

// woe is a problem of a device that needs an operator.
type woe struct {
	device check.Device
	kind   Kind
	said   []string // descriptions of the events, newest first
	action string   // for the newest event
	fatal  bool
}

// judge adds the findings about the log. now is the time since boot.
func (p *Part) judge(sheet *check.Sheet, log Log, now time.Duration) {
	// Separate the events that need an operator from lesser ones.
	var woes []*woe
	var lesser []Seen
	for _, s := range log.Seen {
		what, action, bad := p.meaning(s.Event)
		switch {
		case s.Kind == KindLost && log.has(Event{Kind: KindXid, Number: offTheBus, Bus: s.Bus}): // already reported as an Xid
		case !bad:
			lesser = append(lesser, s)
		default:
			woes = add(woes, s, what+often(s, now), action)
		}
	}
	if len(woes) == 0 {
		sheet.Pass("nothing that matters " + reach(log, now) + also(lesser))
		return
	}
	// Report fatal problems first. They fail the check in strict mode.
	slices.SortStableFunc(woes, func(a, b *woe) int {
		switch {
		case a.fatal == b.fatal:
			return 0
		case a.fatal:
			return -1
		default:
			return 1
		}
	})
	for _, w := range woes[:min(len(woes), mostFindings)] {
		f := warn(sheet, prose.List(w.said, mostOfDevice, "; "), w.action)
		f.Device, f.Strict = &w.device, w.fatal
	}
	if more := woes[min(len(woes), mostFindings):]; len(more) > 0 {
		f := warn(sheet, fmt.Sprintf("and %d more, as of %s", len(more), more[0].device), "drain the node, and look at the kernel's log (dmesg)")
		f.Strict = slices.ContainsFunc(more, func(w *woe) bool { return w.fatal })
	}
}

// has reports whether the log has an event of the same kind, number, device and severity.
func (log Log) has(e Event) bool {
	return slices.ContainsFunc(log.Seen, func(s Seen) bool { return s.alike() == e })
}

// warn adds a warning about a past event, which the present job has not caused.
func warn(sheet *check.Sheet, observed, action string) *check.Finding {
	return sheet.Warn(check.Node, observed, "none since boot", "whichever job it was: if nobody has seen to it since, "+action)
}

// add adds an event to the problems. There is one problem for each device and kind.
func add(woes []*woe, s Seen, said, action string) []*woe {
	device := deviceOf(s.Event)
	at := slices.IndexFunc(woes, func(w *woe) bool { return w.device == device && w.kind == s.Kind })
	if at < 0 {
		at, woes = len(woes), append(woes, &woe{device: device, kind: s.Kind, action: action})
	}
	w := woes[at]
	w.said, w.fatal = append(w.said, said), w.fatal || s.Kind != KindAER || s.Severity == Fatal
	return woes
}

// deviceOf returns the device of an event. Devices other than GPUs are given a name.
func deviceOf(e Event) check.Device {
	switch e.Kind {
	case KindSXid:
		return check.Device{Index: -1, Name: "NVSwitch " + e.Bus, Bus: e.Bus}
	case KindAER:
		return check.Device{Index: -1, Name: "PCIe " + e.Bus, Bus: e.Bus}
	default:
		return check.Device{Index: -1, Bus: e.Bus}
	}
}

// offTheBus is the Xid of a GPU that has fallen off the bus.
const offTheBus = 79

// meaning returns a description of the event, the operator's action, and whether the event matters.
// A PCIe error that was corrected needs no action; drivers/pci/pcie/aer.c takes none either.
func (p *Part) meaning(e Event) (what, action string, bad bool) {
	switch e.Kind {
	case KindXid, KindLost:
		number := e.Number
		if e.Kind == KindLost {
			number = offTheBus
		}
		meaning, action, bad := p.Judge(number, e.Severity)
		if e.Kind == KindLost {
			return "lost: " + meaning, action, true
		}
		return fmt.Sprintf("Xid %d (%s)", e.Number, meaning), action, bad
	case KindSXid:
		// For fatal SXids, NVIDIA's guide to the fabric manager recommends to reset GPUs and NVSwitches,
		// or to reboot.
		return worded(fmt.Sprintf("SXid %d", e.Number), e.Detail), "drain the node, and reset all its GPUs and NVSwitches, or reboot it", e.Severity == Fatal
	default:
		what = "an uncorrected error of PCIe"
		if e.Severity == Fatal {
			what = "a fatal error of PCIe"
		}
		return worded(what, e.Detail), "test the device, and look at its slot, riser and cables (lspci -tv shows what is behind it)", e.Severity != Corrected
	}
}

// worded appends the detail in parentheses, if there is one.
func worded(what, detail string) string {
	if detail == "" {
		return what
	}
	return what + " (" + detail + ")"
}

// often returns how often the event has occurred, and how long ago the last time was.
func often(s Seen, now time.Duration) string {
	if s.Count == 1 {
		return ", " + ago(now-s.Since)
	}
	return fmt.Sprintf(", %d times, the last %s", s.Count, ago(now-s.Since))
}

// ago returns a rounded duration with "ago". It is imprecise because the clocks may differ by
// minutes after some weeks.
func ago(d time.Duration) string {
	if d < 2*time.Second {
		return "just now"
	}
	return roughly(d) + " ago"
}

// roughly formats a duration in its largest useful unit.
func roughly(d time.Duration) string {
	switch {
	case d < 2*time.Minute:
		return fmt.Sprintf("%d s", d/time.Second)
	case d < 2*time.Hour:
		return fmt.Sprintf("%d min", d/time.Minute)
	case d < 48*time.Hour:
		return fmt.Sprintf("%d h", d/time.Hour)
	default:
		return fmt.Sprintf("%d days", d/(24*time.Hour))
	}
}

// reach returns the period that the log covers, as text.
func reach(log Log, now time.Duration) string {
	if log.Whole {
		return fmt.Sprintf("since boot (%s)", roughly(now))
	}
	return "in what is left of the kernel's log, which begins " + ago(now-log.From)
}

// also returns the counts of the events that do not matter, as text.
func also(lesser []Seen) string {
	counts := map[string]int{}
	for _, s := range lesser {
		switch s.Kind {
		case KindXid:
			counts[fmt.Sprintf("Xid %d", s.Number)] += s.Count
		case KindSXid:
			counts["SXids that were not fatal"] += s.Count
		default:
			counts["corrected errors of PCIe"] += s.Count
		}
	}
	var said []string
	for what, n := range counts {
		said = append(said, fmt.Sprintf("%s: %d", what, n))
	}
	if len(said) == 0 {
		return ""
	}
	slices.Sort(said)
	return "; " + prose.List(said, 2*mostOfDevice, ", ")
}
