package gpu

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// driverTells adds a GPU in the format in which the kernel module reports it.
func (m machine) driverTells(bus, uuid string, minor int, more string) {
	m.write("proc/driver/nvidia/gpus/"+bus+"/information",
		fmt.Sprintf("Model: \t\t NVIDIA H100 80GB HBM3\nIRQ:   \t\t 101\nGPU UUID: \t %s\n"+
			"Video BIOS: \t 96.00.89.00.01\nBus Type: \t PCIe\nDMA Size: \t 52 bits\nBus Location: "+
			"\t %s\nDevice Minor: \t %d\nGPU Firmware: \t 570.86.15\n%s", uuid, bus, minor, more))
}

const (
	firstUUID  = "GPU-4ce175fe-a313-4c4a-d620-560e96e8ef2e"
	secondUUID = "GPU-e953c3c5-dba7-029e-ce44-7b51417131df"
)

// TestGlance verifies that the result equals that of NVML's facts; the numbers of the device files
// differ from those of the GPUs.
func TestGlance(t *testing.T) {
	m := newMachine(t)
	m.device("pci0000:15/0000:15:01.0/0000:1b:00.0", 0, "0-3")
	m.device("pci0000:97/0000:97:01.0/0000:9d:00.0", 1, "4-7")
	m.driverTells("0000:1b:00.0", firstUUID, 1, "GPU Excluded:\t No\n")
	m.driverTells("0000:5b:00.0", "GPU-00000000-0000-0000-0000-000000000000", 7, "GPU Excluded:\t Yes\n")
	m.driverTells("0000:9d:00.0", secondUUID, 0, "Blacklisted:\t No\n")
	m.write("dev/nvidia0", "")
	asked := func(first NVMLReturn) Topology {
		return BuildTopology(m.root, Facts{Init: Success, GPUs: []GPU{
			{Index: 0, Handle: first, UUID: newReading(firstUUID), Bus: newReading("0000:1b:00.0"),
				Name: newReading("NVIDIA H100 80GB HBM3")},
			{Index: 1, Handle: Success, UUID: newReading(secondUUID),
				Bus: newReading("0000:9d:00.0"), Name: newReading("NVIDIA H100 80GB HBM3")},
		}})
	}
	got, ok := QuickTopology(m.root)
	if diff := cmp.Diff(asked(NoPermission), got); diff != "" || !ok {
		t.Errorf("with one that is not for us: %v, %s", ok, diff)
	}
	m.write("dev/nvidia1", "")
	got, ok = QuickTopology(m.root)
	if diff := cmp.Diff(asked(Success), got); diff != "" || !ok || got.GPUs[1].CPUs != "4-7" {
		t.Errorf("%v, %s", ok, diff)
	}
}

func TestGlanceLeavesItToNVML(t *testing.T) {
	for name, add := range map[string]func(m machine){
		"no driver":      func(machine) {},
		"no device file": func(m machine) { m.driverTells("0000:1b:00.0", firstUUID, 1, "") },
		"a driver that says less": func(m machine) {
			m.write("proc/driver/nvidia/gpus/0000:1b:00.0/information", "Model: x\n")
		},
		"a UUID that is not known yet": func(m machine) {
			m.driverTells("0000:1b:00.0", strings.Map(func(r rune) rune {
				if r == '-' {
					return r
				}
				return '?'
			}, firstUUID), 0, "")
		},
		"one of two that is cut up": func(m machine) {
			m.driverTells("0000:1b:00.0", firstUUID, 0, "")
			m.driverTells("0000:9d:00.0", secondUUID, 1, "")
			m.write("proc/driver/nvidia/capabilities/gpu1/mig/gi9/access", "DeviceFileMinor: 84\n")
			m.write("dev/nvidia1", "")
		},
	} {
		m := newMachine(t)
		m.write("dev/nvidia0", "")
		add(m)
		if got, ok := QuickTopology(m.root); ok {
			t.Errorf("%s: it sees %+v", name, got)
		}
	}
}
