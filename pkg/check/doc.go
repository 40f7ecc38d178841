// Package check defines the findings of node checks, the policy that decides what they mean for a
// job, and their output for people and machines. It also implements the checks that apply to every
// node: memory, disks, limits, network cards and clocks. The checks of GPUs are in pkg/gpu.
package check
