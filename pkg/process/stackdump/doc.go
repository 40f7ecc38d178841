// Package stackdump diagnoses hangs: it shows the current activity of a run's processes, which are
// the driver, all ranks and the services.
//
// On each node, a process beside the daemon inspects the daemon's child processes
// ([NodeInspection.InspectChildren]) and prints one line of JSON per child. The requesting program
// combines the lines of all nodes ([NewRunSnapshot]): processes with the same activity form a
// group. Small groups come first, because a hang is mostly explained by the one rank that differs
// from the others. In the daemons, [HangDetector] determines since when no rank has shown a sign of activity.
//
// All operations have timeouts, because inspecting a process that hangs in the kernel may hang as
// well.
package stackdump
