// Package signal is the run directory: the one place where the daemons of a
// job meet. It is the only code that touches the share.
//
// A record appears whole or not at all and is written once: a dot-prefixed
// temporary in the same directory, written, closed and renamed. A reader lists
// a directory anew at every look and never opens or stats a name that a
// listing has not shown, because a client that once missed a name may go on
// answering "missing" from its cache for as long as the mount likes.
//
// The head makes the whole tree under a temporary name and renames it into
// place, so that whoever sees the run directory's name can open everything the
// head put into it. The directory is one attempt's alone: its name carries job,
// step and restart, and the nonce in every record tells it from a leftover of
// the same name.
//
// Every call into the share goes through one narrow seam, the interface share.
// It is made by a goroutine of its own and is given up when its context ends,
// because a stalled mount may hold it for minutes.
package signal
