package peerlink

import (
	"context"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"net/netip"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/bringupd/bringupd/internal/ctxutil"
)

// WorkerHandler handles the events of the head on a worker's side. Its methods are called from
// several goroutines and must not block for long.
type WorkerHandler interface {
	// the head has proven itself: for the first time, or again. Reports on an earlier connection may
	// be lost.
	HeadConnected()
	HeadHeartbeat(poll bool) // a heartbeat, or a notification to poll
	// HeadGone is called when the connection has ended for good. If the connection was broken, it is
	// called with [Broken] as soon as the head refuses a new connection, and
	// [WorkerHandler.HeadConnected] may follow.
	HeadGone(how CloseReason)
	// another daemon of this node is connected already: this one must end
	DuplicateDaemon(reason string)
}

const (
	dialTimeout = time.Second // the timeout for one address
	// The pauses between two tries double: after a connection was lost, from minReconnectPause to half
	// a heartbeat interval; before the first connection, from minFirstConnectPause to
	// maxFirstConnectPause.
	minReconnectPause    = 10 * time.Millisecond
	minFirstConnectPause = 100 * time.Millisecond
	maxFirstConnectPause = 15 * time.Second
)

// Worker is a worker's side of its peer link.
type Worker struct {
	headDialer
	cfg               Config
	headAddresses     []string // the head's addresses
	handler           WorkerHandler
	shareUnresponsive func() bool
	onStreamRequest   func() // may be nil

	headSlot           slot // the head's slot
	pollRequested      chan struct{}
	heartbeatRequested chan struct{}              // the head requests a heartbeat now
	onReport           ReportHandler              // may be nil
	localAddr          atomic.Pointer[netip.Addr] // this node's address of the last connection
	tasks              sync.WaitGroup

	// the goodbye message was sent: the end of the connection is not reported
	goodbyeSent atomic.Bool
	done        context.Context // ends when the worker needs no connection any more
	finish      context.CancelFunc
}

// NewWorker returns the worker's side of the peer link of the node with index node. Run connects it
// to one of the head's addresses (host and port). Before each heartbeat, shareUnresponsive reports
// whether the shared file system is unresponsive on this node.
func NewWorker(
	cfg Config, node int, network Network, addresses []string, head WorkerHandler, shareUnresponsive func() bool,
) *Worker {
	w := &Worker{
		headDialer: headDialer{network: network, key: cfg.Key, node: node}, cfg: cfg, handler: head,
		headAddresses: slices.Clone(addresses), shareUnresponsive: shareUnresponsive,
		pollRequested: make(chan struct{}, 1), heartbeatRequested: make(chan struct{}, 1),
	}
	w.done, w.finish = context.WithCancel(context.Background())
	fillRandom(w.identity[:])
	if cfg.Jitter == nil {
		w.cfg.Jitter = rand.Float64
	}
	return w
}

// HandleStreamRequests sets a function that opens an additional connection, to run a command, when
// the head requests one. It must be called before Run. The function must not block.
func (w *Worker) HandleStreamRequests(summoned func()) { w.onStreamRequest = summoned }

// Run keeps the worker connected until ctx ends, either side sends a goodbye message or the head
// rejects this daemon. It waits for all its goroutines.
func (w *Worker) Run(ctx context.Context) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	w.tasks.Go(func() { w.sendLoop(ctx) })
	w.tasks.Go(func() { w.connectLoop(ctx) })
	select {
	case <-ctx.Done():
	case <-w.done.Done():
	}
	cancel()
	w.tasks.Wait()
}

// NotifyHead makes the head poll the run directory now. It never blocks. Several calls may result
// in one notification. Without a connection it has no effect, because the head polls when there is
// one again.
func (w *Worker) NotifyHead() { ctxutil.NotifyChannel(w.pollRequested) }

// NotifyExit tells the head that a service of this node has ended, which may be a failure. It never
// blocks. A heartbeat that the head receives later was sent later.
func (w *Worker) NotifyExit() { w.headSlot.sendFrame(frameExit) }

// SayGoodbye sends a goodbye message, so that the end of this daemon does not look like a failure,
// and waits at most 100 ms for the head to receive it.
func (w *Worker) SayGoodbye() {
	w.goodbyeSent.Store(true)
	if l := w.headSlot.liveLink(); l != nil {
		l.sayGoodbye()
	}
	w.finish()
}

// TCPState returns what this node's kernel knows about the connection to the head.
func (w *Worker) TCPState() TCPState { return w.headSlot.liveLink().tcpState(w.cfg.HeartbeatInterval) }

// LocalAddress returns this node's address on the present connection, or on the last one. It is
// invalid if there was none.
func (w *Worker) LocalAddress() netip.Addr {
	if addr := w.localAddr.Load(); addr != nil {
		return *addr
	}
	return netip.Addr{}
}

func (w *Worker) sendLoop(ctx context.Context) {
	ticker := time.NewTicker(w.cfg.HeartbeatInterval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-w.pollRequested:
			w.headSlot.sendFrame(framePoll)
		case <-ticker.C:
			w.headSlot.sendFrame(w.heartbeatFrame())
		case <-w.heartbeatRequested:
			w.headSlot.sendFrame(w.heartbeatFrame())
		}
	}
}

