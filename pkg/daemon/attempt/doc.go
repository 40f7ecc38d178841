// Package attempt runs a daemon over all attempts of its launch: it decides in which attempt the
// daemon takes part, when the next one starts, and when there is none.
//
// The attempts are counted by their directories: each has a run directory of its own, which the
// head makes, and a daemon that starts looks for the newest. So a daemon that its launcher has
// restarted finds its peers without knowing the number of restarts.
package attempt
