// Package gate knows what the gate asks of the nodes of a run, who lacks it and
// what they say of it: for the head's lines while it waits, for status, and for
// who opens the gate. It is pure: what is there, the caller has seen.
package gate
