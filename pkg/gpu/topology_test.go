package gpu

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// machine is a sysfs created by the tests.
type machine struct {
	tb   testing.TB
	root string
}

func newMachine(tb testing.TB) machine { return machine{tb, tb.TempDir()} }

func (m machine) write(name, text string) {
	m.tb.Helper()
	name = filepath.Join(m.root, name)
	if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		m.tb.Fatal(err)
	}
	if err := os.WriteFile(name, []byte(text+"\n"), 0o644); err != nil {
		m.tb.Fatal(err)
	}
}

// link creates a relative link, as in sysfs.
func (m machine) link(name, to string) {
	m.tb.Helper()
	if err := os.MkdirAll(filepath.Join(m.root, filepath.Dir(name)), 0o755); err != nil {
		m.tb.Fatal(err)
	}
	relative, err := filepath.Rel(filepath.Dir(name), to)
	if err == nil {
		err = os.Symlink(relative, filepath.Join(m.root, name))
	}
	if err != nil {
		m.tb.Fatal(err)
	}
}

// device creates a PCI device, given its path below sys/devices.
func (m machine) device(way string, numa int, cpus string) {
	at := "sys/devices/" + way
	m.write(at+"/numa_node", fmt.Sprint(numa))
	m.write(at+"/local_cpulist", cpus)
	m.link("sys/bus/pci/devices/"+filepath.Base(way), at)
}

// nic creates a PCI device with a device of the given class below it.
func (m machine) nic(class, name, way, below string) {
	at := "sys/devices/" + way + below + "/" + class + "/" + name
	m.write(at+"/uevent", "")
	m.link("sys/class/"+class+"/"+name, at)
}

func factsOf(buses ...string) Facts {
	f := Facts{Version: FactsVersion, Init: Success, Count: newReading(len(buses))}
	for i, bus := range buses {
		f.GPUs = append(f.GPUs, GPU{Index: i, Handle: Success,
			UUID: newReading(fmt.Sprintf("GPU-%d", i)), Bus: newReading(bus)})
	}
	return f
}

func inFabric(f Facts, cluster string, clique uint32) Facts {
	for i := range f.GPUs {
		f.GPUs[i].Fabric = newReading(Fabric{State: 3, Status: Success, Cluster: cluster, Clique: clique})
	}
	return f
}

// dgxMachine returns a machine like a DGX H100: eight GPUs, each behind a switch with a network
// card, one more card per socket for storage, and a plain Ethernet port.
func dgxMachine(tb testing.TB) (machine, Facts) {
	m := newMachine(tb)
	var buses []string
	for i := range 8 {
		numa, cpus := i/4, []string{"0-55,112-167", "56-111,168-223"}[i/4]
		domain := fmt.Sprintf("pci0000:%x0/0000:%x0:01.0/0000:%x1:00.0/", i+1, i+1, i+1)
		buses = append(buses, fmt.Sprintf("0000:%x3:00.0", i+1))
		m.device(domain+fmt.Sprintf("0000:%x2:00.0/", i+1)+buses[i], numa, cpus)
		card := domain + fmt.Sprintf("0000:%x2:01.0/0000:%x4:00.0", i+1, i+1)
		m.device(card, numa, cpus)
		m.nic("infiniband", fmt.Sprintf("mlx5_%d", i), card, "")
		m.nic("net", fmt.Sprintf("ibp%d", i), card, "")
	}
	for socket := range 2 {
		card := fmt.Sprintf("pci0000:%x0/0000:%x0:01.0/0000:%x1:00.0", 10+socket, 10+socket, 10+socket)
		m.device(card, socket, "")
		m.nic("infiniband", fmt.Sprintf("mlx5_%d", 8+socket), card, "")
	}
	m.device("pci0000:f0/0000:f0:01.0", 0, "")
	m.nic("net", "eno1", "pci0000:f0/0000:f0:01.0", "")
	return m, factsOf(buses...)
}

