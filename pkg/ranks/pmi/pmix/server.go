// Package pmix serves PMIx to the ranks of one node, for Open MPI. A child process loads libpmix.
// The child makes no decisions: the daemon registers the ranks with it and answers their requests.
package pmix

import (
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"sync"
	"time"

	"go.uber.org/zap"

	"github.com/bringupd/bringupd/internal/ctxutil"
	"github.com/bringupd/bringupd/internal/files"
	"github.com/bringupd/bringupd/internal/textutil"
	"github.com/bringupd/bringupd/pkg/process"
	"github.com/bringupd/bringupd/pkg/ranks/pmi"
	"github.com/bringupd/bringupd/pkg/ranks/rendezvous"
)

const (
	// ChildCommand is the subcommand that runs the child process.
	ChildCommand = "pmix-child"
	// childVariable is set in the environment of the child. It prevents a program without the
	// subcommand from starting itself again and again.
	childVariable = "BRINGUPD_PMIX_CHILD"
)

// IsChild reports whether this process was started by a server.
func IsChild() bool { return os.Getenv(childVariable) != "" }

// Config holds the parameters of a server.
type Config struct {
	Program      string // executable with the ChildCommand; empty: this executable
	Library      Library
	Environ      []string // environment of the child
	ServerNumber int      // unique among the servers of the nodes
	Host         string
	Dir          *files.OwnedDir // for the library's files
	Log          *zap.Logger
}

// Handlers holds the handlers of the ranks' requests.
type Handlers struct {
	pmi.Handlers
	// PrintOutput is called with text that a rank asks the server to print, on standard error if isErr
	// is set. It must not block.
	PrintOutput func(by pmi.ProcID, text string, isErr bool)
}

// Server controls the child process and holds the state of its clients. Its methods are safe for
// concurrent use.
type Server struct {
	cfg Config
	Handlers
	ctx        context.Context // context of the ranks' requests; ends with the child
	stop       context.CancelFunc
	child      *process.Helper
	stderrTail tailBuffer
	tasks      sync.WaitGroup
	frames     chan frame    // frames to send to the child
	done       chan struct{} // closed when the child has ended
	err        error         // set before done is closed

	requestQuota rendezvous.Quota // limits unanswered requests
	refusalQuota rendezvous.Quota // limits unanswered requests that are being refused

	orders orderTable
	registry
}

// registry holds the ranks of this node and the jobs that are registered with the child.
type registry struct {
	mu      sync.Mutex
	clients map[pmi.ProcID]*clientState
	jobs    map[string]*pmi.Job
}

// orderTable holds the orders to the child that have no result.
type orderTable struct {
	mu      sync.Mutex
	lastID  uint32
	pending map[uint32]chan orderResult // nil when the child has ended
}

// add adds an order. It returns a nil channel if the child has ended.
func (t *orderTable) add() (id uint32, result chan orderResult) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.pending == nil {
		return 0, nil
	}
	t.lastID++
	result = make(chan orderResult, 1)
	t.pending[t.lastID] = result
	return t.lastID, result
}

// remove removes an order and returns its channel; nil if there is no such order.
func (t *orderTable) remove(id uint32) chan orderResult {
	t.mu.Lock()
	defer t.mu.Unlock()
	result := t.pending[id]
	delete(t.pending, id)
	return result
}

// close closes the channels of all orders. No order can be added afterwards.
func (t *orderTable) close() {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, result := range t.pending {
		close(result)
	}
	t.pending = nil
}

type orderResult struct {
	status pmi.Status
	data   []byte
}

type clientState struct {
	connected, finalized bool // guarded by registry.mu
	// context of its requests and of requests for its data; ends with the rank
	lifeCtx context.Context
	endLife context.CancelCauseFunc
}

const (
	// startTimeout is the maximum time for the library to start. It took 0.2 s on a busy machine with
	// two processors.
	startTimeout = 10 * time.Second
	// stopTimeout is the maximum time for the child to end by itself.
	stopTimeout = 2 * time.Second
)

