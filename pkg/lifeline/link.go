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

// A frame is one byte, except that frameOver is followed by a second byte, the exit code.
const (
	frameBeat     byte = 'b'
	frameSickBeat byte = 's' // a heartbeat; the shared file system is unresponsive on the worker
	frameNudge    byte = 'n' // poll the run directory now
	frameAsk      byte = 'a' // from the head: send a heartbeat now
	frameSummon   byte = 'r' // from the head: make an additional connection, to run a command
	frameOver     byte = 'o' // from the head: the run is over
	frameGoodbye  byte = 'g'
)

const (
	// slowWrite is the timeout of a write to a connection that has no kernel buffer, as in tests.
	slowWrite = 10 * time.Millisecond
	// lingering is how long this side waits for the other side to close its end of the connection.
	lingering = 100 * time.Millisecond
)

// link is one connection after a successful handshake.
type link struct {
	conn     *secureConn
	raw      syscall.RawConn // nil if the connection is not a socket
	identity identity
	begin    time.Time
	heard    atomic.Int64  // time when data was last received, in nanoseconds since begin
	how      Parting       // set by its reader before ended
	ended    chan struct{} // closed by its reader: no more data will come
	replaced chan struct{} // closed by the slot: another connection has replaced it
	buffer   [8]byte       // used by its reader
	reset    atomic.Bool   // a write has failed because the connection was reset
}

func newLink(conn *secureConn, who identity) *link {
	l := &link{conn: conn, identity: who, begin: time.Now(), ended: make(chan struct{}), replaced: make(chan struct{})}
	if socket, ok := conn.Conn.(syscall.Conn); ok {
		l.raw, _ = socket.SyscallConn()
	}
	return l
}

// quiet returns the time since data was last received.
func (l *link) quiet() time.Duration { return time.Since(l.begin) - time.Duration(l.heard.Load()) }

// live reports whether the connection is open.
func (l *link) live() bool {
	select {
	case <-l.ended:
		return false
	default:
		return true
	}
}

// send sends a frame if the kernel has room for it at once, and drops it otherwise. It returns no
// error, because the reader detects the end of the connection. But the kernel reports a reset only
// once: if a write has received this error, the reader sees an orderly close. Therefore [link.try]
// records it.
func (l *link) send(frame ...byte) { l.conn.offer(l.try, frame...) }

// try sends as much of a record as the kernel has room for at once, and returns the number of
// bytes.
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
		return true // done, whatever the error is: never wait until the socket is writable
	})
	return sent
}

// sayGoodbye sends a goodbye message, and waits at most 100 ms for the other side to receive it.
func (l *link) sayGoodbye() {
	l.send(frameGoodbye)
	pause.Until(l.ended, lingering)
}

// read passes received frames to on until the connection ends. Then it records how the connection
// ended, and closes it. The second argument of on is the exit code after a frameOver, and otherwise
// 0.
func (l *link) read(on func(frame, code byte)) {
	l.how = l.frames(on)
	if l.how == Left {
		l.send(frameGoodbye) // so that the other side knows that it was received
	}
	if l.how == Broken {
		abort(l.conn.Conn)
	}
	_ = l.conn.Close()
	close(l.ended)
}

// frames passes received frames to on until the connection ends, and returns how it ended. An
// unknown frame counts as a broken connection.
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

// abort resets the connection. The other side then treats it as broken, and waits for a new one,
// whereas an orderly close would look like the death of this daemon.
func abort(conn net.Conn) {
	if socket, ok := conn.(interface{ SetLinger(int) error }); ok {
		_ = socket.SetLinger(0)
	}
	_ = conn.Close()
}

// finish closes the connection in order: it closes the sending direction, and the reader waits at
// most 100 ms until the other side has read all data and closes its end. If this side closed the
// connection with unread data, its kernel would reset it.
func (l *link) finish() {
	if l.conn.CloseWrite() == nil {
		_ = l.conn.SetReadDeadline(time.Now().Add(lingering))
		return
	}
	_ = l.conn.Close()
}

// seat is the slot of a peer: it has the peer's present connection. Events of one slot are reported
// in order.
type seat struct {
	telling sync.Mutex           // held while link changes and the change is reported
	link    atomic.Pointer[link] // nil before the first connection, and after one was lost for good
	known   bool                 // it has had a connection before; guarded by the mutex
}

// live returns the connection if it is open, and otherwise nil.
func (s *seat) live() *link {
	if l := s.link.Load(); l != nil && l.live() {
		return l
	}
	return nil
}

// send sends a frame if there is an open connection.
func (s *seat) send(frame ...byte) {
	if l := s.live(); l != nil {
		l.send(frame...)
	}
}

// takeLocked puts l into the slot. It closes the previous connection without reporting that the
// peer is gone. The slot's mutex must be held.
func (s *seat) takeLocked(l *link) {
	if old := s.link.Swap(l); old != nil {
		close(old.replaced)
		abort(old.conn.Conn)
	}
}

// lose empties the slot and calls the given function. It does nothing if l is not in the slot any
// more.
func (s *seat) lose(l *link, tell func()) {
	s.telling.Lock()
	defer s.telling.Unlock()
	if s.link.CompareAndSwap(l, nil) {
		tell()
	}
}

// follow serves l, which must be in the slot. It passes received frames to on until the connection
// or ctx ends. If the peer does not reconnect in time, it passes the reason for the end of the
// connection to gone.
func (s *seat) follow(ctx context.Context, cfg Config, l *link, on func(frame, code byte), gone func(Parting)) {
	defer context.AfterFunc(ctx, l.finish)()
	l.read(on)
	patience := time.NewTimer(cfg.patience(l.how))
	defer patience.Stop()
	select {
	case <-patience.C:
		if ctx.Err() == nil { // not if this side has ended it
			s.lose(l, func() { gone(l.how) })
		}
	case <-l.replaced:
	case <-ctx.Done():
	}
}
