package signal

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
)

// LogFile appends to a file of the run directory. The first write opens it, so that an empty log
// costs nothing, and an unresponsive file system blocks the writing goroutine and not the one that
// starts a child. A write that hangs may be abandoned: a concurrent Close waits for its end, and no
// later Write opens the file again.
type LogFile struct {
	access Access
	path   string

	mu     sync.Mutex
	file   io.WriteCloser // nil before the first write; guarded by mu
	closed bool           // guarded by mu
}

// NewLogFile returns the file name in the subdirectory sub. Only one node may write to it.
func (d *Dir) NewLogFile(sub, name string) *LogFile {
	return &LogFile{access: d.access, path: filepath.Join(d.path, sub, name)}
}

// Path returns the path of the file.
func (l *LogFile) Path() string { return l.path }

// Write appends data; it may hang for as long as the file system does. A handle that the server has
// forgotten is not used again: the file is reopened for the rest, immediately if the error is
// temporary, and otherwise by the next Write.
func (l *LogFile) Write(data []byte) (written int, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return 0, fmt.Errorf("cannot write to %s: %w", l.path, os.ErrClosed)
	}
	err = l.access.retryTransient(func() error {
		n, err := l.appendData(data[written:])
		written += n
		return err
	})
	return written, err
}

// appendData appends data. mu must be held.
func (l *LogFile) appendData(data []byte) (int, error) {
	if l.file == nil {
		file, err := l.access.FS.OpenAppend(l.path)
		if err != nil {
			return 0, err
		}
		l.file = file
	}
	n, err := l.file.Write(data)
	if err != nil {
		_ = l.file.Close() // the write's error is more informative
		l.file = nil
	}
	return n, err
}

// Close closes the file if it was opened. Its error reports that data was lost.
func (l *LogFile) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.closed = true
	if l.file == nil {
		return nil
	}
	file := l.file
	l.file = nil
	return file.Close()
}
