package main

import (
	"cmp"
	"os"
	"path/filepath"
)

// whichRun is the run that is meant: the one that is named, or that this program
// runs in, or the newest one in the log directory.
func whichRun(args []string) (string, error) {
	switch len(args) {
	case 0:
	case 1:
		return args[0], nil
	default:
		return "", usage("cannot use %d runs: give one run directory, or a log directory whose newest run is meant", len(args))
	}
	if run := os.Getenv("BRINGUPD_RUN_DIR"); run != "" {
		return run, nil
	}
	return cmp.Or(os.Getenv("BRINGUPD_LOG_DIR"), filepath.Join(os.Getenv("SLURM_SUBMIT_DIR"), "bringupd-logs")), nil
}
