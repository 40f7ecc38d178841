// Package runs finds the runs of a log directory from outside of the job.
package runs

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/bringupd/bringupd/pkg/roles/launcher"
	"github.com/bringupd/bringupd/pkg/signal"
	"github.com/bringupd/bringupd/pkg/signal/record"
)

// maxNamedRuns is the maximum number of runs that a NoRunError lists.
const maxNamedRuns = 5

// NoRunError reports that a log directory does not contain the run that a user means.
type NoRunError struct {
	Name   string // of the run or its job; empty if any run was meant
	LogDir string
	// Newest has the newest runs in LogDir, the newest first. It is nil if LogDir does not exist.
	Newest []string
	// JobState is what the launcher says of the job that has ended; empty if it was not asked.
	JobState string
}

// Error describes what was found, and what would be accepted.
func (e *NoRunError) Error() string {
	if e.JobState != "" {
		return fmt.Sprintf("cannot find %s in %s: %s, and its job has ended (%s): what it has printed says why "+
			"it made no run there; or give another --log-dir", e.Wanted(), e.LogDir, e.Found(), e.JobState)
	}
	return fmt.Sprintf("cannot find %s in %s: %s: give a run, the number of its job, or another --log-dir",
		e.Wanted(), e.LogDir, e.Found())
}

// Wanted describes the run that the user means.
func (e *NoRunError) Wanted() string {
	if e.Name == "" {
		return "a run"
	}
	return "run " + e.Name
}

// Found describes what the log directory contains.
func (e *NoRunError) Found() string {
	switch {
	case e.Newest == nil:
		return "it does not exist"
	case len(e.Newest) == 0:
		return "it contains no run"
	default:
		return "the newest runs there are " + strings.Join(e.Newest, ", ")
	}
}

// Find returns the run directory that a user means by arg. It may be a run directory, a log
// directory or its link "latest" (both mean the newest run), the name of a run in logDir, or the
// launcher's name of a job, whose newest run is meant. An empty arg means the newest run in logDir.
// A name is looked up in the working directory first. If there is no such run, the error is a
// *NoRunError.
func Find(ctx context.Context, arg, logDir string) (string, error) {
	if arg == "" {
		return findIn(ctx, logDir, "")
	}
	path, err := filepath.Abs(arg)
	if err != nil {
		return "", fmt.Errorf("cannot use %s: %v", arg, err)
	}
	parent, name := filepath.Dir(path), filepath.Base(path)
	isName := arg == name
	if isName && !isListed(ctx, parent, name) {
		return findIn(ctx, logDir, name)
	}
	found, err := runAtOrBelow(ctx, parent, name)
	if err == nil || ctx.Err() != nil {
		return found, err
	}
	none, isMissing := errors.AsType[*NoRunError](err)
	isEmpty := isMissing && none.LogDir == path // it is a directory without runs
	switch {
	case isName:
		found, byName := findIn(ctx, logDir, name)
		if byName == nil || !isEmpty {
			return found, byName
		}
	case isMissing && !isEmpty:
		return findIn(ctx, parent, name)
	}
	return "", err
}

// findIn returns the run directory in logDir of a run or job, or the newest one if name is empty.
func findIn(ctx context.Context, logDir, name string) (string, error) {
	folder, err := listLogDir(ctx, logDir)
	if err != nil {
		return "", noRun(err, &NoRunError{Name: name, LogDir: logDir})
	}
	if name == "" {
		return newestIn(ctx, logDir, folder)
	}
	if name == signal.LatestLink || slices.Contains(folder.Names, name) {
		if found, err := runAtOrBelow(ctx, logDir, name); err == nil {
			return found, nil
		}
	}
	names := launcher.JobNames(name)
	for _, job := range names {
		run := newestOfJob(ctx, logDir, folder.Names, job)
		if run != "" && !isOtherJob(ctx, filepath.Join(logDir, run), name, job) {
			return filepath.Join(logDir, run), nil
		}
	}
	all, err := runsByAge(ctx, logDir, folder)
	if err != nil {
		return "", err
	}
	for _, job := range names {
		if run := newestWithAlias(ctx, logDir, all, job); run != "" {
			return filepath.Join(logDir, run), nil
		}
	}
	isPart := func(run string) bool { return isWithin(run, names) }
	if at := slices.IndexFunc(all, isPart); at >= 0 {
		return filepath.Join(logDir, all[at]), nil
	}
	if err := context.Cause(ctx); err != nil {
		return "", fmt.Errorf("cannot find run %s in %s: %w", name, logDir, err)
	}
	return "", &NoRunError{Name: name, LogDir: logDir, Newest: append([]string{}, all[:min(len(all), maxNamedRuns)]...)}
}

// noRun returns none if err reports that a directory does not exist, and otherwise err.
func noRun(err error, none *NoRunError) error {
	if errors.Is(err, os.ErrNotExist) {
		return none
	}
	return err
}

// runAtOrBelow returns the directory of a name if it is a run directory, or the newest run in it if
// it is a log directory. The link to the newest run means its log directory.
func runAtOrBelow(ctx context.Context, parent, name string) (string, error) {
	if name == signal.LatestLink {
		return findIn(ctx, parent, "")
	}
	path := filepath.Join(parent, name)
	folder, err := listLogDir(ctx, path)
	switch {
	case err != nil:
		return "", noRun(err, &NoRunError{Name: name, LogDir: parent})
	case isRunDirectory(folder):
		return path, nil
	}
	return newestIn(ctx, path, folder)
}

