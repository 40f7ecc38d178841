package meeting

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bringupd/bringupd/pkg/meeting/client"
	"github.com/bringupd/bringupd/pkg/prose"
)

// longestLine is the maximum size of a request in bytes: the largest value in base64, plus the
// other fields.
const longestLine = 2 * client.LargestValue

// longestPath is the maximum length of a socket's path in bytes: sun_path of unix(7) without its
// terminating zero.
const longestPath = 107

// Listen creates a socket for programs of the node. dir must be a directory that only this user can
// access.
func Listen(dir, name string) (net.Listener, error) {
	path := filepath.Join(dir, name)
	if len(path) > longestPath {
		return nil, fmt.Errorf("cannot make the socket %q: its path, %s, has %d bytes, and at most %d are accepted; give a shorter --temp-dir",
			name, path, len(path), longestPath)
	}
	listener, err := net.Listen("unix", path)
	if err != nil {
		return nil, fmt.Errorf("cannot make the socket %q: %w", name, err)
	}
	return listener, nil
}

// Run serves the programs of this node and the connection to the head until ctx ends. Then it
// closes the listener and waits for all its goroutines.
func (n *Node) Run(ctx context.Context, listener net.Listener) {
	var tasks sync.WaitGroup
	tasks.Go(func() { n.keep(ctx) })
	tasks.Go(func() { n.warn(ctx) })
	stop := context.AfterFunc(ctx, func() { _ = listener.Close() })
	for ctx.Err() == nil {
		conn, err := listener.Accept()
		if err != nil {
			if ctx.Err() == nil {
				time.Sleep(10 * time.Millisecond) // most likely out of file descriptors
			}
			continue
		}
		tasks.Go(func() { n.serve(ctx, conn) })
	}
	stop()
	_ = listener.Close()
	tasks.Wait()
}

// guest is the connection of one program.
type guest struct {
	node  *Node
	rank  int // -1 if it is not a rank
	pid   int32
	put   map[string][]byte // values that are not committed
	tasks sync.WaitGroup

	mu  sync.Mutex
	out *json.Encoder
}

// serve handles a program's requests until it disconnects or ctx ends.
func (n *Node) serve(ctx context.Context, conn net.Conn) {
	ctx, cancel := context.WithCancelCause(ctx)
	g := &guest{node: n, rank: -1, put: make(map[string][]byte), out: json.NewEncoder(conn)}
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	defer func() {
		cancel(errOver)
		stop()
		_ = conn.Close()
		g.tasks.Wait()
		g.forget()
	}()
	// Only programs of the same user are served.
	var err error
	if g.pid, err = Admit(conn); err != nil {
		g.answer(client.Answer{Error: err.Error()})
		return
	}
	// Handle the requests in order. Those that wait continue on goroutines of their own.
	lines := bufio.NewScanner(conn)
	lines.Buffer(nil, longestLine)
	for lines.Scan() {
		var ask client.Ask
		if err := json.Unmarshal(lines.Bytes(), &ask); err != nil {
			g.answer(client.Answer{Error: fmt.Sprintf("cannot read the request: %v", err)})
			return
		}
		if err := g.do(ctx, ask); err != nil {
			g.answer(client.Answer{ID: ask.ID, Error: err.Error()})
		}
	}
	if errors.Is(lines.Err(), bufio.ErrTooLong) {
		g.answer(client.Answer{Error: fmt.Sprintf("cannot read a request of over %d bytes: values may have %d", longestLine, client.LargestValue)})
		_, _ = io.CopyN(io.Discard, conn, 64<<20) // unread input could otherwise cause the answer to be lost
	}
}

// Admit returns the process ID of the program at the other end of a connection. It returns an error
// if the program runs as another user, and 0 if conn is not a Unix socket.
func Admit(conn net.Conn) (pid int32, err error) {
	socket, ok := conn.(*net.UnixConn)
	if !ok {
		return 0, nil
	}
	raw, err := socket.SyscallConn()
	if err != nil {
		return 0, err
	}
	var peer *unix.Ucred
	var failed error
	if err := raw.Control(func(fd uintptr) { peer, failed = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED) }); err != nil {
		return 0, err
	}
	if failed != nil {
		return 0, failed
	}
	if int(peer.Uid) != os.Geteuid() {
		return 0, fmt.Errorf("cannot let in user %d: the run is of user %d", peer.Uid, os.Geteuid())
	}
	return peer.Pid, nil
}

// answer sends an answer. It may be called by several goroutines.
func (g *guest) answer(answer client.Answer) {
	g.mu.Lock()
	defer g.mu.Unlock()
	_ = g.out.Encode(answer) // the program has disconnected
}

// refuse rejects a request that involves other nodes if this node cannot reach the head. It reports
// whether it has answered the request.
func (g *guest) refuse(ctx context.Context, ask client.Ask) bool {
	needs := slices.Contains([]string{"put", "commit", "get", "fence", "watch"}, ask.Op)
	if !needs || g.node.cfg.Linked == nil {
		return false
	}
	err := g.node.cfg.Linked(ctx, g.rank)
	if err == nil {
		return false
	}
	over := ctx.Err() != nil
	g.answer(client.Answer{ID: ask.ID, Error: err.Error(), Gone: over, Refused: !over})
	return true
}