func (w *Worker) heartbeatFrame() byte {
	if w.shareUnresponsive() {
		return frameStalledHeartbeat
	}
	return frameHeartbeat
}

// connectLoop connects to the head if there is no connection, or if the connection is silent:
// packets that were lost while the network was down are sent again only after seconds, and a new
// connection is faster. The silent connection stays open until then, because it may recover, and
// because it provides information about the head's kernel.
func (w *Worker) connectLoop(ctx context.Context) {
	var l *link
	order := slices.Clone(w.headAddresses)
	wait, longest := minFirstConnectPause, maxFirstConnectPause
	for {
		if l != nil && l.isOpen() {
			w.awaitEndOrSilence(l)
		}
		// The head has sent a goodbye message, or this side needs no connection any more.
		if parted := l != nil && !l.isOpen() && l.closeReason == Goodbye; parted ||
			w.goodbyeSent.Load() || ctx.Err() != nil {
			return
		}
		// Connect again. Retry soon after a connection was lost, but slowly before the first one.
		if fresh := w.dialHead(ctx, order); fresh != nil {
			l = fresh
			wait, longest = minReconnectPause, max(w.cfg.HeartbeatInterval/2, minReconnectPause)
			continue
		}
		// jitter, so that not all workers retry at once
		if !ctxutil.SleepContext(ctx, wait/2+time.Duration(w.cfg.Jitter()*float64(wait))) {
			return
		}
		wait = min(2*wait, longest)
	}
}

// awaitEndOrSilence waits until the connection has ended or is silent. The connection also ends
// when the context of Run ends.
func (w *Worker) awaitEndOrSilence(l *link) {
	for left := w.cfg.silenceTimeout() - l.silentFor(); left > 0 && !ctxutil.AwaitDoneFor(l.ended, left); {
		left = w.cfg.silenceTimeout() - l.silentFor()
	}
}

// dialHead tries the head's addresses in the given order, and moves the one that works to the front.
// It returns the new link, which has its slot, or nil.
func (w *Worker) dialHead(ctx context.Context, order []string) *link {
	for i, address := range order {
		conn, _, err := w.dialAddress(ctx, address)
		switch {
		case err == nil:
			order[0], order[i] = order[i], order[0]
			return w.useConn(ctx, conn)
		case errors.Is(err, errDuplicateDaemon):
			w.handler.DuplicateDaemon(err.Error())
			w.finish()
			return nil
		case i == 0 && errors.Is(err, syscall.ECONNREFUSED):
			w.handleRefusal()
		}
	}
	return nil
}

// handleRefusal is called when the head refuses a connection. If a connection has ended that was
// not reported yet, it reports how. If that one was closed in order, the refusal proves that the
// head's daemon has died. If it was reset, nothing is proven, because the kernel of a daemon that
// dies with unread data resets the connection, but so does a firewall that begins to reject.
func (w *Worker) handleRefusal() {
	l := w.headSlot.link.Load()
	if l == nil || l.isOpen() {
		return
	}
	how := l.closeReason
	if how == Closed {
		how = Refused
	}
	w.headSlot.dropLink(l, func() { w.reportGone(how) })
}

type headDialer struct {
	network  Network
	key      []byte
	node     int
	identity identity
}

// dialAddress connects to the head and performs the handshake. If that fails, took reports whether
// the connection was accepted. A failed connection is reset: the head may have accepted this worker
// already, and must not mistake the end of the connection for the death of its daemon.
func (c headDialer) dialAddress(ctx context.Context, address string) (proven *secureConn, took bool, err error) {
	short, cancel := context.WithTimeout(ctx, dialTimeout)
	defer cancel()
	conn, err := c.network.Dial(short, address)
	if err != nil {
		return nil, false, err
	}
	stop := context.AfterFunc(ctx, func() { resetConn(conn) })
	defer stop()
	proven, err = handshakeAsWorker(conn, c.key, c.node, c.identity)
	if err != nil {
		resetConn(conn)
		return nil, true, err
	}
	return proven, true, nil
}

// useConn puts the connection into the head's slot, reports it, and starts its reader.
func (w *Worker) useConn(ctx context.Context, conn *secureConn) *link {
	l := newLink(conn, w.identity)
	if local, ok := conn.LocalAddr().(*net.TCPAddr); ok {
		addr := local.AddrPort().Addr().Unmap()
		w.localAddr.Store(&addr)
	}
	w.headSlot.eventMu.Lock()
	w.headSlot.setLinkLocked(l)
	w.handler.HeadConnected()
	w.headSlot.eventMu.Unlock()
	l.sendFrame(w.heartbeatFrame())
	if w.goodbyeSent.Load() { // the goodbye message may have been sent on the previous connection
		l.sendFrame(frameGoodbye)
	}
	w.tasks.Go(func() { w.serveLink(ctx, l) })
	return l
}

