// Package signal is the store of the run directory, by which the daemons of a job coordinate. It is
// the only code that accesses the shared file system.
//
// A record appears completely or not at all and is written once: as a temporary file with a leading
// dot in the same directory, which is written, closed and renamed. A reader lists the directory
// again at every poll and never opens or queries a name that a listing has not shown, because a
// client that once missed a name may answer "missing" from its cache for as long as the mount
// options allow.
//
// The head makes the whole tree under a temporary name and renames it into place, so that every
// process that sees the run directory can open everything in it. The directory belongs to one
// attempt: its name contains job, step and restart, and the nonce in every record distinguishes it
// from a leftover of the same name.
//
// Every call to the shared file system goes through one narrow interface, SharedFS. It is made in a
// goroutine of its own and abandoned when its context ends, because an unresponsive mount may block
// it for minutes.
package signal
