package signal

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

// Reader reads a directory of the share for people, and never changes it: a
// run's, live or a year old, or one that has runs. It follows no link, and reads
// no file that belongs to anybody but the directory's owner. Its methods may be
// called from several goroutines.
type Reader struct {
	path  string
	owner int
	via   Access
}

// OpenReader returns a reader of the directory at path, which is no link.
func OpenReader(ctx context.Context, path string) (*Reader, error) {
	r := &Reader{path: path, via: Access{}.ready()}
	facts, err := asked(ctx, r.via, "look into", path, func() (Facts, error) { return r.via.Share.Look(path) })
	if err == nil && !facts.Mode.IsDir() {
		err = errNotDir
	}
	if err != nil {
		return nil, fmt.Errorf("cannot read %s: %w", path, errno(err))
	}
	r.owner = facts.Owner
	return r, nil
}

// Reader returns one of the run directory, by the same way into the share.
func (d *Dir) Reader() *Reader { return &Reader{path: d.path, owner: os.Geteuid(), via: d.via} }

// LastChange returns when names last changed in the run directory at path, by
// the share's clock: beats change them for as long as the daemons live.
func LastChange(ctx context.Context, path string) (last time.Time, err error) {
	share := Access{}.ready()
	for _, sub := range []string{Control, Nodes} {
		dir := filepath.Join(path, sub)
		facts, err := guarded(ctx, share.Meter, "look at", dir, func() (Facts, error) { return share.Share.Look(dir) })
		if err != nil {
			return last, fmt.Errorf("cannot look at %s: %w", dir, errno(err))
		}
		if facts.Written.After(last) {
			last = facts.Written
		}
	}
	return last, nil
}

// Folder is a directory as one listing has shown it.
type Folder struct {
	Names []string // in order, without temporaries
	of    *Reader
	path  string
}

// Folder lists a subdirectory; the empty one is the directory itself.
func (r *Reader) Folder(ctx context.Context, sub string) (*Folder, error) {
	path := filepath.Join(r.path, sub)
	names, err := r.via.names(ctx, path, r.own)
	if err != nil {
		return nil, fmt.Errorf("cannot list %s: %w", path, errno(err))
	}
	return &Folder{Names: names, of: r, path: path}, nil
}

// Listing takes the names of a run directory of size nodes apart.
func (f *Folder) Listing(size int) Listing { return newListing(f.Names, size, 1, time.Now()) }

// own refuses what belongs to somebody else.
func (r *Reader) own(facts Facts) error {
	if facts.Owner != r.owner {
		return fmt.Errorf("it belongs to %s, and the directory to %s", userName(facts.Owner), userName(r.owner))
	}
	return nil
}

// Content is what a file has.
type Content struct {
	// Data is its beginning and End its end; what is between was too much, and
	// is left out.
	Data, End []byte
	Size      int64
	Written   time.Time // when last, by the share's clock
}

// Read returns what a file has; of one that is larger than limit, the first and
// the last half of as much.
func (f *Folder) Read(ctx context.Context, name string, limit int64) (Content, error) {
	path := filepath.Join(f.path, name)
	content, err := guarded(ctx, f.of.via.Meter, "read", path, func() (c Content, err error) {
		data, facts, err := f.part(name, 0, limit)
		c = Content{Data: data, Size: facts.Size, Written: facts.Written}
		if err == nil && c.Size > limit {
			c.Data = data[:limit/2]
			c.End, _, err = f.part(name, c.Size-limit/2, limit/2)
		}
		return c, err
	})
	if err != nil {
		return content, fmt.Errorf("cannot read %s: %w", path, errno(err))
	}
	return content, nil
}

// From returns what a file has from offset on, at most that many bytes. Each call
// opens the file anew: a handle kept open may show the past.
func (f *Folder) From(ctx context.Context, name string, offset, most int64) ([]byte, error) {
	path := filepath.Join(f.path, name)
	data, err := guarded(ctx, f.of.via.Meter, "read", path, func() ([]byte, error) {
		data, _, err := f.part(name, offset, most)
		return data, err
	})
	if err != nil {
		return nil, fmt.Errorf("cannot read %s: %w", path, err)
	}
	return data, nil
}

