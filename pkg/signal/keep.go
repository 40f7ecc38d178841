package signal

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
)

// Keeper brings the logs that a service writes on its node's own disk to the run
// directory, so that they outlive the private directory they are in. It is safe for
// concurrent use, but one round at a time is made.
type Keeper struct {
	via      Access
	from, to string
	turn     chan struct{} // held by the round that is being made, which may hang
	open     func(path string) (*os.File, error)

	made  bool // the directory it keeps them in
	bytes int64
	files map[fileID]*keptFile
	next  int // how many files have been seen
}

// fileID is what stays of a file that is renamed.
type fileID struct{ device, inode uint64 }

// keptFile is how far a file is kept.
type keptFile struct {
	name   string // it is kept under; that of the file when it was first seen
	seen   int    // the files are gone through in the order in which they were seen
	offset int64
}

// KeepLimits bound a round of a Keeper.
type KeepLimits struct {
	Tail  int64 // of what is new in a file, at most so many bytes of its end
	Total int64 // of all files; what is left waits for the next round
	Last  bool  // it is the last round: made however much was kept before, and of what is too long the end is kept
}

const (
	// keepFiles bounds how many files are kept of a directory.
	keepFiles = 4096
	// keepDepth is how many levels of directories below it are looked into.
	keepDepth = 3
	// keepBytes bounds what is kept of a directory in all: a share is no place for
	// logs that grow and grow.
	keepBytes = 1 << 30
	// keepLeast is how many bytes each file gets of a round, however many there are.
	keepLeast = 64 << 10
)

// Keeper returns what keeps the files in a node-local directory in Logs, in a directory
// of that name. A file of a directory below has that one's name and a dot before its
// own. Links, sockets and all else that is no file are left out.
func (d *Dir) Keeper(from, name string) *Keeper {
	return &Keeper{
		via: d.via, from: from, to: filepath.Join(d.path, Logs, name),
		turn: make(chan struct{}, 1), open: openLog, files: make(map[fileID]*keptFile),
	}
}

func openLog(path string) (*os.File, error) {
	return os.OpenFile(path, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
}

// Round appends what is new in the files since the last round. A file that was renamed,
// as by a rotation, goes on where it is kept; a line tells where something was left out.
// It gives up when ctx ends. Where a file can't be read, its error tells of the first such
// one when the others are kept; where the share takes nothing, all waits for the next round.
func (k *Keeper) Round(ctx context.Context, limits KeepLimits) error {
	select {
	case k.turn <- struct{}{}:
	case <-ctx.Done():
		return fmt.Errorf("cannot copy %s: the copying before has not ended: %w", k.from, context.Cause(ctx))
	}
	// A meter of its own: where the disk hangs, the share is not to be suspected.
	return do(ctx, new(Meter), "copy to", k.to, func() error {
		defer func() { <-k.turn }()
		return k.round(ctx, limits)
	})
}

func (k *Keeper) round(ctx context.Context, limits KeepLimits) error {
	found, err := k.look()
	if err != nil || len(found) == 0 {
		return err
	}
	if !k.made {
		if err := k.via.Share.Change(MakeDir, "", k.to); err != nil {
			return err
		}
		k.made = true
	}
	each := max(keepLeast, limits.Total/int64(len(found)))
	left := limits.Total
	var unread error
	for _, file := range found {
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case left <= 0:
			return unread
		case k.bytes >= keepBytes && !limits.Last:
			return fmt.Errorf("cannot copy more of %s: %d bytes of it are in %s, which is as much as a share is for", k.from, k.bytes, k.to)
		}
		in, err := k.open(file.path)
		if err != nil {
			if unread == nil && !errors.Is(err, fs.ErrNotExist) {
				unread = err
			}
			continue
		}
		tail, most := limits.Tail, min(each, left)
		if limits.Last { // there is no next round for the rest: the end tells more
			tail = min(tail, most)
		}
		n, err := k.extend(in, file, tail, most)
		_ = in.Close()
		left -= n
		k.bytes += n
		if err != nil {
			return err
		}
	}
	return unread
}

// foundFile is a file with something new in it.
type foundFile struct {
	path string
	size int64
	kept *keptFile
}

// look returns the files that have something new in them, in the order in which they were
// first seen: what is older of a log that was rotated comes before what is newer.
func (k *Keeper) look() ([]foundFile, error) {
	root, err := filepath.EvalSymlinks(k.from) // Ray's newest session is a link
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var found []foundFile
	there := make(map[fileID]*keptFile)
	err = filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return nil // it was removed meanwhile
		case err != nil:
			return err
		case entry.IsDir() && strings.Count(path[len(root):], "/") > keepDepth:
			return fs.SkipDir
		case !entry.Type().IsRegular() || len(there) == keepFiles:
			return nil
		}
		info, err := entry.Info()
		if err != nil {
			return nil // it was removed meanwhile
		}
		name := strings.ReplaceAll(strings.TrimPrefix(path[len(root):], "/"), "/", ".")
		kept, id := k.known(name, info)
		there[id] = kept
		if info.Size() > kept.offset {
			found = append(found, foundFile{path: path, size: info.Size(), kept: kept})
		}
		return nil
	})
	k.files = there
	slices.SortFunc(found, func(a, b foundFile) int { return a.kept.seen - b.kept.seen })
	return found, err
}

// known returns how far a file is kept. One that has become shorter, or has a name that
// no rotation gives, is another one.
func (k *Keeper) known(name string, info fs.FileInfo) (*keptFile, fileID) {
	stat := info.Sys().(*syscall.Stat_t)
	id := fileID{device: stat.Dev, inode: stat.Ino}
	kept := k.files[id]
	if kept == nil || kept.offset > info.Size() || !rotated(kept.name, name) {
		k.next++
		kept = &keptFile{name: name, seen: k.next}
	}
	return kept, id
}

// rotated tells whether a file of one name may have got another by a rotation, as
// "raylet.out" gets "raylet.out.1" and "raylet.1.out".
func rotated(from, to string) bool {
	stem, _, _ := strings.Cut(from, ".")
	return strings.HasPrefix(to, stem)
}

// extend appends what is new in a file, most bytes of it, and returns how many were.
func (k *Keeper) extend(in io.ReaderAt, file foundFile, tail, most int64) (n int64, err error) {
	out, err := k.via.Share.Extend(filepath.Join(k.to, file.kept.name))
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, out.Close()) }()
	if skip := file.size - file.kept.offset - tail; skip > 0 {
		if _, err := fmt.Fprintf(out, "[bringupd: %d bytes left out]\n", skip); err != nil {
			return 0, err
		}
		file.kept.offset += skip
	}
	n, err = io.Copy(out, io.NewSectionReader(in, file.kept.offset, min(most, file.size-file.kept.offset)))
	file.kept.offset += n
	return n, err
}
