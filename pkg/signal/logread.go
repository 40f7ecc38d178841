package signal

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

// Names returns, in order, the names that one look at a subdirectory shows. It
// is for who reads a run from outside.
func (d *Dir) Names(ctx context.Context, sub string) ([]string, error) {
	return d.list(ctx, filepath.Join(d.path, sub), nil)
}

func (d *Dir) list(ctx context.Context, path string, check func(Facts) error) ([]string, error) {
	names, err := asked(ctx, d.via, "list", path, func() ([]string, error) { return d.via.Share.List(path, check) })
	slices.Sort(names)
	return names, err
}

// ReadLog returns what a file in Logs, which a listing has shown, has from
// offset on: at most as much as fits into the buffer. Each call opens the file
// anew: a handle kept open may show the past.
func (d *Dir) ReadLog(ctx context.Context, name string, offset int64, buffer []byte) (int, error) {
	if name != filepath.Base(name) || strings.HasPrefix(name, ".") {
		return 0, fmt.Errorf("cannot read %q: it is no name of a log", name)
	}
	path := filepath.Join(d.path, Logs, name)
	own := make([]byte, len(buffer)) // a call that hangs may go on with it
	n, err := guarded(ctx, d.via.Meter, "read", path, func() (int, error) { return readAt(path, offset, own) })
	return copy(buffer, own[:n]), err
}

func readAt(path string, offset int64, buffer []byte) (int, error) {
	file, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	if err != nil {
		return 0, err
	}
	defer file.Close()
	if info, err := file.Stat(); err != nil || !info.Mode().IsRegular() {
		return 0, errors.Join(fmt.Errorf("cannot read %s: it is no file", path), err)
	}
	n, err := file.ReadAt(buffer, offset)
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return n, err
}

// Hosts returns the host of each rank that has joined, as it says itself.
func (d *Dir) Hosts(ctx context.Context) (map[int]string, error) {
	names, err := d.Names(ctx, Nodes)
	if err != nil {
		return nil, err
	}
	hosts := make(map[int]string)
	for _, rank := range newListing(names, d.size, 1, time.Now()).Ranks(Joined) {
		var joined JoinedRecord
		if err := d.Read(ctx, Nodes, NodeName(rank, d.size, Joined), &joined); err != nil {
			return nil, err
		}
		hosts[rank] = joined.Host
	}
	return hosts, nil
}
