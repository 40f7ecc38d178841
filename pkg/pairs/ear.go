package pairs

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/bringupd/bringupd/pkg/pause"
)

// Network makes the connections.
type Network interface {
	// Listen takes a port that the kernel picks, on all addresses.
	Listen() (net.Listener, error)
	Dial(ctx context.Context, address string) (net.Conn, error)
}

// mostStrangers is how many may prove who they are at a time. Partners that come by more, as after a hang, try in vain.
const mostStrangers = 64

// acceptPause keeps a failure that lasts from taking a whole processor.
const acceptPause = 10 * time.Millisecond

// Ear is where a node hears its partners, from the moment on that it tells them where it is.
type Ear struct {
	network  Network
	listener net.Listener
	secret   []byte
	rank     int
	hearing  sync.WaitGroup
	stop     context.CancelFunc

	mu   sync.Mutex
	came map[purpose]chan net.Conn // proven; guarded by mu
}

// Listen opens an ear. The secret is that of the run: who has it is a partner.
func Listen(network Network, secret []byte, rank int) (*Ear, error) {
	listener, err := network.Listen()
	if err != nil {
		return nil, err
	}
	hearing, stop := context.WithCancel(context.Background())
	e := &Ear{network: network, listener: listener, secret: secret, rank: rank, stop: stop, came: make(map[purpose]chan net.Conn)}
	e.hearing.Go(func() { e.hear(hearing) })
	return e, nil
}

// Port returns where it listens.
func (e *Ear) Port() string {
	_, port, _ := net.SplitHostPort(e.listener.Addr().String())
	return port
}

// Close ends it, with all that came and was not taken.
func (e *Ear) Close() {
	e.stop()
	_ = e.listener.Close()
	e.hearing.Wait()
	for _, queue := range e.came {
		for len(queue) > 0 {
			_ = (<-queue).Close()
		}
	}
}

// hear lets in who proves that it is a partner, until the listener is closed.
func (e *Ear) hear(ctx context.Context) {
	var proving errgroup.Group
	proving.SetLimit(mostStrangers)
	defer func() { _ = proving.Wait() }()
	for {
		conn, err := e.listener.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			pause.For(ctx, acceptPause) // of one connection, or there are too many files
			continue
		}
		if !proving.TryGo(func() error { e.admit(ctx, conn); return nil }) {
			_ = conn.Close()
		}
	}
}

func (e *Ear) admit(ctx context.Context, conn net.Conn) {
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
	what, err := examine(conn, e.secret)
	if err != nil {
		_ = conn.Close()
		return
	}
	_ = conn.SetDeadline(time.Time{})
	e.mu.Lock()
	defer e.mu.Unlock()
	select {
	case e.queue(what) <- conn:
	default: // more than there are to be
		_ = conn.Close()
	}
}

// queue is where connections for a purpose wait. The caller holds the lock.
func (e *Ear) queue(what purpose) chan net.Conn {
	what.stream = 0
	if e.came[what] == nil {
		e.came[what] = make(chan net.Conn, streams)
	}
	return e.came[what]
}

// await returns so many connections that a partner makes for a purpose, or none and why.
func (e *Ear) await(ctx context.Context, what purpose, count int) (conns []net.Conn, err error) {
	e.mu.Lock()
	queue := e.queue(what)
	e.mu.Unlock()
	for len(conns) < count {
		select {
		case conn := <-queue:
			conns = append(conns, conn)
		case <-ctx.Done():
			closeAll(conns)
			return nil, context.Cause(ctx)
		}
	}
	return conns, nil
}

// callTime is for how long a partner is tried: a firewall that drops what comes answers never.
const callTime = 5 * time.Second

var errCall = fmt.Errorf("no answer within %s", callTime)

// call makes so many connections to a partner.
func (e *Ear) call(ctx context.Context, address string, what purpose, count int) (conns []net.Conn, err error) {
	ctx, cancel := context.WithTimeoutCause(ctx, callTime, errCall)
	defer cancel()
	conns = make([]net.Conn, count)
	var calling errgroup.Group
	for i := range count {
		calling.Go(func() (err error) {
			this := what
			this.stream = uint8(i)
			conns[i], err = e.callOnce(ctx, address, this)
			return err
		})
	}
	if err = calling.Wait(); err != nil {
		closeAll(conns)
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		return nil, err
	}
	return conns, nil
}

func (e *Ear) callOnce(ctx context.Context, address string, what purpose) (net.Conn, error) {
	conn, err := e.network.Dial(ctx, address)
	if err != nil {
		return nil, err
	}
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	err = introduce(conn, e.secret, what)
	if !stop() {
		err = context.Cause(ctx)
	}
	if err != nil {
		_ = conn.Close()
		return nil, err
	}
	return conn, nil
}

func closeAll(conns []net.Conn) {
	for _, conn := range conns {
		if conn != nil {
			_ = conn.Close()
		}
	}
}
