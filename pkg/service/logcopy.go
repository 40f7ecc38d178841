package service

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
	"time"

	"github.com/bringupd/bringupd/internal/ctxutil"
	"github.com/bringupd/bringupd/pkg/signal"
)

// logCopier copies the logs that a service writes to its node's local disk into the run directory,
// because its private directory is removed. It is safe for concurrent use, but makes one round at a
// time.
type logCopier struct {
	share               signal.SharedFS
	source, destination string
	roundSlot           chan struct{} // held by the present round, which may hang
	openFile            func(path string) (*os.File, error)

	destinationMade bool // the destination directory exists
	bytesCopied     int64
	copiedFiles     map[fileID]*copiedFile
	filesSeen       int // number of files seen
}

// fileID identifies a file even if it is renamed.
type fileID struct{ device, inode uint64 }

// copiedFile is the state of a file that is copied.
type copiedFile struct {
	name   string // the name of the copy: that of the file when it was first seen
	order  int    // files are handled in the order in which they were first seen
	offset int64
}

// copyLimits are the limits of a logCopier's round.
type copyLimits struct {
	MaxFileTail int64 // maximum number of new bytes of a file, from its end
	MaxTotal    int64 // maximum number of bytes of all files; the rest waits for the next round
	// the last round: it is made regardless of earlier ones, and of a long file the end is kept
	IsLast bool
}

const (
	maxCopiedFiles = 4096 // the maximum number of files that are copied from a directory
	maxCopyDepth   = 3    // the number of levels of subdirectories that are searched
	// maxCopiedBytes is the maximum total size of the copies: a shared file system is no place for
	// logs that grow without limit.
	maxCopiedBytes = 1 << 30
	// minBytesPerFile is the number of bytes that each file gets in a round, for any number of files.
	minBytesPerFile = 64 << 10
)

// newLogCopier returns a copier of the files in the local directory from to a directory of the shared file
// system, which it makes. The name of a file in a subdirectory is prefixed with that of the
// subdirectory and a dot. Links, sockets and other special files are skipped.
func newLogCopier(share signal.SharedFS, from, to string) *logCopier {
	return &logCopier{
		share: share, source: from, destination: to,
		roundSlot: make(chan struct{}, 1), openFile: openLogFile, copiedFiles: make(map[fileID]*copiedFile),
	}
}