// Start starts the child process and initialises the library. The server ends with ctx or Stop.
func Start(ctx context.Context, cfg Config) (*Server, error) {
	if IsChild() {
		return nil, fmt.Errorf("cannot start another PMIx server: this program has no subcommand %s", ChildCommand)
	}
	s := &Server{
		cfg: cfg, frames: make(chan frame), done: make(chan struct{}),
		orders:   orderTable{pending: make(map[uint32]chan orderResult)},
		registry: registry{clients: make(map[pmi.ProcID]*clientState), jobs: make(map[string]*pmi.Job)},
	}
	s.ctx, s.stop = context.WithCancel(ctx)
	// Create the command. By default, the child runs this executable.
	out, childOut, err := os.Pipe()
	if err != nil {
		return nil, fmt.Errorf("cannot start a PMIx server: %w", err)
	}
	s.child, err = process.StartHelper(ctx, &exec.Cmd{
		Path: cmp.Or(cfg.Program, process.OwnBinary), Args: []string{"bringupd", ChildCommand, "--pmix=" +
			cfg.Library.Path}, Env: cfg.Library.childEnviron(cfg.Environ),
		Dir: "/", Stdout: childOut, Stderr: &s.stderrTail,
	}, func() {})
	if err != nil {
		_ = out.Close()
		return nil, fmt.Errorf("cannot use a PMIx server: %w", err)
	}
	context.AfterFunc(s.ctx, func() { _ = s.child.Stdin.Close() }) // the child ends when its input is closed
	s.tasks.Go(func() { s.readFrames(out) })
	s.tasks.Go(s.writeFrames)
	// Initialise the library.
	starting, cancel := context.WithTimeout(ctx, startTimeout)
	defer cancel()
	version, err := s.requestChild(starting, doInit, func(f *frame) {
		// The server shares the node's topology, so that not every rank discovers it.
		f.addAttributes([]attribute{
			{"pmix.srv.nspace", typeString, "bringupd-server"}, {"pmix.srv.rank", typeRank, cfg.ServerNumber},
			{"pmix.hname", typeString, cfg.Host},
			{"pmix.srvr.tmpdir", typeString, cfg.Dir.Path()}, {"pmix.sys.tmpdir", typeString, cfg.Dir.Path()},
			{"pmix.srvr.share", typeBool, true},
		})
	})
	if err != nil {
		s.Stop()
		return nil, fmt.Errorf("cannot start a PMIx server with %s: %w", cfg.Library.Path, err)
	}
	cfg.Log.Debug("PMIx is served", zap.String("library", cfg.Library.Path), zap.ByteString("version", version))
	return s, nil
}

// Done returns a channel that is closed when the child has ended. Err then returns the reason.
func (s *Server) Done() <-chan struct{} { return s.done }

// Err returns the reason why the child has ended unexpectedly. It returns nil while the child runs,
// and after an expected end.
func (s *Server) Err() error {
	if !ctxutil.AwaitDoneFor(s.done, 0) {
		return nil
	}
	return s.err
}

// Stop ends the child within seconds, and waits for all goroutines of the server.
func (s *Server) Stop() {
	s.stop()
	ctx, cancel := context.WithTimeout(context.Background(), stopTimeout)
	defer cancel()
	s.child.Close(ctx)
	s.tasks.Wait()
}

// readFrames handles the frames of the child until it ends. It kills the child if a frame is
// malformed.
func (s *Server) readFrames(out io.ReadCloser) {
	defer func() { _ = out.Close() }()
	var broken error
	for {
		op, id, r, err := readFrame(out)
		if errors.Is(err, errMalformed) {
			broken = err
			s.child.Kill()
		}
		if err != nil {
			break
		}
		if broken = s.handleFrame(op, id, r); broken != nil {
			s.child.Kill()
			break
		}
	}
	<-s.child.Ended
	if s.ctx.Err() == nil {
		s.err = fmt.Errorf("the PMIx server died: %v%s", errors.Join(broken, s.child.Err), s.stderrTail.textAfter(": "))
	}
	close(s.done)
	s.stop()
	s.orders.close()
}

// handleFrame handles a frame. Requests are answered on separate goroutines, because they may wait
// for other nodes. If it returns an error, the child must be killed.
func (s *Server) handleFrame(op byte, id uint32, r *frameReader) error {
	if op == upDone {
		o := orderResult{pmi.Status(r.readSigned()), r.readBytes()}
		if to := s.orders.remove(id); to != nil {
			to <- o
		}
		return nil
	}
	// Limit the unanswered requests. Further requests are refused, up to a second limit.
	size, load := len(r.rest), &s.requestQuota
	var answer answerFunc
	var err error
	if load.Reserve(size, maxRequests, maxRequestBytes) {
		answer, err = s.decodeRequest(op, r)
	} else if size, load = 0, &s.refusalQuota; load.Reserve(size, maxRequests, 0) {
		err = fmt.Errorf("cannot accept more than %d requests and %d GiB at once: %w", maxRequests,
			maxRequestBytes>>30, pmi.NoSpace)
	} else {
		return errTooManyRequests
	}
	if r.malformed {
		err = errMalformed
	}
	if err != nil {
		answer = answerError(err)
	}
	s.tasks.Go(func() {
		s.answerRequest(op, id, answer)
		load.Release(1, size)
	})
	return nil
}

