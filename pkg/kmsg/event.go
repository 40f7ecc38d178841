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

// Kind is what sort of thing befell a device.
type Kind string

// The kinds.
const (
	KindXid  Kind = "xid"  // NVIDIA's driver has named an error of a GPU
	KindSXid Kind = "sxid" // the same of an NVSwitch
	KindAER  Kind = "aer"  // PCIe Advanced Error Reporting: an error on the way to a device
	KindLost Kind = "lost" // a GPU has fallen off the bus: mostly told right after Xid 79, at times without one
)

// The severities. An event has none where the kernel does not tell.
const (
	Fatal     = "Fatal"
	Nonfatal  = "Nonfatal"
	Corrected = "Corrected" // of PCIe and of NVSwitches: nothing was lost
)

// Event is what befell a device, by one line of the kernel's log.
type Event struct {
	Kind     Kind
	Number   int           // of an Xid or an SXid; 0: of neither
	Bus      string        // PCI address, as sysfs has it: 0000:3b:00.0
	Severity string        // Fatal, Nonfatal, Corrected; empty: not told
	Detail   string        // in the driver's words, fit for a line: no name and no number of a process is among them
	Since    time.Duration // that the system had been up, by the kernel's clock
}

// event is what the record tells. Only the kernel is believed.
func (r record) event() (Event, bool) {
	if !r.kernel {
		return Event{}, false
	}
	e, is := recognise(r.text)
	e.Since = r.at
	return e, is
}

// address is a PCI address, with or without domain and function.
const address = `(?:[0-9a-fA-F]{4,8}:)?[0-9a-fA-F]{2}:[0-9a-fA-F]{2}(?:\.[0-7])?`

// severities are how aer.c has named them: "Correctable" and "Uncorrectable" are the words since Linux 6.x.
const severities = `Correct(?:ed|able)|Uncorrect(?:ed|able) \((?:Non-)?Fatal\)`

// forms are those of the lines that tell something. They are matched from the beginning of a record, and fully as far as
// users' names may stand in it: other lines begin with the name of a process (15 bytes at most), which may look as one
// of these do.
//
// NVRM's and nvidia-nvswitch's are those of NVIDIA/open-gpu-kernel-modules: src/nvidia/src/kernel/gpu/rc/kernel_rc.c,
// src/nvidia/arch/nvalloc/unix/src/osinit.c and osapi.c, src/common/nvswitch/kernel/inc/common_nvswitch.h. PCIe's are
// those of drivers/pci/pcie/aer.c. Of its lines on one error the one with the severity counts, or the last one where the
// firmware handles errors; what the port says before only where nothing follows.
var forms = []struct {
	mark string // that its lines have: most lines of a log need no closer look
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

// recognise is what a text of the kernel's tells of a device.
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

// xidSeverity is how NVLink's Xids (144 to 150) name it. It is longer than the name of a process, which therefore can't
// be taken for it: "NETIR_LINK_EVT Fatal XC0 i0 Link 08 (0x004505c6 …".
var xidSeverity = pattern.New(` (Fatal|Nonfatal) XC\d i\d+ Link -?\d+ \(0x`)

func xid(parts []string) (Event, bool) {
	e := Event{Kind: KindXid, Number: number(parts[2]), Bus: normal(parts[1]), Detail: clean(unnamed(parts[3]))}
	if named := xidSeverity().FindStringSubmatch(parts[3]); named != nil {
		e.Severity = named[1]
	}
	return e, true
}

// mostName is the longest name that Linux has for a process: TASK_COMM_LEN without its end.
const mostName = 15

// unnamed is what an Xid's text has behind "pid=1234, name=python3, ". The driver quotes no name, and one may well have
// commas: all is dropped that could be part of one.
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

// switchSeverities are the words of nvidia-nvswitch: intr_nvswitch.h
var switchSeverities = map[string]string{"Fatal": Fatal, "Non-fatal": Nonfatal, "Correctable": Corrected}

func sxid(parts []string) (Event, bool) {
	text := parts[3]
	// More lines on the error before: error_nvswitch.c
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

func lost(parts []string) (Event, bool) { return Event{Kind: KindLost, Bus: normal(parts[1])}, true }

func aer(parts []string) (Event, bool) {
	return Event{Kind: KindAER, Bus: normal(parts[2]), Severity: ofAER(parts[3]), Detail: clean(parts[1] + ": " + parts[4])}, true
}

func aerNotice(parts []string) (Event, bool) {
	return Event{Kind: KindAER, Bus: normal(parts[3]), Severity: ofAER(parts[2]), Detail: "no details"}, true
}

func aerFirmware(parts []string) (Event, bool) {
	return Event{Kind: KindAER, Bus: normal(parts[2]), Detail: clean(parts[1] + ": by the firmware")}, true
}

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

// number reads a few digits, which a form has asked for.
func number(digits string) int {
	n, _ := strconv.Atoi(digits)
	return n
}

// normal is an address as sysfs has it: NVIDIA's driver leaves the function away, and others write more zeros.
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

const mostDetail = 120 // characters

func clean(text string) string {
	return prose.Line(strings.TrimSuffix(strings.TrimSpace(text), "."), mostDetail)
}
