package rendezvous

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync/atomic"

	"github.com/bringupd/bringupd/pkg/peerlink"
)

// LazyHead holds the head's side of the rendezvous, which is created only when the ranks are known.
// Until then it refuses connections.
type LazyHead struct{ head atomic.Pointer[Head] }

// SetHead sets the head's side, and accepts connections from then on.
func (h *LazyHead) SetHead(head *Head) { h.head.Store(head) }

// ServeNode serves a node's connection until it or ctx ends, and closes it. If there is no head's
// side yet, it closes the connection at once.
func (h *LazyHead) ServeNode(ctx context.Context, node int, conn io.ReadWriteCloser) {
	if head := h.head.Load(); head != nil && node >= 0 {
		head.ServeNode(ctx, node, conn)
		return
	}
	_ = conn.Close()
}

// MarkNodeLost records that a node is lost.
func (h *LazyHead) MarkNodeLost(node int, words string) {
	if head := h.head.Load(); head != nil {
		head.MarkNodeLost(node, words)
	}
}

// LocalDialer returns the dial function of the node that runs in the head's own process. It
// connects in memory, and serves the other end in the background.
func (h *LazyHead) LocalDialer(node int, background func(task func(ctx context.Context))) func(context.Context) (io.ReadWriteCloser, error) {
	return func(ctx context.Context) (io.ReadWriteCloser, error) {
		if ctx.Err() != nil {
			return nil, errors.Join(errRunOver, ctx.Err())
		}
		ours, theirs := net.Pipe()
		background(func(ctx context.Context) { h.ServeNode(ctx, node, theirs) })
		return ours, nil
	}
}

// StartNode creates a node's side and a socket for its programs, in a directory that private
// creates and that only this user can access. It serves both in the background and returns the
// socket's path. If the socket cannot be created, it logs the reason and returns an empty path,
// because most programs do not need it.
func StartNode(cfg Config, private func() (string, error), background func(task func(ctx context.Context))) (n *Node, path string) {
	cfg.Background = background
	n = NewNode(cfg)
	dir, err := private()
	var listener net.Listener
	if err == nil {
		listener, err = peerlink.ListenLocal(dir, "meet")
	}
	if err != nil {
		cfg.Log.Warn(fmt.Sprintf("ranks of this node can't use bringupd kv: %v", err))
		background(n.maintainConn) // the ends of ranks must still be reported to the head
		return n, ""
	}
	background(func(ctx context.Context) { n.Run(ctx, listener) })
	return n, listener.Addr().String()
}
