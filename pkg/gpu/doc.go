// Package gpu knows the GPUs of a node: what they are, where they sit, and what befalls them while they work; what that
// means for a job is said by its folder fitness. It asks NVIDIA's management library (NVML), always in a process of its
// own: a driver that is wedged blocks who asks for ever, and a library that lacks a function ends the process. It knows
// nothing of runs and their directories.
package gpu
