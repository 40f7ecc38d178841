package peerlink

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bringupd/bringupd/internal/ctxutil"
)

// MaxSocketPath is the maximum length of a socket's path in bytes: sun_path of unix(7) without its
// terminating zero.
const MaxSocketPath = 107

// ListenLocal creates a socket for programs of the node. dir must be a directory that only this
// user can access, with a path that is short enough for [MaxSocketPath].
func ListenLocal(dir, name string) (net.Listener, error) {
	listener, err := net.Listen("unix", filepath.Join(dir, name))
	if err != nil {
		return nil, fmt.Errorf("cannot create the socket %q: %w", name, err)
	}
	return listener, nil
}

// ServeLocal calls serve in a goroutine for each connection of a program of the node, until ctx
// ends. Then it closes the listener, and waits for the calls.
func ServeLocal(ctx context.Context, listener net.Listener, serve func(context.Context, net.Conn)) {
	var tasks sync.WaitGroup
	defer tasks.Wait()
	defer context.AfterFunc(ctx, func() { _ = listener.Close() })()
	for ctx.Err() == nil {
		conn, err := listener.Accept()
		if err == nil {
			tasks.Go(func() { serve(ctx, conn) })
		} else {
			ctxutil.SleepContext(ctx, 10*time.Millisecond) // most likely out of file descriptors
		}
	}
}

// AuthenticatePeer returns the process ID of the program at the other end of a connection. It
// returns an error if the program runs as another user, and 0 if conn is not a Unix socket.
func AuthenticatePeer(conn net.Conn) (pid int32, err error) {
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
	if err := raw.Control(func(fd uintptr) {
		peer, failed = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	}); err != nil {
		return 0, err
	}
	if failed != nil {
		return 0, failed
	}
	if int(peer.Uid) != os.Geteuid() {
		return 0, fmt.Errorf("cannot accept a connection of user %d: the run belongs to user %d",
			peer.Uid, os.Geteuid())
	}
	return peer.Pid, nil
}
