package signal

import (
	"context"
	"fmt"
	"path/filepath"
)

// TestRename tests with files in the subdirectory LogsDir, which it removes afterwards, whether a
// rename replaces a file. problem is empty if it does. TestRename returns an error if the file system
// is not writable at all.
func (d *Dir) TestRename(ctx context.Context) (problem string, err error) {
	dir := filepath.Join(d.path, LogsDir)
	return guardedCall(ctx, d.access.Meter, "try", dir, func() (string, error) {
		// The names begin with a dot and are used once: no process looks at them, and no client has
		// cached that they are missing.
		name := func(what string) string {
			return fmt.Sprintf("%s/.try-%d-%s-%s", dir, d.nodeIndex, what, randomTag()[:8])
		}
		first, second := name("first"), name("second")
		defer d.access.removeQuietly(first)
		defer d.access.removeQuietly(second)
		for _, path := range []string{first, second} {
			if err := d.access.writeNew(path, []byte(filepath.Base(path)), false); err != nil {
				return "", d.explainWrite(path, err)
			}
		}
		if err := d.access.renamePrivate(first, second); err != nil {
			return bareErrno(err).Error(), nil
		}
		data, err := d.access.FS.ReadFile(second)
		switch {
		case err != nil && !isTransient(err):
			return bareErrno(err).Error(), nil
		case err == nil && string(data) != filepath.Base(first):
			return "after a rename, the name still has the old content", nil
		}
		return "", nil
	})
}

// RemoveAll removes the run directory and everything in it.
func (d *Dir) RemoveAll(ctx context.Context) error {
	err := d.access.removeGuarded(ctx, d.path)
	if err == nil || IsStalled(err) {
		return err
	}
	return fmt.Errorf("cannot remove %s: %v", d.path, bareErrno(err))
}
