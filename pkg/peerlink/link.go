package peerlink

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bringupd/bringupd/internal/ctxutil"
)

// A frame is one byte, except that those of a report are followed by a part of it, up to the end of
// the encrypted record.
const (
	frameHeartbeat byte = 'b'
	// a heartbeat; the shared file system is unresponsive on the worker
	frameStalledHeartbeat byte = 's'
	framePoll             byte = 'n' // poll the run directory now
	frameRequestHeartbeat byte = 'a' // from the head: send a heartbeat now
	frameRequestStream    byte = 'r' // from the head: make an additional connection, to run a command
	frameExit             byte = 'd' // from a worker: a service has ended, which may be a failure
	frameReport           byte = 'm' // a part of a report, and more follows
	frameReportEnd        byte = 'e' // its last part
	frameGoodbye          byte = 'g'
)

const (
	// unbufferedWriteTimeout is the timeout of a write to a connection that has no kernel buffer, as
	// in tests.
	unbufferedWriteTimeout = 10 * time.Millisecond
	// lingerTimeout is how long this side waits for the other side to close its end of the connection.
	lingerTimeout = 100 * time.Millisecond
)

type link struct {
	conn         *secureConn
	rawConn      syscall.RawConn // nil if the connection is not a socket
	identity     identity
	created      time.Time
	lastReceived atomic.Int64  // time when data was last received, in nanoseconds since begin
	closeReason  CloseReason   // set by its reader before ended
	ended        chan struct{} // closed by its reader: no more data will come
	replaced     chan struct{} // closed by the slot: another connection has replaced it
	buffer       [8]byte       // used by its reader
	wasReset     atomic.Bool   // a write has failed because the connection was reset
	reports      reportQueue
}

func newLink(conn *secureConn, who identity) *link {
	l := &link{conn: conn, identity: who, created: time.Now(), ended: make(chan struct{}),
		replaced: make(chan struct{})}
	if socket, ok := conn.Conn.(syscall.Conn); ok {
		l.rawConn, _ = socket.SyscallConn()
	}
	return l
}

func (l *link) silentFor() time.Duration {
	return time.Since(l.created) - time.Duration(l.lastReceived.Load())
}

func (l *link) isOpen() bool {
	select {
	case <-l.ended:
		return false
	default:
		return true
	}
}

// sendFrame sends a frame if the kernel has room for it at once, and drops it otherwise. It returns
// no error, because the reader detects the end of the connection. But the kernel reports a reset
// only once: if a write has received this error, the reader sees an orderly close. Therefore
// [link.trySend] records it. Frames of reports that are left are sent first.
func (l *link) sendFrame(frame ...byte) {
	l.sendReports()
	l.conn.tryWriteFrame(l.trySend, frame...)
}

// trySend sends as much of a record as the kernel has room for at once, and returns the number of
// bytes.
func (l *link) trySend(record []byte) (sent int) {
	if l.rawConn == nil {
		_ = l.conn.SetWriteDeadline(time.Now().Add(unbufferedWriteTimeout))
		sent, _ = l.conn.Conn.Write(record)
		return sent
	}
	_ = l.rawConn.Write(func(fd uintptr) bool {
		n, err := unix.SendmsgN(int(fd), record, nil, nil, unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL)
		if sent = max(n, 0); errors.Is(err, unix.ECONNRESET) {
			l.wasReset.Store(true)
		}
		return true // done, whatever the error is: never wait until the socket is writable
	})
	return sent
}

// sayGoodbye sends a goodbye message, and waits at most 100 ms for the other side to receive it.
func (l *link) sayGoodbye() {
	l.sendFrame(frameGoodbye)
	ctxutil.AwaitDoneFor(l.ended, lingerTimeout)
}

// readLoop passes received frames to on until the connection ends. Then it records how the
// connection ended, and closes it. The second argument of on is the report after a frameReportEnd,
// and otherwise nil.
func (l *link) readLoop(on func(frame byte, report []byte)) {
	l.closeReason = l.readFrames(on)
	if l.closeReason == Goodbye {
		l.sendFrame(frameGoodbye) // so that the other side knows that it was received
	}
	if l.closeReason == Broken {
		resetConn(l.conn.Conn)
	}
	_ = l.conn.Close()
	close(l.ended)
}

