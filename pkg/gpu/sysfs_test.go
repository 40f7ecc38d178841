package gpu

import (
	"errors"
	"os"
	"path/filepath"
	"testing"
	"testing/fstest"

	"github.com/google/go-cmp/cmp"
)

func addPCI(t *testing.T, root, bus, vendor, class string) {
	t.Helper()
	dir := filepath.Join(root, "sys/bus/pci/devices", bus)
	err := errors.Join(os.MkdirAll(dir, 0o755), os.WriteFile(filepath.Join(dir, "vendor"), []byte(vendor+"\n"), 0o644),
		os.WriteFile(filepath.Join(dir, "class"), []byte(class+"\n"), 0o644))
	if err != nil {
		t.Fatal(err)
	}
}

func TestPresent(t *testing.T) {
	put := func(name, text string) func(*testing.T, string) {
		return func(t *testing.T, root string) {
			path := filepath.Join(root, name)
			if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755),
				os.WriteFile(path, []byte(text), 0o644)); err != nil {
				t.Fatal(err)
			}
		}
	}
	card := func(bus, vendor, class string) func(*testing.T, string) {
		return func(t *testing.T, root string) { addPCI(t, root, bus, vendor, class) }
	}
	const version = "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  570.86.15  " +
		"Release Build  (dvs@host)  Thu Jan 23\nGCC version: gcc 11.4.0\n"
	for _, test := range []struct {
		name    string
		has     []func(*testing.T, string)
		want    []string
		without bool
	}{
		{name: "nothing"},
		{name: "others' cards and files", has: []func(*testing.T, string){
			card("0000:00:02.0", "0x8086", "0x030000"), card("0000:3b:00.1", "0x10de", "0x040300"),
			card("0000:3c:00.0", "0x10de", "0x068000"),
			put("dev/nvidia-uvm", ""), put("dev/nvidia", ""), put("dev/nvidia-caps/x", ""),
			put("dev/nvidia0x", ""), put("dev/null", ""),
		}},
		{name: "all", has: []func(*testing.T, string){
			put("dev/nvidia11", ""), put("dev/nvidia0", ""), put("dev/nvidiactl", ""),
			put("proc/driver/nvidia/version", version),
			card("0000:86:00.0", "0x10de", "0x030200"), card("0000:3b:00.0", "0x10de", "0x030000"),
		}, want: []string{
			"device file /dev/nvidia0", "device file /dev/nvidia11", "device file /dev/nvidiactl",
			"kernel module 570.86.15",
			"PCI device 0000:3b:00.0", "PCI device 0000:86:00.0",
		}},
		{name: "on the bus, without a driver",
			has:  []func(*testing.T, string){card("0000:86:00.0", "0x10de", "0x030200")},
			want: []string{"PCI device 0000:86:00.0"}, without: true},
		{name: "in a container that was given the files", has: []func(*testing.T, string){put("dev/nvidiactl", "")},
			want: []string{"device file /dev/nvidiactl"}},
		{name: "a version that can't be read",
			has:  []func(*testing.T, string){put("proc/driver/nvidia/version", "?\n")},
			want: []string{"kernel module unknown"}},
	} {
		root := t.TempDir()
		for _, add := range test.has {
			add(t, root)
		}
		got := FindNVIDIASigns(root)
		if diff := cmp.Diff(test.want, got); diff != "" {
			t.Errorf("%s: %s", test.name, diff)
		}
		if HasOnlyPCIDevices(got) != test.without {
			t.Errorf("%s: without a driver is %v", test.name, !test.without)
		}
	}
}

// TestSlots verifies that a GPU that has fallen off the bus still has its slot's name.
func TestSlots(t *testing.T) {
	root := t.TempDir()
	for bus, config := range map[string]string{
		"0000:3b:00.0": "\xde\x10\x30\x23and so on", "0000:86:00.0": "\xff\xff\xff\xff\xff\xff",
		"0000:af:00.0": "\xde", "0000:d8:00.0": "",
	} {
		addPCI(t, root, bus, "0x10de", "0x030200")
		if config == "" {
			continue
		}
		if err := os.WriteFile(filepath.Join(root, pciDevices, bus, "config"), []byte(config), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want := []PCISlot{{"0000:3b:00.0", "10de:2330"}, {"0000:86:00.0", OffBus},
		{Bus: "0000:af:00.0"}, {Bus: "0000:d8:00.0"}}
	if diff := cmp.Diff(want, sysfs{os.DirFS(root)}.readSlots()); diff != "" {
		t.Error(diff)
	}
}

// TestLacksNVIDIA verifies that only a list without any device of NVIDIA is sufficient evidence.
func TestLacksNVIDIA(t *testing.T) {
	for list, want := range map[string]bool{
		"": false,
		"0000\t80860d57\t0\t0\n0008\t1af41045\t0\n":  true,
		"0000\t80860d57\t0\t0\n3b00\t10de2330\t1f\n": false,
		"0000\t80860d57\nnonsense\n":                 false,
	} {
		share := fstest.MapFS{}
		if list != "" {
			share["proc/bus/pci/devices"] = &fstest.MapFile{Data: []byte(list)}
		}
		if got := (sysfs{share}).lacksNVIDIA(); got != want {
			t.Errorf("%q: got %t", list, got)
		}
	}
}
