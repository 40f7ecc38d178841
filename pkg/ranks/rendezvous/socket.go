package rendezvous

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/bringupd/bringupd/internal/textutil"
	"github.com/bringupd/bringupd/pkg/peerlink"
)

// maxLineSize is the maximum size of a request in bytes: the largest value in base64, plus the
// other fields.
const maxLineSize = 2 * MaxValueSize

// Run serves the programs of this node and the connection to the head until ctx ends. Then it
// closes the listener and waits for all its goroutines.
func (n *Node) Run(ctx context.Context, listener net.Listener) {
	var tasks sync.WaitGroup
	tasks.Go(func() { n.maintainConn(ctx) })
	tasks.Go(func() { n.warnOverdueFences(ctx) })
	peerlink.ServeLocal(ctx, listener, n.serveProgram)
	tasks.Wait()
}

type programConn struct {
	node   *Node
	rank   int // -1 if it is not a rank
	pid    int32
	staged map[string][]byte // values that are not committed
	tasks  sync.WaitGroup

	mu      sync.Mutex
	encoder *json.Encoder
}

// serveProgram handles a program's requests until it disconnects or ctx ends.
func (n *Node) serveProgram(ctx context.Context, conn net.Conn) {
	ctx, cancel := context.WithCancelCause(ctx)
	g := &programConn{node: n, rank: -1, staged: make(map[string][]byte), encoder: json.NewEncoder(conn)}
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	defer func() {
		cancel(errRunOver)
		stop()
		_ = conn.Close()
		g.tasks.Wait()
		g.takeStaged()
	}()
	// Only programs of the same user are served.
	var err error
	if g.pid, err = peerlink.AuthenticatePeer(conn); err != nil {
		g.sendResponse(Response{Error: err.Error()})
		return
	}
	// Handle the requests in order. Those that wait continue on goroutines of their own.
	lines := bufio.NewScanner(conn)
	lines.Buffer(nil, maxLineSize)
	for lines.Scan() {
		var ask Request
		if err := json.Unmarshal(lines.Bytes(), &ask); err != nil {
			g.sendResponse(Response{Error: fmt.Sprintf("cannot read the request: %v", err)})
			return
		}
		if err := g.handleRequest(ctx, ask); err != nil {
			g.sendResponse(Response{ID: ask.ID, Error: err.Error()})
		}
	}
	if errors.Is(lines.Err(), bufio.ErrTooLong) {
		g.sendResponse(Response{Error: fmt.Sprintf("cannot read a request of more than %d bytes: a value may "+
			"have at most %d", maxLineSize, MaxValueSize)})
		// unread input could otherwise cause the answer to be lost
		_, _ = io.CopyN(io.Discard, conn, 64<<20)
	}
}

// sendResponse sends an answer. It may be called by several goroutines.
func (g *programConn) sendResponse(answer Response) {
	g.mu.Lock()
	defer g.mu.Unlock()
	_ = g.encoder.Encode(answer) // the program has disconnected
}

// refuseUnlinked rejects a request that involves other nodes if this node cannot reach the head. It
// reports whether it has answered the request.
func (g *programConn) refuseUnlinked(ctx context.Context, ask Request) bool {
	needs := slices.Contains([]string{"put", "commit", "get", "fence"}, ask.Op)
	if !needs || g.node.cfg.AwaitLink == nil {
		return false
	}
	err := g.node.cfg.AwaitLink(ctx, g.rank)
	if err == nil {
		return false
	}
	over := ctx.Err() != nil
	g.sendResponse(Response{ID: ask.ID, Error: err.Error(), Unavailable: over, NoPeerLink: !over})
	return true
}

// handleRequest handles one request. Requests that wait are continued on goroutines of their own.
// It returns an error if the request is invalid; the caller answers with it.
func (g *programConn) handleRequest(ctx context.Context, ask Request) error {
	if g.refuseUnlinked(ctx, ask) {
		return nil
	}
	switch ask.Op {
	case "hello":
		if err := g.setRank(ask.Rank); err != nil {
			return err
		}
	case "put":
		if err := g.stageValue(ask); err != nil {
			return err
		}
	case "commit":
		if err := g.commitStaged(); err != nil {
			return err
		}
	case "get":
		if err := validateKey(ask.Key); err != nil {
			return err
		}
		return g.answerLater(ctx, ask, func(ctx context.Context) (Response, error) {
			found := g.node.awaitValue(ctx, valueKey{ask.Key, ask.Owner}, g.rank)
			return Response{Value: found.value, Owner: found.owner}, found.err
		})
	case "fence":
		return g.enterFence(ctx, ask)
	case "abort":
		if ask.Code < 1 || ask.Code > 255 {
			return fmt.Errorf("cannot abort with code %d: 1 to 255 are accepted", ask.Code)
		}
		g.node.AbortJob(g.rank, ask.Code, ask.Message)
	case "progress":
		if err := g.reportStep(ask.Step); err != nil {
			return err
		}
	case "waits":
		return g.answerLater(ctx, ask, func(context.Context) (Response, error) {
			return Response{Waits: g.node.PendingWaits()}, nil
		})
	default:
		return fmt.Errorf("cannot execute %q: the operations are hello, put, commit, get, fence, abort, "+
			"progress and waits", ask.Op)
	}
	g.sendResponse(Response{ID: ask.ID})
	return nil
}