// readFrames passes received frames to on until the connection ends, and returns how it ended. An
// unknown frame counts as a broken connection, and so does a report that is too large.
func (l *link) readFrames(on func(frame byte, report []byte)) CloseReason {
	var report []byte
	for {
		n, err := l.conn.Read(l.buffer[:])
		for i := 0; i < n; i++ {
			switch frame := l.buffer[i]; frame {
			case frameReport, frameReportEnd:
				l.lastReceived.Store(int64(time.Since(l.created)))
				report = l.conn.appendRest(append(report, l.buffer[i+1:n]...))
				i = n
				if len(report) > maxReport {
					return Broken
				}
				if frame == frameReportEnd {
					on(frame, report)
					report = nil
				}
			case frameHeartbeat, frameStalledHeartbeat, framePoll, frameRequestHeartbeat, frameRequestStream, frameExit:
				l.lastReceived.Store(int64(time.Since(l.created)))
				on(frame, nil)
			case frameGoodbye:
				return Goodbye
			default:
				return Broken
			}
		}
		if errors.Is(err, io.EOF) && !l.wasReset.Load() {
			return Closed
		}
		if err != nil {
			return Broken
		}
	}
}

// resetConn resets the connection. The other side then treats it as broken, and waits for a new
// one, whereas an orderly close would look like the death of this daemon.
func resetConn(conn net.Conn) {
	if socket, ok := conn.(interface{ SetLinger(int) error }); ok {
		_ = socket.SetLinger(0)
	}
	_ = conn.Close()
}

// closeInOrder closes the connection in order: it closes the sending direction, and the reader
// waits at most 100 ms until the other side has read all data and closes its end. If this side
// closed the connection with unread data, its kernel would reset it.
func (l *link) closeInOrder() {
	if l.conn.CloseWrite() == nil {
		_ = l.conn.SetReadDeadline(time.Now().Add(lingerTimeout))
		return
	}
	_ = l.conn.Close()
}

// slot is the slot of a peer: it has the peer's present connection. Events of one slot are reported
// in order.
type slot struct {
	eventMu sync.Mutex // held while link changes and the change is reported
	// nil before the first connection, and after one was lost for good
	link          atomic.Pointer[link]
	hadConnection bool // it has had a connection before; guarded by the mutex
}

func (s *slot) liveLink() *link {
	if l := s.link.Load(); l != nil && l.isOpen() {
		return l
	}
	return nil
}

// sendFrame sends a frame if there is an open connection.
func (s *slot) sendFrame(frame ...byte) {
	if l := s.liveLink(); l != nil {
		l.sendFrame(frame...)
	}
}

// setLinkLocked puts l into the slot. It closes the previous connection without reporting that the
// peer is gone. The slot's mutex must be held.
func (s *slot) setLinkLocked(l *link) {
	if old := s.link.Swap(l); old != nil {
		close(old.replaced)
		resetConn(old.conn.Conn)
	}
}

// dropLink empties the slot and calls the given function. It does nothing if l is not in the slot
// any more.
func (s *slot) dropLink(l *link, tell func()) {
	s.eventMu.Lock()
	defer s.eventMu.Unlock()
	if s.link.CompareAndSwap(l, nil) {
		tell()
	}
}

// serveLink serves l, which must be in the slot. It passes received frames to on until the
// connection or ctx ends. If the peer does not reconnect in time, it passes the reason for the end
// of the connection to gone.
func (s *slot) serveLink(ctx context.Context, cfg Config, l *link, on func(frame byte, report []byte),
	gone func(CloseReason)) {
	defer context.AfterFunc(ctx, l.closeInOrder)()
	l.readLoop(on)
	reconnect := time.NewTimer(cfg.reconnectTimeout(l.closeReason))
	defer reconnect.Stop()
	select {
	case <-reconnect.C:
		if ctx.Err() == nil { // not if this side has ended it
			s.dropLink(l, func() { gone(l.closeReason) })
		}
	case <-l.replaced:
	case <-ctx.Done():
	}
}

// maxReport is the maximum size of a report, in bytes. It is more than an exit with its last lines
// needs; what is larger is in the run directory only.
const maxReport = 256 << 10

// ReportHandler handles a report of a worker, or of the head (node 0): a name with its content,
// which may be empty. It must not block for long, and owns the content.
type ReportHandler func(node int, name string, content []byte)

