package main

import (
	"context"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/bringupd/bringupd/pkg/signal"
	"github.com/bringupd/bringupd/pkg/timeline"
)

// aRun tells how a run can be named.
const aRun = "RUN is a run's directory or its name in the log directory; without it, a command that a job runs means the run of that job."

// whichRun is how a subcommand is told which run is meant.
type whichRun struct {
	logDir string
	given  *setting
}

// setting is --log-dir.
func (w *whichRun) setting() *setting {
	w.given = notInFile(text("log-dir", "DIR", &w.logDir, "log directory whose newest run is meant, if no run is named (default: bringupd-logs where the job was submitted)"))
	return w.given
}

// find returns the run directory that is meant: that of the run which is named,
// by its directory, its log directory or its name, or of the one that this
// program runs in, or the newest one in the log directory.
func (w *whichRun) find(ctx context.Context, args []string) (string, error) {
	if len(args) > 1 {
		return "", usage("cannot use %d runs: give one run directory, or a log directory whose newest run is meant", len(args))
	}
	arg, logDir := "", w.logDir
	if len(args) == 1 {
		arg = args[0]
	}
	if own := os.Getenv("BRINGUPD_RUN_DIR"); own != "" {
		if arg == "" && w.given.source != byFlag {
			arg = own
		}
		if logDir == "" {
			logDir = filepath.Dir(own)
		}
	}
	logDir, err := (&options{logDir: logDir}).logs()
	if err != nil {
		return "", err
	}
	return timeline.Resolve(ctx, arg, logDir)
}

// whoAndWhich parts the arguments of a subcommand that takes a node and a run. One
// alone that is no rank means a run where there is one, and otherwise a host.
func (w *whichRun) whoAndWhich(ctx context.Context, args []string) (who, path string, err error) {
	switch {
	case len(args) == 2 || len(args) == 1 && isNode(args[0]):
		who, args = args[0], args[1:]
	case len(args) == 1 && !strings.Contains(args[0], "/"):
		if path, err = w.find(ctx, args); err == nil {
			return "", path, nil
		}
		path, none := w.find(ctx, nil)
		if none != nil {
			return "", "", err
		}
		return args[0], path, nil
	case len(args) > 2:
		return "", "", usage("cannot use %d arguments: give a node, and one run directory or a log directory whose newest run is meant", len(args))
	}
	path, err = w.find(ctx, args)
	return who, path, err
}

// isNode tells whether an argument can't mean a run.
func isNode(arg string) bool {
	_, err := strconv.Atoi(arg)
	return err == nil || arg == "driver" || arg == "head"
}

// openRun opens a run directory, and tells whether the run has ended.
func openRun(ctx context.Context, path string) (dir *signal.Dir, job signal.Job, ended bool, err error) {
	host, err := os.Hostname()
	if err != nil {
		return nil, job, false, err
	}
	if dir, job, err = signal.OpenExisting(ctx, path, host); err != nil {
		return nil, job, false, wrongRun(err)
	}
	if ended, err = dir.Ended(ctx); err != nil {
		return nil, job, false, wrongRun(err)
	}
	return dir, job, ended, nil
}