func openLogFile(path string) (*os.File, error) {
	return os.OpenFile(path, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
}

// copyNew appends what is new in the files since the last round. A file that was renamed, for
// example by a rotation, continues in its copy; a line marks omitted data. It returns when ctx
// ends. If a file cannot be read, the others are copied, and the error reports the first such file.
// If the shared file system accepts nothing, everything waits for the next round.
func (k *logCopier) copyNew(ctx context.Context, limits copyLimits) error {
	select {
	case k.roundSlot <- struct{}{}:
	case <-ctx.Done():
		return fmt.Errorf("cannot copy %s: the previous copy has not ended: %w", k.source, context.Cause(ctx))
	}
	// No meter counts the call: a local disk that hangs is not an unresponsive shared file system.
	begin := time.Now()
	_, err := ctxutil.CallBounded(ctx, 0, func() (struct{}, error) {
		defer func() { <-k.roundSlot }()
		return struct{}{}, k.copyFiles(ctx, limits)
	})
	if err == ctxutil.ErrAbandoned {
		err = &signal.StallError{
			Op: "copy to", Path: k.destination, Elapsed: time.Since(begin), Cause: context.Cause(ctx),
		}
	}
	return err
}

func (k *logCopier) copyFiles(ctx context.Context, limits copyLimits) error {
	found, err := k.findChangedFiles()
	if err != nil || len(found) == 0 {
		return err
	}
	if !k.destinationMade {
		if err := k.share.ChangeName(signal.MakeDir, "", k.destination); err != nil {
			return err
		}
		k.destinationMade = true
	}
	// The limit of the round is shared by all files with new data.
	each := max(minBytesPerFile, limits.MaxTotal/int64(len(found)))
	left := limits.MaxTotal
	var unread error
	for _, file := range found {
		switch {
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case left <= 0:
			return unread
		case k.bytesCopied >= maxCopiedBytes && !limits.IsLast:
			return fmt.Errorf("cannot copy more of %s: %d bytes are already in %s, "+
				"the maximum on a shared file system", k.source, k.bytesCopied, k.destination)
		}
		in, err := k.openFile(file.path)
		if err != nil {
			if unread == nil && !errors.Is(err, fs.ErrNotExist) {
				unread = err
			}
			continue
		}
		tail, limit := limits.MaxFileTail, min(each, left)
		if limits.IsLast { // there is no next round for the rest, and the end has more information
			tail = min(tail, limit)
		}
		n, err := k.appendNewData(in, file, tail, limit)
		_ = in.Close()
		left -= n
		k.bytesCopied += n
		if err != nil {
			return err
		}
	}
	return unread
}

// changedFile is a file with new data.
type changedFile struct {
	path   string
	size   int64
	copied *copiedFile
}

// findChangedFiles returns the files with new data, in the order in which they were first seen: the
// older part of a rotated log comes before the newer one.
func (k *logCopier) findChangedFiles() ([]changedFile, error) {
	root, err := filepath.EvalSymlinks(k.source) // Ray's newest session is a link
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var found []changedFile
	there := make(map[fileID]*copiedFile)
	err = filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return nil // it was removed meanwhile
		case err != nil:
			return err
		case entry.IsDir() && strings.Count(path[len(root):], "/") > maxCopyDepth:
			return fs.SkipDir
		case !entry.Type().IsRegular() || len(there) == maxCopiedFiles:
			return nil
		}
		info, err := entry.Info()
		if err != nil {
			return nil // it was removed meanwhile
		}
		name := strings.ReplaceAll(strings.TrimPrefix(path[len(root):], "/"), "/", ".")
		kept, id := k.fileState(name, info)
		there[id] = kept
		if info.Size() > kept.offset {
			found = append(found, changedFile{path: path, size: info.Size(), copied: kept})
		}
		return nil
	})
	k.copiedFiles = there
	slices.SortFunc(found, func(a, b changedFile) int { return a.copied.order - b.copied.order })
	return found, err
}

// fileState returns the state of a file. A file that has become shorter, or has a name that a
// rotation would not give it, counts as a new one.
func (k *logCopier) fileState(name string, info fs.FileInfo) (*copiedFile, fileID) {
	stat := info.Sys().(*syscall.Stat_t)
	id := fileID{device: stat.Dev, inode: stat.Ino}
	kept := k.copiedFiles[id]
	if kept == nil || kept.offset > info.Size() || !mayBeRotated(kept.name, name) {
		k.filesSeen++
		kept = &copiedFile{name: name, order: k.filesSeen}
	}
	return kept, id
}

// mayBeRotated reports whether a rotation may have renamed a file, for example "raylet.out" to
// "raylet.out.1" or "raylet.1.out".
func mayBeRotated(from, to string) bool {
	stem, _, _ := strings.Cut(from, ".")
	return strings.HasPrefix(to, stem)
}

// appendNewData appends the new data of a file to its copy, at most limit bytes, and returns the
// number of bytes. If there are more than tail new bytes, it skips the older ones.
func (k *logCopier) appendNewData(in io.ReaderAt, file changedFile, tail, limit int64) (n int64, err error) {
	out, err := k.share.OpenAppend(filepath.Join(k.destination, file.copied.name))
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, out.Close()) }()
	if skip := file.size - file.copied.offset - tail; skip > 0 {
		if _, err := fmt.Fprintf(out, "[bringupd: %d bytes left out]\n", skip); err != nil {
			return 0, err
		}
		file.copied.offset += skip
	}
	n, err = io.Copy(out, io.NewSectionReader(in, file.copied.offset, min(limit, file.size-file.copied.offset)))
	file.copied.offset += n
	return n, err
}
