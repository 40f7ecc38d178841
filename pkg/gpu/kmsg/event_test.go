package kmsg

import (
	"regexp"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
)

func TestParse(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name, line string
		want       logRecord
		is         bool
	}{
		{"of the kernel", "7,160,424069,-;pci_root PNP0A03:00: host bridge window [io  0x0000-0x0cf7] (ignored)",
			logRecord{true, 160, 424069 * time.Microsecond, "pci_root PNP0A03:00: host bridge window [io  0x0000-0x0cf7] (ignored)"}, true},
		{"of a process", "30,340,5690716,-;udevd[80]: starting version 181", logRecord{false, 340, 5690716 * time.Microsecond, "udevd[80]: starting version 181"}, true},
		{"with a caller", "4,9,1,c,caller=T511;NVRM: a;b", logRecord{true, 9, time.Microsecond, "NVRM: a;b"}, true},
		{"escaped", `6,0,0,-;a\x0ab \x5cx41 \xc3\xa4 \x1 \xzz \x`, logRecord{true, 0, 0, "a\nb \\x41 ä \\x1 \\xzz \\x"}, true},
		{"without text", "6,0,0,-;", logRecord{true, 0, 0, ""}, true},
		{"a key and a value", " SUBSYSTEM=acpi", logRecord{}, false},
		{"a key and a value like a record", " DEVICE=6,0,0,-;x", logRecord{}, false},
		{"no semicolon", "6,0,0,-", logRecord{}, false},
		{"no numbers", "a,b,c,-;x", logRecord{}, false},
		{"a negative time", "6,0,-1,-;x", logRecord{}, false},
		{"a time without measure", "6,0,18446744073709551615,-;x", logRecord{}, false},
		{"nothing", "", logRecord{}, false},
	} {
		got, is := parseRecord(tc.line)
		if diff := cmp.Diff(tc.want, got, cmp.AllowUnexported(logRecord{})); diff != "" || is != tc.is {
			t.Errorf("%s: %t, (-want +got)\n%s", tc.name, is, diff)
		}
	}
}

