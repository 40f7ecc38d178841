package main

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"time"

	"github.com/bringupd/bringupd/pkg/config"
	"github.com/bringupd/bringupd/pkg/inspect/runs"
	"github.com/bringupd/bringupd/pkg/process"
	"github.com/bringupd/bringupd/pkg/roles/launcher"
	"github.com/bringupd/bringupd/pkg/signal"
	"github.com/bringupd/bringupd/pkg/signal/record"
)

// runArgHelp explains how a run can be named.
const runArgHelp = "RUN is a run directory, the name of a run in the log directory, or the id of a job, " +
	"as the launcher's commands print it, of which the newest run is used. The default is the current run " +
	"inside a job, and otherwise the newest run."

type runSelector struct {
	logDir        string
	logDirSetting *config.Setting
}

// settings returns the settings of a subcommand, which only flags give, with --log-dir.
func (w *runSelector) settings(heading string, own ...*config.Setting) config.List {
	w.logDirSetting = config.NewText("log-dir", "DIR", &w.logDir,
		"log directory; without RUN its newest run is selected (default: bringupd-logs in the directory "+
			"where the job was submitted)").WithoutFile()
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

// openedRun is a run directory that was opened from outside the job.
type openedRun struct {
	*signal.Dir
	jobRecord record.Job
	hasEnded  bool
}

// openSelected opens the selected run. It can refuse a run that has ended.
func (w *runSelector) openSelected(ctx context.Context, args []string, refuseEnded bool) (run openedRun, err error) {
	path, err := w.findRun(ctx, args)
	if err != nil {
		return run, runArgError(err)
	}
	host, err := os.Hostname()
	if err != nil {
		return run, err
	}
	if run.Dir, run.jobRecord, err = signal.OpenExisting(ctx, path, host); err == nil {
		run.hasEnded, err = run.HasEnded(ctx)
	}
	if err != nil {
		return run, runArgError(err)
	}
	if run.hasEnded && refuseEnded {
		err = usageErrorf("cannot use run %s: it has ended (%s)", run.Name(), run.Path())
	}
	return run, err
}

// openNode opens the run that is selected by the arguments of a subcommand for a node and a run. A
// single argument is a node if it is a word for logs or an index of a node in the default run, a
// run or job if that exists, and otherwise a host.
func (w *runSelector) openNode(ctx context.Context, args []string) (node string, run openedRun, err error) {
	switch {
	case len(args) > 2:
		return "", run, usageErrorf(
			"cannot use %d arguments: give a node, and one run directory or log directory", len(args))
	case len(args) == 2 || len(args) == 1 && (runs.IsKindWord(args[0]) || w.isNodeOrRole(ctx, args[0])):
		node, args = args[0], args[1:]
	case len(args) == 1 && !strings.Contains(args[0], "/"):
		_, err := w.findRun(ctx, args)
		if err == nil {
			break
		}
		newest, noRun := w.openSelected(ctx, nil, false)
		// A number is that of a job or of a node.
		if _, notNumber := strconv.Atoi(args[0]); noRun == nil && notNumber == nil {
			_, noNode := launcher.FindNode(args[0], newest.jobRecord.Size, func(int) string { return "" })
			return "", run, usageErrorf("%v; and run %s: %v", err, newest.Name(), noNode)
		}
		if noRun == nil {
			return args[0], newest, nil
		}
	}
	run, err = w.openSelected(ctx, args, false)
	return node, run, err
}

// isNodeOrRole reports whether an argument is the index of a node or a role in the default run, and
// not the number of a job or another run.
func (w *runSelector) isNodeOrRole(ctx context.Context, arg string) bool {
	if strings.Contains(arg, "/") {
		return false
	}
	index, err := strconv.Atoi(arg)
	run, openErr := w.openSelected(ctx, nil, false)
	if openErr != nil || err == nil {
		return openErr == nil && index < run.jobRecord.Size
	}
	return runs.IsRoleWord(arg, run.jobRecord.Plan)
}

// findNode returns the index and the host of a node that is given by either. The host is empty if
// the node has not joined.
func (run openedRun) findNode(ctx context.Context, name string) (int, string, error) {
	hosts, err := run.NewReader().NodeHosts(ctx, run.jobRecord.Size)
	if err != nil {
		return 0, "", err
	}
	node, err := launcher.FindNode(name, run.jobRecord.Size, func(node int) string { return hosts[node] })
	if err != nil {
		return 0, "", usageErrorf("cannot use run %s: %v", run.Name(), err)
	}
	return node, hosts[node], nil
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
	w *runSelector, args []string, do func(ctx context.Context, again <-chan struct{}, run openedRun) error,
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
