// Package gpu describes the GPUs of a node: their properties, their topology, and their events
// while they work. Its subpackage fitness decides what that means for a job. It queries NVIDIA's
// management library (NVML), always in a process of its own: a driver that hangs blocks its caller
// forever, and a missing function in the library ends the process. It is independent of runs and
// their directories.
package gpu
