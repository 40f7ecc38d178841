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

// ID is that of the check.
const ID = "host.kernel"

// Part is the check of what the kernel has said since boot. What is past fails no node: it may have been mended, and
// other jobs have run since.
type Part struct {
	Root string // where /dev is; empty: /
	// Judge says what an Xid of that severity means, what an operator does about it, and whether a GPU is of no use
	// until then.
	Judge func(xid int, severity string) (meaning, action string, bad bool)
}

// Traits are none: what befell a node is its own.
func (*Part) Traits() []check.Trait { return nil }

// Look reads the log once, within 2 s. There is one finding for each device and kind of event that matters, or one
// where there is none.
func (p *Part) Look(context.Context, func([]check.Finding)) []check.Finding {
	sheet := check.Sheet{Each: check.Finding{ID: ID, Source: path(p.Root)}}
	log, err := Read(p.Root)
	if err != nil {
		sheet.Skip(refusal(err))
		return sheet.Found
	}
	var now unix.Timespec
	// By its documentation the log's clock is the monotonic one. It is local_clock (kernel/printk/printk.c), which begins
	// with it and is not kept right as that is.
	if err := unix.ClockGettime(unix.CLOCK_MONOTONIC, &now); err != nil {
		sheet.Skip(fmt.Sprintf("cannot tell how long ago the kernel has said what it says: %v", err))
		return sheet.Found
	}
	p.judge(&sheet, log, time.Duration(now.Nano()))
	return sheet.Found
}

// refusal says why the log can't be read, and what helps.
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
	mostFindings = 8 // devices that are told of: a node's GPUs
	mostOfDevice = 3 // things that are told of one
)

// woe is what befell a device that somebody should see to.
type woe struct {
	device check.Device
	kind   Kind
	said   []string // the newest first
	action string   // about the newest
	fatal  bool
}

// judge writes down what the log tells, now being the time since boot.
func (p *Part) judge(sheet *check.Sheet, log Log, now time.Duration) {
	var woes []*woe
	var lesser []Seen
	for _, s := range log.Seen {
		what, action, bad := p.meaning(s.Event)
		switch {
		case s.Kind == KindLost && log.has(Event{Kind: KindXid, Number: offTheBus, Bus: s.Bus}): // the same, told twice
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

// has tells whether the log has an event of that kind, number, device and severity.
func (log Log) has(e Event) bool {
	return slices.ContainsFunc(log.Seen, func(s Seen) bool { return s.alike() == e })
}

// warn tells of the past without blaming the job that looks at it.
func warn(sheet *check.Sheet, observed, action string) *check.Finding {
	return sheet.Warn(check.Node, observed, "none since boot", "whichever job it was: if nobody has seen to it since, "+action)
}

// add adds what was seen to the woes, one for each device and kind.
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

// meaning says what an event is, what to do about it, and whether it matters. An error that PCIe has corrected needs
// nobody: drivers/pci/pcie/aer.c does nothing about it either.
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
		// Of the fatal ones NVIDIA's guide to the fabric manager says to reset GPUs and NVSwitches, or to reboot.
		return worded(fmt.Sprintf("SXid %d", e.Number), e.Detail), "drain the node, and reset all its GPUs and NVSwitches, or reboot it", e.Severity == Fatal
	default:
		what = "an uncorrected error of PCIe"
		if e.Severity == Fatal {
			what = "a fatal error of PCIe"
		}
		return worded(what, e.Detail), "test the device, and look at its slot, riser and cables (lspci -tv shows what is behind it)", e.Severity != Corrected
	}
}

func worded(what, detail string) string {
	if detail == "" {
		return what
	}
	return what + " (" + detail + ")"
}

// often says how often, and how long ago.
func often(s Seen, now time.Duration) string {
	if s.Count == 1 {
		return ", " + ago(now-s.Since)
	}
	return fmt.Sprintf(", %d times, the last %s", s.Count, ago(now-s.Since))
}

// ago is how long ago something was, in few words: the clocks may be minutes apart after some weeks.
func ago(d time.Duration) string {
	if d < 2*time.Second {
		return "just now"
	}
	return roughly(d) + " ago"
}

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

// reach says for how long nothing was seen.
func reach(log Log, now time.Duration) string {
	if log.Whole {
		return fmt.Sprintf("since boot (%s)", roughly(now))
	}
	return "in what is left of the kernel's log, which begins " + ago(now-log.From)
}

// also counts what does not matter.
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
