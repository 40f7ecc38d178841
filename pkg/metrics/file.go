package metrics

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/bringupd/bringupd/pkg/files"
)

// filePace is the interval at which the file is written if [File.Nudge] is not called. Most
// collectors read it about as often.
const filePace = 15 * time.Second

// File writes a daemon's metrics to a file as long as the daemon runs.
type File struct {
	path   string
	source Source
	say    func(error)
	wrong  bool // the last write has failed; used only by the writing goroutine

	nudge chan struct{} // buffered by one: write now
	stop  chan struct{} // closed by Close, which is called once
	ended chan struct{} // closed when the writing goroutine has ended
}

// Keep starts a goroutine that writes the source's metrics to the file at path, every 15 s and
// after each call of [File.Nudge]. No other daemon may write the same file. If a write fails, the
// goroutine passes the error to say. It reports no further errors until a write has succeeded. The
// caller must call Close.
func Keep(path string, source Source, say func(error)) *File {
	f := &File{
		path: path, source: source, say: say,
		nudge: make(chan struct{}, 1), stop: make(chan struct{}), ended: make(chan struct{}),
	}
	go f.run()
	return f
}

// Path returns the path of the file, which exists until Close.
func (f *File) Path() string { return f.path }

// Nudge makes the file be written soon. It does not wait for that.
func (f *File) Nudge() {
	select {
	case f.nudge <- struct{}{}:
	default:
	}
}

// run writes the file until Close, and then removes it.
func (f *File) run() {
	defer close(f.ended)
	tick := time.NewTicker(filePace)
	defer tick.Stop()
	for {
		// Other users may read the file, because a node-exporter usually runs as another user.
		err := files.Replace(f.path, f.source(), 0o644)
		if err != nil && !f.wrong {
			f.say(fmt.Errorf("cannot write the metrics: %v", err))
		}
		f.wrong = err != nil
		select {
		case <-f.stop:
			if err := os.Remove(f.path); err != nil && !os.IsNotExist(err) {
				f.say(fmt.Errorf("cannot remove the metrics: %v", err))
			}
			return
		case <-tick.C:
		case <-f.nudge:
		}
	}
}

// Close removes the file. It waits for that until ctx ends, because a file system may hang. It must
// be called only once.
func (f *File) Close(ctx context.Context) error {
	close(f.stop)
	select {
	case <-f.ended:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("cannot remove %s: its file system does not answer: %v", f.path, context.Cause(ctx))
	}
}
