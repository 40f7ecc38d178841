package peerlink

import (
	"container/list"
	"context"
	"errors"
	"io"
	"maps"
	"net"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/bringupd/bringupd/internal/ctxutil"
	"github.com/bringupd/bringupd/pkg/signal/record"
)

// HeadHandler handles the events of workers on the head's side. Its methods are called from several
// goroutines and must not block for long. The calls for one node are in order, with one exception:
// a last heartbeat or notification of a connection may be reported after its replacement.
type HeadHandler interface {
	// the worker has proven itself: for the first time, or again
	WorkerConnected(node int)
	// a heartbeat; shareUnresponsive: the shared file system is unresponsive on the worker
	WorkerHeartbeat(node int, shareUnresponsive bool)
	// WorkerNotified is called when the worker asks the head to poll the run directory.
	WorkerNotified(node int)
	// WorkerExit is called when a service of the worker has ended, which may be a failure.
	WorkerExit(node int)
	// WorkerGone is called when the worker's connection has ended for good.
	WorkerGone(node int, how CloseReason)
}

// Head is the head's side of all peer links.
type Head struct {
	cfg            Config
	listener       net.Listener
	handler        HeadHandler
	slots          []slot // indexed by node
	pollRequested  chan struct{}
	tasks          sync.WaitGroup
	streamHandlers map[StreamKind]StreamHandler // handlers of additional connections, by purpose
	onReport       ReportHandler                // may be nil

	mu          sync.Mutex
	unproven    list.List // connections (net.Conn) before the end of their handshakes, oldest first
	reports     [][]byte  // for workers that connect later
	goodbyeSent bool      // the goodbye message was sent
	stats       record.LinkReport
}

// NewHead returns the head's side. It accepts no connections before Run.
func NewHead(cfg Config, listener net.Listener, peers HeadHandler) *Head {
	return &Head{
		cfg: cfg, listener: listener, handler: peers, slots: make([]slot, cfg.Nodes),
		pollRequested: make(chan struct{}, 1), streamHandlers: make(map[StreamKind]StreamHandler),
	}
}

// OpenHead opens the port for the workers' peer links, and returns the head's side, and the address of
// the port on each host with a non-empty name. The caller must prepare and run it.
func OpenHead(network Network, hosts ...string) (h *Head, where []string, err error) {
	listener, err := network.Listen()
	if err != nil {
		return nil, nil, err
	}
	_, port, err := net.SplitHostPort(listener.Addr().String())
	if err != nil {
		return nil, nil, errors.Join(err, listener.Close())
	}
	for _, host := range hosts {
		if host != "" {
			where = append(where, net.JoinHostPort(host, port))
		}
	}
	return NewHead(Config{}, listener, nil), where, nil
}

// Prepare sets the configuration and the handler of the events of workers. It must be called before
// Run.
func (h *Head) Prepare(cfg Config, workers HeadHandler) {
	h.cfg, h.handler, h.slots = cfg, workers, make([]slot, cfg.Nodes)
}

// Close sends goodbye messages on all links, and closes the port. It does nothing if h is nil.
func (h *Head) Close() {
	if h != nil {
		h.SayGoodbye()
		_ = h.listener.Close()
	}
}

// Run serves until ctx ends, then closes all connections and waits for all its goroutines. It also
// closes the listener.
func (h *Head) Run(ctx context.Context) {
	h.tasks.Go(func() { h.acceptLoop(ctx) })
	h.tasks.Go(func() { h.sendLoop(ctx) })
	<-ctx.Done()
	_ = h.listener.Close()
	h.tasks.Wait()
}

// NotifyWorkers makes every worker poll the run directory now. It never blocks. Several calls may
// result in one notification.
func (h *Head) NotifyWorkers() { ctxutil.NotifyChannel(h.pollRequested) }

// RequestHeartbeats requests an immediate heartbeat from every worker. The kernel of a worker that
// is being killed still acknowledges data, but its daemon sends no heartbeat.
func (h *Head) RequestHeartbeats() { h.sendToAll(frameRequestHeartbeat) }

// NotifyWorker makes one worker poll the run directory now. It never blocks.
func (h *Head) NotifyWorker(node int) {
	if node < 1 || node >= len(h.slots) {
		return
	}
	h.slots[node].sendFrame(framePoll)
}

