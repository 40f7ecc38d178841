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

const mend = "give <log-dir>/<job>.<step>, or a log directory with a run in it"

func base(dir string) string { return filepath.Base(dir) }

// Resolve returns the run directory that a user means by arg: one, a log
// directory or the link in it, of which the newest run is meant, or the name of
// a run in logDir; nothing means the newest run in logDir. A name means what is in
// the working directory, unless there is no run of that name there.
func Resolve(ctx context.Context, arg, logDir string) (string, error) {
	found, err := runOrNewest(ctx, cmp.Or(arg, logDir))
	if err != nil && arg != "" && arg == filepath.Base(arg) {
		if inLogs, err := runOrNewest(ctx, filepath.Join(logDir, arg)); err == nil {
			return inLogs, nil
		}
	}
	return found, err
}

func runOrNewest(ctx context.Context, path string) (string, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return "", fmt.Errorf("cannot use %s: %v", path, err)
	}
	if filepath.Base(path) == signal.Latest {
		return Newest(ctx, filepath.Dir(path))
	}
	names, err := namesIn(ctx, path)
	if errors.Is(err, os.ErrNotExist) {
		return "", fmt.Errorf("cannot find a run at %s: there is nothing of that name: %s", path, mend)
	}
	if err != nil {
		return "", err
	}
	if slices.Contains(names, signal.Control) {
		return path, nil
	}
	return Newest(ctx, path)
}

func namesIn(ctx context.Context, path string) ([]string, error) {
	reader, err := signal.OpenReader(ctx, path)
	if err != nil {
		return nil, err
	}
	folder, err := reader.Folder(ctx, "")
	if err != nil {
		return nil, err
	}
	return folder.Names, nil
}

// Newest returns the newest run directory in a log directory: the one that the
// link there points at or, without one, that was changed last.
func Newest(ctx context.Context, logDir string) (string, error) {
	reader, err := signal.OpenReader(ctx, logDir)
	if err != nil {
		return "", err
	}
	folder, err := reader.Folder(ctx, "")
	if err != nil {
		return "", err
	}
	if slices.Contains(folder.Names, signal.Latest) {
		target, err := folder.Target(ctx, signal.Latest)
		if err == nil && target == filepath.Base(target) && !strings.HasPrefix(target, ".") && isRun(ctx, filepath.Join(logDir, target)) {
			return filepath.Join(logDir, target), nil
		}
	}
	if err := context.Cause(ctx); err != nil {
		return "", fmt.Errorf("cannot find the newest run in %s: %w", logDir, err)
	}
	byAge, err := folder.Directories(ctx)
	if err != nil {
		return "", err
	}
	for _, name := range byAge {
		if path := filepath.Join(logDir, name); isRun(ctx, path) {
			return path, nil
		}
	}
	return "", fmt.Errorf("cannot find a run in %s: there is none in it: %s", logDir, mend)
}

func isRun(ctx context.Context, path string) bool {
	names, err := namesIn(ctx, path)
	return err == nil && slices.Contains(names, signal.Control)
}