func (f *Folder) part(name string, offset, most int64) ([]byte, Facts, error) {
	if name != filepath.Base(name) || strings.HasPrefix(name, ".") {
		return nil, Facts{}, errors.New("it is not a name in the directory")
	}
	data, facts, err := f.of.via.Share.Part(filepath.Join(f.path, name), offset, most)
	switch {
	case errors.Is(err, syscall.ELOOP):
		err = errors.New("it is a symbolic link")
	case err == nil && !facts.Mode.IsRegular():
		err = errors.New("it is not a file")
	case err == nil:
		err = f.of.own(facts)
	}
	if err != nil {
		data = nil // it may be somebody else's
	}
	return data, facts, err
}

// errCutOff says of a record that its end is missing.
var errCutOff = errors.New("it is cut off: its writer is at it, or was ended")

// errOther says of a record that it is another attempt's.
var errOther = errors.New("it is of another attempt")

// Record reads a record of the attempt with that nonce (of any, where it is
// empty), and returns when it was written by the share's clock. A file without
// anything in it is a mark, and no error: the record stays as it is.
func (f *Folder) Record(ctx context.Context, name, nonce string, rec Record) (written time.Time, err error) {
	content, err := f.Read(ctx, name, maxRecord)
	if err != nil || content.Size == 0 {
		return content.Written, err
	}
	path := filepath.Join(f.path, name)
	switch data := content.Data; {
	case content.End != nil:
		return content.Written, fmt.Errorf("cannot use %s: it is larger than any record", path)
	case data[len(data)-1] != '\n':
		return content.Written, fmt.Errorf("cannot use %s: %w", path, errCutOff)
	}
	err = decode(content.Data, nonce, rec)
	if errors.Is(err, errAbsent) {
		err = errOther
	}
	if err != nil {
		err = fmt.Errorf("cannot use %s: %w", path, err)
	}
	return content.Written, err
}

// Target returns where a symbolic link in the directory points.
func (f *Folder) Target(ctx context.Context, name string) (string, error) {
	path := filepath.Join(f.path, name)
	return guarded(ctx, f.of.via.Meter, "follow", path, func() (string, error) { return f.of.via.Share.Target(path) })
}

// Directories returns the directories in it, the one that was changed last
// first.
func (f *Folder) Directories(ctx context.Context) ([]string, error) {
	found, err := f.looked(ctx, func(facts Facts) bool { return facts.Mode.IsDir() })
	return slices.SortedFunc(maps.Keys(found), func(a, b string) int {
		return cmp.Or(found[b].Written.Compare(found[a].Written), cmp.Compare(b, a))
	}), err
}

// Files returns what is known of the files in it, by their names. What belongs to
// anybody but the directory's owner is left out.
func (f *Folder) Files(ctx context.Context) (map[string]Facts, error) {
	return f.looked(ctx, func(facts Facts) bool { return facts.Mode.IsRegular() && f.of.own(facts) == nil })
}

// looked returns what is known of those names that are taken. Such as are gone are
// left out.
func (f *Folder) looked(ctx context.Context, taken func(Facts) bool) (map[string]Facts, error) {
	return guarded(ctx, f.of.via.Meter, "look into", f.path, func() (map[string]Facts, error) {
		found := make(map[string]Facts)
		for _, name := range f.Names {
			if facts, err := f.of.via.Share.Look(filepath.Join(f.path, name)); err == nil && taken(facts) {
				found[name] = facts
			}
		}
		return found, nil
	})
}

// Hosts returns the host of each rank of a run of size nodes that has joined, as
// it says itself; of one whose record can't be read, nothing.
func (r *Reader) Hosts(ctx context.Context, size int) (map[int]string, error) {
	nodes, err := r.Folder(ctx, Nodes)
	if err != nil {
		return nil, err
	}
	hosts := make(map[int]string)
	for _, rank := range nodes.Listing(size).Ranks(Joined) {
		var joined JoinedRecord
		if _, err := nodes.Record(ctx, NodeName(rank, size, Joined), "", &joined); err == nil {
			hosts[rank] = joined.Host
		}
	}
	return hosts, context.Cause(ctx)
}
