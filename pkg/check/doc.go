// Package check knows what a check of a node says: its findings, what they mean for the job by the policy in force, and
// how people and machines read them. It looks at what every node has: memory, disks, limits, network cards, clocks.
// What is special about GPUs is pkg/gpu's.
package check
