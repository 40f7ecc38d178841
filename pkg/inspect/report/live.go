package report

import (
	"bytes"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/netip"
	"strings"
	"sync"
	"time"

	"github.com/bringupd/bringupd/pkg/health"
)

const (
	// minReadInterval is the minimum age of a page before the run is read again, however many browsers
	// ask, and reloadInterval how often a page asks. Reading takes at most a tenth of the time.
	minReadInterval = 2 * time.Second
	reloadInterval  = 3 * time.Second
	pageTimeout     = 2 * time.Minute // for reading the run
	// requestTimeout is the timeout for receiving a request.
	requestTimeout = 10 * time.Second
	// maxHeaderBytes limits the size of a request.
	maxHeaderBytes = 16 << 10
)

// LiveServer serves the page of one run on a loopback address, read-only, and follows the run. The zero
// value is not valid.
type LiveServer struct {
	listener net.Listener
	token    string
	read     func(ctx context.Context) (*View, error)
	ctx      context.Context // ends the reading of the run

	mu       sync.Mutex // held while the run is read
	page     []byte     // guarded by mu
	tag      string     // guarded by mu; the digest of page, as an ETag
	nextRead time.Time  // guarded by mu
}

// ListenLive starts to listen at a loopback address; with port 0, the kernel picks the port. The path
// of the page has a random token.
func ListenLive(ctx context.Context, address, runDir string) (*LiveServer, error) {
	at, err := netip.ParseAddrPort(address)
	if err != nil || !at.Addr().IsLoopback() {
		return nil, fmt.Errorf("cannot serve at %q: give a loopback address and a port, as in 127.0.0.1:8080; "+
			"other machines reach it by ssh -L", address)
	}
	listener, err := new(net.ListenConfig).Listen(ctx, "tcp", at.String())
	if err != nil {
		return nil, fmt.Errorf("cannot serve at %s: %v: give another port, or 0 for a free one", address, err)
	}
	return &LiveServer{
		listener: listener, token: rand.Text(), ctx: ctx,
		read: func(ctx context.Context) (*View, error) { return ReadView(ctx, runDir) },
	}, nil
}

// URL returns the address of the page, with the token.
func (s *LiveServer) URL() string { return fmt.Sprintf("http://%s/%s/", s.listener.Addr(), s.token) }

// Port returns the port of the server.
func (s *LiveServer) Port() int { return s.listener.Addr().(*net.TCPAddr).Port }

// Address returns the address at which the server listens.
func (s *LiveServer) Address() string { return s.listener.Addr().String() }

// Serve serves the page until ctx ends, and returns its cause.
func (s *LiveServer) Serve(ctx context.Context) error {
	server := &http.Server{
		Handler: s, ReadTimeout: requestTimeout, WriteTimeout: pageTimeout + requestTimeout,
		IdleTimeout: time.Minute, MaxHeaderBytes: maxHeaderBytes, ErrorLog: log.New(io.Discard, "", 0),
	}
	stop := context.AfterFunc(ctx, func() { _ = server.Close() })
	defer stop()
	err := server.Serve(ownListener{s.listener})
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return fmt.Errorf("cannot serve the page: %w", err)
}

// ownListener accepts only connections of this user's processes, such as a browser or the sshd of a
// forwarded port, and of root. It resets all others before anything is read, so that nothing is left
// of them, however many there are.
type ownListener struct{ net.Listener }

// Accept implements net.Listener.
func (l ownListener) Accept() (net.Conn, error) {
	for {
		conn, err := l.Listener.Accept()
		if err != nil {
			return nil, err
		}
		if health.IsOwnClient(conn) {
			return conn, nil
		}
		_ = conn.(*net.TCPConn).SetLinger(0) // or each would remain in the kernel for a minute
		_ = conn.Close()
	}
}

// ServeHTTP implements http.Handler. All requests but valid ones have the same answer.
func (s *LiveServer) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	header := w.Header()
	for name, value := range map[string]string{
		"Cache-Control": "no-store", "Referrer-Policy": "no-referrer", "X-Content-Type-Options": "nosniff",
		"X-Frame-Options": "DENY", "Cross-Origin-Resource-Policy": "same-origin",
		"Cross-Origin-Opener-Policy": "same-origin",
	} {
		header.Set(name, value)
	}
	given := strings.TrimPrefix(r.URL.Path, "/")
	isToken := subtle.ConstantTimeCompare([]byte(given), []byte(s.token+"/")) == 1
	if !isToken || !isLoopbackName(r.Host) || r.Method != http.MethodGet && r.Method != http.MethodHead {
		http.Error(w, "not found: use the address that bringupd status --serve has printed", http.StatusNotFound)
		return
	}
	page, tag, err := s.currentPage()
	switch {
	case err != nil:
		http.Error(w, "cannot read the run: "+err.Error(), http.StatusServiceUnavailable)
	case r.Header.Get("If-None-Match") == tag:
		w.WriteHeader(http.StatusNotModified)
	default:
		header.Set("Content-Type", "text/html; charset=utf-8")
		header.Set("ETag", tag)
		_, _ = w.Write(page) // ignore the error: the browser has gone
	}
}

// isLoopbackName reports whether a request is for this machine. Another name in it may be that of a
// page which a browser has loaded from elsewhere, and whose name leads here (DNS rebinding).
func isLoopbackName(hostAndPort string) bool {
	host, _, err := net.SplitHostPort(hostAndPort)
	if err != nil {
		host = hostAndPort
	}
	if host == "localhost" {
		return true
	}
	at, err := netip.ParseAddr(strings.Trim(host, "[]"))
	return err == nil && at.IsLoopback()
}

// currentPage returns the page and its tag. It reads the run unless the last page is new enough.
func (s *LiveServer) currentPage() (page []byte, tag string, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if time.Now().Before(s.nextRead) {
		return s.page, s.tag, nil
	}
	ctx, cancel := context.WithTimeoutCause(s.ctx, pageTimeout, errors.New("timed out"))
	defer cancel()
	began := time.Now()
	view, err := s.read(ctx)
	if err != nil {
		return nil, "", err
	}
	var b bytes.Buffer
	if err := view.writePage(&b, reloadInterval); err != nil {
		return nil, "", err
	}
	sum := sha256.Sum256(b.Bytes())
	s.page, s.tag = b.Bytes(), `"`+hex.EncodeToString(sum[:8])+`"`
	s.nextRead = time.Now().Add(max(minReadInterval, 10*time.Since(began)))
	return s.page, s.tag, nil
}
