package kmsg

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/bringupd/bringupd/pkg/pattern"
	"github.com/bringupd/bringupd/pkg/prose"
)

// Kind is the type of an event.
type Kind string

// The kinds of events.
const (
	KindXid  Kind = "xid"  // NVIDIA's driver has reported a numbered error of a GPU
	KindSXid Kind = "sxid" // NVIDIA's driver has reported a numbered error of an NVSwitch
	KindAER  Kind = "aer"  // PCIe Advanced Error Reporting: an error on the path to a device
	KindLost Kind = "lost" // a GPU has fallen off the bus: mostly logged right after Xid 79, sometimes without it
)

// The severities. An event has none if the kernel does not log one.
const (
	Fatal     = "Fatal"
	Nonfatal  = "Nonfatal"
	Corrected = "Corrected" // for PCIe and NVSwitches: no data was lost
)

// Event is one line of the kernel log about a device.
type Event struct {
	Kind     Kind
	Number   int           // number of the Xid or SXid, otherwise 0
	Bus      string        // PCI address as in sysfs: 0000:3b:00.0
	Severity string        // Fatal, Nonfatal, Corrected; empty: unknown
	Detail   string        // the driver's text on one line, without names and IDs of processes
	Since    time.Duration // system uptime at the event, by the kernel's clock
}

// event returns the event that the record describes. Only records of the kernel itself are trusted.
func (r record) event() (Event, bool) {
	if !r.kernel {
		return Event{}, false
	}
	e, is := recognise(r.text)
	e.Since = r.at
	return e, is
}

// address matches a PCI address, with or without domain and function.
const address = `(?:[0-9a-fA-F]{4,8}:)?[0-9a-fA-F]{2}:[0-9a-fA-F]{2}(?:\.[0-7])?`

// severities match the severities in the messages of aer.c. Since Linux 6.x they are "Correctable"
// and "Uncorrectable".
const severities = `Correct(?:ed|able)|Uncorrect(?:ed|able) \((?:Non-)?Fatal\)`

// forms are the patterns of the lines that describe an event. A pattern is anchored at the
// beginning of a record, and covers all parts that could contain text chosen by a user. Other lines
// begin with the name of a process (at most 15 bytes), which may look like one of these patterns.
//
// The lines of NVRM and nvidia-nvswitch are from NVIDIA/open-gpu-kernel-modules:
// src/nvidia/src/kernel/gpu/rc/kernel_rc.c, src/nvidia/arch/nvalloc/unix/src/osinit.c and osapi.c,
// src/common/nvswitch/kernel/inc/common_nvswitch.h. Those of PCIe are from drivers/pci/pcie/aer.c,
// which writes several lines for one error. Here the line with the severity counts or, if the
// firmware handles errors, the last line. The line of the port, which comes first, counts only if
// no other line follows.
var forms = []struct {
	mark string // text that all matching lines contain: a fast test, because most lines have none
	form func() *regexp.Regexp
	read func(parts []string) (Event, bool)
}{
	{"NVRM: Xid", pattern.New(`(?s)^NVRM: Xid \((?:PCI:)?(` + address + `)(?: GPU-I:\d+)?(?: GPU-CI:\d+)?\): (\d{1,5}), ?(.*)$`), xid},
	{"SXid", pattern.New(`(?s)^nvidia-nvswitch\d+: SXid \((?:PCI:)?(` + address + `)\): (\d{1,5}), ?(.*)$`), sxid},
	{"has fallen off the bus", pattern.New(`^NVRM: GPU (?:at )?(?:PCI:)?(` + address + `)(?:: GPU)? has fallen off the bus`), lost},
	{"fallen off the bus", pattern.New(`^NVRM: The NVIDIA GPU (` + address + `)\s+NVRM: \([^)]*\) installed in this system has\s+NVRM: fallen off the bus`), lost},
	{"PCIe Bus Error", pattern.New(`^(\S+) (` + address + `): (?:AER: )?PCIe Bus Error: severity=(` + severities + `), type=([^,]+),`), aer},
	{"no details found", pattern.New(`^(\S+) ` + address + `: AER: (?:Multiple )?(` + severities + `) error message received from (` + address + `) \(no details found\)`), aerNotice},
	{"aer_uncor_severity", pattern.New(`^(\S+) (` + address + `): (?:AER: )?aer_uncor_severity: 0x[0-9a-f]{8}$`), aerFirmware},
}

// recognise returns the event that a text of the kernel describes, or false if it describes none.
func recognise(text string) (Event, bool) {
	for _, f := range forms {
		if !strings.Contains(text, f.mark) {
			continue
		}
		if parts := f.form().FindStringSubmatch(text); parts != nil {
			return f.read(parts)
		}
	}
	return Event{}, false
}

