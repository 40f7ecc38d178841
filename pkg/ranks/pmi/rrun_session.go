package pmi

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"time"

	"github.com/bringupd/bringupd/internal/textutil"
)

// Limits of requests.
const (
	maxRrunLine    = 512     // as in rrun
	maxRrunKey     = 255     // as in rrun
	maxRrunValue   = 1 << 20 // values are addresses of some kilobytes
	maxRrunTimeout = 24 * time.Hour
)

var okResponse = []byte("OK\n")

// errorResponse returns a response that makes the request fail with the error's text.
func errorResponse(err error) []byte {
	return []byte("ERROR " + textutil.SingleLine(err.Error(), maxRrunLine-64) + "\n")
}

// rankSession is the connection of a rank after authentication.
type rankSession struct {
	space *jobSpace
	peers Peers
	rank  ProcID
	conn  net.Conn
	in    *bufio.Reader
}

// rrunRequest is a request of a rank.
type rrunRequest struct {
	command string
	key     string
	value   []byte
	timeout time.Duration
	err     error // reason to reject the request; nil if it is acceptable
}

// serve handles requests until the rank disconnects or ctx ends. cancel ends ctx.
func (v *rankSession) serve(ctx context.Context, cancel context.CancelFunc) {
	for _, barrier := range v.space.barriers {
		barrier.AddConn()
		defer barrier.RemoveConn()
	}
	// Read on a separate goroutine, so that the end of the connection is noticed while a request
	// waits.
	requests := make(chan rrunRequest)
	var reading sync.WaitGroup
	reading.Go(func() {
		defer cancel()
		defer close(requests)
		v.readRequests(ctx, requests)
	})
	for r := range requests {
		if _, err := v.conn.Write(v.handleRequest(ctx, r)); err != nil {
			break
		}
	}
	cancel()
	_ = v.conn.Close()
	reading.Wait()
}

// readRequests passes the rank's requests to a channel.
func (v *rankSession) readRequests(ctx context.Context, requests chan<- rrunRequest) {
	for {
		r, err := readRrunRequest(v.in)
		if err != nil {
			return
		}
		select {
		case requests <- r:
		case <-ctx.Done():
			return
		}
	}
}

// readRrunLine reads a line without its end. It returns an error if the line is too long.
func readRrunLine(in *bufio.Reader) (string, error) {
	line, err := in.ReadSlice('\n')
	if err != nil {
		return "", fmt.Errorf("cannot read a line: %w", err)
	}
	return string(line[:len(line)-1]), nil
}

// readRrunRequest reads a request. The error is not nil if no more requests can be read.
func readRrunRequest(in *bufio.Reader) (r rrunRequest, err error) {
	line, err := readRrunLine(in)
	if err != nil {
		return r, err
	}
	r.command, _, _ = strings.Cut(line, " ")
	var number int64
	switch r.command {
	case "PUT":
		if _, err := fmt.Sscanf(line, "PUT key=%s valuelen=%d", &r.key, &number); err != nil || number < 0 {
			r.err = errors.New("bad PUT")
			return r, nil
		}
		if number > maxRrunValue {
			r.err = fmt.Errorf("a value has %d bytes, and at most %d are accepted", number, maxRrunValue)
			_, err = io.CopyN(io.Discard, in, number)
			return r, err
		}
		r.value = make([]byte, number)
		_, err = io.ReadFull(in, r.value)
	case "GET":
		if _, err := fmt.Sscanf(line, "GET key=%s timeout=%d", &r.key, &number); err != nil {
			r.err = errors.New("bad GET")
		}
		r.timeout = time.Duration(max(0, min(number, maxRrunTimeout.Milliseconds()))) * time.Millisecond
	}
	if len(r.key) > maxRrunKey {
		r.err = fmt.Errorf("a key has %d bytes, and at most %d are accepted", len(r.key), maxRrunKey)
	}
	return r, err
}

// handleRequest executes a request and returns the response.
func (v *rankSession) handleRequest(ctx context.Context, r rrunRequest) []byte {
	if r.err != nil {
		return errorResponse(r.err)
	}
	var err error
	switch r.command {
	case "PUT":
		err = v.putValue(ctx, r)
	case "GET":
		return v.getValue(ctx, r)
	case "BARRIER":
		err = v.enterBarrier(ctx, barrierKind)
	case "SYNC":
		err = v.enterBarrier(ctx, syncKind)
	default:
		err = errors.New("unknown command")
	}
	if err != nil {
		return errorResponse(err)
	}
	return okResponse
}

// entryKey returns the key under which a value is published.
func (v *rankSession) entryKey(key string) string {
	return "rapidsmpf/" + PublicName(v.space.Name) + "/" + key
}

// putValue makes a value available to all ranks of the job, and replaces a previous one.
func (v *rankSession) putValue(ctx context.Context, r rrunRequest) error {
	if v.rank.Rank != 0 {
		return errors.New("only rank 0 may PUT")
	}
	entry := Entry{Key: v.entryKey(r.key), Publisher: v.rank, Value: r.value}
	err := v.peers.PublishEntries(ctx, []Entry{entry})
	if StatusOf(err) != Duplicate {
		return err
	}
	if err := v.peers.UnpublishEntries(ctx, v.rank, []string{entry.Key}); err != nil {
		return err
	}
	return v.peers.PublishEntries(ctx, []Entry{entry})
}

// getValue waits for a value and returns the response to the request.
func (v *rankSession) getValue(ctx context.Context, r rrunRequest) []byte {
	ctx, cancel := context.WithTimeout(ctx, r.timeout)
	defer cancel()
	entries, err := v.peers.LookupEntries(ctx, []string{v.entryKey(r.key)}, true)
	switch {
	case StatusOf(err) == TimedOut:
		return []byte("TIMEOUT\n")
	case err == nil && len(entries) != 1:
		err = NotFound
	}
	if err != nil {
		return errorResponse(err)
	}
	return append(fmt.Appendf(nil, "VALUE valuelen=%d\n", len(entries[0].Value)), entries[0].Value...)
}

// enterBarrier waits until all ranks of the job have entered a barrier, or until ctx ends.
func (v *rankSession) enterBarrier(ctx context.Context, kind CollectiveKind) error {
	v.peers.RecordEntry(kind, v.space.allRanks(), v.rank)
	return v.space.barriers[kind].Enter(ctx, v.rank.Rank)
}
