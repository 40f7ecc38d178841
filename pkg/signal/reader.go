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

	"github.com/bringupd/bringupd/internal/textutil"
	"github.com/bringupd/bringupd/pkg/signal/record"
)

// Reader reads a directory of the shared file system, and never changes it: that of a run, live or
// a year old, or one that has runs. It follows no link, and reads no file of another user than the
// directory's owner. Its methods are safe for concurrent use.
type Reader struct {
	path   string
	owner  int
	access Access
}

// OpenReader returns a reader of the directory at path, which must not be a link.
func OpenReader(ctx context.Context, path string) (*Reader, error) {
	r := &Reader{path: path, access: Access{}.withDefaults()}
	facts, err := guardedQuery(ctx, r.access, "inspect", path, r.access.FS.Stat)
	if err == nil && !facts.Mode.IsDir() {
		err = errNotDir
	}
	if err != nil {
		return nil, callError("read", path, err)
	}
	r.owner = facts.Owner
	return r, nil
}

// NewReader returns a reader of the run directory, with the same access.
func (d *Dir) NewReader() *Reader {
	return &Reader{path: d.path, owner: os.Geteuid(), access: d.access}
}

// LastChangeTime returns when a daemon last changed names in the run directory at path, by the
// server's clock. Heartbeats change names for as long as the daemons live.
func LastChangeTime(ctx context.Context, path string) (last time.Time, err error) {
	reader, err := OpenReader(ctx, path)
	if err != nil {
		return last, err
	}
	return reader.lastChangeTime(ctx)
}

func (r *Reader) lastChangeTime(ctx context.Context) (last time.Time, err error) {
	for _, sub := range []string{ControlDir, NodesDir} {
		dir := filepath.Join(r.path, sub)
		facts, err := guardedCall(ctx, r.access, "inspect", dir, r.access.FS.Stat)
		if err != nil {
			return last, callError("stat", dir, err)
		}
		at := facts.ModTime
		if sub == ControlDir {
			if at, err = r.omitStop(ctx, at); err != nil {
				return last, err
			}
		}
		if at.After(last) {
			last = at
		}
	}
	return last, nil
}

// maxStopDelay is the maximum time from the write of a request to stop until its name appears.
const maxStopDelay = 2 * time.Second

// omitStop returns when a daemon last changed names in ControlDir, where they last changed at the
// given time. If a request to stop from outside is that change, the request has the time before it.
func (r *Reader) omitStop(ctx context.Context, at time.Time) (time.Time, error) {
	control, err := r.ListDir(ctx, ControlDir)
	if err != nil {
		return at, err
	}
	if _, exists := slices.BinarySearch(control.Names, NameStop); !exists {
		return at, nil
	}
	var stop record.StopRequest
	written, err := control.ReadRecord(ctx, NameStop, "", &stop)
	switch {
	case written.IsZero():
		return at, err
	case at.Sub(written) >= maxStopDelay:
		return at, nil
	default:
		return stop.LastChange, nil
	}
}

// DirSnapshot is a directory, as one listing has shown it.
type DirSnapshot struct {
	Names  []string // sorted, without temporaries
	reader *Reader
	path   string
}

// ListDir lists a subdirectory. An empty name means the directory itself.
func (r *Reader) ListDir(ctx context.Context, sub string) (*DirSnapshot, error) {
	path := filepath.Join(r.path, sub)
	names, err := r.access.listNames(ctx, path, r.checkOwner)
	if err != nil {
		return nil, callError("list", path, err)
	}
	return &DirSnapshot{Names: names, reader: r, path: path}, nil
}

// ParseListing parses the names of a run directory of size nodes.
func (f *DirSnapshot) ParseListing(size int) Listing { return newListing(f.Names, size, 1, time.Now()) }

// checkOwner returns an error if a file does not belong to the directory's owner.
func (r *Reader) checkOwner(facts FileAttributes) error {
	if facts.Owner != r.owner {
		return fmt.Errorf("it belongs to %s, and the directory to %s", describeUser(facts.Owner), describeUser(r.owner))
	}
	return nil
}

// FileContent is the content of a file.
type FileContent struct {
	// Data is its beginning and Tail its end; the middle of a large file is left out.
	Data, Tail []byte
	Size       int64
	ModTime    time.Time // last modification, by the server's clock
}

// ReadFile returns the content of a file. If it is larger than limit, it returns the first and the
// last half of that size.
func (f *DirSnapshot) ReadFile(ctx context.Context, name string, limit int64) (FileContent, error) {
	path := filepath.Join(f.path, name)
	content, err := guardedCall(ctx, f.reader.access, "read", path, func(string) (c FileContent, err error) {
		data, facts, err := f.readOwnedRange(name, 0, limit)
		c = FileContent{Data: data, Size: facts.Size, ModTime: facts.ModTime}
		if err == nil && c.Size > limit {
			c.Data = data[:limit/2]
			c.Tail, _, err = f.readOwnedRange(name, c.Size-limit/2, limit/2)
		}
		return c, err
	})
	return content, callError("read", path, err)
}

