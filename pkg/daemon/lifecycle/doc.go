// Package lifecycle is one daemon's part in a run: the contexts of its tasks, how the run ends, and
// what the daemon publishes in the run directory.
package lifecycle
