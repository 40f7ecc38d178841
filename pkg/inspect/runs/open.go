package runs

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"strings"

	"github.com/bringupd/bringupd/pkg/roles/launcher"
	"github.com/bringupd/bringupd/pkg/signal"
	"github.com/bringupd/bringupd/pkg/signal/record"
)

// Opened is a run directory that was opened from outside of the job.
type Opened struct {
	*signal.Dir
	Job     record.Job
	IsEnded bool
}

// Open opens the run directory at path. It can refuse a run that has ended.
func Open(ctx context.Context, path string, refuseEnded bool) (run Opened, err error) {
	host, err := os.Hostname()
	if err != nil {
		return run, err
	}
	if run.Dir, run.Job, err = signal.OpenExisting(ctx, path, host); err == nil {
		run.IsEnded, err = run.HasEnded(ctx)
	}
	if err == nil && run.IsEnded && refuseEnded {
		err = fmt.Errorf("cannot use run %s: it has ended (%s)", run.Name(), run.Path())
	}
	return run, err
}

// FindNode returns the index and the host of a node that is given by either. The host is empty if
// the node has not joined. If there is no such node, the error is a *SelectionError.
func (run Opened) FindNode(ctx context.Context, name string) (int, string, error) {
	hosts, err := run.NewReader().NodeHosts(ctx, run.Job.Size)
	if err != nil {
		return 0, "", err
	}
	node, err := launcher.FindNode(name, run.Job.Size, func(node int) string { return hosts[node] })
	if err != nil {
		return 0, "", &SelectionError{fmt.Sprintf("cannot use run %s: %v", run.Name(), err)}
	}
	return node, hosts[node], nil
}

// Finder returns the run directory that the arguments of a subcommand select.
type Finder func(ctx context.Context, args []string) (string, error)

func (f Finder) open(ctx context.Context, args []string) (run Opened, err error) {
	path, err := f(ctx, args)
	if err != nil {
		return run, err
	}
	return Open(ctx, path, false)
}

// OpenNode opens the run that is selected by the arguments of a subcommand for a node and a run. A
// single argument is a node if it is a word for logs or an index of a node in the default run, a run
// or job if that exists, and otherwise a host.
func (f Finder) OpenNode(ctx context.Context, args []string) (node string, run Opened, err error) {
	switch {
	case len(args) > 2:
		return "", run, &SelectionError{fmt.Sprintf(
			"cannot use %d arguments: give a node, and one run directory or log directory", len(args))}
	case len(args) == 2 || len(args) == 1 && (IsKindWord(args[0]) || f.isNodeOrRole(ctx, args[0])):
		node, args = args[0], args[1:]
	case len(args) == 1 && !strings.Contains(args[0], "/"):
		_, err := f(ctx, args)
		if err == nil {
			break
		}
		newest, noRun := f.open(ctx, nil)
		// A number is that of a job or of a node.
		if _, notNumber := strconv.Atoi(args[0]); noRun == nil && notNumber == nil {
			_, noNode := launcher.FindNode(args[0], newest.Job.Size, func(int) string { return "" })
			return "", run, &SelectionError{fmt.Sprintf("%v; and run %s: %v", err, newest.Name(), noNode)}
		}
		if noRun == nil {
			return args[0], newest, nil
		}
	}
	run, err = f.open(ctx, args)
	return node, run, err
}

// isNodeOrRole reports whether an argument is the index of a node or a role in the default run, and
// not the number of a job or another run.
func (f Finder) isNodeOrRole(ctx context.Context, arg string) bool {
	if strings.Contains(arg, "/") {
		return false
	}
	index, err := strconv.Atoi(arg)
	run, openErr := f.open(ctx, nil)
	if openErr != nil || err == nil {
		return openErr == nil && index < run.Job.Size
	}
	return IsRoleWord(arg, run.Job.Plan)
}
