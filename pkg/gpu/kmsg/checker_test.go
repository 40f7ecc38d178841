package kmsg

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/bringupd/bringupd/pkg/check"
)

// some classifies a few Xids and treats all others as caused by a program.
func some(xid int, severity string) (meaning, action string, bad bool) {
	switch xid {
	case 79:
		return "off the bus", "switch it off and on", true
	case 48:
		return "a memory error", "reset the GPU", true
	default:
		return fmt.Sprintf("number %d", xid), "nothing", severity == Fatal
	}
}

const (
	gpuA, gpuB = "0000:3b:00.0", "0000:5e:00.0"
	uptime     = 72 * time.Hour
)

func at(kind Kind, number int, bus, severity string, count int, age time.Duration) CountedEvent {
	return CountedEvent{Event{Kind: kind, Number: number, Bus: bus, Severity: severity, Since: uptime - age}, count}
}

// TestJudge verifies the findings of each device: "*" marks those that are failures in strict mode.
func TestJudge(t *testing.T) {
	t.Parallel()
	words := at(KindSXid, 20034, gpuA, Fatal, 4, time.Hour)
	words.Detail = "Link 48 LTSSM Fault Up"
	var many []CountedEvent
	for i := range 12 {
		many = append(many, at(KindXid, 79, fmt.Sprintf("0000:%02x:00.0", i), "", 1, time.Minute))
	}
	for _, tc := range []struct {
		name string
		log  Log
		want []string
	}{
		{"nothing", Log{Complete: true}, []string{"PASS no serious errors since boot (3 days)"}},
		{"nothing, and what was before is gone", Log{Oldest: uptime - time.Hour},
			[]string{"PASS no serious errors in the kernel log, whose oldest record is from 60 min ago"}},
		{"nothing that matters", Log{Complete: true, Events: []CountedEvent{
			at(KindXid, 13, gpuA, "", 2, 0), at(KindXid, 13, gpuB, "", 1, 0), at(KindXid, 145, gpuB, Nonfatal, 1, 0),
			at(KindAER, 0, gpuA, Corrected, 300, 0), at(KindSXid, 12028, gpuB, Nonfatal, 7, 0)}},
			[]string{"PASS no serious errors since boot (3 days); Xid 13: 3, Xid 145: 1, corrected PCIe errors: 300, non-fatal SXids: 7"}},
		{"a GPU", Log{Complete: true, Events: []CountedEvent{at(KindXid, 48, gpuA, "", 1, 3*time.Hour), at(KindXid, 13, gpuA, "", 1, 3*time.Hour)}},
			[]string{"WARN* GPU 0000:3b:00.0: Xid 48 (a memory error), 3 h ago: reset the GPU"}},
		{"several of a GPU, the newest first", Log{Events: []CountedEvent{
			at(KindXid, 79, gpuA, "", 1, time.Second), at(KindXid, 149, gpuA, Fatal, 20, 90*time.Second), at(KindXid, 48, gpuA, "", 3, 26*time.Hour), at(KindXid, 7, gpuA, Fatal, 1, 50*time.Hour)}},
			[]string{"WARN* GPU 0000:3b:00.0: Xid 79 (off the bus), just now; Xid 149 (number 149), 20 times, the last 90 s ago; Xid 48 (a memory error), 3 times, the last 26 h ago; and 1 more: switch it off and on"}},
		{"lost, and named", Log{Events: []CountedEvent{at(KindLost, 0, gpuA, "", 1, time.Hour), at(KindXid, 79, gpuA, "", 1, time.Hour)}},
			[]string{"WARN* GPU 0000:3b:00.0: Xid 79 (off the bus), 60 min ago: switch it off and on"}},
		{"lost, and another named", Log{Events: []CountedEvent{at(KindXid, 79, gpuB, "", 1, time.Hour), at(KindLost, 0, gpuA, "", 2, time.Hour)}},
			[]string{"WARN* GPU 0000:5e:00.0: Xid 79 (off the bus), 60 min ago: switch it off and on", "WARN* GPU 0000:3b:00.0: lost: off the bus, 2 times, the last 60 min ago: switch it off and on"}},
		{"a switch", Log{Events: []CountedEvent{words}},
			[]string{"WARN* NVSwitch 0000:3b:00.0: SXid 20034 (Link 48 LTSSM Fault Up), 4 times, the last 60 min ago: drain the node, and reset all its GPUs and NVSwitches, or reboot it"}},
		{"PCIe, what is fatal first", Log{Events: []CountedEvent{at(KindAER, 0, gpuA, Nonfatal, 1, time.Hour), at(KindAER, 0, gpuB, Fatal, 1, 2*time.Hour), at(KindAER, 0, "0000:00:01.0", "", 1, 3*time.Hour)}},
			[]string{
				"WARN* PCIe 0000:5e:00.0: a fatal PCIe error, 2 h ago: test the device, and check its slot, riser and cables (lspci -tv shows the devices behind it)",
				"WARN PCIe 0000:3b:00.0: an uncorrected PCIe error, 60 min ago: test the device, and check its slot, riser and cables (lspci -tv shows the devices behind it)",
				"WARN PCIe 0000:00:01.0: an uncorrected PCIe error, 3 h ago: test the device, and check its slot, riser and cables (lspci -tv shows the devices behind it)",
			}},
		{"the kernel's clock is ahead", Log{Events: []CountedEvent{at(KindXid, 79, gpuA, "", 1, -time.Hour)}},
			[]string{"WARN* GPU 0000:3b:00.0: Xid 79 (off the bus), just now: switch it off and on"}},
	} {
		sheet := check.FindingBuilder{Template: check.Finding{ID: CheckID, Source: "/dev/kmsg"}}
		(&Checker{ClassifyXid: some}).addFindings(&sheet, tc.log, uptime)
		if got := said(t, sheet.Findings); !slices.Equal(got, tc.want) {
			t.Errorf("%s:\n%s\nwant\n%s", tc.name, strings.Join(got, "\n"), strings.Join(tc.want, "\n"))
		}
	}
	sheet := check.FindingBuilder{Template: check.Finding{ID: CheckID, Source: "/dev/kmsg"}}
	(&Checker{ClassifyXid: some}).addFindings(&sheet, Log{Events: many}, uptime)
	got := said(t, sheet.Findings)
	if want := "WARN* and 4 more, the first on GPU 0000:08:00.0: drain the node, and see the kernel log (dmesg)"; len(got) != maxFindings+1 || got[maxFindings] != want {
		t.Errorf("of 12 GPUs:\n%s", strings.Join(got, "\n"))
	}
}