// ReadRange returns the content of a file from offset on, at most limit bytes. Each call opens
// the file again, because an open handle may show old content.
func (f *DirSnapshot) ReadRange(ctx context.Context, name string, offset, limit int64) ([]byte, error) {
	path := filepath.Join(f.path, name)
	data, err := guardedCall(ctx, f.reader.access, "read", path, func(string) ([]byte, error) {
		data, _, err := f.readOwnedRange(name, offset, limit)
		return data, err
	})
	return data, callError("read", path, err)
}

// lastLineBytes is the number of bytes at the end of a file in which its last line is searched.
const lastLineBytes = 4 << 10

// maxLastLine is the maximum length in characters of a last line.
const maxLastLine = 160

// ReadLastLine returns the last line of a log that is not empty, or what a progress bar shows last,
// without control characters and secrets. It is empty if the log has none, or cannot be read.
func (f *DirSnapshot) ReadLastLine(ctx context.Context, name string) string {
	if _, exists := slices.BinarySearch(f.Names, name); !exists {
		return ""
	}
	content, err := f.ReadFile(ctx, name, 2*lastLineBytes)
	if err != nil {
		return ""
	}
	text := string(content.Data)
	if content.Tail != nil { // its first line is cut, so that a secret in it may not be found
		tail := string(content.Tail)
		text = tail[strings.IndexAny(tail, "\r\n")+1:]
		if text == tail {
			return ""
		}
	}
	for _, line := range slices.Backward(strings.Split(text, "\n")) {
		line = strings.TrimSpace(textutil.RedactText(textutil.TerminalLine(line)))
		if line != "" {
			return textutil.TruncateText(line, maxLastLine)
		}
	}
	return ""
}

func (f *DirSnapshot) readOwnedRange(name string, offset, limit int64) ([]byte, FileAttributes, error) {
	if name != filepath.Base(name) || strings.HasPrefix(name, ".") {
		return nil, FileAttributes{}, errors.New("it is not the name of a file in the directory")
	}
	data, facts, err := f.reader.access.FS.ReadRange(filepath.Join(f.path, name), offset, limit)
	switch {
	case errors.Is(err, syscall.ELOOP):
		err = errors.New("it is a symbolic link")
	case err == nil && !facts.Mode.IsRegular():
		err = errors.New("it is not a file")
	case err == nil:
		err = f.reader.checkOwner(facts)
	}
	if err != nil {
		data = nil // it may belong to another user
	}
	return data, facts, err
}

var errTruncated = errors.New("it is incomplete: it is being written, or its writer was killed")

var errOtherAttempt = errors.New("it belongs to another attempt")

// ReadRecord reads a record of the attempt with the given nonce (of any attempt if it is empty),
// and returns its modification time by the server's clock. An empty file is a valid mark: rec is
// not changed.
func (f *DirSnapshot) ReadRecord(
	ctx context.Context, name, nonce string, rec record.Record,
) (written time.Time, err error) {
	content, err := f.ReadFile(ctx, name, maxRecordSize)
	if err != nil || content.Size == 0 {
		return content.ModTime, err
	}
	path := filepath.Join(f.path, name)
	switch data := content.Data; {
	case content.Tail != nil:
		return content.ModTime, fmt.Errorf("cannot use %s: it is too large for a record", path)
	case data[len(data)-1] != '\n':
		return content.ModTime, fmt.Errorf("cannot use %s: %w", path, errTruncated)
	}
	err = decodeRecord(content.Data, nonce, rec)
	if errors.Is(err, errAbsent) {
		err = errOtherAttempt
	}
	if err != nil {
		err = fmt.Errorf("cannot use %s: %w", path, err)
	}
	return content.ModTime, err
}

// ReadLink returns the target of a symbolic link in the directory.
func (f *DirSnapshot) ReadLink(ctx context.Context, name string) (string, error) {
	path := filepath.Join(f.path, name)
	return guardedCall(ctx, f.reader.access, "follow", path, f.reader.access.FS.ReadLink)
}

// ListDirs returns the subdirectories, the one that was changed last first. Names that have disappeared
// are skipped.
func (f *DirSnapshot) ListDirs(ctx context.Context) ([]string, error) {
	access := f.reader.access
	found, err := guardedCall(ctx, access, "inspect", f.path, func(dir string) (map[string]FileAttributes, error) {
		found := make(map[string]FileAttributes)
		for _, name := range f.Names {
			if facts, err := access.FS.Stat(filepath.Join(dir, name)); err == nil && facts.Mode.IsDir() {
				found[name] = facts
			}
		}
		return found, nil
	})
	return slices.SortedFunc(maps.Keys(found), func(a, b string) int {
		return cmp.Or(found[b].ModTime.Compare(found[a].ModTime), cmp.Compare(b, a))
	}), err
}

// NodeHosts returns the host in the record of each node that has joined a run of size nodes.
// Records that cannot be read are skipped.
func (r *Reader) NodeHosts(ctx context.Context, size int) (map[int]string, error) {
	nodes, err := r.ListDir(ctx, NodesDir)
	if err != nil {
		return nil, err
	}
	hosts := make(map[int]string)
	for _, node := range nodes.ParseListing(size).NodesIn(record.StateJoined) {
		var joined record.Joined
		if _, err := nodes.ReadRecord(ctx, NodeName(node, size, record.StateJoined), "", &joined); err == nil {
			hosts[node] = joined.Host
		}
	}
	return hosts, context.Cause(ctx)
}
