package kmsg

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bringupd/bringupd/internal/textutil"
	"github.com/bringupd/bringupd/pkg/check"
)

// CheckID is the ID of the check.
const CheckID = "host.kernel"

// Checker is the check of the kernel log since boot. Past events do not fail a node: the problem
// may have been fixed, and other jobs have run since then.
type Checker struct {
	Root string // directory that contains /dev; empty: /
	// ClassifyXid classifies an Xid with the given severity: it returns the meaning, the operator's
	// next action, and whether the GPU is unusable until then.
	ClassifyXid func(xid int, severity string) (meaning, action string, bad bool)
}

// Attributes returns nil: nodes are not compared by their events.
func (*Checker) Attributes() []check.Attribute { return nil }

// Inspect reads the log once, within 2 s. It returns one finding for each device and kind of event
// that matters, or a single one if nothing matters.
func (p *Checker) Inspect(context.Context, func([]check.Finding)) []check.Finding {
	sheet := check.FindingBuilder{Template: check.Finding{ID: CheckID, Source: logPath(p.Root)}}
	log, err := ReadLog(p.Root)
	if err != nil {
		sheet.AddSkip(explainReadError(err))
		return sheet.Findings
	}
	var now unix.Timespec
	// Get the time since boot. According to its documentation the log uses the monotonic clock. In
	// fact it uses local_clock (kernel/printk/printk.c), which starts together with the monotonic
	// clock but drifts.
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &now); err != nil {
		sheet.AddSkip(fmt.Sprintf("cannot determine the age of kernel messages: %v", err))
		return sheet.Findings
	}
	p.addFindings(&sheet, log, time.Duration(now.Nano()))
	return sheet.Findings
}

// explainReadError returns the reason why the log cannot be read, and a remedy.
func explainReadError(err error) string {
	switch {
	case errors.Is(err, fs.ErrPermission):
		return err.Error() + ": needs CAP_SYSLOG, or kernel.dmesg_restrict=0, and /dev/kmsg in the container"
	case errors.Is(err, fs.ErrNotExist):
		return err.Error() + ": in a container, add it, for example with --device=/dev/kmsg"
	default:
		return err.Error()
	}
}

const (
	maxFindings        = 8 // maximum number of devices with a finding of their own: the GPUs of a node
	maxEventsPerDevice = 3 // maximum number of events in the finding of a device
)

// problem is a problem of a device that needs an operator.
type problem struct {
	device check.Device
	kind   Kind
	texts  []string // descriptions of the events, newest first
	action string   // for the newest event
	fatal  bool
}

// addFindings adds the findings about the log. now is the time since boot.
func (p *Checker) addFindings(sheet *check.FindingBuilder, log Log, now time.Duration) {
	// Separate the events that need an operator from lesser ones.
	var woes []*problem
	var lesser []CountedEvent
	for _, s := range log.Events {
		what, action, bad := p.describeEvent(s.Event)
		switch {
		case s.Kind == KindLost && log.hasEvent(Event{Kind: KindXid, Number: xidOffTheBus, Bus: s.Bus}): // already reported as an Xid
		case !bad:
			lesser = append(lesser, s)
		default:
			woes = addToProblems(woes, s, what+frequencyText(s, now), action)
		}
	}
	if len(woes) == 0 {
		sheet.AddPass("no serious errors " + coverageText(log, now) + lesserEventsText(lesser))
		return
	}
	// Report fatal problems first. They fail the check in strict mode.
	slices.SortStableFunc(woes, func(a, b *problem) int {
		switch {
		case a.fatal == b.fatal:
			return 0
		case a.fatal:
			return -1
		default:
			return 1
		}
	})
	for _, w := range woes[:min(len(woes), maxFindings)] {
		f := addWarning(sheet, textutil.JoinLimited(w.texts, maxEventsPerDevice, "; "), w.action)
		f.Device, f.Strict = &w.device, w.fatal
	}
	if more := woes[min(len(woes), maxFindings):]; len(more) > 0 {
		f := addWarning(sheet, fmt.Sprintf("and %d more, the first on %s", len(more), more[0].device), "drain the node, and see the kernel log (dmesg)")
		f.Strict = slices.ContainsFunc(more, func(w *problem) bool { return w.fatal })
	}
}

// hasEvent reports whether the log has an event of the same kind, number, device and severity.
func (log Log) hasEvent(e Event) bool {
	return slices.ContainsFunc(log.Events, func(s CountedEvent) bool { return s.withoutDetail() == e })
}