// serveLink reads the link until it ends, and reports its frames.
func (w *Worker) serveLink(ctx context.Context, l *link) {
	w.headSlot.serveLink(ctx, w.cfg, l, func(frame byte, report []byte) {
		switch frame {
		case frameReportEnd:
			w.onReport.accept(0, report)
		case frameRequestHeartbeat:
			ctxutil.NotifyChannel(w.heartbeatRequested)
			w.handler.HeadHeartbeat(false)
		case frameRequestStream:
			w.handler.HeadHeartbeat(false)
			if w.onStreamRequest != nil {
				w.onStreamRequest()
			}
		default:
			w.handler.HeadHeartbeat(frame == framePoll)
		}
	}, w.reportGone)
}

// reportGone reports that the connection has ended for good, unless this side has said goodbye.
func (w *Worker) reportGone(how CloseReason) {
	if !w.goodbyeSent.Load() {
		w.handler.HeadGone(how)
	}
	if how == Goodbye {
		w.finish()
	}
}

// refusalTimeout is the maximum time that a kernel takes to report a closed port.
const refusalTimeout = 300 * time.Millisecond

// IsHeadPortClosed reports whether the head's host refuses connections at every address of the head
// that this node can resolve, because then the head's daemon has died. An address without a
// response within 300 ms counts as one that does not refuse.
func (w *Worker) IsHeadPortClosed(ctx context.Context) bool {
	ctx, cancel := context.WithTimeout(ctx, refusalTimeout)
	defer cancel()
	var refused, other atomic.Bool
	var calls sync.WaitGroup
	for _, address := range w.headAddresses {
		calls.Go(func() {
			conn, err := w.network.Dial(ctx, address)
			_, nameless := errors.AsType[*net.DNSError](err)
			switch {
			// An address that this node cannot resolve proves nothing.
			case nameless:
			case errors.Is(err, syscall.ECONNREFUSED):
				refused.Store(true)
			default:
				other.Store(true)
			}
			if err == nil {
				resetConn(conn)
			}
		})
	}
	calls.Wait()
	return refused.Load() && !other.Load()
}

// StreamKind is what an additional connection is for, of a worker or of a process outside the job.
// Additional connections exist so that other data does not delay heartbeats.
type StreamKind uint32

// The purposes. Each is a bit in the node index that a worker claims.
const (
	RendezvousStream StreamKind = 1 << 31 // the rendezvous of ranks
	CommandStream    StreamKind = 1 << 30 // commands on other nodes
	DoctorStream     StreamKind = 1 << 29 // connection tests and clock comparison of bringupd doctor
	CallerStream     StreamKind = 1 << 28 // of a process outside the job: commands on the nodes
)

const streamKindMask = uint32(RendezvousStream | CommandStream | DoctorStream | CallerStream)

// StreamHandler handles an additional connection of a worker until the other side or ctx ends, and
// closes it.
type StreamHandler = func(ctx context.Context, node int, conn io.ReadWriteCloser)

// HandleStreams makes the head accept additional connections for a purpose, and sets their handler.
// It must be called before Run.
func (h *Head) HandleStreams(purpose StreamKind, serve StreamHandler) {
	h.streamHandlers[purpose] = serve
}

// StreamDialer returns a function that calls [DialStream] with these arguments.
func StreamDialer(
	purpose StreamKind, key []byte, node int, network Network, addresses []string,
) func(context.Context) (io.ReadWriteCloser, error) {
	return func(ctx context.Context) (io.ReadWriteCloser, error) {
		return DialStream(ctx, purpose, key, node, network, addresses)
	}
}

// DialStream opens an additional connection of a worker to the head, for the handler that was set
// by [Head.HandleStreams]. It tries the head's addresses in turn. A head with too many connections
// before their handshakes closes the oldest, which may be this one: then it tries again.
func DialStream(ctx context.Context, purpose StreamKind, key []byte, node int, network Network,
	addresses []string) (net.Conn, error) {
	from := headDialer{network: network, key: key, node: node | int(purpose)}
	fillRandom(from.identity[:])
	for wait := minReconnectPause; ; wait *= 2 {
		conn, dropped, err := from.dialAny(ctx, addresses)
		if !dropped || wait > maxStreamRetryPause || !ctxutil.SleepContext(ctx, wait/2+rand.N(wait)) {
			return conn, err
		}
	}
}

// maxStreamRetryPause is about the longest pause between two tries: [DialStream] gives up instead
// of waiting longer.
const maxStreamRetryPause = 320 * time.Millisecond

// dialAny tries the addresses in turn. dropped reports whether a server has accepted the
// connection, and closed it before the end of the handshake.
func (c headDialer) dialAny(ctx context.Context, addresses []string) (conn net.Conn, dropped bool, err error) {
	err = errors.New("the head offers no peer links")
	for _, address := range addresses {
		proven, took, failed := c.dialAddress(ctx, address)
		if failed == nil {
			return proven, false, nil
		}
		ended := errors.Is(failed, io.EOF) || errors.Is(failed, syscall.ECONNRESET) || errors.Is(failed, syscall.EPIPE)
		dropped, err = dropped || took && ended, failed
	}
	return nil, dropped, err
}
