package daemon

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"sync/atomic"
	"time"

	"github.com/bringupd/bringupd/pkg/process"
	"github.com/bringupd/bringupd/pkg/signal"
)

// lastTime is for how long, in all, a daemon that ends waits for a reader.
const lastTime = 2 * time.Second

// voice is what is said on standard error. That may be a pipe which nobody
// empties, and the driver has it, too, so that it can't be made one that never
// blocks: who says something does not wait until it is taken. The daemon's end
// alone does, for a moment.
type voice struct {
	*signal.Journal
	to       io.Writer
	lost     atomic.Int64  // lines that were refused for good
	patience time.Duration // what is left of lastTime; owned by who ends the daemon
}

// newVoice returns a voice that must be closed.
func newVoice(to io.Writer, asJSON bool) *voice {
	v := &voice{Journal: signal.NewJournal(), to: to, patience: lastTime}
	v.Eager = true
	if !asJSON {
		v.Dropped = func(lines int) string {
			return fmt.Sprintf("bringupd: nobody read, so %d lines are missing here: they are in the daemon's log", lines)
		}
	}
	v.Open(mouth{v})
	return v
}

// wait gives a reader the time to take what was said.
func (v *voice) wait() { v.spend(v.Flush) }

// close ends the voice, and returns how many lines nobody has taken.
func (v *voice) close() int {
	v.spend(v.Close)
	return v.Left() + int(v.lost.Load())
}

// spend has something wait, for no longer than there is patience.
func (v *voice) spend(wait func(ctx context.Context) error) {
	began := time.Now()
	ctx, cancel := context.WithTimeoutCause(context.Background(), v.patience, errUnread)
	defer cancel()
	_ = wait(ctx)
	v.patience -= min(v.patience, time.Since(began))
}

var errUnread = errors.New("nobody has read standard error")

// mouth is the file behind a voice. It never refuses: who has gone away does not
// come back for what he has missed.
type mouth struct{ of *voice }

func (m mouth) Write(lines []byte) (int, error) {
	if err := process.PassOn(m.of.to, lines); err != nil {
		m.of.lost.Add(int64(bytes.Count(lines, []byte{'\n'})))
	}
	return len(lines), nil
}

func (mouth) Close() error { return nil }
