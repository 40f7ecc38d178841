package meeting

import (
	"context"
	"io"
	"path"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"go.uber.org/zap"

	"github.com/bringupd/bringupd/pkg/pause"
	"github.com/bringupd/bringupd/pkg/signal"
)

const (
	// mostLetter is how much of what is said goes into one record, in bytes: in base64 it fits what a share gives whole.
	mostLetter = 512 << 10
	// repeat is how soon a share that has failed is asked again. One that does not answer is waited for: each call that is
	// left to itself would keep a thread.
	repeat = time.Second
	// turnsAtOnce is how many calls for its nodes the head has under way.
	turnsAtOnce = 32
)

// letters is one end of a connection by files, for a node that has no lifeline. Each way is a row of records in a
// subdirectory, counted from 1 on and removed by who has read them. It breaks for nothing, but waits for the share.
type letters struct {
	dir     *signal.Dir
	name    func(n int) string // of a record, either way
	in, out string             // the subdirectories
	turns   chan struct{}      // nil: nobody else's calls are to be waited for
	sending func()             // told of each record that is written
	alive   context.Context
	kill    context.CancelFunc
	log     *zap.Logger
	sent    int
	newest  atomic.Int64 // of in, that a listing has shown
	bell    chan struct{}
	unread  *io.PipeReader
	tasks   sync.WaitGroup
}

// newLetters begins to read what newest tells of.
func newLetters(ctx context.Context, dir *signal.Dir, node, size int, in, out string, log *zap.Logger) *letters {
	l := &letters{
		dir: dir, log: log, in: in, out: out, sending: func() {}, bell: make(chan struct{}, 1),
		name: func(n int) string { return signal.MeetName(node, size, n) },
	}
	l.alive, l.kill = context.WithCancel(context.WithoutCancel(ctx))
	var fresh *io.PipeWriter
	l.unread, fresh = io.Pipe()
	l.tasks.Go(func() { l.fetch(fresh) })
	return l
}

// show tells that records up to this one are there; it returns whether that is news.
func (l *letters) show(newest int64) bool {
	if l.newest.Load() >= newest {
		return false
	}
	l.newest.Store(newest)
	pause.Ring(l.bell)
	return true
}

// fetch reads the records in their order until the connection is closed.
func (l *letters) fetch(fresh *io.PipeWriter) {
	for next := 1; ; next++ {
		for l.newest.Load() < int64(next) {
			if !rung(l.alive, l.bell) {
				return
			}
		}
		var letter signal.MeetRecord
		name := l.name(next)
		if !l.insist(func() error { return l.dir.Read(l.alive, l.in, name, &letter) }) {
			return
		}
		if _, err := fresh.Write(letter.Data); err != nil { // nobody reads any more
			return
		}
		_ = l.dir.Discard(l.alive, l.in, name) // or it stays: it is not read again
	}
}

// insist makes a call into the share until it succeeds; it tells whether it has, before the connection was closed. The first
// time that it does not, the log tells why.
func (l *letters) insist(call func() error) bool {
	for tries := 1; ; tries++ {
		err := l.try(call)
		switch {
		case err == nil:
			return true
		case l.alive.Err() != nil:
			return false
		case tries == 1:
			l.log.Warn("ranks that meet by files wait for the share", zap.Error(err))
		}
		pause.For(l.alive, repeat)
	}
}

// try makes a call when it is its turn.
func (l *letters) try(call func() error) error {
	if l.turns != nil {
		select {
		case l.turns <- struct{}{}:
			defer func() { <-l.turns }()
		case <-l.alive.Done():
			return context.Cause(l.alive)
		}
	}
	return call()
}

// Read reads what has come.
func (l *letters) Read(p []byte) (int, error) { return l.unread.Read(p) }

// Write writes records, one for most messages.
func (l *letters) Write(p []byte) (written int, err error) {
	for part := range slices.Chunk(p, mostLetter) {
		l.sent++
		name := l.name(l.sent)
		if !l.insist(func() error {
			return l.dir.Publish(l.alive, l.out, name, &signal.MeetRecord{Data: part}, false)
		}) {
			return written, io.ErrClosedPipe
		}
		written += len(part)
		l.sending()
	}
	return written, nil
}

// Close ends this end of the connection. The other one is not told.
func (l *letters) Close() error {
	l.kill()
	_ = l.unread.Close()
	l.tasks.Wait()
	return nil
}

// DialByFiles returns how the daemon of a node without a lifeline connects, in a run of so many daemons. It is for one connection.
func DialByFiles(dir *signal.Dir, node, size int, log *zap.Logger) func(context.Context) (io.ReadWriteCloser, error) {
	in := path.Join(signal.Meet, signal.NodeName(node, size, "in"))
	return func(ctx context.Context) (io.ReadWriteCloser, error) {
		for _, sub := range []string{signal.Meet, in} {
			if err := dir.Make(ctx, sub); err != nil {
				return nil, err
			}
		}
		if err := dir.Mark(ctx, signal.Nodes, signal.NodeName(node, size, signal.Meets)); err != nil {
			return nil, err
		}
		l := newLetters(ctx, dir, node, size, in, signal.Meet, log)
		watch := dir.Watch(in, signal.WorkerPace(size))
		l.sending = watch.Quicken
		l.tasks.Go(func() { watch.Run(l.alive) })
		l.tasks.Go(func() {
			for newest := int64(0); ; l.show(newest) {
				shown, err := watch.Follow(l.alive, func(shown signal.Listing) bool { return shown.Beats(signal.Meet)[node] > newest })
				if err != nil {
					return
				}
				newest = shown.Beats(signal.Meet)[node]
				watch.Quicken()
			}
		})
		return l, nil
	}
}

// ServeFiles has serve serve the nodes that connect by files, each on a goroutine of its own, until ctx ends. It waits for them.
func ServeFiles(
	ctx context.Context, dir *signal.Dir, size int, log *zap.Logger, serve func(ctx context.Context, node int, conn io.ReadWriteCloser),
) {
	var tasks sync.WaitGroup
	defer tasks.Wait()
	watch := dir.Watch(signal.Meet, signal.HeadPace)
	tasks.Go(func() { watch.Run(ctx) })
	ends, turns := make(map[int]*letters), make(chan struct{}, turnsAtOnce)
	for looks := 0; ; {
		shown, err := watch.Follow(ctx, func(shown signal.Listing) bool { return shown.Looks > looks })
		if err != nil {
			return
		}
		looks = shown.Looks
		for node, newest := range shown.Beats(signal.Meet) {
			end := ends[node]
			if end == nil {
				end = newLetters(ctx, dir, node, size, signal.Meet, path.Join(signal.Meet, signal.NodeName(node, size, "in")), log)
				end.turns, ends[node] = turns, end
				tasks.Go(func() { serve(ctx, node, end) })
			}
			if end.show(newest) {
				watch.Quicken()
			}
		}
	}
}