// said returns the texts of findings, each of which must be complete.
func said(t *testing.T, found []check.Finding) (all []string) {
	t.Helper()
	for _, f := range found {
		wrong := !f.IsQuiet()
		if f.ID != CheckID || f.Source == "" || wrong != (f.Class == check.ClassNode) || wrong && f.Expected != "none since boot" {
			t.Errorf("%+v lacks something", f)
		}
		text := string(f.Verdict)
		if f.Strict {
			text += "*"
		}
		if f.Device != nil {
			text += " " + f.Device.String() + ":"
		}
		text += " " + f.Observed
		if wrong {
			hint, blames := strings.CutPrefix(f.Hint, "the cause may be another job; unless already fixed, ")
			if !blames {
				t.Errorf("%+v blames the job", f)
			}
			text += ": " + hint
		}
		all = append(all, text)
	}
	return all
}

func TestLook(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name, text, want string
	}{
		{"well", first, "PASS no serious errors since boot ("},
		{"not well", first + fell, "WARN* GPU 0000:3b:00.0: Xid 79 (off the bus), "},
		{"empty", "", "SKIP cannot read the kernel log "},
	} {
		got := said(t, (&Checker{Root: standing(t, tc.text), ClassifyXid: some}).Inspect(t.Context(), nil))
		if len(got) != 1 || !strings.HasPrefix(got[0], tc.want) {
			t.Errorf("%s: %q, want %q…", tc.name, got, tc.want)
		}
	}
	if got := said(t, (&Checker{Root: empty(t), ClassifyXid: some}).Inspect(t.Context(), nil)); len(got) != 1 || !strings.HasSuffix(got[0], "no such file or directory: in a container, add it, for example with --device=/dev/kmsg") {
		t.Errorf("without a log: %q", got)
	}
}

func TestLookIsRefused(t *testing.T) {
	t.Parallel()
	root := standing(t, first)
	if err := os.Chmod(logPath(root), 0); err != nil {
		t.Fatal(err)
	}
	unprivileged(t, func() {
		got := said(t, (&Checker{Root: root, ClassifyXid: some}).Inspect(t.Context(), nil))
		if want := "permission denied: needs CAP_SYSLOG, or kernel.dmesg_restrict=0, and /dev/kmsg in the container"; len(got) != 1 || !strings.HasPrefix(got[0], "SKIP ") || !strings.HasSuffix(got[0], want) {
			t.Errorf("%q, want a SKIP that ends with %q", got, want)
		}
	})
}