// TestRecognise uses lines of published logs.
func TestRecognise(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		source, text string
		want         Event
	}{
		// https://github.com/leptonai/gpud/blob/4a8de33a/components/accelerator/nvidia/sxid/README.md
		{"79 without a process", "NVRM: Xid (PCI:0000:91:00): 79, pid='<unknown>', name=<unknown>, GPU has fallen off the bus.",
			Event{Kind: KindXid, Number: 79, Bus: "0000:91:00.0", Detail: "GPU has fallen off the bus"}},
		{"lost", "NVRM: GPU 0000:91:00.0: GPU has fallen off the bus.", Event{Kind: KindLost, Bus: "0000:91:00.0"}},
		{"fatal SXid", "nvidia-nvswitch1: SXid (PCI:0000:06:00.0): 20034, Fatal, Link 48 LTSSM Fault Up",
			Event{Kind: KindSXid, Number: 20034, Bus: "0000:06:00.0", Severity: Fatal, Detail: "Link 48 LTSSM Fault Up"}},
		{"more on an SXid", "nvidia-nvswitch2: SXid (PCI:0000:07:00.0): 20034, Severity 1 Engine instance 60 Sub-engine instance 00", Event{}},
		{"data of an SXid", "nvidia-nvswitch0: SXid (PCI:0000:05:00.0): 20034, Data {0x10000000, 0x10000000, 0x00000000, 0x10000000}", Event{}},
		{"a UUID", "NVRM: GPU at PCI:0000:91:00: GPU-b6c3b2be-c55b-d076-fa0e-d464e4c7e08b", Event{}},
		{"a serial number", "NVRM: GPU 0000:91:00.0: GPU serial number is 1653723052734.", Event{}},
		// …/nvidia/sxid/kmsg_test.go
		{"SXid that is not fatal", "nvidia-nvswitch3: SXid (PCI:0000:05:00.0): 12028, Non-fatal, Link 32 egress non-posted PRIV error (First)",
			Event{Kind: KindSXid, Number: 12028, Bus: "0000:05:00.0", Severity: Nonfatal, Detail: "Link 32 egress non-posted PRIV error (First)"}},
		// …/nvidia/xid/nvlink_logs_test.go
		{"NVLink, fatal", "NVRM: Xid (PCI:0008:01:00): 149, NETIR_LINK_EVT Fatal XC0 i0 Link 08 (0x004505c6 0x00000000 0x00000000 0x00000000 0x00000000 0x00000000)",
			Event{Kind: KindXid, Number: 149, Bus: "0008:01:00.0", Severity: Fatal,
				Detail: "NETIR_LINK_EVT Fatal XC0 i0 Link 08 (0x004505c6 0x00000000 0x00000000 0x00000000 0x00000000 0x00000000)"}},
		{"NVLink, a name as long as can be", "NVRM: Xid (PCI:0018:01:00): 145, pid=876767, name=ray::WorkerDict, RLW_RXPIPE Nonfatal XC0 i0 Link 13 (0x0409a0c2 0x00000008)",
			Event{Kind: KindXid, Number: 145, Bus: "0018:01:00.0", Severity: Nonfatal, Detail: "RLW_RXPIPE Nonfatal XC0 i0 Link 13 (0x0409a0c2 0x00000008)"}},
		{"NVLink, no link", "NVRM: Xid (PCI:0019:01:00): 149, NETIR Fatal XC0 i0 Link -1 (0x000fe406 0x00000000)",
			Event{Kind: KindXid, Number: 149, Bus: "0019:01:00.0", Severity: Fatal, Detail: "NETIR Fatal XC0 i0 Link -1 (0x000fe406 0x00000000)"}},
		// …/nvidia/xid/kmsg.go and testdata/dmesg-with-xid-119.log
		{"an old driver", "NVRM: Xid (0000:03:00): 14, Channel 00000001", Event{Kind: KindXid, Number: 14, Bus: "0000:03:00.0", Detail: "Channel 00000001"}},
		{"GSP", "NVRM: Xid (PCI:0000:9b:00): 119, pid=2024380, name=nvidia-smi, Timeout after 6s of waiting for RPC response from GPU4 GSP! Expected function 103 (GSP_RM_ALLOC) (0x2081 0x4).",
			Event{Kind: KindXid, Number: 119, Bus: "0000:9b:00.0",
				Detail: "Timeout after 6s of waiting for RPC response from GPU4 GSP! Expected function 103 (GSP_RM_ALLOC) (0x2081 0x4)"}},
		// https://github.com/NVIDIA/open-gpu-kernel-modules/blob/df1c9a3d/src/nvidia/src/kernel/gpu/arch/ampere/kern_gpu_error_cont_ga100.c
		{"an instance", "NVRM: Xid (PCI:0000:01:00 GPU-I:05): 94, pid=7194, Contained: CE User Channel (0x9). RST: No, D-RST: No",
			Event{Kind: KindXid, Number: 94, Bus: "0000:01:00.0", Detail: "Contained: CE User Channel (0x9). RST: No, D-RST: No"}},
		// https://github.com/NVIDIA/open-gpu-kernel-modules/issues/1150
		{"what followed", "NVRM: Xid (PCI:0000:dc:00): 45, pid=1818990, name=python3, Ch 00000001 caused by previous Xid 149",
			Event{Kind: KindXid, Number: 45, Bus: "0000:dc:00.0", Detail: "Ch 00000001 caused by previous Xid 149"}},
		// https://github.com/akash-network/support/issues/244
		{"an address", "NVRM: Xid (PCI:0000:00:07): 31, pid=2512125, name=python3.10, Ch 00000008, intr 00000000. MMU Fault: ENGINE GRAPHICS GPCCLIENT_T1_8 faulted @ 0x73ac_1c000000. Fault is of type FAULT_PDE ACCESS_TYPE_VIRT_WRITE",
			Event{Kind: KindXid, Number: 31, Bus: "0000:00:07.0", Detail: "Ch 00000008, intr 00000000. MMU Fault: ENGINE GRAPHICS GPCCLIENT_T1_8 faulted @ 0x73ac_1c000000. Fault is of type FAULT…"}},
		// https://github.com/Bumblebee-Project/Bumblebee/issues/554
		{"lost, by an old driver", "NVRM: GPU at 0000:01:00.0 has fallen off the bus.", Event{Kind: KindLost, Bus: "0000:01:00.0"}},
		// https://github.com/NVIDIA/NVSentinel/issues/155
		{"lost at the start of the driver", "NVRM: The NVIDIA GPU 0000:b3:00.0\nNVRM: (PCI ID: 10de:26b5) installed in this system has\nNVRM: fallen off the bus and is not responding to commands.",
			Event{Kind: KindLost, Bus: "0000:b3:00.0"}},
		// https://github.com/wilicc/gpu-burn/issues/1
		{"PCIe, Linux 4", "pcieport 0000:00:02.0: PCIe Bus Error: severity=Uncorrected (Fatal), type=Transaction Layer, id=0010(Receiver ID)",
			Event{Kind: KindAER, Bus: "0000:00:02.0", Severity: Fatal, Detail: "pcieport: Transaction Layer"}},
		{"announced", "pcieport 0000:00:02.0: AER: Uncorrected (Fatal) error received: id=0010", Event{}},
		// https://github.com/NVIDIA/nvidia-docker/issues/1553
		{"PCIe, Linux 5.4", "pcieport 0000:00:01.1: AER: PCIe Bus Error: severity=Corrected, type=Data Link Layer, (Receiver ID)",
			Event{Kind: KindAER, Bus: "0000:00:01.1", Severity: Corrected, Detail: "pcieport: Data Link Layer"}},
		// https://github.com/minisforum-docs/MS-02-Ultra/issues/10
		{"PCIe, Linux 6", "pcieport 0000:80:1b.4: PCIe Bus Error: severity=Uncorrectable (Non-Fatal), type=Transaction Layer, (Receiver ID)",
			Event{Kind: KindAER, Bus: "0000:80:1b.4", Severity: Nonfatal, Detail: "pcieport: Transaction Layer"}},
		{"what came of it", "pcieport 0000:80:1b.4: AER: device recovery failed", Event{}},
		// https://access.redhat.com/solutions/56302
		{"PCIe, a long domain", "pcieport 10003:00:00.0: PCIe Bus Error: severity=Corrected, type=Data Link Layer, id=0000(Receiver ID)",
			Event{Kind: KindAER, Bus: "10003:00:00.0", Severity: Corrected, Detail: "pcieport: Data Link Layer"}},
		// https://github.com/qualcomm-linux/kernel/issues/323
		{"PCIe, Linux 7", "ath11k_pci 0000:01:00.0: PCIe Bus Error: severity=Correctable, type=Data Link Layer, (Transmitter ID)",
			Event{Kind: KindAER, Bus: "0000:01:00.0", Severity: Corrected, Detail: "ath11k_pci: Data Link Layer"}},
		{"announced, Linux 7", "pcieport 0000:00:00.0: AER: Correctable error message received from 0000:01:00.0", Event{}},
		// The commit of Linux 6.16 that has "(no details found)" says: pci 0000:00:01.0: AER: Correctable
		// error …
		{"PCIe, without details", "pcieport 0000:00:01.0: AER: Multiple Uncorrectable (Fatal) error message received from 0000:02:00.0 (no details found)",
			Event{Kind: KindAER, Bus: "0000:02:00.0", Severity: Fatal, Detail: "no details"}},
		// drivers/pci/pcie/aer.c, pci_print_aer
		{"PCIe, by the firmware", "nvidia 0000:3b:00.0: AER: aer_uncor_severity: 0x00062030", Event{Kind: KindAER, Bus: "0000:3b:00.0", Detail: "nvidia: handled by the firmware"}},
	} {
		got, is := parseEvent(tc.text)
		if diff := cmp.Diff(tc.want, got); diff != "" || is != (tc.want != Event{}) {
			t.Errorf("%s: %t, (-want +got)\n%s", tc.source, is, diff)
		}
	}
}

