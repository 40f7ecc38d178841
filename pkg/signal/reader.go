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

// Reader reads a directory of the shared file system, and never changes it: that of a run, live or
// a year old, or one that has runs. It follows no link, and reads no file of another user than the
// directory's owner. Its methods are safe for concurrent use.
type Reader struct {
	path  string
	owner int
	via   Access
}

// OpenReader returns a reader of the directory at path, which must not be a link.
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

// Reader returns a reader of the run directory, with the same access.
func (d *Dir) Reader() *Reader { return &Reader{path: d.path, owner: os.Geteuid(), via: d.via} }

// LastChange returns when names last changed in the run directory at path, by the server's clock.
// Heartbeats change names for as long as the daemons live.
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

// Folder is a directory, as one listing has shown it.
type Folder struct {
	Names []string // sorted, without temporaries
	of    *Reader
	path  string
}

// Folder lists a subdirectory. An empty name means the directory itself.
func (r *Reader) Folder(ctx context.Context, sub string) (*Folder, error) {
	path := filepath.Join(r.path, sub)
	names, err := r.via.names(ctx, path, r.own)
	if err != nil {
		return nil, fmt.Errorf("cannot list %s: %w", path, errno(err))
	}
	return &Folder{Names: names, of: r, path: path}, nil
}

// Listing parses the names of a run directory of size nodes.
func (f *Folder) Listing(size int) Listing { return newListing(f.Names, size, 1, time.Now()) }

// own returns an error if a file does not belong to the directory's owner.
func (r *Reader) own(facts Facts) error {
	if facts.Owner != r.owner {
		return fmt.Errorf("it belongs to %s, and the directory to %s", userName(facts.Owner), userName(r.owner))
	}
	return nil
}

// Content is the content of a file.
type Content struct {
	// Data is its beginning and End its end; the middle of a large file is left out.
	Data, End []byte
	Size      int64
	Written   time.Time // last modification, by the server's clock
}

// Read returns the content of a file. If it is larger than limit, it returns the first and the last
// half of that size.
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

// From returns the content of a file from offset on, limited to `most` bytes. Each call opens the
// file again, because an open handle may show old content.
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
		data = nil // it may belong to another user
	}
	return data, facts, err
}

// errCutOff reports that the end of a record is missing.
var errCutOff = errors.New("it is cut off: its writer is at it, or was ended")

// errOther reports that a record belongs to another attempt.
var errOther = errors.New("it is of another attempt")

// Record reads a record of the attempt with the given nonce (of any attempt if it is empty), and
// returns its modification time by the server's clock. An empty file is a valid mark: rec is not
// changed.
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

// Target returns the target of a symbolic link in the directory.
func (f *Folder) Target(ctx context.Context, name string) (string, error) {
	path := filepath.Join(f.path, name)
	return guarded(ctx, f.of.via.Meter, "follow", path, func() (string, error) { return f.of.via.Share.Target(path) })
}

// Directories returns the subdirectories, the one that was changed last first.
func (f *Folder) Directories(ctx context.Context) ([]string, error) {
	found, err := f.looked(ctx, func(facts Facts) bool { return facts.Mode.IsDir() })
	return slices.SortedFunc(maps.Keys(found), func(a, b string) int {
		return cmp.Or(found[b].Written.Compare(found[a].Written), cmp.Compare(b, a))
	}), err
}

// Files returns the attributes of the files in it, by name. Files of other users than the
// directory's owner are skipped.
func (f *Folder) Files(ctx context.Context) (map[string]Facts, error) {
	return f.looked(ctx, func(facts Facts) bool { return facts.Mode.IsRegular() && f.of.own(facts) == nil })
}

// looked returns the attributes of the directory's names, by name, if the function taken accepts
// them. Names that have disappeared are skipped.
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

// Hosts returns the host in the record of each node that has joined a run of size nodes. Records
// that cannot be read are skipped.
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
