// Package daemon is the sequence: it joins the nodes of a job, proves them
// ready, starts what they run, opens the gate for the driver, and ends the
// whole job, with its first cause, when anything that matters dies.
//
// Every daemon is a node; rank 0 is the head besides. What a node runs hangs
// from one context, whose cause is an *run.Ending: an orderly one or a failure.
package daemon