// Limits of the unanswered requests of a node's ranks. Requests that exceed them are refused.
const (
	maxRequests     = 1 << 16
	maxRequestBytes = 1 << 30 // bytes
)

// errTooManyRequests means that the child does not even accept the refusals.
var errTooManyRequests = fmt.Errorf("cannot serve ranks that have %d requests pending at once", 2*maxRequests)

func (s *Server) answerRequest(op byte, id uint32, answer answerFunc) {
	var rest frame
	err := answer(s.ctx, &rest)
	if op == upNotify { // the child does not wait for an answer
		return
	}
	f := newFrame(doAnswer, id) // the status of 4 bytes follows
	if err == nil && len(*f)+4+len(rest) > maxFrameSize {
		err = pmi.NoSpace
	}
	if err != nil {
		rest = emptyAnswer(op)
	}
	f.addStatus(err)
	*f = append(*f, rest...)
	_ = s.sendFrame(s.ctx, *f) // an error means that the child has ended
}

// emptyAnswer returns the fields that follow the status in an answer that reports an error.
func emptyAnswer(op byte) (f frame) {
	switch op {
	case upFence, upModex, upSpawn, upLookup, upQuery, upGroup:
		f.addNumber(0)
	}
	return f
}

// writeFrames writes frames to the child. Only this goroutine blocks if the child does not read.
func (s *Server) writeFrames() {
	for {
		select {
		case f := <-s.frames:
			length := binary.BigEndian.AppendUint32(nil, uint32(len(f)))
			_, err := s.child.Stdin.Write(length)
			if err == nil {
				_, err = s.child.Stdin.Write(f)
			}
			if err != nil {
				return // the child has ended, or is about to
			}
		case <-s.ctx.Done():
			return
		}
	}
}

// sendFrame passes a frame to the child. It blocks until the frame is accepted or ctx ends.
func (s *Server) sendFrame(ctx context.Context, f frame) error {
	if len(f) > maxFrameSize {
		return fmt.Errorf("cannot send %d bytes to the PMIx server at once: %w", len(f), pmi.NoSpace)
	}
	select {
	case s.frames <- f:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("cannot wait for the PMIx server any longer: %w", context.Cause(ctx))
	case <-s.ctx.Done():
		return s.unavailableError()
	}
}

// requestChild requests an operation from the child, and waits for its result until ctx ends.
func (s *Server) requestChild(ctx context.Context, op byte, fields func(*frame)) ([]byte, error) {
	id, to := s.orders.add()
	if to == nil {
		return nil, s.unavailableError()
	}
	defer s.orders.remove(id)
	f := newFrame(op, id)
	fields(f)
	if err := s.sendFrame(ctx, *f); err != nil {
		return nil, err
	}
	select {
	case o, ok := <-to:
		switch {
		case !ok:
			return nil, s.unavailableError()
		case o.status != 0:
			return nil, o.status
		}
		return o.data, nil
	case <-ctx.Done():
		return nil, fmt.Errorf("cannot wait for the PMIx server any longer: %w", context.Cause(ctx))
	}
}

func (s *Server) unavailableError() error {
	if err := s.Err(); err != nil {
		return err
	}
	return fmt.Errorf("cannot use the PMIx server any longer: %w", context.Cause(s.ctx))
}

type tailBuffer struct {
	mu   sync.Mutex
	kept []byte
}

const maxTailSize = 2048

// Write implements io.Writer. It never returns an error.
func (t *tailBuffer) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.kept = append(t.kept, p...)
	t.kept = t.kept[max(0, len(t.kept)-maxTailSize):]
	return len(p), nil
}

func (t *tailBuffer) textAfter(word string) string {
	t.mu.Lock()
	defer t.mu.Unlock()
	if text := bytes.TrimSpace(t.kept); len(text) > 0 {
		return word + textutil.SingleLine(string(text), maxTailSize)
	}
	return ""
}
