// Package proxy is a man in the middle for tests: a TCP proxy between two daemons that forwards
// their handshake, and may change what follows.
package proxy

import (
	"encoding/binary"
	"errors"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"testing"
)

// The handshake of a peer link has these lengths in each direction, in bytes. Records follow, each
// of which consists of a length of two bytes and that many bytes.
const (
	handshakeToHead   = 9 + 48 + 28
	handshakeToWorker = 9 + 48 + 17
	recordHeader      = 2
)

// Proxy forwards the data between two daemons.
type Proxy struct {
	Address string // the address to connect to instead of the head's

	listener net.Listener
	head     string
	tamper   atomic.Pointer[Tamper]
	running  sync.WaitGroup

	mu    sync.Mutex
	seen  []byte            // all data sent to the head; guarded by mu
	conns map[net.Conn]bool // guarded by mu
}

// Tamper returns the data to send instead of a record. toHead is the record's direction. If stop is
// set, this direction of the connection then ends.
type Tamper func(toHead bool, record []byte) (instead []byte, stop bool)

// New returns a proxy in front of the head's address, which runs until the test ends.
func New(t testing.TB, head string) *Proxy {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &Proxy{Address: listener.Addr().String(), listener: listener, head: head,
		conns: make(map[net.Conn]bool)}
	p.running.Go(p.accept)
	t.Cleanup(func() {
		_ = listener.Close()
		p.Cut()
		p.running.Wait()
	})
	return p
}

// Set sets the function that may change records from now on. nil forwards them unchanged.
func (p *Proxy) Set(tamper Tamper) {
	if tamper == nil {
		p.tamper.Store(nil)
		return
	}
	p.tamper.Store(&tamper)
}

// Seen returns all data that was sent to the head so far.
func (p *Proxy) Seen() []byte {
	p.mu.Lock()
	defer p.mu.Unlock()
	return append([]byte(nil), p.seen...)
}

// Cut ends all connections.
func (p *Proxy) Cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for conn := range p.conns {
		_ = conn.Close()
	}
}

func (p *Proxy) accept() {
	for {
		worker, err := p.listener.Accept()
		if err != nil {
			return
		}
		head, err := net.Dial("tcp", p.head)
		if err != nil {
			_ = worker.Close()
			continue
		}
		p.mu.Lock()
		p.conns[worker], p.conns[head] = true, true
		p.mu.Unlock()
		p.running.Go(func() { p.pass(worker, head, true) })
		p.running.Go(func() { p.pass(head, worker, false) })
	}
}

// pass forwards one direction of a connection to its end, and then ends it in the same way: a reset
// on one side becomes a reset on the other.
func (p *Proxy) pass(from, to net.Conn, toHead bool) {
	if err := p.copy(from, to, toHead); errors.Is(err, io.EOF) || errors.Is(err, errStop) {
		_ = to.(*net.TCPConn).CloseWrite()
		return
	}
	for _, conn := range []net.Conn{from, to} {
		_ = conn.(*net.TCPConn).SetLinger(0)
		_ = conn.Close()
	}
}

// errStop ends a direction because Tamper has set stop.
var errStop = errors.New("stopped")

func (p *Proxy) copy(from, to net.Conn, toHead bool) error {
	handshake := make([]byte, handshakeToWorker)
	if toHead {
		handshake = make([]byte, handshakeToHead)
	}
	// Forward it in pieces, because the other side waits for the first ones.
	for rest := handshake; len(rest) > 0; {
		n, err := from.Read(rest)
		if err == nil {
			err = p.send(to, rest[:n], toHead)
		}
		if err != nil {
			return err
		}
		rest = rest[n:]
	}
	for {
		record := make([]byte, recordHeader)
		if _, err := io.ReadFull(from, record); err != nil {
			return err
		}
		record = append(record, make([]byte, binary.BigEndian.Uint16(record))...)
		if _, err := io.ReadFull(from, record[recordHeader:]); err != nil {
			return err
		}
		stop := false
		if tamper := p.tamper.Load(); tamper != nil {
			record, stop = (*tamper)(toHead, record)
		}
		if err := p.send(to, record, toHead); err != nil {
			return err
		}
		if stop {
			return errStop
		}
	}
}

func (p *Proxy) send(to net.Conn, data []byte, toHead bool) error {
	if toHead {
		p.mu.Lock()
		p.seen = append(p.seen, data...)
		p.mu.Unlock()
	}
	_, err := to.Write(data)
	return err
}