// xidSeverity matches the severity in the Xids of NVLink (144 to 150). The pattern is longer than
// the name of a process, so it cannot match one: "NETIR_LINK_EVT Fatal XC0 i0 Link 08 (0x004505c6
// …".
var xidSeverity = pattern.New(` (Fatal|Nonfatal) XC\d i\d+ Link -?\d+ \(0x`)

// xid returns the event of an Xid line.
func xid(parts []string) (Event, bool) {
	e := Event{Kind: KindXid, Number: number(parts[2]), Bus: normal(parts[1]), Detail: clean(unnamed(parts[3]))}
	if named := xidSeverity().FindStringSubmatch(parts[3]); named != nil {
		e.Severity = named[1]
	}
	return e, true
}

// mostName is the maximum length of a process name on Linux: TASK_COMM_LEN without the final zero.
const mostName = 15

// unnamed removes the process from the text of an Xid: "pid=1234, name=python3, ". The driver does
// not quote the name, which may contain commas, so everything that may be a part of it is removed.
func unnamed(text string) string {
	if pid, rest, found := strings.Cut(text, ", "); found && strings.HasPrefix(pid, "pid=") {
		text = rest
	}
	name, named := strings.CutPrefix(text, "name=")
	if !named {
		return text
	}
	const end = ", "
	at := strings.LastIndex(name[:min(len(name), mostName+len(end))], end)
	if at < 0 {
		return ""
	}
	return name[at+len(end):]
}

// switchSeverities are the severities in messages of nvidia-nvswitch: intr_nvswitch.h
var switchSeverities = map[string]string{"Fatal": Fatal, "Non-fatal": Nonfatal, "Correctable": Corrected}

// sxid returns the event of an SXid line.
func sxid(parts []string) (Event, bool) {
	text := parts[3]
	// This line only continues the previous error: error_nvswitch.c
	if strings.HasPrefix(text, "Severity ") || strings.HasPrefix(text, "Data {") {
		return Event{}, false
	}
	e := Event{Kind: KindSXid, Number: number(parts[2]), Bus: normal(parts[1])}
	word, rest, _ := strings.Cut(text, ", ")
	if e.Severity = switchSeverities[word]; e.Severity != "" {
		text = rest
	}
	e.Detail = clean(text)
	return e, true
}

// lost returns the event of a GPU that has fallen off the bus.
func lost(parts []string) (Event, bool) { return Event{Kind: KindLost, Bus: normal(parts[1])}, true }

// aer returns the event of a PCIe error with a severity.
func aer(parts []string) (Event, bool) {
	return Event{Kind: KindAER, Bus: normal(parts[2]), Severity: ofAER(parts[3]), Detail: clean(parts[1] + ": " + parts[4])}, true
}

// aerNotice returns the event of a PCIe error for which the kernel found no details.
func aerNotice(parts []string) (Event, bool) {
	return Event{Kind: KindAER, Bus: normal(parts[3]), Severity: ofAER(parts[2]), Detail: "no details"}, true
}

// aerFirmware returns the event of a PCIe error that the firmware has handled.
func aerFirmware(parts []string) (Event, bool) {
	return Event{Kind: KindAER, Bus: normal(parts[2]), Detail: clean(parts[1] + ": by the firmware")}, true
}

// ofAER returns the severity in a message of aer.c.
func ofAER(word string) string {
	switch {
	case strings.HasPrefix(word, "Correct"):
		return Corrected
	case strings.HasSuffix(word, "(Fatal)"):
		return Fatal
	default:
		return Nonfatal
	}
}

// number parses digits that a pattern has already matched.
func number(digits string) int {
	n, _ := strconv.Atoi(digits)
	return n
}

// normal returns the address in the format of sysfs. NVIDIA's driver omits the function; other
// drivers write more zeros.
func normal(address string) string {
	address = strings.ToLower(address)
	domain, device := "0", address
	if at := strings.LastIndexByte(address[:strings.LastIndexByte(address, ':')], ':'); at >= 0 {
		domain, device = address[:at], address[at+1:]
	}
	if !strings.Contains(device, ".") {
		device += ".0"
	}
	n, _ := strconv.ParseUint(domain, 16, 32)
	return fmt.Sprintf("%04x:%s", n, device)
}

const mostDetail = 120 // in characters

// clean returns the text without a final dot, on one line and limited in length.
func clean(text string) string {
	return prose.Line(strings.TrimSuffix(strings.TrimSpace(text), "."), mostDetail)
}
