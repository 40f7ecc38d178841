// Package attempt is a daemon's life over all attempts of its launch: which one it takes
// part in, when the next one begins, and when there is none.
//
// The attempts are counted by the share: each has a run directory of its own, which the
// head makes, and a daemon that begins looks which is the newest. So one that its launcher
// has started anew finds its peers, and needs nobody to tell it how often that was.
package attempt
