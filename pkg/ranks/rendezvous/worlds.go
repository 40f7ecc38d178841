package rendezvous

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strings"
	"sync"

	"github.com/bringupd/bringupd/pkg/peerlink"
)

// World is the head's side of one of a run's worlds.
type World struct {
	*Head
	// Nodes returns the node index, in the run, of each node of the world, by its index in the world.
	Nodes func() []int
}

// Worlds are the head's sides of the worlds of a run, by name. They are created only when their ranks
// are known; until then, Worlds refuses connections. The zero value has no worlds.
type Worlds struct {
	mu     sync.Mutex
	worlds map[string]World                // guarded by mu
	find   func(name string) (World, bool) // guarded by mu
}

// Add adds the head's side of a world, and accepts connections from then on.
func (w *Worlds) Add(name string, world World) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.worlds == nil {
		w.worlds = make(map[string]World)
	}
	w.worlds[name] = world
}

// Remove removes a world, and refuses further connections to it.
func (w *Worlds) Remove(name string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.worlds, name)
}

// SetFinder sets a function that creates the head's side of a world when its first node connects. It
// returns false for a name without a world.
func (w *Worlds) SetFinder(find func(name string) (World, bool)) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.find = find
}

func (w *Worlds) lookUp(name string) (World, bool) {
	w.mu.Lock()
	world, known := w.worlds[name]
	find := w.find
	w.mu.Unlock()
	if known || find == nil {
		return world, known
	}
	return find(name)
}

const maxWorldName = 64

// DialWorld returns a function that connects by dial to the world with a name, for [Worlds.ServeNode].
func DialWorld(name string, dial func(context.Context) (io.ReadWriteCloser,
	error)) func(context.Context) (io.ReadWriteCloser, error) {
	return func(ctx context.Context) (io.ReadWriteCloser, error) {
		conn, err := dial(ctx)
		if err != nil {
			return nil, err
		}
		if _, err := io.WriteString(conn, name+"\n"); err != nil {
			_ = conn.Close()
			return nil, fmt.Errorf("cannot name the world to the head: %w", err)
		}
		return conn, nil
	}
}

// ServeNode serves the connection of a node of the run, whose first line is the name of a world, until
// it or ctx ends, and closes it. If there is no such world, or the node is not in it, it closes the
// connection at once.
func (w *Worlds) ServeNode(ctx context.Context, node int, conn io.ReadWriteCloser) {
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	name, err := readWorldName(conn)
	stop()
	if err != nil {
		_ = conn.Close()
		return
	}
	w.serveWorld(ctx, name, node, conn)
}

// readWorldName reads the first line of a connection, and no more.
func readWorldName(conn io.Reader) (string, error) {
	var name strings.Builder
	for one := make([]byte, 1); name.Len() <= maxWorldName; name.WriteByte(one[0]) {
		if _, err := io.ReadFull(conn, one); err != nil {
			return "", err
		}
		if one[0] == '\n' {
			return name.String(), nil
		}
	}
	return "", errors.New("cannot read the name of a world: it is too long")
}

func (w *Worlds) serveWorld(ctx context.Context, name string, node int, conn io.ReadWriteCloser) {
	if world, known := w.lookUp(name); known {
		if index := slices.Index(world.Nodes(), node); index >= 0 {
			world.ServeNode(ctx, index, conn)
			return
		}
	}
	_ = conn.Close()
}

// MarkNodeLost records that a node is lost, in all of its worlds.
func (w *Worlds) MarkNodeLost(node int, words string) {
	w.mu.Lock()
	var all []World
	for _, world := range w.worlds {
		all = append(all, world)
	}
	w.mu.Unlock()
	for _, world := range all {
		if index := slices.Index(world.Nodes(), node); index >= 0 {
			world.MarkNodeLost(index, words)
		}
	}
}

// LocalDialer returns the dial function of the node that runs in the head's own process, for the world
// with a name. It connects in memory, and serves the other end in the background.
func (w *Worlds) LocalDialer(name string, node int,
	background func(task func(ctx context.Context))) func(context.Context) (io.ReadWriteCloser, error) {
	return func(ctx context.Context) (io.ReadWriteCloser, error) {
		if ctx.Err() != nil {
			return nil, errors.Join(errRunOver, ctx.Err())
		}
		near, far := net.Pipe()
		background(func(ctx context.Context) { w.serveWorld(ctx, name, node, far) })
		return near, nil
	}
}

// StartNode creates a node's side and a socket for its programs, with the name that socket gives, in a
// directory that private creates and that only this user can access. It serves both in the background
// and returns the socket's path. If the socket cannot be created, it logs the reason and returns an
// empty path, because most programs do not need it.
func StartNode(cfg Config, private func() (string, error), socket string,
	background func(task func(ctx context.Context))) (n *Node, path string) {
	cfg.Background = background
	n = NewNode(cfg)
	dir, err := private()
	var listener net.Listener
	if err == nil {
		listener, err = peerlink.ListenLocal(dir, socket)
	}
	if err != nil {
		cfg.Log.Warn(fmt.Sprintf("ranks of this node can't use bringupd kv: %v", err))
		background(n.maintainConn) // the ends of ranks must still be reported to the head
		return n, ""
	}
	background(func(ctx context.Context) { n.Run(ctx, listener) })
	return n, listener.Addr().String()
}
