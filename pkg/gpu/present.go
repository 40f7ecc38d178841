package gpu

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// What Present may find.
const (
	signDevice = "device file"
	signDriver = "kernel module"
	signBus    = "PCI device"
)

// Present returns the signs of an NVIDIA GPU, or of its driver, that this
// machine shows without NVML being asked; none where there is none. Root is
// "/", or what stands for it. It takes no process and no driver: it may be
// called on any machine.
func Present(root string) (signs []string) {
	for _, name := range deviceFiles(root) {
		signs = append(signs, fmt.Sprintf("%s /dev/%s", signDevice, name))
	}
	if version := driverVersion(root); version != "" {
		signs = append(signs, fmt.Sprintf("%s %s", signDriver, version))
	}
	for _, bus := range Buses(root) {
		signs = append(signs, fmt.Sprintf("%s %s", signBus, bus))
	}
	return signs
}

// WithoutDriver tells of what Present has found whether there is a GPU on the
// bus, and neither a driver nor a device file for it.
func WithoutDriver(signs []string) bool {
	is := func(what string) func(string) bool {
		return func(sign string) bool { return strings.HasPrefix(sign, what+" ") }
	}
	return slices.ContainsFunc(signs, is(signBus)) &&
		!slices.ContainsFunc(signs, is(signDriver)) && !slices.ContainsFunc(signs, is(signDevice))
}

// deviceFiles returns those of GPUs and of the driver: nvidia0, nvidiactl.
func deviceFiles(root string) (names []string) {
	dir, err := os.Open(filepath.Join(root, "dev"))
	if err != nil {
		return nil
	}
	defer dir.Close()
	all, _ := dir.Readdirnames(-1)
	for _, name := range all {
		number, ours := strings.CutPrefix(name, "nvidia")
		if ours && (number == "ctl" || number != "" && strings.Trim(number, "0123456789") == "") {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	return names
}

// driverVersion returns the version of the kernel module that is loaded.
func driverVersion(root string) string {
	text, err := os.ReadFile(filepath.Join(root, "proc/driver/nvidia/version"))
	if err != nil {
		return ""
	}
	line, _, _ := strings.Cut(string(text), "\n")
	// "NVRM version: NVIDIA UNIX x86_64 Kernel Module  570.86.15  Thu Jan …"
	for word := range strings.FieldsSeq(line) {
		if strings.Trim(word, "0123456789.") == "" && strings.Contains(word, ".") {
			return word
		}
	}
	return "unknown"
}

const (
	nvidiaVendor = "0x10de"
	vgaClass     = "0x0300" // display controllers: with a display,
	renderClass  = "0x0302" // and without
)

// Buses returns the PCI addresses of NVIDIA's GPUs, in their order, which is
// NVML's too: 0000:3b:00.0. A GPU that has fallen off the bus is among them
// until somebody removes it.
func Buses(root string) (buses []string) {
	devices := filepath.Join(root, "sys/bus/pci/devices")
	dir, err := os.Open(devices)
	if err != nil {
		return nil
	}
	defer dir.Close()
	names, _ := dir.Readdirnames(-1)
	for _, name := range names {
		device := filepath.Join(devices, name)
		if attribute(device, "vendor") != nvidiaVendor {
			continue
		}
		class := attribute(device, "class")
		if strings.HasPrefix(class, vgaClass) || strings.HasPrefix(class, renderClass) {
			buses = append(buses, name)
		}
	}
	slices.Sort(buses)
	return buses
}

func attribute(device, name string) string {
	text, err := os.ReadFile(filepath.Join(device, name))
	if err != nil {
		return ""
	}
	return strings.TrimSpace(string(text))
}