func TestTopologizeDGX(t *testing.T) {
	m, facts := dgxMachine(t)
	zeros := "00000000-0000-0000-0000-000000000000"
	got := BuildTopology(m.root, inFabric(facts, zeros, 0))
	want := Topology{Version: 1}
	for i := range 8 {
		want.GPUs = append(want.GPUs, Locality{
			Index: i, UUID: fmt.Sprintf("GPU-%d", i), Bus: fmt.Sprintf("0000:%x3:00.0", i+1),
			NUMA: i / 4, CPUs: []string{"0-55,112-167", "56-111,168-223"}[i/4],
			NICs: []NIC{{Name: fmt.Sprintf("mlx5_%d", i), Bus: fmt.Sprintf("0000:%x4:00.0", i+1), Distance: OneSwitch}},
		})
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
	env := map[string]string{
		"BRINGUPD_GPU_COUNT": "8", "BRINGUPD_NVLINK_DOMAIN": "",
		"BRINGUPD_GPU_UUIDS": "GPU-0,GPU-1,GPU-2,GPU-3,GPU-4,GPU-5,GPU-6,GPU-7",
		"BRINGUPD_GPU_NUMA":  "0,0,0,0,1,1,1,1",
		"BRINGUPD_GPU_CPUS": strings.Repeat("0-55,112-167;", 4) +
			strings.Repeat("56-111,168-223;", 3) + "56-111,168-223",
		"BRINGUPD_GPU_NICS": "mlx5_0;mlx5_1;mlx5_2;mlx5_3;mlx5_4;mlx5_5;mlx5_6;mlx5_7",
	}
	if diff := cmp.Diff(env, got.EnvVariables()); diff != "" {
		t.Error(diff)
	}
}

func TestTopologizePlainMachines(t *testing.T) {
	t.Run("a virtual one without NUMA nodes", func(t *testing.T) {
		m := newMachine(t)
		m.device("pci0000:00/0000:00:05.0", -1, "0-7")
		m.device("pci0000:00/0000:00:03.0", -1, "0-7")
		m.nic("net", "eth0", "pci0000:00/0000:00:03.0", "/virtio2")
		m.link("sys/class/net/lo", "sys/devices/virtual/net/lo")
		m.write("sys/class/net/bonding_masters", "")
		want := []Locality{{UUID: "GPU-0", Bus: "0000:00:05.0", NUMA: -1, CPUs: "0-7",
			NICs: []NIC{{"eth0", "0000:00:03.0", HostBridge}}}}
		if diff := cmp.Diff(want, BuildTopology(m.root, factsOf("0000:00:05.0")).GPUs); diff != "" {
			t.Error(diff)
		}
	})
	t.Run("the CPUs of the NUMA node, and two cards equally near", func(t *testing.T) {
		m := newMachine(t)
		m.device("pci0009:00/0009:00:00.0/0009:01:00.0", 1, "")
		m.write("sys/devices/system/node/node1/cpulist", "72-143")
		for i, root := range []string{"pci0000:00/0000:00:00.0/0000:01:00.", "pci0018:00/0018:00:00.0/0018:01:00."} {
			for function := range 2 {
				way := fmt.Sprintf("%s%d", root, function)
				m.device(way, i, "")
				m.nic("infiniband", fmt.Sprintf("mlx5_%d", 2*i+function), way, "/mlx5_core.sf.2")
			}
		}
		got := BuildTopology(m.root, factsOf("0009:01:00.0"))
		want := []Locality{{UUID: "GPU-0", Bus: "0009:01:00.0", NUMA: 1, CPUs: "72-143",
			NICs: []NIC{{"mlx5_2", "0018:01:00.0", SameNUMA}, {"mlx5_3", "0018:01:00.1", SameNUMA}}}}
		if diff := cmp.Diff(want, got.GPUs); diff != "" {
			t.Error(diff)
		}
		if nics := got.EnvVariables()["BRINGUPD_GPU_NICS"]; nics != "mlx5_2,mlx5_3" {
			t.Errorf("the cards are %q", nics)
		}
	})
	t.Run("a GPU that sysfs has not, and one that is lost", func(t *testing.T) {
		m, _ := dgxMachine(t)
		facts := factsOf("0000:99:00.0")
		facts.GPUs = append(facts.GPUs, GPU{Index: 1, Handle: GPUIsLost})
		want := []Locality{{UUID: "GPU-0", Bus: "0000:99:00.0", NUMA: -1, NICs: []NIC{}},
			{Index: 1, Reason: GPUIsLost, NUMA: -1, NICs: []NIC{}}}
		if diff := cmp.Diff(want, BuildTopology(m.root, facts).GPUs); diff != "" {
			t.Error(diff)
		}
	})
}

// TestTopologyWithoutGPUs verifies that a program can distinguish an unknown topology from a node
// without GPUs.
func TestTopologyWithoutGPUs(t *testing.T) {
	for _, tc := range []struct {
		name  string
		facts Facts
		json  string
		count string
	}{
		{"no driver", Facts{Init: LibraryNotFound}, `{"version":1,"gpus":null,"nvlink_domain":null}`, ""},
		{"no GPU", Facts{Init: Success, Count: newReading(0)}, `{"version":1,"gpus":[],"nvlink_domain":null}`, "0"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			top := BuildTopology(t.TempDir(), tc.facts)
			text, err := json.Marshal(top)
			if err != nil || string(text) != tc.json {
				t.Errorf("it is %s, %v", text, err)
			}
			want := map[string]string{"BRINGUPD_GPU_COUNT": tc.count, "BRINGUPD_NVLINK_DOMAIN": "",
				"BRINGUPD_GPU_UUIDS": "", "BRINGUPD_GPU_NUMA": "", "BRINGUPD_GPU_CPUS": "", "BRINGUPD_GPU_NICS": ""}
			if diff := cmp.Diff(want, top.EnvVariables()); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestNVLinkDomain(t *testing.T) {
	const rack = "6e2a1c6f-59b4-4c7e-9b3c-0f3b8a1d2e10"
	for _, tc := range []struct {
		name   string
		change func(f *Fabric) // of the second GPU
		want   string
	}{
		{"all in one", func(*Fabric) {}, rack + ".32766"},
		{"not joined yet", func(f *Fabric) { f.State = 2 }, ""},
		{"refused", func(f *Fabric) { f.Status = UnknownError }, ""},
		{"another rack", func(f *Fabric) { f.Cluster = strings.Replace(rack, "6", "7", 1) }, ""},
		{"another clique", func(f *Fabric) { f.Clique = 1 }, ""},
		{"the fabric of one board", func(f *Fabric) { f.Cluster = "00000000-0000-0000-0000-000000000000" }, ""},
		{"no UUID", func(f *Fabric) { f.Cluster = "" }, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			facts := inFabric(factsOf("0000:01:00.0", "0000:02:00.0"), rack, 32766)
			tc.change(facts.GPUs[1].Fabric.Value)
			top := BuildTopology(t.TempDir(), facts)
			if got := top.EnvVariables()["BRINGUPD_NVLINK_DOMAIN"]; got != tc.want {
				t.Errorf("the domain is %q, not %q", got, tc.want)
			}
			if first := top.GPUs[0].Domain; first == nil || first.Cluster != rack {
				t.Errorf("the first GPU is in %v", first)
			}
		})
	}
}

func TestDistance(t *testing.T) {
	at := func(numa int, way string) pciPosition {
		parts := strings.Split(way, "/")
		return pciPosition{bus: parts[len(parts)-1], hostBridge: parts[0], busPath: parts[1:], numa: numa}
	}
	const above = "pci0000:50/0000:50:01.0/0000:51:00.0/0000:52:00.0/0000:53:00.0/"
	// A GPU behind the second of two switches in a row.
	gpu := at(0, above+"0000:54:00.0/0000:55:00.0")
	for _, tc := range []struct {
		name string
		to   pciPosition
		want Distance
	}{
		{"the same switch", at(0, above+"0000:54:08.0/0000:56:00.0"), OneSwitch},
		{"another function of the same card", at(0,
			above+"0000:54:00.0/0000:55:00.1"), OneSwitch},
		{"one switch, a bridge on the card", at(0, above+"0000:54:08.0/0000:56:00.0/0000:57:00.0"), SeveralSwitches},
		{"the switch above", at(0, "pci0000:50/0000:50:01.0/0000:51:00.0/0000:52:04.0/0000:57:00.0"), SeveralSwitches},
		{"another root port", at(0, "pci0000:50/0000:50:03.0/0000:58:00.0"), HostBridge},
		{"another host bridge", at(0, "pci0000:60/0000:60:01.0/0000:61:00.0"), SameNUMA},
		{"another NUMA node", at(1, "pci0000:90/0000:90:01.0/0000:91:00.0"), BetweenNUMAs},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got := pciDistance(gpu, tc.to); got != tc.want {
				t.Errorf("it is %s, not %s", got, tc.want)
			}
			if back := pciDistance(tc.to, gpu); back != tc.want {
				t.Errorf("the way back is %s, not %s", back, tc.want)
			}
		})
	}
}

// TestTopologyJSON verifies the format, which programs read: see docs/gpu.md.
func TestTopologyJSON(t *testing.T) {
	top := Topology{Version: TopologyVersion, Domain: &NVLinkDomain{"6e2a", 7}, GPUs: []Locality{{
		UUID: "GPU-0", Bus: "0000:1b:00.0", CPUs: "0-55",
		NICs: []NIC{{"mlx5_0", "0000:18:00.0", SeveralSwitches}}, Domain: &NVLinkDomain{"6e2a", 7}}}}
	want := `{"version":1,"gpus":[{"index":0,"uuid":"GPU-0","bus":"0000:1b:00.0","numa":0,"cpus":"0-55",` +
		`"nics":[{"name":"mlx5_0","bus":"0000:18:00.0","distance":"PXB"}],` +
		`"nvlink_domain":{"cluster":"6e2a","clique":7}}],` +
		`"nvlink_domain":{"cluster":"6e2a","clique":7}}`
	if got, err := json.Marshal(top); err != nil || string(got) != want {
		t.Errorf("it is %s, %v", got, err)
	}
}

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
