package metrics

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

// requestTime bounds one request, of which none takes long.
const requestTime = 5 * time.Second

// maxConnections bounds the connections at one time: more than are ever in use, fewer than would leave the daemon
// without files.
const maxConnections = 64

// connections are those of an endpoint, the oldest first.
type connections struct {
	mu   sync.Mutex
	open []net.Conn // guarded by mu
}

// track keeps the connections. It closes the oldest to make room for a new one: any user of this machine can connect.
func (c *connections) track(conn net.Conn, state http.ConnState) {
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

// Loopback returns an error for an address that others than this machine could
// reach, or that is none. A port of 0 is one that the kernel picks.
func Loopback(address string) error {
	at, err := netip.ParseAddrPort(address)
	if err != nil || !at.Addr().IsLoopback() {
		return fmt.Errorf("give a loopback address and a port, as in 127.0.0.1:0 or [::1]:9464")
	}
	return nil
}

// Endpoint answers requests for /metrics, and nothing else.
type Endpoint struct {
	listener net.Listener
	server   *http.Server
	ended    chan struct{} // closed when nothing is served any more
}

// Listen answers at a loopback address, until Close.
func Listen(address string, source Source) (*Endpoint, error) {
	if err := Loopback(address); err != nil {
		return nil, fmt.Errorf("cannot serve metrics at %s: %v", address, err)
	}
	listener, err := net.Listen("tcp", address)
	if err != nil {
		return nil, fmt.Errorf("cannot serve metrics: %v", err)
	}
	routes := http.NewServeMux()
	routes.HandleFunc("GET /metrics", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/plain; version=0.0.4; charset=utf-8")
		_, _ = w.Write(source()) // who asked has gone
	})
	e := &Endpoint{
		listener: listener,
		server: &http.Server{
			Handler: routes, ReadTimeout: requestTime, WriteTimeout: requestTime, IdleTimeout: time.Minute,
			MaxHeaderBytes: 1 << 14, ErrorLog: log.New(io.Discard, "", 0), ConnState: new(connections).track,
		},
		ended: make(chan struct{}),
	}
	go func() {
		defer close(e.ended)
		_ = e.server.Serve(listener) // it always ends with an error: that it was closed
	}()
	return e, nil
}

// URL is where the metrics are.
func (e *Endpoint) URL() string { return "http://" + e.listener.Addr().String() + "/metrics" }

// Close ends the endpoint, and what is being asked of it.
func (e *Endpoint) Close() {
	_ = e.server.Close()
	<-e.ended
}
