package pmi

import (
	"context"
	"fmt"
	"io"
	"sync"
)

// LocalBarrier is a barrier of a job's ranks, which the ranks of one node enter any number of
// times. Its methods are safe for concurrent use.
type LocalBarrier struct {
	localCount int
	exchange   func(ctx context.Context) error

	mu        sync.Mutex
	round     *barrierRound // the current or next round
	connCount int           // number of connected ranks
}

type barrierRound struct {
	entered map[int]bool       // ranks of this node that have entered
	cancel  context.CancelFunc // stops the exchange between nodes; nil before it begins
	done    chan struct{}      // closed when the exchange between nodes has ended
	err     error              // error of the exchange; set before done is closed
}

func newBarrierRound() *barrierRound {
	return &barrierRound{entered: make(map[int]bool), done: make(chan struct{})}
}

// NewLocalBarrier returns a barrier of a job with localCount ranks on this node. exchange waits for
// the ranks of the other nodes; it is called when all ranks of this node have entered.
func NewLocalBarrier(localCount int, exchange func(ctx context.Context) error) *LocalBarrier {
	return &LocalBarrier{localCount: localCount, exchange: exchange, round: newBarrierRound()}
}

// Enter waits until all ranks of the job have entered the barrier, or until ctx ends.
func (b *LocalBarrier) Enter(ctx context.Context, rank int) error {
	round, err := b.joinRound(ctx, rank)
	if err != nil {
		return err
	}
	select {
	case <-round.done:
		return round.err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// joinRound records that a rank has entered the barrier. The last rank of the node starts the
// exchange with the other nodes, on a goroutine that continues as long as any rank is connected: a
// rank that dies in a barrier must not break it for the others, or they would fail first and
// obscure the cause.
func (b *LocalBarrier) joinRound(ctx context.Context, rank int) (*barrierRound, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	round := b.round
	if round.entered[rank] {
		return nil, fmt.Errorf("cannot enter a barrier: rank %d has already entered it on another connection", rank)
	}
	round.entered[rank] = true
	if len(round.entered) == b.localCount {
		ctx, round.cancel = context.WithCancel(context.WithoutCancel(ctx))
		go b.finishRound(ctx, round)
	}
	return round, nil
}

func (b *LocalBarrier) finishRound(ctx context.Context, round *barrierRound) {
	defer close(round.done)
	defer round.cancel()
	round.err = b.exchange(ctx)
	b.mu.Lock()
	defer b.mu.Unlock()
	b.round = newBarrierRound()
}

// AddConn counts a rank that has connected.
func (b *LocalBarrier) AddConn() {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.connCount++
}

// RemoveConn counts a rank that has disconnected. When no rank is left, it stops a pending
// exchange, because no rank waits for the result.
func (b *LocalBarrier) RemoveConn() {
	b.mu.Lock()
	b.connCount--
	round := b.round
	inVain := b.connCount == 0 && round.cancel != nil
	b.mu.Unlock()
	if inVain {
		round.cancel()
		<-round.done
	}
}

// serveRequests passes the requests of a rank to answer, one after the other, until answer returns an
// error, the connection ends or ctx ends. It closes the connection. read passes each request to accept,
// until that returns false: it runs on a goroutine of its own, so that the end of the connection is
// noticed while a request waits.
func serveRequests[R any](
	ctx context.Context, conn io.Closer, read func(accept func(R) bool), answer func(ctx context.Context, r R) error,
) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
	requests := make(chan R)
	var reading sync.WaitGroup
	reading.Go(func() {
		defer cancel() // the rank is gone; end the request that waits
		defer close(requests)
		read(func(r R) bool {
			select {
			case requests <- r:
				return true
			case <-ctx.Done():
				return false
			}
		})
	})
	for r := range requests {
		if answer(ctx, r) != nil {
			break
		}
	}
	cancel()
	_ = conn.Close()
	reading.Wait()
}
