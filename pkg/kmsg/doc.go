// Package kmsg reads the kernel's log, and finds in it what befell GPUs, NVSwitches and PCIe devices.
package kmsg