// TestNamesOfProcesses verifies that process names, which users choose and the kernel writes into
// its log, cannot forge events.
func TestNamesOfProcesses(t *testing.T) {
	t.Parallel()
	const bus = "0000:3b:00.0"
	for _, tc := range []struct {
		name, text string
		want       Event
	}{
		{"a comma", "NVRM: Xid (PCI:0000:3b:00): 13, pid=1, name=my, secret, Graphics Exception", Event{Kind: KindXid, Number: 13, Bus: bus, Detail: "Graphics Exception"}},
		{"many commas", "NVRM: Xid (PCI:0000:3b:00): 13, pid=1, name=a, b, c, d, e f, Graphics Exception", Event{Kind: KindXid, Number: 13, Bus: bus, Detail: "Graphics Exception"}},
		{"nothing but commas", "NVRM: Xid (PCI:0000:3b:00): 13, pid=1, name=, , , , , , , , Graphics Exception", Event{Kind: KindXid, Number: 13, Bus: bus, Detail: "Graphics Exception"}},
		{"a short one costs a word, at most", "NVRM: Xid (PCI:0000:3b:00): 13, pid=1, name=sh, Ch 00000008, intr 0", Event{Kind: KindXid, Number: 13, Bus: bus, Detail: "intr 0"}},
		{"one longer than there can be", "NVRM: Xid (PCI:0000:3b:00): 13, pid=1, name=this_is_too_long_for_linux, Graphics Exception", Event{Kind: KindXid, Number: 13, Bus: bus}},
		{"a severity", "NVRM: Xid (PCI:0000:3b:00): 145, pid=1, name=A Fatal XC0 i0 , RLW_RXPIPE Nonfatal XC0 i0 Link 13 (0x0)",
			Event{Kind: KindXid, Number: 145, Bus: bus, Severity: Nonfatal, Detail: "RLW_RXPIPE Nonfatal XC0 i0 Link 13 (0x0)"}},
		{"the end of a line", "NVRM: Xid (PCI:0000:3b:00): 13, pid=1, name=a\nNVRM: Xid (P, Graphics Exception", Event{Kind: KindXid, Number: 13, Bus: bus, Detail: "Graphics Exception"}},
		{"an Xid", "NVRM: Xid (PCI:[1234]: segfault at 0000:3b:00): 79, ip 0 sp 0 error 4 in a[0+1]", Event{}},
		{"one on a line of its own", "a\nNVRM: Xid (PCI:[12]: segfault at 0 ip 0 in b\nNVRM: Xid (PCI:0000:3b:00): 79, x", Event{}},
		{"a lost GPU", "NVRM: GPU 0000:[12]: segfault at 0 ip 0 sp 0 error 4 in GPU has fallen off the bus[0+1]", Event{}},
		{"a switch", "nvidia-nvswitch[12]: segfault at 0 ip 0 error 4 in SXid (PCI:0000:3b:00.0): 20034, Fatal, x", Event{}},
		{"PCIe", "nvidia 0000:3b:[12]: segfault in PCIe Bus Error: severity=Uncorrected (Fatal), type=x,", Event{}},
	} {
		got, is := parseEvent(tc.text)
		if diff := cmp.Diff(tc.want, got); diff != "" || is != (tc.want != Event{}) {
			t.Errorf("%s: %t, (-want +got)\n%s", tc.name, is, diff)
		}
	}
}