// accept handles a received report. A nil handler drops it.
func (h ReportHandler) accept(node int, report []byte) {
	name, content, is := bytes.Cut(report, []byte{'\n'})
	if h != nil && is {
		h(node, string(name), content)
	}
}

// encodeReport returns a report for [link.sendReport], or nil if it is too large.
func encodeReport(name string, content []byte) []byte {
	report := append([]byte(name+"\n"), content...)
	if len(report) > maxReport {
		return nil
	}
	return report
}

// HandleReports sets the handler of the workers' reports. It must be called before Run.
func (h *Head) HandleReports(accept ReportHandler) { h.onReport = accept }

// HandleReports sets the handler of the head's reports. It must be called before Run.
func (w *Worker) HandleReports(accept ReportHandler) { w.onReport = accept }

// SendReport sends a name and its content to all workers, including those that connect later. It
// never blocks.
func (h *Head) SendReport(name string, content []byte) {
	report := encodeReport(name, content)
	h.mu.Lock()
	h.reports = append(h.reports, report)
	h.mu.Unlock()
	for node := range h.slots {
		h.slots[node].liveLink().sendReport(report)
	}
}

// SendReport sends a name and its content to the head, at once and in the order of the calls. It
// never blocks. The report is dropped if there is no connection, or the connection ends before it
// was sent: see [WorkerHandler].
func (w *Worker) SendReport(name string, content []byte) {
	w.headSlot.liveLink().sendReport(encodeReport(name, content))
}

// reportQueue has the frames of reports that were not sent yet, because the kernel had no room.
type reportQueue struct {
	sync.Mutex
	frames [][]byte // guarded by the mutex
}

// sendReport sends a report, in parts. What the kernel has no room for is sent with the next
// frames. It does nothing if there is no connection, or no report.
func (l *link) sendReport(report []byte) {
	if l == nil || report == nil {
		return
	}
	l.reports.Lock()
	for len(report) >= maxPayload {
		l.reports.frames = append(l.reports.frames, append([]byte{frameReport}, report[:maxPayload-1]...))
		report = report[maxPayload-1:]
	}
	l.reports.frames = append(l.reports.frames, append([]byte{frameReportEnd}, report...))
	l.reports.Unlock()
	l.sendReports()
}

// sendReports sends the frames of reports for which the kernel has room.
func (l *link) sendReports() {
	q := &l.reports
	q.Lock()
	defer q.Unlock()
	for len(q.frames) > 0 && l.conn.tryWriteFrame(l.trySend, q.frames[0]...) {
		q.frames = q.frames[1:]
	}
}

// Config is the common configuration of both sides of a peer link.
type Config struct {
	Key               []byte        // the run's secret for [SecretName]: KeySize bytes
	Nodes             int           // number of nodes, including the head
	HeartbeatInterval time.Duration // heartbeat interval, in each direction
	// Jitter returns the random part of a worker's pauses, at least 0 and less than 1. If it is nil,
	// rand.Float64 is used.
	Jitter func() float64
}

// silenceTimeout returns the time without data after which a peer counts as silent. A healthy peer
// always sends something within this time.
func (c Config) silenceTimeout() time.Duration { return 4 * c.HeartbeatInterval }

// ReconnectTimeout is how long a peer may take to reconnect after its connection was closed without
// a goodbye message. After that it is reported as gone.
const ReconnectTimeout = 30 * time.Millisecond

// reconnectTimeout returns how long a peer may take to reconnect after its connection has ended in
// the given way. After that it is reported as gone.
func (c Config) reconnectTimeout(how CloseReason) time.Duration {
	switch how {
	case Closed:
		return ReconnectTimeout
	case Broken:
		return c.silenceTimeout()
	default:
		return 0
	}
}

// CloseReason describes how a connection has ended for good.
type CloseReason int

const (
	Goodbye CloseReason = iota // after a goodbye message
	Closed                     // in order but without a goodbye message, so the daemon has died
	Broken                     // it was reset, or the network failed otherwise
	Refused                    // on a worker: the head's port is closed, so the head's daemon has died
)

var closeReasonNames = []string{Goodbye: "left", Closed: "closed", Broken: "broken", Refused: "refused"}

// String returns the lower-case name of the constant.
func (p CloseReason) String() string { return closeReasonNames[p] }
