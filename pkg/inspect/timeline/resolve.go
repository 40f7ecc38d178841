package timeline

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/bringupd/bringupd/pkg/signal"
)

// pathAdvice ends the error messages with advice.
const pathAdvice = "give <log-dir>/<job>.<step>, or a log directory that contains a run"

// FindRun returns the run directory that a user means by arg. It may be a run directory, a log
// directory or its link "latest" (both mean the newest run), or the name of a run in logDir. An
// empty arg means the newest run in logDir. A name is looked up in the working directory first, and
// in logDir only if there is no run of that name.
func FindRun(ctx context.Context, arg, logDir string) (string, error) {
	found, err := runAtOrBelow(ctx, cmp.Or(arg, logDir))
	if err != nil && arg != "" && arg == filepath.Base(arg) {
		if inLogs, err := runAtOrBelow(ctx, filepath.Join(logDir, arg)); err == nil {
			return inLogs, nil
		}
	}
	return found, err
}

// runAtOrBelow returns the path if it is a run directory, or the newest run in it if it is a log
// directory.
func runAtOrBelow(ctx context.Context, path string) (string, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return "", fmt.Errorf("cannot use %s: %v", path, err)
	}
	isLink := filepath.Base(path) == signal.LatestLink
	if isLink {
		path = filepath.Dir(path)
	}
	folder, err := listDirectory(ctx, path)
	switch {
	case err == nil && !isLink && isRunDirectory(folder):
		return path, nil
	case err == nil:
		return findNewestRun(ctx, path, folder)
	case !isLink && errors.Is(err, os.ErrNotExist):
		return "", fmt.Errorf("cannot find a run at %s: it does not exist: %s", path, pathAdvice)
	default:
		return "", err
	}
}

// listDirectory lists a directory.
func listDirectory(ctx context.Context, path string) (*signal.DirSnapshot, error) {
	reader, err := signal.OpenReader(ctx, path)
	if err != nil {
		return nil, err
	}
	return reader.ListDir(ctx, "")
}

// isRunDirectory reports whether a directory is a run directory.
func isRunDirectory(folder *signal.DirSnapshot) bool {
	return slices.Contains(folder.Names, signal.ControlDir)
}

// findNewestRun returns the newest run directory in a log directory: the target of its link
// "latest" or, without a valid link, the run that was changed last.
func findNewestRun(ctx context.Context, logDir string, folder *signal.DirSnapshot) (string, error) {
	there := func(name string) bool {
		run, err := listDirectory(ctx, filepath.Join(logDir, name))
		return err == nil && isRunDirectory(run)
	}
	if slices.Contains(folder.Names, signal.LatestLink) {
		target, err := folder.ReadLink(ctx, signal.LatestLink)
		if err == nil && target == filepath.Base(target) && !strings.HasPrefix(target, ".") && there(target) {
			return filepath.Join(logDir, target), nil
		}
	}
	if err := context.Cause(ctx); err != nil {
		return "", fmt.Errorf("cannot find the newest run in %s: %w", logDir, err)
	}
	byAge, err := folder.ListDirs(ctx)
	if err != nil {
		return "", err
	}
	at := slices.IndexFunc(byAge, there)
	if at < 0 {
		return "", fmt.Errorf("cannot find a run in %s: it contains no run: %s", logDir, pathAdvice)
	}
	return filepath.Join(logDir, byAge[at]), nil
}
