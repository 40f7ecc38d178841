package lifeline

import (
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bringupd/bringupd/pkg/pause"
)

// A frame is one byte; after frameOver comes another, the code.
const (
	frameBeat     byte = 'b'
	frameSickBeat byte = 's' // a beat of a worker whose own share does not answer it
	frameNudge    byte = 'n' // look at the directory now
	frameAsk      byte = 'a' // of the head: give a beat now
	frameSummon   byte = 'r' // of the head: call a second time, to run a command
	frameOver     byte = 'o' // of the head: the run is over
	frameGoodbye  byte = 'g'
)

const (
	// slowWrite bounds a write into a connection that has no kernel's buffer.
	slowWrite = 10 * time.Millisecond
	// lingering is how long the end of a connection waits for the other side's.
	lingering = 100 * time.Millisecond
)

// link is one connection whose other side has proven itself.
type link struct {
	conn     *secureConn
	raw      syscall.RawConn // nil where it is no socket
	identity identity
	begin    time.Time
	heard    atomic.Int64  // when anything came last, since begin
	how      Parting       // set by its reader before ended
	ended    chan struct{} // closed by its reader: nothing will come any more
	replaced chan struct{} // closed by the seat: another connection has taken its place
	buffer   [8]byte       // its reader's
	reset    atomic.Bool   // a write was told that the connection is broken
}

func newLink(conn *secureConn, who identity) *link {
	l := &link{conn: conn, identity: who, begin: time.Now(), ended: make(chan struct{}), replaced: make(chan struct{})}
	if socket, ok := conn.Conn.(syscall.Conn); ok {
		l.raw, _ = socket.SyscallConn()
	}
	return l
}

// quiet returns for how long nothing has come.
func (l *link) quiet() time.Duration { return time.Since(l.begin) - time.Duration(l.heard.Load()) }

func (l *link) live() bool {
	select {
	case <-l.ended:
		return false
	default:
		return true
	}
}

// send writes a frame if there is room for it at once. The reader learns of the end; but the kernel tells once only that
// a connection was reset, and who reads after a write was told so sees an end in order.
func (l *link) send(frame ...byte) { l.conn.offer(l.try, frame...) }

// try sends what there is room for at once, and returns how many bytes that is.
func (l *link) try(record []byte) (sent int) {
	if l.raw == nil {
		_ = l.conn.SetWriteDeadline(time.Now().Add(slowWrite))
		sent, _ = l.conn.Conn.Write(record)
		return sent
	}
	_ = l.raw.Write(func(fd uintptr) bool {
		n, err := unix.SendmsgN(int(fd), record, nil, nil, unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL)
		if sent = max(n, 0); errors.Is(err, unix.ECONNRESET) {
			l.reset.Store(true)
		}
		return true // whatever it said, we don't wait
	})
	return sent
}

// sayGoodbye waits a moment for the other side to hear it.
func (l *link) sayGoodbye() {
	l.send(frameGoodbye)
	pause.Until(l.ended, lingering)
}

// read hands over what comes until the end, tells how it ended and closes the connection. code is that of frameOver.
func (l *link) read(on func(frame, code byte)) {
	l.how = l.frames(on)
	if l.how == Left {
		l.send(frameGoodbye) // so that the other side knows that it was heard
	}
	if l.how == Broken {
		abort(l.conn.Conn)
	}
	_ = l.conn.Close()
	close(l.ended)
}

func (l *link) frames(on func(frame, code byte)) Parting {
	over := false
	for {
		n, err := l.conn.Read(l.buffer[:])
		for _, frame := range l.buffer[:n] {
			switch {
			case over:
				on(frameOver, frame)
				over = false
			case frame == frameOver:
				over = true
			case frame == frameBeat, frame == frameSickBeat, frame == frameNudge, frame == frameAsk, frame == frameSummon:
				l.heard.Store(int64(time.Since(l.begin)))
				on(frame, 0)
			case frame == frameGoodbye:
				return Left
			default:
				return Broken
			}
		}
		if errors.Is(err, io.EOF) && !l.reset.Load() {
			return Closed
		}
		if err != nil {
			return Broken
		}
	}
}

// abort ends the connection so that the other side sees it broken, and waits for us: an end in order would be taken
// for our death.
func abort(conn net.Conn) {
	if socket, ok := conn.(interface{ SetLinger(int) error }); ok {
		_ = socket.SetLinger(0)
	}
	_ = conn.Close()
}

// finish ends the connection in order: the other side reads all that was sent and closes its own end, which our reader
// waits for a moment. What we had not read would make our kernel reset the connection.
func (l *link) finish() {
	if l.conn.CloseWrite() == nil {
		_ = l.conn.SetReadDeadline(time.Now().Add(lingering))
		return
	}
	_ = l.conn.Close()
}

// seat is a peer's place: the connection that it has now, whose news is told in order.
type seat struct {
	telling sync.Mutex           // held from a change of link until it is told of
	link    atomic.Pointer[link] // nil before the first, and after one was lost for good
	known   bool                 // somebody has had it, guarded by telling
}

// live returns the connection if there is one.
func (s *seat) live() *link {
	if l := s.link.Load(); l != nil && l.live() {
		return l
	}
	return nil
}

// send writes a frame where there is a connection.
func (s *seat) send(frame ...byte) {
	if l := s.live(); l != nil {
		l.send(frame...)
	}
}

// takeLocked gives the place to l. The connection that had it is closed, and its peer is not told of as gone.
func (s *seat) takeLocked(l *link) {
	if old := s.link.Swap(l); old != nil {
		close(old.replaced)
		abort(old.conn.Conn)
	}
}

// lose empties the place and tells so, unless l has lost it already.
func (s *seat) lose(l *link, tell func()) {
	s.telling.Lock()
	defer s.telling.Unlock()
	if s.link.CompareAndSwap(l, nil) {
		tell()
	}
}

// follow hands over what comes on l until its end, which comes with that of ctx, and tells how it parted if it isn't
// back in time. l has the place.
func (s *seat) follow(ctx context.Context, cfg Config, l *link, on func(frame, code byte), gone func(Parting)) {
	defer context.AfterFunc(ctx, l.finish)()
	l.read(on)
	patience := time.NewTimer(cfg.patience(l.how))
	defer patience.Stop()
	select {
	case <-patience.C:
		if ctx.Err() == nil { // or it was we who have ended it
			s.lose(l, func() { gone(l.how) })
		}
	case <-l.replaced:
	case <-ctx.Done():
	}
}
