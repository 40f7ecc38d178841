// Package run is one daemon's part in a run: how long its parts go on, how the run
// ends, and what the daemon makes appear in the run directory.
package run
