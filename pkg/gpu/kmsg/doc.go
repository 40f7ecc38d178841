// Package kmsg reads the kernel log and finds the errors of GPUs, NVSwitches and PCIe devices in
// it.
package kmsg