// do handles one request. Requests that wait are continued on goroutines of their own. It returns
// an error if the request is invalid; the caller answers with it.
func (g *guest) do(ctx context.Context, ask client.Ask) error {
	if g.refuse(ctx, ask) {
		return nil
	}
	switch ask.Op {
	case "hello":
		if err := g.hello(ask.Rank); err != nil {
			return err
		}
	case "put":
		if err := g.keep(ask); err != nil {
			return err
		}
	case "commit":
		if err := g.commit(); err != nil {
			return err
		}
	case "get":
		if err := checkKey(ask.Key); err != nil {
			return err
		}
		return g.later(ctx, ask, func(ctx context.Context) (client.Answer, error) {
			found := g.node.get(ctx, slot{ask.Key, ask.Owner}, g.rank)
			return client.Answer{Value: found.value, Owner: found.owner}, found.err
		})
	case "fence":
		return g.fence(ctx, ask)
	case "abort":
		if ask.Code < 1 || ask.Code > 255 {
			return fmt.Errorf("cannot abort with code %d: 1 to 255 are accepted", ask.Code)
		}
		g.node.Abort(g.rank, ask.Code, ask.Message)
	case "watch":
		return g.wait(func() { g.watch(ctx, ask.ID) })
	case "waits":
		return g.later(ctx, ask, func(context.Context) (client.Answer, error) { return client.Answer{Waits: g.node.Waiting()}, nil })
	default:
		return fmt.Errorf("cannot do %q: hello, put, commit, get, fence, abort, watch and waits are known", ask.Op)
	}
	g.answer(client.Answer{ID: ask.ID})
	return nil
}

// hello identifies the program as a rank of this node. It stays an anonymous program if rank is
// nil.
func (g *guest) hello(rank *int) error {
	if rank == nil {
		return nil
	}
	if !slices.Contains(g.node.place.Ranks, *rank) {
		return fmt.Errorf("cannot be rank %d: it is not one of %s", *rank, g.node.place.Host)
	}
	g.rank = *rank
	return nil
}

// owner returns the owner's name of the values that the program puts.
func (g *guest) owner() string { return g.node.place.owner(g.rank) }

// keep stores a value until it is committed.
func (g *guest) keep(ask client.Ask) error {
	if err := checkKey(ask.Key); err != nil {
		return err
	}
	if len(ask.Value) > client.LargestValue {
		return fmt.Errorf("cannot put %s: its value has %d bytes, and at most %d are accepted", ask.Key, len(ask.Value), client.LargestValue)
	}
	if was, again := g.put[ask.Key]; again {
		g.node.puts.Give(1, len(was))
		delete(g.put, ask.Key)
	}
	if !g.node.puts.Take(len(ask.Value), client.MostKeys, mostData) {
		return fmt.Errorf("cannot put %s: the programs of a node have put %s keys or %d GiB without commit, the most that is accepted",
			ask.Key, prose.Grouped(client.MostKeys), mostData>>30)
	}
	g.put[ask.Key] = ask.Value
	if ask.Commit {
		return g.commit()
	}
	return nil
}

// commit makes the values that the program has put available to others.
func (g *guest) commit() error {
	writer := fmt.Sprintf("%s (process %d)", g.node.place.words(g.rank), g.pid)
	return g.node.commit(g.owner(), writer, g.forget())
}

// forget removes and returns the values that were not committed.
func (g *guest) forget() map[string][]byte {
	values := g.put
	g.put = make(map[string][]byte)
	for _, value := range values {
		g.node.puts.Give(1, len(value))
	}
	return values
}

// fence enters the program's rank into a fence, and answers when the fence is released.
func (g *guest) fence(ctx context.Context, ask client.Ask) error {
	if err := checkKey(ask.Name); ask.Name != "" && err != nil {
		return errors.New(strings.Replace(err.Error(), "key", "fence's name", 1))
	}
	rank, name := g.rank, "fence"
	if ask.Name != "" {
		name = ask.Name
	}
	gen, m, err := g.node.enter(name, rank, ask.Collect)
	if err != nil {
		return err
	}
	return g.later(ctx, ask, func(ctx context.Context) (client.Answer, error) {
		return client.Answer{}, g.node.await(ctx, name, rank, gen, m)
	})
}

// mostWaits is the maximum number of requests that wait at the same time on a node.
const mostWaits = 1 << 16

// wait runs a task on its own goroutine. It returns an error if too many are waiting.
func (g *guest) wait(task func()) error {
	if !g.node.open.Take(0, mostWaits, 0) {
		return fmt.Errorf("cannot wait for more: the programs of a node wait for %s things, the most that is accepted", prose.Grouped(mostWaits))
	}
	g.tasks.Go(func() {
		defer g.node.open.Give(1, 0)
		task()
	})
	return nil
}

// later runs wait on its own goroutine, with the request's timeout, and answers with its result.
func (g *guest) later(ctx context.Context, ask client.Ask, wait func(context.Context) (client.Answer, error)) error {
	return g.wait(func() {
		if ask.Timeout > 0 {
			var cancel context.CancelFunc
			ctx, cancel = context.WithTimeout(ctx, time.Duration(min(ask.Timeout, 1e9)*float64(time.Second)))
			defer cancel()
		}
		answer, err := wait(ctx)
		if answer.ID = ask.ID; err != nil {
			_, wrong := errors.AsType[wrongError](err)
			late := errors.Is(ctx.Err(), context.DeadlineExceeded)
			answer = client.Answer{ID: ask.ID, Error: err.Error(), Late: late && !wrong, Gone: !late && !wrong}
		}
		g.answer(answer)
	})
}

// watch sends events until ctx ends: first the past events except passed fences, then new ones.
func (g *guest) watch(ctx context.Context, id uint64) {
	n := g.node
	at := 0
	n.mu.Lock()
	n.listenLocked()
	n.mu.Unlock()
	for {
		n.mu.Lock()
		events, more := n.events[at:], n.more
		at = len(n.events)
		n.mu.Unlock()
		for i := range events {
			g.answer(client.Answer{ID: id, Event: &events[i]})
		}
		select {
		case <-ctx.Done():
			return
		case <-more:
		}
	}
}