// RequestStream asks one worker for an additional connection, to run a command. It never blocks. It
// has no effect if the worker is not connected.
func (h *Head) RequestStream(node int) {
	if node >= 1 && node < len(h.slots) {
		h.slots[node].sendFrame(frameRequestStream)
	}
}

// SayGoodbye sends a goodbye message to all workers, including those that connect later: the head
// is about to end in order.
func (h *Head) SayGoodbye() {
	h.mu.Lock()
	h.goodbyeSent = true
	h.mu.Unlock()
	h.sendToAll(frameGoodbye)
}

// WorkerTCPState returns what this node's kernel knows about the connection to the worker.
func (h *Head) WorkerTCPState(node int) TCPState {
	if node < 1 || node >= len(h.slots) {
		return TCPState{}
	}
	return h.slots[node].liveLink().tcpState(h.cfg.HeartbeatInterval)
}

// sendLoop sends notifications. It also sends heartbeats to workers with overdue heartbeats, so
// that their kernels have data to acknowledge. Other workers receive a heartbeat in answer to each
// of their own: see [Head.serveWorker].
func (h *Head) sendLoop(ctx context.Context) {
	ticker := time.NewTicker(h.cfg.HeartbeatInterval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-h.pollRequested:
			h.sendToAll(framePoll)
		case <-ticker.C:
			for node := range h.slots {
				if l := h.slots[node].liveLink(); l != nil && l.silentFor() > h.cfg.HeartbeatInterval*3/2 {
					l.sendFrame(frameHeartbeat)
				}
			}
		}
	}
}

func (h *Head) sendToAll(frame ...byte) {
	for node := range h.slots {
		h.slots[node].sendFrame(frame...)
	}
}

func (h *Head) acceptLoop(ctx context.Context) {
	for {
		conn, err := h.listener.Accept()
		switch {
		case err == nil:
			unproven := h.addUnproven(conn) // here, so that the list is in the order of arrival
			h.tasks.Go(func() { h.handleConn(ctx, conn, unproven) })
		case ctx.Err() != nil:
			return
		default: // most likely no file descriptors are left: existing connections continue
			if !ctxutil.SleepContext(ctx, 50*time.Millisecond) {
				return
			}
		}
	}
}

func (h *Head) handleConn(ctx context.Context, conn net.Conn, unproven *list.Element) {
	node, l := h.identifyPeer(ctx, conn, unproven)
	if l == nil {
		_ = conn.Close()
		return
	}
	if purpose := StreamKind(uint32(node) & streamKindMask); purpose != 0 {
		h.tasks.Go(func() { h.streamHandlers[purpose](ctx, node&^int(purpose), l.conn) })
		return
	}
	// The link is served by a new goroutine, because the stack of this one has grown during the
	// handshake.
	h.tasks.Go(func() { h.serveWorker(ctx, node, l) })
}

// serveWorker serves a worker's link. It sends heartbeats only in answer to the worker's, because a
// daemon that is being killed sends none. Data that arrives at such a daemon stays unread, and
// makes its kernel reset the connection. A reset has other possible causes, but an orderly close
// proves the death of the daemon.
func (h *Head) serveWorker(ctx context.Context, node int, l *link) {
	h.slots[node].serveLink(ctx, h.cfg, l, func(frame byte, report []byte) {
		switch frame {
		case framePoll:
			h.handler.WorkerNotified(node)
		case frameReportEnd:
			h.onReport.accept(node, report)
		case frameExit:
			h.handler.WorkerExit(node)
		default:
			l.sendFrame(frameHeartbeat)
			h.handler.WorkerHeartbeat(node, frame == frameStalledHeartbeat)
		}
	}, func(how CloseReason) { h.handler.WorkerGone(node, how) })
}

// identifyPeer performs the handshake. It returns the claimed node index and the link, or a nil
// link if the other side is rejected. A link of a worker already has its slot.
func (h *Head) identifyPeer(ctx context.Context, conn net.Conn, unproven *list.Element) (int, *link) {
	defer h.removeUnproven(unproven)
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
	who, sealed, err := handshakeAsHead(conn, h.cfg.Key)
	if err != nil {
		h.countRejected(err)
		return 0, nil
	}
	l := newLink(sealed, who.identity())
	purpose := StreamKind(who.nodeIndex() & streamKindMask)
	switch node := int64(who.nodeIndex()); {
	case h.streamHandlers[purpose] != nil && node&^int64(purpose) < int64(h.cfg.Nodes):
		err = sendVerdict(sealed, verdictAccepted)
	case node < 1 || node >= int64(h.cfg.Nodes):
		err = errWrongIndex
	default:
		err = h.assignSlot(l, int(node))
	}
	if err != nil {
		h.countRejected(err)
		return 0, nil
	}
	return int(who.nodeIndex()), l
}

