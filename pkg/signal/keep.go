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

// Keeper copies the logs that a service writes to its node's local disk into the run directory,
// because its private directory is removed. It is safe for concurrent use, but makes one round at a
// time.
type Keeper struct {
	via      Access
	from, to string
	turn     chan struct{} // held by the present round, which may hang
	open     func(path string) (*os.File, error)

	made  bool // the destination directory exists
	bytes int64
	files map[fileID]*keptFile
	next  int // number of files seen
}

// fileID identifies a file even if it is renamed.
type fileID struct{ device, inode uint64 }

// keptFile is the state of a file that is copied.
type keptFile struct {
	name   string // the name of the copy: that of the file when it was first seen
	seen   int    // files are handled in the order in which they were first seen
	offset int64
}

// KeepLimits are the limits of a Keeper's round.
type KeepLimits struct {
	Tail  int64 // maximum number of new bytes of a file, from its end
	Total int64 // maximum number of bytes of all files; the rest waits for the next round
	Last  bool  // the last round: it is made regardless of earlier ones, and of a long file the end is kept
}

const (
	// keepFiles is the maximum number of files that are copied from a directory.
	keepFiles = 4096
	// keepDepth is the number of levels of subdirectories that are searched.
	keepDepth = 3
	// keepBytes is the maximum total size of the copies: a shared file system is no place for logs
	// that grow without limit.
	keepBytes = 1 << 30
	// keepLeast is the number of bytes that each file gets in a round, for any number of files.
	keepLeast = 64 << 10
)

// Keeper returns a keeper that copies the files in the local directory from to a directory with the
// given name in Logs. The name of a file in a subdirectory is prefixed with that of the
// subdirectory and a dot. Links, sockets and other special files are skipped.
func (d *Dir) Keeper(from, name string) *Keeper {
	return &Keeper{
		via: d.via, from: from, to: filepath.Join(d.path, Logs, name),
		turn: make(chan struct{}, 1), open: openLog, files: make(map[fileID]*keptFile),
	}
}

func openLog(path string) (*os.File, error) {
	return os.OpenFile(path, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
}

// Round appends what is new in the files since the last round. A file that was renamed, for example
// by a rotation, continues in its copy; a line marks omitted data. It returns when ctx ends. If a
// file cannot be read, the others are copied, and the error reports the first such file. If the
// shared file system accepts nothing, everything waits for the next round.
func (k *Keeper) Round(ctx context.Context, limits KeepLimits) error {
	select {
	case k.turn <- struct{}{}:
	case <-ctx.Done():
		return fmt.Errorf("cannot copy %s: the copying before has not ended: %w", k.from, context.Cause(ctx))
	}
	// The separate meter ensures that a local disk that hangs is not reported as an unresponsive
	// shared file system.
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
	// The limit of the round is shared by all files with new data.
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
		if limits.Last { // there is no next round for the rest, and the end has more information
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

// foundFile is a file with new data.
type foundFile struct {
	path string
	size int64
	kept *keptFile
}

// look returns the files with new data, in the order in which they were first seen: the older part
// of a rotated log comes before the newer one.
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

// known returns the state of a file. A file that has become shorter, or has a name that a rotation
// would not give it, counts as a new one.
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

// rotated reports whether a rotation may have renamed a file, for example "raylet.out" to
// "raylet.out.1" or "raylet.1.out".
func rotated(from, to string) bool {
	stem, _, _ := strings.Cut(from, ".")
	return strings.HasPrefix(to, stem)
}

// extend appends the new data of a file to its copy, limited to `most` bytes, and returns the
// number of bytes. If there are more than tail new bytes, it skips the older ones.
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
