package signal

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
)

// Make makes a subdirectory, for the first who needs it.
func (d *Dir) Make(ctx context.Context, sub string) error {
	path := filepath.Join(d.path, sub)
	return d.change(ctx, "make", path, func() error { return d.via.makeOwn(path) })
}

// OwnedNames returns the names that one look at a subdirectory shows. One in which
// somebody else could plant names is refused by a *DirError.
func (d *Dir) OwnedNames(ctx context.Context, sub string) ([]string, error) {
	path := filepath.Join(d.path, sub)
	return d.list(ctx, path, func(facts Facts) error { return Place{Host: d.host}.trust(path, facts) })
}

// ReadOwned reads once a record that somebody else may have planted: it must be a
// file of this user's that nobody else can write to. Of its errors, Absent tells
// which may go away by themselves.
func (d *Dir) ReadOwned(ctx context.Context, sub, name string, rec Record) error {
	path := filepath.Join(d.path, sub, name)
	facts, err := asked(ctx, d.via, "inspect", path, func() (Facts, error) { return d.via.Share.Look(path) })
	switch {
	case err != nil:
		return fmt.Errorf("cannot look at %s: %w", path, err)
	case !facts.Mode.IsRegular():
		return fmt.Errorf("cannot use %s: it is no file", path)
	case facts.Owner != os.Geteuid():
		return fmt.Errorf("cannot use %s: it belongs to %s, and the run to %s", path, userName(facts.Owner), userName(os.Geteuid()))
	case facts.Mode.Perm()&0o022 != 0:
		return fmt.Errorf("cannot use %s: its mode is %04o: others could have written it", path, facts.Mode.Perm())
	}
	if err := d.read(ctx, sub, name, rec); err != nil {
		return fmt.Errorf("cannot use %s: %w", path, err)
	}
	return nil
}

// Absent tells whether an error of ReadOwned may go away by itself: this client
// does not know the file yet, or it is not whole, or not this attempt's.
func Absent(err error) bool { return passing(err) }

// Discard removes names that nobody needs any more.
func (d *Dir) Discard(ctx context.Context, sub string, names ...string) error {
	for _, name := range names {
		path := filepath.Join(d.path, sub, name)
		err := do(ctx, d.via.Meter, "remove", path, func() error { return d.via.change(Remove, "", path) })
		if err != nil && !passing(err) {
			return err
		}
	}
	return nil
}
