package signal

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
)

// Capabilities has the results of one node's tests of the file system: for each capability an empty
// string if it works, and otherwise the error.
type Capabilities struct {
	Rename string `json:"rename,omitempty"` // a rename replaces a file
	Link   string `json:"link,omitempty"`   // a hard link works, and fails if the name exists
}

// TestCapabilities tests renames and links with files in the subdirectory LogsDir, which it removes
// afterwards. It returns an error if the file system is not writable at all.
func (d *Dir) TestCapabilities(ctx context.Context) (Capabilities, error) {
	dir := filepath.Join(d.path, LogsDir)
	return guardedCall(ctx, d.access.Meter, "try", dir, func() (Capabilities, error) {
		// The names begin with a dot and are used once: no process looks at them, and no client has
		// cached that they are missing.
		name := func(what string) string {
			return fmt.Sprintf("%s/.try-%d-%s-%s", dir, d.nodeIndex, what, randomTag()[:8])
		}
		first, second, third := name("first"), name("second"), name("third")
		defer func() {
			for _, path := range []string{first, second, third} {
				d.access.removeQuietly(path)
			}
		}()
		for _, path := range []string{first, second} {
			if err := d.access.writeNew(path, []byte(filepath.Base(path)), false); err != nil {
				return Capabilities{}, d.explainWrite(path, err)
			}
		}
		var tested Capabilities
		// Link the third name to the first file. After that, a link to the second one must fail.
		if err := d.access.changeName(MakeLink, first, third); err != nil {
			tested.Link = bareErrno(err).Error()
		} else if err := d.access.FS.ChangeName(MakeLink, second, third); !errors.Is(err, os.ErrExist) {
			tested.Link = fmt.Sprintf("a hard link can replace an existing name (%v)", err)
		}
		// Rename the first file to the second name, which exists.
		if err := d.access.renamePrivate(first, second); err != nil {
			tested.Rename = bareErrno(err).Error()
			return tested, nil
		}
		data, err := d.access.FS.ReadFile(second)
		switch {
		case err != nil && !isTransient(err):
			tested.Rename = bareErrno(err).Error()
		case err == nil && string(data) != filepath.Base(first):
			tested.Rename = "after a rename, the name still has the old content"
		}
		return tested, nil
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
