// Package why tells what the processes of a run are doing: the driver, every rank, the services.
//
// A node is looked at by a process beside its daemon (Node.Look), which prints what it has seen as one line of JSON a
// child. Whoever asks makes one picture of all lines (NewPicture): those who do the same are one group, and the smallest
// groups come first, since what explains a hang is mostly the one rank that does something else. Idle judges, within
// the daemons, since when no rank does anything.
//
// Nothing here waits without a bound: a process that hangs in the kernel may take along who looks at it.
package why
