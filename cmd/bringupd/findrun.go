package main

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/bringupd/bringupd/pkg/config"
	"github.com/bringupd/bringupd/pkg/inspect/runs"
	"github.com/bringupd/bringupd/pkg/process"
	"github.com/bringupd/bringupd/pkg/roles/launcher"
	"github.com/bringupd/bringupd/pkg/signal"
)

// runArgHelp explains how a run can be named.
const runArgHelp = "RUN is a run directory, the name of a run in the log directory, or the id of a job, " +
	"as the launcher's commands print it, of which the newest run is used. The default is the current run " +
	"inside a job, and otherwise the newest run."

// defaultLogDir is the end of the help of --log-dir.
const defaultLogDir = " (default: bringupd-logs in the directory where the job was submitted)"

type runSelector struct {
	logDir        string
	logDirSetting *config.Setting
}

// settings returns the settings of a subcommand, which only flags give, with --log-dir.
func (w *runSelector) settings(heading string, own ...*config.Setting) config.List {
	w.logDirSetting = config.NewText("log-dir", "DIR", &w.logDir,
		"log directory; without RUN its newest run is selected"+defaultLogDir).WithoutFile()
	return config.AssignCategory(heading, append(config.FlagsOnly(own...), w.logDirSetting)...)
}

// findRun returns the selected run directory: that of the named run (by its directory, its log
// directory or its name), or the run of which this program is part, or the newest one in the log
// directory.
func (w *runSelector) findRun(ctx context.Context, args []string) (string, error) {
	if len(args) > 1 {
		return "", usageErrorf("cannot use %d runs: give one run directory or log directory", len(args))
	}
	arg, logDir := strings.Join(args, ""), w.logDir
	if own := os.Getenv("BRINGUPD_RUN_DIR"); own != "" {
		if arg == "" && w.logDirSetting.Source != config.SourceFlag {
			arg = own
		}
		if logDir == "" {
			logDir = filepath.Dir(own)
		}
	}
	logDir, err := resolveLogDir(logDir)
	if err != nil {
		return "", err
	}
	return runs.Find(ctx, arg, logDir)
}

// listedDir returns the log directory that a subcommand lists: the given one, that of the run of
// which this program is part, or the default.
func (w *runSelector) listedDir(args []string) (string, error) {
	own := os.Getenv("BRINGUPD_RUN_DIR")
	switch {
	case len(args) > 0:
		return filepath.Abs(args[0])
	case w.logDir == "" && own != "":
		return filepath.Dir(own), nil
	}
	return resolveLogDir(w.logDir)
}

// awaitRun is like findRun, but waits for the run if it does not exist yet, and says so.
func (w *runSelector) awaitRun(ctx context.Context, args []string, waiter runs.Waiter) (string, error) {
	path, err := waiter.Await(ctx, func(ctx context.Context) (string, error) { return w.findRun(ctx, args) })
	return path, runArgError(err)
}

// newWaiter returns a Waiter that asks the installed launchers about jobs.
func (inv *invocation) newWaiter(unlimited bool) runs.Waiter {
	ask := func(ctx context.Context, job string) launcher.JobState {
		return launcher.AskJobState(ctx, job, process.RunClient)
	}
	return runs.Waiter{Ask: ask, Say: inv.printMessage, Unlimited: unlimited}
}

// openSelected opens the selected run. It can refuse a run that has ended.
func (w *runSelector) openSelected(ctx context.Context, args []string, refuseEnded bool) (run runs.Opened, err error) {
	path, err := w.findRun(ctx, args)
	if err == nil {
		run, err = runs.Open(ctx, path, refuseEnded)
	}
	return run, runArgError(err)
}

// requestTimeout is the timeout of requests to the shared file system for which a user waits.
const requestTimeout = 30 * time.Second

var errRequestTimeout = errors.New("timed out")

func withRequestTimeout(ctx context.Context) (context.Context, context.CancelFunc) {
	return context.WithTimeoutCause(ctx, requestTimeout, errRequestTimeout)
}

// withRun opens the selected run, which must not have ended, and calls do with a context that ends at
// a signal: see withSignals.
func (inv *invocation) withRun(
	w *runSelector, args []string, do func(ctx context.Context, again <-chan struct{}, run runs.Opened) error,
) error {
	return inv.withSignals(func(ctx context.Context, again <-chan struct{}) error {
		opening, cancel := withRequestTimeout(ctx)
		defer cancel()
		run, err := w.openSelected(opening, args, true)
		if err != nil {
			return err
		}
		return do(ctx, again, run)
	})
}

// runArgError reports an error of the argument, unless the file system has failed; nil is ignored.
func runArgError(err error) error {
	var directory *signal.DirError
	var stall *signal.StallError
	if err == nil || errors.As(err, &directory) || errors.As(err, &stall) || errors.Is(err, runs.ErrUnknownLimit) {
		return err
	}
	return usageErrorf("%v", err)
}
