package signal

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"
)

// LastChange returns when names last changed in the run directory at path, by
// the share's clock: beats change them for as long as the daemons live.
func LastChange(ctx context.Context, path string) (last time.Time, err error) {
	for _, sub := range []string{Control, Nodes} {
		dir := filepath.Join(path, sub)
		info, err := guarded(ctx, new(Meter), "look at", dir, func() (os.FileInfo, error) { return os.Lstat(dir) })
		if err != nil {
			return last, fmt.Errorf("cannot look at %s: %w", dir, errno(err))
		}
		if at := info.ModTime(); at.After(last) {
			last = at
		}
	}
	return last, nil
}
