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

// Trial has the results of one node's tests of the file system: for each capability an empty string
// if it works, and otherwise the error.
type Trial struct {
	Rename string `json:"rename,omitempty"` // a rename replaces a file
	Link   string `json:"link,omitempty"`   // a hard link works, and fails if the name exists
}

// Try tests renames and links with files in the subdirectory Logs, which it removes afterwards. It
// returns an error if the file system is not writable at all.
func (d *Dir) Try(ctx context.Context) (Trial, error) {
	dir := filepath.Join(d.path, Logs)
	return guarded(ctx, d.via.Meter, "try", dir, func() (Trial, error) {
		// The names begin with a dot and are used once: no process looks at them, and no client has
		// cached that they are missing.
		name := func(what string) string {
			return filepath.Join(dir, fmt.Sprintf(".try-%0*d-%s-%s", Width(d.size), d.rank, what, newTag()[:8]))
		}
		first, second, third := name("first"), name("second"), name("third")
		defer func() {
			for _, path := range []string{first, second, third} {
				d.via.tidy(path)
			}
		}()
		for _, path := range []string{first, second} {
			if err := d.via.write(path, []byte(filepath.Base(path)), false); err != nil {
				return Trial{}, d.explainWrite(path, err)
			}
		}
		return Trial{Link: d.tryLink(first, second, third), Rename: d.tryRename(first, second)}, nil
	})
}

// tryLink makes name a link to first. After that, a link to second with the same name must fail.
func (d *Dir) tryLink(first, second, name string) string {
	if err := d.via.change(Link, first, name); err != nil {
		return errno(err).Error()
	}
	err := d.via.Share.Change(Link, second, name)
	if !errors.Is(err, os.ErrExist) {
		return fmt.Sprintf("a name that is taken can be given to another file (%v)", err)
	}
	return ""
}

// tryRename renames first to second, which exists.
func (d *Dir) tryRename(first, second string) string {
	if err := d.via.renameOwn(first, second); err != nil {
		return errno(err).Error()
	}
	data, err := d.via.Share.Read(second)
	switch {
	case err != nil && !passing(err):
		return errno(err).Error()
	case err == nil && string(data) != filepath.Base(first):
		return "the name has the content of before"
	}
	return ""
}

// Hear makes the kernel report names that appear in the subdirectory sub, on any file system. It
// returns a channel for the reports and a function that ends them. Most shared file systems only
// report changes by this node.
func (d *Dir) Hear(sub string) (heard <-chan struct{}, stop func()) {
	return hint(filepath.Join(d.path, sub), true)
}

// Remove removes the run directory and everything in it.
func (d *Dir) Remove(ctx context.Context) error {
	err := do(ctx, d.via.Meter, "remove", d.path, func() error { return d.via.change(Remove, "", d.path) })
	if err == nil || Stalled(err) {
		return err
	}
	return fmt.Errorf("cannot remove %s: %v", d.path, errno(err))
}

// mostRuns is the maximum number of names in a log directory that are searched for runs without an
// end.
const mostRuns = 1000

// Endless is a run directory without a result that is not written to any more.
type Endless struct {
	Path  string        `json:"path"`
	Quiet time.Duration `json:"quiet_ns"` // time since the last write
}

// EndlessRuns returns this user's runs in the log directory that have no result and were not
// written to for the given time, by this node's clock. When ctx ends, it returns what it has found
// so far.
func EndlessRuns(ctx context.Context, p Place, quiet time.Duration) ([]Endless, error) {
	p.Access = p.ready()
	names, err := guarded(ctx, p.Meter, "list", p.LogDir, func() ([]string, error) { return p.Share.List(p.LogDir, nil) })
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var found []Endless
	for _, name := range names[:min(len(names), mostRuns)] {
		path := filepath.Join(p.LogDir, name)
		written, err := guarded(ctx, p.Meter, "look into", path, func() (time.Time, error) { return p.lastWritten(path) })
		if Stalled(err) {
			return found, err
		}
		if age := time.Since(written); err == nil && !written.IsZero() && age > quiet {
			found = append(found, Endless{Path: path, Quiet: age})
		}
	}
	return found, nil
}

// lastWritten returns the time of the last write to the run directory at path. The time is zero if
// path is not a run directory of this user, or has a result.
func (p Place) lastWritten(path string) (last time.Time, err error) {
	facts, err := p.Share.Look(path)
	if err != nil || !facts.Mode.IsDir() || facts.Owner != os.Geteuid() {
		return last, err
	}
	names, err := p.Share.List(path, nil)
	if err != nil || !slices.Contains(names, Control) || slices.Contains(names, NameResult) {
		return last, err
	}
	paths := []string{"", Control, Nodes, Logs, Events}
	for _, sub := range []string{Logs, Events} { // a healthy run may only write logs
		inside, _ := p.Share.List(filepath.Join(path, sub), nil)
		for _, name := range inside {
			paths = append(paths, filepath.Join(sub, name))
		}
	}
	for _, name := range paths {
		if facts, err := p.Share.Look(filepath.Join(path, name)); err == nil && facts.Written.After(last) {
			last = facts.Written
		}
	}
	return last, nil
}