const maxStep = 1e15

func (g *programConn) reportStep(step float64) error {
	switch {
	case g.rank < 0:
		return errors.New("cannot report progress: only a rank can, and " + RankVariable + " does not name one")
	case !(step >= 0 && step <= maxStep): // also if it is not a number
		return fmt.Errorf("cannot report step %v: give a number from 0 to %g", step, maxStep)
	case g.node.cfg.ReportStep != nil:
		g.node.cfg.ReportStep(g.rank, step)
	}
	return nil
}

// setRank identifies the program as a rank of this node. It stays an anonymous program if rank is
// nil.
func (g *programConn) setRank(rank *int) error {
	if rank == nil {
		return nil
	}
	if !slices.Contains(g.node.self.Ranks, *rank) {
		return fmt.Errorf("cannot connect as rank %d: it is not a rank of %s", *rank, g.node.self.Host)
	}
	g.rank = *rank
	return nil
}

// stageValue stores a value until it is committed.
func (g *programConn) stageValue(ask Request) error {
	if err := validateKey(ask.Key); err != nil {
		return err
	}
	if len(ask.Value) > MaxValueSize {
		return fmt.Errorf("cannot put %s: its value has %d bytes, and at most %d are accepted", ask.Key,
			len(ask.Value), MaxValueSize)
	}
	if was, again := g.staged[ask.Key]; again {
		g.node.putQuota.Release(1, len(was))
		delete(g.staged, ask.Key)
	}
	if !g.node.putQuota.Reserve(len(ask.Value), MaxKeys, maxDataSize) {
		return fmt.Errorf("cannot put %s: the programs of this node have put %s keys or %d GiB without commit, "+
			"the maximum",
			ask.Key, textutil.GroupThousands(MaxKeys), maxDataSize>>30)
	}
	g.staged[ask.Key] = ask.Value
	if ask.Commit {
		return g.commitStaged()
	}
	return nil
}

// commitStaged makes the values that the program has put available to others.
func (g *programConn) commitStaged() error {
	writer := fmt.Sprintf("%s (process %d)", g.node.self.describeRank(g.rank), g.pid)
	return g.node.commitValues(g.node.self.ownerName(g.rank), writer, g.takeStaged())
}

// takeStaged removes and returns the values that were not committed.
func (g *programConn) takeStaged() map[string][]byte {
	values := g.staged
	g.staged = make(map[string][]byte)
	for _, value := range values {
		g.node.putQuota.Release(1, len(value))
	}
	return values
}

// enterFence enters the program's rank into a fence, and answers when the fence is released.
func (g *programConn) enterFence(ctx context.Context, ask Request) error {
	if err := validateKey(ask.Name); ask.Name != "" && err != nil {
		return errors.New(strings.Replace(err.Error(), "key", "fence name", 1))
	}
	rank, name := g.rank, "fence"
	if ask.Name != "" {
		name = ask.Name
	}
	gen, m, err := g.node.enterFence(name, g.node.initialGroup, rank, Exchange{})
	if err != nil {
		return err
	}
	return g.answerLater(ctx, ask, func(ctx context.Context) (Response, error) {
		return Response{}, g.node.awaitRound(ctx, name, gen, m, rank)
	})
}

// maxWaits is the maximum number of requests that wait at the same time on a node.
const maxWaits = 1 << 16

// answerLater runs wait on its own goroutine, with the request's timeout, and answers with its
// result. It returns an error if too many requests are waiting.
func (g *programConn) answerLater(ctx context.Context, ask Request,
	wait func(context.Context) (Response, error)) error {
	if !g.node.waitQuota.Reserve(0, maxWaits, 0) {
		return fmt.Errorf("cannot wait: the programs of this node already have %s waits, the maximum",
			textutil.GroupThousands(maxWaits))
	}
	g.tasks.Go(func() {
		defer g.node.waitQuota.Release(1, 0)
		if ask.Timeout > 0 {
			var cancel context.CancelFunc
			ctx, cancel = context.WithTimeout(ctx, time.Duration(min(ask.Timeout, 1e9)*float64(time.Second)))
			defer cancel()
		}
		answer, err := wait(ctx)
		if answer.ID = ask.ID; err != nil {
			_, wrong := errors.AsType[invalidRequestError](err)
			late := errors.Is(ctx.Err(), context.DeadlineExceeded)
			answer = Response{ID: ask.ID, Error: err.Error(), TimedOut: late && !wrong, Unavailable: !late && !wrong}
		}
		g.sendResponse(answer)
	})
	return nil
}
