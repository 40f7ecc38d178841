package signal

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sync"
)

// LogFile appends to a file of the run directory. It is opened by the first
// write, so that what says nothing costs nothing, and so that a stalled share
// holds the goroutine that writes and not the one that starts a child.
// Who writes may be left behind in a call that hangs: a Close from elsewhere
// waits for its end, and no later Write opens the file again.
type LogFile struct {
	via  Access
	path string

	mu     sync.Mutex
	file   io.WriteCloser // nil before the first write; guarded by mu
	closed bool           // guarded by mu
}

// LogFile returns the file name in the subdirectory sub. One rank only may
// write to it.
func (d *Dir) LogFile(sub, name string) *LogFile {
	return &LogFile{via: d.via, path: filepath.Join(d.path, sub, name)}
}

// Path returns where the file is.
func (l *LogFile) Path() string { return l.path }

// Write appends; a call may hang for as long as the share does. A handle that
// the share has forgotten is not asked again: the file is opened anew for what
// was not taken, now where the error goes away by itself, or by the next Write.
func (l *LogFile) Write(data []byte) (written int, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return 0, fmt.Errorf("cannot write to %s: %w", l.path, os.ErrClosed)
	}
	err = l.via.again(func() error {
		n, err := l.extend(data[written:])
		written += n
		return err
	})
	return written, err
}

// extend needs mu.
func (l *LogFile) extend(data []byte) (int, error) {
	if l.file == nil {
		file, err := l.via.Share.Extend(l.path)
		if err != nil {
			return 0, err
		}
		l.file = file
	}
	n, err := l.file.Write(data)
	if err != nil {
		_ = l.file.Close() // the write's error says more
		l.file = nil
	}
	return n, err
}

// Close closes the file if it was opened. Its error says that data was lost.
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
