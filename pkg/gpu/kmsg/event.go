package kmsg

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/bringupd/bringupd/internal/textutil"
	"github.com/bringupd/bringupd/internal/textutil/lazyregexp"
)

// Kind is the type of an event.
type Kind string

// The kinds of events.
const (
	KindXid  Kind = "xid"  // NVIDIA's driver has reported a numbered error of a GPU
	KindSXid Kind = "sxid" // NVIDIA's driver has reported a numbered error of an NVSwitch
	KindAER  Kind = "aer"  // PCIe Advanced Error Reporting: an error on the path to a device
	// a GPU has fallen off the bus: mostly logged right after Xid 79, sometimes without it
	KindLost Kind = "lost"
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

// toEvent returns the event that the record describes. Only records of the kernel itself are
// trusted.
func (r logRecord) toEvent() (Event, bool) {
	if !r.fromKernel {
		return Event{}, false
	}
	e, is := parseEvent(r.text)
	e.Since = r.sinceBoot
	return e, is
}

// addressPattern matches a PCI address, with or without domain and function.
const addressPattern = `(?:[0-9a-fA-F]{4,8}:)?[0-9a-fA-F]{2}:[0-9a-fA-F]{2}(?:\.[0-7])?`

// aerSeverityPattern match the severities in the messages of aer.c. Since Linux 6.x they are
// "Correctable" and "Uncorrectable".
const aerSeverityPattern = `Correct(?:ed|able)|Uncorrect(?:ed|able) \((?:Non-)?Fatal\)`

// linePatterns are the patterns of the lines that describe an event. A pattern is anchored at the
// beginning of a record, and covers all parts that could contain text chosen by a user. Other lines
// begin with the name of a process (at most 15 bytes), which may look like one of these patterns.
//
// The lines of NVRM and nvidia-nvswitch are from NVIDIA/open-gpu-kernel-modules:
// src/nvidia/src/kernel/gpu/rc/kernel_rc.c, src/nvidia/arch/nvalloc/unix/src/osinit.c and osapi.c,
// src/common/nvswitch/kernel/inc/common_nvswitch.h. Those of PCIe are from drivers/pci/pcie/aer.c,
// which writes several lines for one error. Here the line with the severity counts or, if the
// firmware handles errors, the last line. The line of the port, which comes first, counts only if
// no other line follows.
var linePatterns = []struct {
	mark string // text that all matching lines contain: a fast test, because most lines have none
	form func() *regexp.Regexp
	read func(parts []string) (Event, bool)
}{
	{"NVRM: Xid", lazyregexp.CompileLazily(`(?s)^NVRM: Xid \((?:PCI:)?(` + addressPattern + `)(?: GPU-I:\d+)?(?: GPU-CI:\d+)?\): (\d{1,5}), ?(.*)$`), parseXid},
	{"SXid", lazyregexp.CompileLazily(`(?s)^nvidia-nvswitch\d+: SXid \((?:PCI:)?(` + addressPattern + `)\): (\d{1,5}), ?(.*)$`), parseSXid},
	{"has fallen off the bus", lazyregexp.CompileLazily(`^NVRM: GPU (?:at )?(?:PCI:)?(` + addressPattern + `)(?:: GPU)? has fallen off the bus`), parseLost},
	{"fallen off the bus", lazyregexp.CompileLazily(`^NVRM: The NVIDIA GPU (` + addressPattern + `)\s+NVRM: \([^)]*\) installed in this system has\s+NVRM: fallen off the bus`), parseLost},
	{"PCIe Bus Error", lazyregexp.CompileLazily(`^(\S+) (` + addressPattern + `): (?:AER: )?PCIe Bus Error: severity=(` + aerSeverityPattern + `), type=([^,]+),`), parseAER},
	{"no details found", lazyregexp.CompileLazily(`^(\S+) ` + addressPattern + `: AER: (?:Multiple )?(` + aerSeverityPattern + `) error message received from (` + addressPattern + `) \(no details found\)`), parseAERNotice},
	{"aer_uncor_severity", lazyregexp.CompileLazily(`^(\S+) (` + addressPattern + `): (?:AER: )?aer_uncor_severity: 0x[0-9a-f]{8}$`), parseAERFirmware},
}

// parseEvent returns the event that a text of the kernel describes, or false if it describes none.
func parseEvent(text string) (Event, bool) {
	for _, f := range linePatterns {
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
var xidSeverity = lazyregexp.CompileLazily(` (Fatal|Nonfatal) XC\d i\d+ Link -?\d+ \(0x`)

// parseXid returns the event of an Xid line.
func parseXid(parts []string) (Event, bool) {
	e := Event{Kind: KindXid, Number: parseNumber(parts[2]), Bus: sysfsAddress(parts[1]), Detail: cleanDetail(trimProcessName(parts[3]))}
	if named := xidSeverity().FindStringSubmatch(parts[3]); named != nil {
		e.Severity = named[1]
	}
	return e, true
}

// maxProcessName is the maximum length of a process name on Linux: TASK_COMM_LEN without the final
// zero.
const maxProcessName = 15

// trimProcessName removes the process from the text of an Xid: "pid=1234, name=python3, ". The
// driver does not quote the name, which may contain commas, so everything that may be a part of it
// is removed.
func trimProcessName(text string) string {
	if pid, rest, found := strings.Cut(text, ", "); found && strings.HasPrefix(pid, "pid=") {
		text = rest
	}
	name, named := strings.CutPrefix(text, "name=")
	if !named {
		return text
	}
	const end = ", "
	at := strings.LastIndex(name[:min(len(name), maxProcessName+len(end))], end)
	if at < 0 {
		return ""
	}
	return name[at+len(end):]
}

// switchSeverities are the severities in messages of nvidia-nvswitch: intr_nvswitch.h
var switchSeverities = map[string]string{"Fatal": Fatal, "Non-fatal": Nonfatal, "Correctable": Corrected}

// parseSXid returns the event of an SXid line.
func parseSXid(parts []string) (Event, bool) {
	text := parts[3]
	// This line only continues the previous error: error_nvswitch.c
	if strings.HasPrefix(text, "Severity ") || strings.HasPrefix(text, "Data {") {
		return Event{}, false
	}
	e := Event{Kind: KindSXid, Number: parseNumber(parts[2]), Bus: sysfsAddress(parts[1])}
	word, rest, _ := strings.Cut(text, ", ")
	if e.Severity = switchSeverities[word]; e.Severity != "" {
		text = rest
	}
	e.Detail = cleanDetail(text)
	return e, true
}

// parseLost returns the event of a GPU that has fallen off the bus.
func parseLost(parts []string) (Event, bool) {
	return Event{Kind: KindLost, Bus: sysfsAddress(parts[1])}, true
}

// parseAER returns the event of a PCIe error with a severity.
func parseAER(parts []string) (Event, bool) {
	return Event{Kind: KindAER, Bus: sysfsAddress(parts[2]), Severity: aerSeverity(parts[3]), Detail: cleanDetail(parts[1] + ": " + parts[4])}, true
}

// parseAERNotice returns the event of a PCIe error for which the kernel found no details.
func parseAERNotice(parts []string) (Event, bool) {
	return Event{Kind: KindAER, Bus: sysfsAddress(parts[3]), Severity: aerSeverity(parts[2]), Detail: "no details"}, true
}

// parseAERFirmware returns the event of a PCIe error that the firmware has handled.
func parseAERFirmware(parts []string) (Event, bool) {
	return Event{Kind: KindAER, Bus: sysfsAddress(parts[2]), Detail: cleanDetail(parts[1] + ": handled by the firmware")}, true
}

// aerSeverity returns the severity in a message of aer.c.
func aerSeverity(word string) string {
	switch {
	case strings.HasPrefix(word, "Correct"):
		return Corrected
	case strings.HasSuffix(word, "(Fatal)"):
		return Fatal
	default:
		return Nonfatal
	}
}

// parseNumber parses digits that a pattern has already matched.
func parseNumber(digits string) int {
	n, _ := strconv.Atoi(digits)
	return n
}

// sysfsAddress returns the address in the format of sysfs. NVIDIA's driver omits the function;
// other drivers write more zeros.
func sysfsAddress(address string) string {
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

const maxDetailLength = 120 // in characters

// cleanDetail returns the text without a final dot, on one line and limited in length.
func cleanDetail(text string) string {
	return textutil.SingleLine(strings.TrimSuffix(strings.TrimSpace(text), "."), maxDetailLength)
}
