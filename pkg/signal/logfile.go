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
	share Share
	path  string

	mu     sync.Mutex
	file   io.WriteCloser // nil before the first write; guarded by mu
	closed bool           // guarded by mu
}

// LogFile returns the file name in the subdirectory sub. One rank only may
// write to it.
func (d *Dir) LogFile(sub, name string) *LogFile {
	return &LogFile{share: d.via.Share, path: filepath.Join(d.path, sub, name)}
}

// Path returns where the file is.
func (l *LogFile) Path() string { return l.path }

// Write appends; a call may hang for as long as the share does.
func (l *LogFile) Write(data []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed {
		return 0, fmt.Errorf("cannot write to %s: %w", l.path, os.ErrClosed)
	}
	if l.file == nil {
		file, err := l.share.Extend(l.path)
		if err != nil {
			return 0, err
		}
		l.file = file
	}
	return l.file.Write(data)
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
