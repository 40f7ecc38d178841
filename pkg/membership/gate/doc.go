// Package gate decides which conditions for opening the gate are not met, which nodes do not meet
// them, and what these nodes report about the reason. The results are used for the head's log
// lines, for the status command, and for opening the gate. The package has no side effects; it only
// reads the reasons from the run directory.
package gate
