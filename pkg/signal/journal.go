package signal

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"sync"
	"time"
)

const (
	// journalLimit bounds in bytes what a journal keeps while the share does
	// not take it.
	journalLimit = 1 << 20
	// journalPace gathers lines, so that a busy while costs one write: a line is
	// at most so late, and a bring-up of a few seconds costs none. Each journal
	// is up to a quarter slower, or a thousand nodes would write at once.
	journalPace = 5 * time.Second
)

// Journal appends lines to a file of the run directory without ever making
// its callers wait for the share: lines are gathered and written by a goroutine
// of its own, and dropped, with a count, where the share takes none.
type Journal struct {
	mu      sync.Mutex
	pending []byte // guarded by mu
	dropped int    // lines, guarded by mu
	file    io.WriteCloser

	flush chan struct{} // buffered by one: "write now"
	ended chan struct{} // closed when the writing goroutine has ended
	stop  chan struct{} // closed by Close
	once  sync.Once
}

// NewJournal returns a journal that has no file yet: it keeps what it is given
// until Open. Close must be called.
func NewJournal() *Journal {
	return &Journal{flush: make(chan struct{}, 1), ended: make(chan struct{}), stop: make(chan struct{})}
}

// Open lets the journal write to file, and starts to. It may be called once.
func (j *Journal) Open(file io.WriteCloser) {
	j.mu.Lock()
	j.file = file
	j.mu.Unlock()
	go j.run()
}

// Write appends one whole line. It never blocks and never fails.
func (j *Journal) Write(line []byte) (int, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	if len(j.pending)+len(line) > journalLimit {
		j.dropped++
		return len(line), nil
	}
	j.pending = append(j.pending, line...)
	return len(line), nil
}

// Sync asks for what is pending to be written soon. It does not wait.
func (j *Journal) Sync() error {
	select {
	case j.flush <- struct{}{}:
	default:
	}
	return nil
}

func (j *Journal) run() {
	defer close(j.ended)
	tick := time.NewTicker(journalPace + rand.N(journalPace/4))
	defer tick.Stop()
	for {
		select {
		case <-j.stop:
			j.drain()
			_ = j.file.Close()
			return
		case <-tick.C:
		case <-j.flush:
		}
		j.drain()
	}
}

func (j *Journal) drain() {
	j.mu.Lock()
	pending, dropped := j.pending, j.dropped
	j.pending, j.dropped = nil, 0
	j.mu.Unlock()
	if dropped > 0 {
		pending = fmt.Appendf(pending, "{\"dropped\":%d}\n", dropped)
	}
	if len(pending) == 0 {
		return
	}
	// What can't be written is lost: a journal is for people, and a failing
	// share is told of by the records that can't be published.
	_, _ = j.file.Write(pending)
}

// Close writes what is pending and waits for it until ctx ends; a share that
// does not answer keeps the rest.
func (j *Journal) Close(ctx context.Context) error {
	j.once.Do(func() { close(j.stop) })
	j.mu.Lock()
	opened := j.file != nil
	j.mu.Unlock()
	if !opened {
		return nil
	}
	select {
	case <-j.ended:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("cannot finish a journal: the share has not taken it: %w", context.Cause(ctx))
	}
}

// ReadEvents reads the timeline of that name as far as it is written, for who
// tells people what it says. It asks once: the share may not show it yet.
func (d *Dir) ReadEvents(ctx context.Context, name string) ([]byte, error) {
	dir := filepath.Join(d.path, Events)
	path := filepath.Join(dir, name)
	return guarded(ctx, d.via.Meter, "read", path, func() ([]byte, error) {
		names, err := d.via.Share.List(dir, nil)
		if err != nil {
			return nil, err
		}
		if !slices.Contains(names, name) {
			return nil, errAbsent
		}
		return d.via.Share.Read(path)
	})
}
