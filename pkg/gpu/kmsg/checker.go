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
		remedy := ""
		switch {
		case errors.Is(err, fs.ErrPermission):
			remedy = ": needs CAP_SYSLOG, or kernel.dmesg_restrict=0, and /dev/kmsg in the container"
		case errors.Is(err, fs.ErrNotExist):
			remedy = ": in a container, add it, for example with --device=/dev/kmsg"
		}
		sheet.AddSkip(err.Error() + remedy)
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
		offTheBus := Event{Kind: KindXid, Number: xidOffTheBus, Bus: s.Bus}
		switch {
		case s.Kind == KindLost && slices.ContainsFunc(log.Events, func(e CountedEvent) bool { return e.withoutDetail() == offTheBus }):
			// It is already reported as an Xid.
		case !bad:
			lesser = append(lesser, s)
		case s.Count > 1:
			woes = addToProblems(woes, s, fmt.Sprintf("%s, %d times, the last %s", what, s.Count, formatAge(now-s.Since)), action)
		default:
			woes = addToProblems(woes, s, what+", "+formatAge(now-s.Since), action)
		}
	}
	if len(woes) == 0 {
		covered := "in the kernel log, whose oldest record is from " + formatAge(now-log.Oldest)
		if log.Complete {
			covered = fmt.Sprintf("since boot (%s)", formatRounded(now))
		}
		sheet.AddPass("no serious errors " + covered + lesserEventsText(lesser))
		return
	}
	// Report fatal problems first. They fail the check in strict mode.
	order := map[bool]int{true: 0, false: 1}
	slices.SortStableFunc(woes, func(a, b *problem) int { return order[a.fatal] - order[b.fatal] })
	for _, w := range woes[:min(len(woes), maxFindings)] {
		f := addWarning(sheet, textutil.JoinLimited(w.texts, maxEventsPerDevice, "; "), w.action)
		f.Device, f.Strict = &w.device, w.fatal
	}
	if more := woes[min(len(woes), maxFindings):]; len(more) > 0 {
		f := addWarning(sheet, fmt.Sprintf("and %d more, the first on %s", len(more), more[0].device), "drain the node, and see the kernel log (dmesg)")
		f.Strict = slices.ContainsFunc(more, func(w *problem) bool { return w.fatal })
	}
}

// addWarning adds a warning about a past event, which the present job has not caused.
func addWarning(sheet *check.FindingBuilder, observed, action string) *check.Finding {
	return sheet.AddWarning(check.ClassNode, observed, "none since boot", "the cause may be another job; unless already fixed, "+action)
}

// addToProblems adds an event to the problems. There is one problem for each device and kind.
func addToProblems(woes []*problem, s CountedEvent, said, action string) []*problem {
	device := check.Device{Index: -1, Bus: s.Bus}
	switch s.Kind { // a device other than a GPU is given a name
	case KindSXid:
		device.Name = "NVSwitch " + s.Bus
	case KindAER:
		device.Name = "PCIe " + s.Bus
	}
	at := slices.IndexFunc(woes, func(w *problem) bool { return w.device == device && w.kind == s.Kind })
	if at < 0 {
		at, woes = len(woes), append(woes, &problem{device: device, kind: s.Kind, action: action})
	}
	w := woes[at]
	w.texts, w.fatal = append(w.texts, said), w.fatal || s.Kind != KindAER || s.Severity == Fatal
	return woes
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