// isListed reports whether a directory may contain a name. A client may cache for a while that a
// name does not exist if it was looked up without a listing that shows it.
func isListed(ctx context.Context, parent, name string) bool {
	folder, err := listLogDir(ctx, parent)
	return err != nil || name == signal.LatestLink || strings.HasPrefix(name, ".") ||
		slices.Contains(folder.Names, name)
}

func listLogDir(ctx context.Context, path string) (*signal.DirSnapshot, error) {
	reader, err := signal.OpenReader(ctx, path)
	if err != nil {
		return nil, err
	}
	return reader.ListDir(ctx, "")
}

func isRunDirectory(folder *signal.DirSnapshot) bool {
	return slices.Contains(folder.Names, signal.ControlDir)
}

func isRun(ctx context.Context, logDir, name string) bool {
	run, err := listLogDir(ctx, filepath.Join(logDir, name))
	return err == nil && isRunDirectory(run)
}

// newestIn returns the newest run directory in a log directory: the target of its link "latest" or,
// without a valid link, the run that was changed last.
func newestIn(ctx context.Context, logDir string, folder *signal.DirSnapshot) (string, error) {
	if slices.Contains(folder.Names, signal.LatestLink) {
		target, err := folder.ReadLink(ctx, signal.LatestLink)
		isName := err == nil && target == filepath.Base(target) && !strings.HasPrefix(target, ".")
		if isName && isRun(ctx, logDir, target) {
			return filepath.Join(logDir, target), nil
		}
	}
	if err := context.Cause(ctx); err != nil {
		return "", fmt.Errorf("cannot find the newest run in %s: %w", logDir, err)
	}
	all, err := folder.ListDirs(ctx)
	if err != nil {
		return "", err
	}
	at := slices.IndexFunc(all, func(name string) bool { return isRun(ctx, logDir, name) })
	if at < 0 {
		return "", &NoRunError{LogDir: logDir, Newest: []string{}}
	}
	return filepath.Join(logDir, all[at]), nil
}

// runsByAge returns the names of the run directories in a log directory, the one that was changed
// last first.
func runsByAge(ctx context.Context, logDir string, folder *signal.DirSnapshot) ([]string, error) {
	all, err := folder.ListDirs(ctx)
	return slices.DeleteFunc(all, func(name string) bool { return !isRun(ctx, logDir, name) }), err
}

// newestOfJob returns the newest run of a job among names, or an empty string if there is none.
func newestOfJob(ctx context.Context, logDir string, names []string, job string) (newest string) {
	var newestOrder []int
	for _, name := range names {
		order, is := launcher.OrderInJob(name, job)
		if is && (newest == "" || slices.Compare(order, newestOrder) > 0) && isRun(ctx, logDir, name) {
			newest, newestOrder = name, order
		}
	}
	return newest
}

// isOtherJob reports whether a run, which has the number of a job, is not that of the job with this
// name: the last element of a Slurm array has the number of the array, and the name of a server may
// be the name of a launch.
func isOtherJob(ctx context.Context, path, name, job string) bool {
	opened, err := openRun(ctx, path)
	isElement := func(known string) bool { return strings.HasPrefix(known, job+"_") }
	aliases := opened.job.LaunchAliases
	return err == nil && (slices.ContainsFunc(aliases, isElement) ||
		name != job && launcher.IsOtherName(name, aliases))
}

// isWithin reports whether a run is an element of one of the jobs, or nested in one.
func isWithin(run string, jobs []string) bool {
	return slices.ContainsFunc(jobs, func(job string) bool { return launcher.IsWithinJob(run, job) })
}

// isOfJob reports whether a run is that of a job, of a step or of an element of it.
func isOfJob(ctx context.Context, logDir, run, name string) bool {
	path := filepath.Join(logDir, run)
	return slices.ContainsFunc(launcher.JobNames(name), func(job string) bool {
		_, isOrdered := launcher.OrderInJob(run, job)
		_, isAlias := launcher.OrderInJob(run, aliasedJob(ctx, path, job))
		return isOrdered && !isOtherJob(ctx, path, name, job) || isAlias || launcher.IsWithinJob(run, job)
	})
}

// aliasedJob returns the name of the job, or of the step of the job, of a run if its job record says
// that it has another name in the launcher, or is an element of the array of that name. Otherwise it
// returns an empty string.
func aliasedJob(ctx context.Context, path, name string) string {
	alias, step, isJob := launcher.SplitSlurmJob(name)
	if !isJob {
		return ""
	}
	opened, err := openRun(ctx, path)
	if _, is := errors.AsType[*record.VersionError](err); is {
		err = nil // all versions have the names of the job
	}
	isAlias := func(known string) bool { return known == alias || strings.HasPrefix(known, alias+"_") }
	if err != nil || !slices.ContainsFunc(opened.job.LaunchAliases, isAlias) {
		return ""
	}
	return opened.job.LaunchID + step
}

// newestWithAlias returns the newest run of the job that has another name in the launcher, or an
// empty string if there is none. An array is its newest element.
func newestWithAlias(ctx context.Context, logDir string, runs []string, name string) string {
	for _, run := range runs {
		if job := aliasedJob(ctx, filepath.Join(logDir, run), name); job != "" {
			return newestOfJob(ctx, logDir, runs, job)
		}
	}
	return ""
}
