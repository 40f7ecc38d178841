package meeting

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync/atomic"
)

// Hall is where the head's side will be, once it is known which ranks there are.
type Hall struct{ head atomic.Pointer[Head] }

// Open begins to let nodes in.
func (h *Hall) Open(head *Head) { h.head.Store(head) }

// Serve serves a node's connection until it or ctx ends, and closes it; at once where there is nothing to meet for.
func (h *Hall) Serve(ctx context.Context, node int, conn io.ReadWriteCloser) {
	if head := h.head.Load(); head != nil && node >= 0 {
		head.Serve(ctx, node, conn)
		return
	}
	_ = conn.Close()
}

// Lose tells that a node will not be heard of again.
func (h *Hall) Lose(node int, words string) {
	if head := h.head.Load(); head != nil {
		head.NodeLost(node, words)
	}
}

// Dial returns how a node next to the head connects: in memory, and served in the background.
func (h *Hall) Dial(node int, background func(task func(ctx context.Context))) func(context.Context) (io.ReadWriteCloser, error) {
	return func(ctx context.Context) (io.ReadWriteCloser, error) {
		if ctx.Err() != nil {
			return nil, errors.Join(errOver, ctx.Err())
		}
		ours, theirs := net.Pipe()
		background(func(ctx context.Context) { h.Serve(ctx, node, theirs) })
		return ours, nil
	}
}

// Join makes a node's side and, in a directory that private makes, which is this user's alone, its socket, which is served in
// the background. Where there can't be one the path is empty, and the log tells why: most programs have no use for it.
func Join(cfg Config, private func() (string, error), background func(task func(ctx context.Context))) (n *Node, path string) {
	cfg.Background = background
	n = NewNode(cfg)
	dir, err := private()
	var listener net.Listener
	if err == nil {
		listener, err = Listen(dir, "meet")
	}
	if err != nil {
		cfg.Log.Warn(fmt.Sprintf("ranks of this node can't use bringupd kv: %v", err))
		background(n.keep) // others are told when they end
		return n, ""
	}
	background(func(ctx context.Context) { n.Run(ctx, listener) })
	return n, listener.Addr().String()
}
