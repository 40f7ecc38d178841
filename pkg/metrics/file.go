package metrics

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/bringupd/bringupd/pkg/files"
)

// filePace is how often a file is written anew where nothing asks for it: most
// collectors look about as often.
const filePace = 15 * time.Second

// File keeps a file of one daemon's metrics, for as long as the daemon lives.
type File struct {
	path   string
	source Source
	say    func(error)
	wrong  bool // the last time it could not be written; the writing goroutine's

	nudge chan struct{} // buffered by one: "write now"
	stop  chan struct{} // closed by Close, which is called once
	ended chan struct{} // closed when the writing goroutine has ended
}

// Keep writes what the source tells into the file at path, which no other daemon
// writes: every 15 s and at each Nudge. An error is passed to say,
// from another goroutine; the following ones are not, until a write has
// succeeded. Close must be called.
func Keep(path string, source Source, say func(error)) *File {
	f := &File{
		path: path, source: source, say: say,
		nudge: make(chan struct{}, 1), stop: make(chan struct{}), ended: make(chan struct{}),
	}
	go f.run()
	return f
}

// Path is where the file is while the daemon lives.
func (f *File) Path() string { return f.path }

// Nudge asks for the file to be written soon. It does not wait.
func (f *File) Nudge() {
	select {
	case f.nudge <- struct{}{}:
	default:
	}
}

func (f *File) run() {
	defer close(f.ended)
	tick := time.NewTicker(filePace)
	defer tick.Stop()
	for {
		// Other users may read it: a node exporter runs as one.
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

// Close removes the file, and waits for that until ctx ends: a file system may
// hang.
func (f *File) Close(ctx context.Context) error {
	close(f.stop)
	select {
	case <-f.ended:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("cannot remove %s: its file system does not answer: %v", f.path, context.Cause(ctx))
	}
}
