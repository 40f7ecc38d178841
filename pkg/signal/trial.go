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

// Trial is what the share can do, as one node has tried it: empty where it can,
// and what was answered where it can't.
type Trial struct {
	Rename string `json:"rename,omitempty"` // a file takes another one's name
	Link   string `json:"link,omitempty"`   // a file has two names, and no name two files
}

// Try has the share rename and link files, in the run directory's logs, and
// leaves nothing there. Its error is a share that can't be written to at all.
func (d *Dir) Try(ctx context.Context) (Trial, error) {
	dir := filepath.Join(d.path, Logs)
	return guarded(ctx, d.via.Meter, "try", dir, func() (Trial, error) {
		// Dot-names, each tried once: nobody looks at them, and no client has
		// been told that they are missing.
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

// tryLink gives first a second name, which then must not become second's.
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

// tryRename has first take the name of second.
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

// Hear asks the kernel to tell of names that appear in the subdirectory sub,
// whatever file system it is on, and returns where it does so and what ends it.
// Most shares tell of what this node writes alone.
func (d *Dir) Hear(sub string) (heard <-chan struct{}, stop func()) {
	return hint(filepath.Join(d.path, sub), true)
}

// Remove removes the run directory and all in it.
func (d *Dir) Remove(ctx context.Context) error {
	err := do(ctx, d.via.Meter, "remove", d.path, func() error { return d.via.change(Remove, "", d.path) })
	if err == nil || Stalled(err) {
		return err
	}
	return fmt.Errorf("cannot remove %s: %v", d.path, errno(err))
}

// mostRuns bounds how many names of a log directory are looked at for runs
// without an end.
const mostRuns = 1000

// Endless is a run directory without a result in which nothing is written any
// more.
type Endless struct {
	Path  string        `json:"path"`
	Quiet time.Duration `json:"quiet_ns"` // since something was last written there
}

// EndlessRuns returns the runs in the log directory that have no result and in
// which nothing was written for that long, by this node's clock; but none of
// those that are not ours. It gives up at the end of ctx with what it has found.
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

// lastWritten returns when something was last written in a run directory
// without a result; zero where it is none, or none of ours.
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
	for _, sub := range []string{Logs, Events} { // a run that is well may be quiet but for its logs
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