// addWarning adds a warning about a past event, which the present job has not caused.
func addWarning(sheet *check.FindingBuilder, observed, action string) *check.Finding {
	return sheet.AddWarning(check.ClassNode, observed, "none since boot", "the cause may be another job; unless already fixed, "+action)
}

// addToProblems adds an event to the problems. There is one problem for each device and kind.
func addToProblems(woes []*problem, s CountedEvent, said, action string) []*problem {
	device := eventDevice(s.Event)
	at := slices.IndexFunc(woes, func(w *problem) bool { return w.device == device && w.kind == s.Kind })
	if at < 0 {
		at, woes = len(woes), append(woes, &problem{device: device, kind: s.Kind, action: action})
	}
	w := woes[at]
	w.texts, w.fatal = append(w.texts, said), w.fatal || s.Kind != KindAER || s.Severity == Fatal
	return woes
}

// eventDevice returns the device of an event. Devices other than GPUs are given a name.
func eventDevice(e Event) check.Device {
	switch e.Kind {
	case KindSXid:
		return check.Device{Index: -1, Name: "NVSwitch " + e.Bus, Bus: e.Bus}
	case KindAER:
		return check.Device{Index: -1, Name: "PCIe " + e.Bus, Bus: e.Bus}
	default:
		return check.Device{Index: -1, Bus: e.Bus}
	}
}

// xidOffTheBus is the Xid of a GPU that has fallen off the bus.
const xidOffTheBus = 79

// describeEvent returns a description of the event, the operator's action, and whether the event
// matters. A PCIe error that was corrected needs no action; drivers/pci/pcie/aer.c takes none
// either.
func (p *Checker) describeEvent(e Event) (what, action string, bad bool) {
	switch e.Kind {
	case KindXid, KindLost:
		number := e.Number
		if e.Kind == KindLost {
			number = xidOffTheBus
		}
		meaning, action, bad := p.ClassifyXid(number, e.Severity)
		if e.Kind == KindLost {
			return "lost: " + meaning, action, true
		}
		return fmt.Sprintf("Xid %d (%s)", e.Number, meaning), action, bad
	case KindSXid:
		// For fatal SXids, NVIDIA's guide to the fabric manager recommends to reset GPUs and NVSwitches,
		// or to reboot.
		return withDetail(fmt.Sprintf("SXid %d", e.Number), e.Detail), "drain the node, and reset all its GPUs and NVSwitches, or reboot it", e.Severity == Fatal
	default:
		what = "an uncorrected PCIe error"
		if e.Severity == Fatal {
			what = "a fatal PCIe error"
		}
		return withDetail(what, e.Detail), "test the device, and check its slot, riser and cables (lspci -tv shows the devices behind it)", e.Severity != Corrected
	}
}

// withDetail appends the detail in parentheses, if there is one.
func withDetail(what, detail string) string {
	if detail == "" {
		return what
	}
	return what + " (" + detail + ")"
}

// frequencyText returns how often the event has occurred, and how long ago the last time was.
func frequencyText(s CountedEvent, now time.Duration) string {
	if s.Count == 1 {
		return ", " + formatAge(now-s.Since)
	}
	return fmt.Sprintf(", %d times, the last %s", s.Count, formatAge(now-s.Since))
}

// formatAge returns a rounded duration with "ago". It is imprecise because the clocks may differ by
// minutes after some weeks.
func formatAge(d time.Duration) string {
	if d < 2*time.Second {
		return "just now"
	}
	return formatRounded(d) + " ago"
}

// formatRounded formats a duration in its largest useful unit.
func formatRounded(d time.Duration) string {
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

// coverageText returns the period that the log covers, as text.
func coverageText(log Log, now time.Duration) string {
	if log.Complete {
		return fmt.Sprintf("since boot (%s)", formatRounded(now))
	}
	return "in the kernel log, whose oldest record is from " + formatAge(now-log.Oldest)
}

// lesserEventsText returns the counts of the events that do not matter, as text.
func lesserEventsText(lesser []CountedEvent) string {
	counts := map[string]int{}
	for _, s := range lesser {
		switch s.Kind {
		case KindXid:
			counts[fmt.Sprintf("Xid %d", s.Number)] += s.Count
		case KindSXid:
			counts["non-fatal SXids"] += s.Count
		default:
			counts["corrected PCIe errors"] += s.Count
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
	return "; " + textutil.JoinLimited(said, 2*maxEventsPerDevice, ", ")
}
