package telemetry

import (
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/netip"
	"slices"
	"sync"
	"time"
)

// requestTimeout is the timeout of reading a request, and of writing its response.
const requestTimeout = 5 * time.Second

// maxConnections is the maximum number of open connections. It is more than is ever needed, but
// small enough to leave file descriptors for the daemon.
const maxConnections = 64

// connTracker has the open connections of an endpoint, oldest first.
type connTracker struct {
	mu   sync.Mutex
	open []net.Conn // guarded by mu
}

// trackConn records the new state of a connection. If there are too many connections, it closes the
// oldest, because any user of this machine can connect. It is an http.Server's ConnState function.
func (c *connTracker) trackConn(conn net.Conn, state http.ConnState) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch state {
	case http.StateNew:
		if c.open = append(c.open, conn); len(c.open) > maxConnections {
			_ = c.open[0].Close()
			c.open = slices.Delete(c.open, 0, 1)
		}
	case http.StateClosed:
		c.open = slices.DeleteFunc(c.open, func(other net.Conn) bool { return other == conn })
	}
}

// CheckLoopback returns an error if address is invalid or could be reached from other machines.
// With port 0, the kernel picks a port.
func CheckLoopback(address string) error {
	at, err := netip.ParseAddrPort(address)
	if err != nil || !at.Addr().IsLoopback() {
		return fmt.Errorf("give a loopback address and a port, as in 127.0.0.1:0 or [::1]:9464")
	}
	return nil
}

// Endpoint is an HTTP server that answers only requests for /
type Endpoint struct {
	listener net.Listener
	server   *http.Server
	ended    chan struct{} // closed when the server has ended
}

// StartEndpoint starts an Endpoint at a loopback address. The caller must close it.
func StartEndpoint(address string, source Source) (*Endpoint, error) {
	if err := CheckLoopback(address); err != nil {
		return nil, fmt.Errorf("cannot serve metrics at %s: %v", address, err)
	}
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return nil, fmt.Errorf("cannot serve metrics: %v", err)
	}
	routes := http.NewServeMux()
	routes.HandleFunc("GET /metrics", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
		_, _ = w.Write(source()) // ignore the error: the client has gone
	})
	e := &Endpoint{
		listener: listener,
		server: &http.Server{
			Handler: routes, ReadTimeout: requestTimeout, WriteTimeout: requestTimeout, IdleTimeout: time.Minute,
			MaxHeaderBytes: 1 << 14, ErrorLog: log.New(io.Discard, "", 0), ConnState: new(connTracker).trackConn,
		},
		ended: make(chan struct{}),
	}
	go func() {
		defer close(e.ended)
		_ = e.server.Serve(listener) // always returns an error, after Close
	}()
	return e, nil
}

// URL returns the URL of the
func (e *Endpoint) URL() string { return "http://" + e.listener.Addr().String() + "/metrics" }

// Close stops the server, closes its connections, and waits for its end.
func (e *Endpoint) Close() {
	_ = e.server.Close()
	<-e.ended
}