// addUnproven adds a connection to the list of connections before their handshakes. If there are
// too many, it closes the oldest. This hardly delays a worker: its handshake needs only a moment,
// and it tries again.
func (h *Head) addUnproven(conn net.Conn) *list.Element {
	const more = 64
	h.mu.Lock()
	defer h.mu.Unlock()
	if h.unproven.Len() >= h.cfg.Nodes+more {
		oldest := h.unproven.Front()
		_ = h.unproven.Remove(oldest).(net.Conn).Close()
		h.countRejectedLocked(errTooManyConns)
	}
	return h.unproven.PushBack(conn)
}

// removeUnproven removes a connection that was added by [Head.addUnproven], after its handshake. It
// does nothing if addUnproven has closed the connection.
func (h *Head) removeUnproven(stranger *list.Element) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.unproven.Remove(stranger)
}

// assignSlot puts the worker's link into its slot, and reports that the worker is connected. It
// returns errDuplicateDaemon if another daemon has the slot and was heard recently. If that daemon
// is silent, it is reported as gone first.
func (h *Head) assignSlot(l *link, node int) error {
	s := &h.slots[node]
	s.eventMu.Lock()
	defer s.eventMu.Unlock()
	old := s.link.Load()
	other := old != nil && old.identity != l.identity
	if other && old.silentFor() <= h.cfg.silenceTimeout() {
		return errors.Join(errDuplicateDaemon, sendVerdict(l.conn, verdictDuplicate))
	}
	if err := sendVerdict(l.conn, verdictAccepted); err != nil {
		return err
	}
	s.setLinkLocked(l)
	if other {
		h.handler.WorkerGone(node, Broken)
	}
	// Report the new link. The goodbye message and reports may have been sent before it existed.
	h.mu.Lock()
	reports, leaving := h.reports, h.goodbyeSent
	if s.hadConnection {
		h.stats.Reconnects++ // counted before the event, because its handler may read the statistics
	}
	h.mu.Unlock()
	s.hadConnection = true
	h.handler.WorkerConnected(node)
	l.sendFrame(frameHeartbeat)
	for _, report := range reports {
		l.sendReport(report)
	}
	if leaving {
		l.sendFrame(frameGoodbye)
	}
	return nil
}

type rejection struct{ reason, message string } // the key in record.LinkReport, and the message

func (s *rejection) Error() string { return s.message }

var (
	errWrongProtocol   = &rejection{"garbage", "it does not speak the peer link's protocol"}
	errWrongKey        = &rejection{"wrong_key", "it does not have this attempt's key"}
	errWrongIndex      = &rejection{"wrong_rank", "no worker of this attempt has its node index"}
	errDuplicateDaemon = &rejection{"second_daemon", "another daemon of this node is connected already"}
	errNoProof         = &rejection{"late", "it did not complete the handshake in time"}
	errTooManyConns    = &rejection{"crowded_out", "there were too many at the same time"}
)

// countRejected counts a rejected connection. An err that is no rejection counts as errNoProof.
func (h *Head) countRejected(err error) {
	why, known := errors.AsType[*rejection](err)
	if !known {
		why = errNoProof
	}
	// One side has closed it. If it was this side, it is counted already, or the head has ended. A
	// client of exec, a worker or a scan of ports that has gone by itself was not rejected.
	isClosed := func(by error) bool { return errors.Is(err, by) }
	if !known && slices.ContainsFunc([]error{net.ErrClosed, io.EOF, syscall.ECONNRESET, syscall.EPIPE}, isClosed) {
		return
	}
	h.mu.Lock()
	defer h.mu.Unlock()
	h.countRejectedLocked(why)
}

// countRejectedLocked counts a rejected connection. mu must be held.
func (h *Head) countRejectedLocked(why *rejection) {
	if h.stats.Rejected == nil {
		h.stats.Rejected = make(map[string]int)
	}
	h.stats.Rejected[why.reason]++
}

// Stats returns the statistics so far.
func (h *Head) Stats() record.LinkReport {
	h.mu.Lock()
	defer h.mu.Unlock()
	return record.LinkReport{Reconnects: h.stats.Reconnects, Rejected: maps.Clone(h.stats.Rejected)}
}
