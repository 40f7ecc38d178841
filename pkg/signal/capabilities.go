package signal

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"
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

// maxScannedRuns is the maximum number of names in a log directory that are searched for runs
// without an end.
const maxScannedRuns = 1000

// StaleRun is a run directory without a result that is not written to any more.
type StaleRun struct {
	Path         string        `json:"path"`
	UnchangedFor time.Duration `json:"quiet_ns"` // time since the last write
}

// FindStaleRuns returns this user's runs in the log directory that have no result and were not
// written to for the given time, by this node's clock. When ctx ends, it returns what it has found
// so far.
func FindStaleRuns(ctx context.Context, p Location, quiet time.Duration) ([]StaleRun, error) {
	p.Access = p.withDefaults()
	list := func(path string) ([]string, error) { return p.FS.ListDir(path, nil) }
	names, err := guardedAt(ctx, p.Access, "list", p.LogDir, list)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	slices.Sort(names) // so that a second search inspects the same ones
	var found []StaleRun
	for _, name := range names[:min(len(names), maxScannedRuns)] {
		path := filepath.Join(p.LogDir, name)
		written, err := guardedAt(ctx, p.Access, "inspect", path, p.lastWriteTime)
		if IsStalled(err) {
			return found, err
		}
		if age := time.Since(written); err == nil && !written.IsZero() && age > quiet {
			found = append(found, StaleRun{Path: path, UnchangedFor: age})
		}
	}
	return found, nil
}

// lastWriteTime returns the time of the last write to the run directory at path. The time is zero
// if path is not a run directory of this user, or has a result.
func (p Location) lastWriteTime(path string) (last time.Time, err error) {
	facts, err := p.FS.Stat(path)
	if err != nil || !facts.Mode.IsDir() || facts.Owner != os.Geteuid() {
		return last, err
	}
	names, err := p.FS.ListDir(path, nil)
	if err != nil || !slices.Contains(names, ControlDir) || slices.Contains(names, NameResult) {
		return last, err
	}
	paths := []string{"", ControlDir, NodesDir, LogsDir, EventsDir}
	for _, sub := range []string{LogsDir, EventsDir} { // a healthy run may only write logs
		inside, _ := p.FS.ListDir(filepath.Join(path, sub), nil)
		for _, name := range inside {
			paths = append(paths, filepath.Join(sub, name))
		}
	}
	for _, name := range paths {
		if facts, err := p.FS.Stat(filepath.Join(path, name)); err == nil && facts.ModTime.After(last) {
			last = facts.ModTime
		}
	}
	return last, nil
}
