package service

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"time"

	"go.uber.org/zap"

	"github.com/bringupd/bringupd/internal/ctxutil"
	"github.com/bringupd/bringupd/pkg/framework"
	"github.com/bringupd/bringupd/pkg/health"
	"github.com/bringupd/bringupd/pkg/signal"
)

const (
	// failedCopyTimeout and fullCopyTimeout bound how long copying logs may delay the end of a run:
	// failedCopyTimeout if the run has failed, fullCopyTimeout if it has not and the user wants all
	// logs.
	failedCopyTimeout = 2 * time.Second
	fullCopyTimeout   = 15 * time.Second
	// failedTailSize is how much of the end of a file is copied, in bytes, if the run has failed: the
	// last messages of the service are there. fullTailSize is the same if the user wants the logs.
	failedTailSize = 1 << 20
	fullTailSize   = 16 << 20
	maxCopySize    = 256 << 20 // bounds the bytes that are copied from a directory
	maxCopiedFiles = 4096      // bounds the number of files that are copied from a directory
	maxCopyDepth   = 3         // the number of levels of subdirectories that are searched
)

// RegisterLogs registers the directory of the logs that a service writes itself.
func (c *Children) RegisterLogs(service *framework.Service) {
	if service.OwnLogs.Dir == "" {
		return
	}
	name := strings.TrimSuffix(c.LogName(service.Name), ".log") + ".d"
	c.mu.Lock()
	defer c.mu.Unlock()
	c.serviceLogs[name] = service.OwnLogs
}

// CopyLogs copies the ends of the logs of services into the run directory, because the private
// directory of the node is removed: those of services with framework.ServiceLogs.KeepAlways and, if
// the run has failed because of this node, those of all others.
func (c *Children) CopyLogs(failed bool) {
	c.mu.Lock()
	all := maps.Clone(c.serviceLogs)
	c.mu.Unlock()
	within := fullCopyTimeout
	if failed {
		within = failedCopyTimeout
	}
	ctx, cancel := context.WithTimeoutCause(c.contexts.Grace, within, health.ErrDeadline)
	defer cancel()
	for name, logs := range all {
		tail := int64(failedTailSize)
		if logs.KeepAlways {
			tail = fullTailSize
		} else if !failed {
			continue
		}
		to := filepath.Join(c.dir.Path(), signal.LogsDir, name)
		if err := copyLogs(ctx, c.dir.FS(), logs.Dir, to, tail); err != nil {
			c.cfg.Log.Warn("cannot keep all logs of a service", zap.String("in", name), zap.Error(err))
		}
	}
}

// copyLogs copies at most tail bytes of the end of each file in the local directory from to a
// directory of the shared file system, which it makes. The name of a file in a subdirectory is
// prefixed with that of the subdirectory and a dot. Links, sockets and other special files are
// skipped. It returns when ctx ends. If a file cannot be read, the others are copied, and the error
// reports the first such file.
func copyLogs(ctx context.Context, share signal.SharedFS, from, to string, tail int64) error {
	begin := time.Now()
	// No meter counts the call: a local disk that hangs is not an unresponsive shared file system.
	_, err := ctxutil.CallBounded(ctx, 0, func() (none struct{}, err error) {
		return none, copyTree(ctx, share, from, to, tail)
	})
	if errors.Is(err, ctxutil.ErrAbandoned) {
		err = &signal.StallError{Op: "copy to", Path: to, Elapsed: time.Since(begin), Cause: context.Cause(ctx)}
	}
	return err
}

func copyTree(ctx context.Context, share signal.SharedFS, from, to string, tail int64) error {
	root, err := filepath.EvalSymlinks(from) // Ray's newest session is a link
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	var unread error
	files, left := 0, int64(maxCopySize)
	err = filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		switch {
		case errors.Is(err, fs.ErrNotExist):
			return nil // it was removed meanwhile
		case err != nil:
			return err
		case ctx.Err() != nil:
			return context.Cause(ctx)
		case entry.IsDir() && strings.Count(path[len(root):], "/") > maxCopyDepth:
			return fs.SkipDir
		case !entry.Type().IsRegular():
			return nil
		case files == maxCopiedFiles || left == 0:
			return fs.SkipAll
		}
		in, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
		if err != nil {
			if unread == nil && !errors.Is(err, fs.ErrNotExist) {
				unread = err
			}
			return nil
		}
		defer func() { _ = in.Close() }()
		if files++; files == 1 {
			if err := share.ChangeName(signal.OpMkdir, "", to); err != nil {
				return err
			}
		}
		name := strings.ReplaceAll(strings.TrimPrefix(path[len(root):], "/"), "/", ".")
		n, err := copyTail(share, in, filepath.Join(to, name), min(tail, left))
		left -= n
		return err
	})
	return errors.Join(err, unread)
}

// copyTail copies at most tail bytes of the end of a file, and returns their number. A line marks
// omitted data.
func copyTail(share signal.SharedFS, in *os.File, to string, tail int64) (n int64, err error) {
	info, err := in.Stat()
	if err != nil || info.Size() == 0 {
		return 0, err
	}
	out, err := share.OpenAppend(to)
	if err != nil {
		return 0, err
	}
	defer func() { err = errors.Join(err, out.Close()) }()
	skip := max(0, info.Size()-tail)
	if skip > 0 {
		if _, err := fmt.Fprintf(out, "[bringupd: %d bytes left out]\n", skip); err != nil {
			return 0, err
		}
	}
	return io.Copy(out, io.NewSectionReader(in, skip, min(tail, info.Size()-skip)))
}