var busForm = regexp.MustCompile(`^[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]$`)

// FuzzRecord parses any line as one of the log.
func FuzzRecord(f *testing.F) {
	f.Add("4,1,2,c;NVRM: Xid (PCI:0000:01:00 GPU-I:05 GPU-CI:01): 94, pid=7194, name=a, Contained: CE User Channel (0x9)")
	f.Add(`4,1,2,-;NVRM: The NVIDIA GPU 0000:b3:00.0\x0aNVRM: (PCI ID: 10de:26b5) installed in this system has\x0aNVRM: fallen off the bus`)
	f.Add("4,1,2,-;nvidia-nvswitch3: SXid (PCI:0000:05:00.0): 12028, Non-fatal, Link 32")
	f.Add("4,1,2,-;pcieport 10003:00:00.0: AER: PCIe Bus Error: severity=Corrected, type=Data Link Layer, x")
	f.Add("4,1,2,-;pci 0000:00:01.0: AER: Correctable error message received from 0000:02:00.0 (no details found)")
	f.Fuzz(func(t *testing.T, line string) {
		r, is := parseRecord(line)
		if !is && r != (logRecord{}) || r.sinceBoot < 0 || len(r.text) > len(line) {
			t.Errorf("%q is taken for %+v", line, r)
		}
		e, is := r.toEvent()
		if !is {
			if e.Kind != "" || e.Bus != "" {
				t.Errorf("%q tells nothing, and %+v", line, e)
			}
			return
		}
		if !r.fromKernel || !busForm.MatchString(e.Bus) || e.Since != r.sinceBoot || (e.Number > 0) && e.Kind != KindXid && e.Kind != KindSXid {
			t.Errorf("%q is taken for %+v", line, e)
		}
		if n := utf8.RuneCountInString(e.Detail); n > maxDetailLength || strings.ContainsAny(e.Detail, "\n\x1b\x00") || !utf8.ValidString(e.Detail) {
			t.Errorf("%q has the detail %q", line, e.Detail)
		}
	})
}
