package pmi

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"time"

	"github.com/bringupd/bringupd/internal/textutil"
	"github.com/bringupd/bringupd/pkg/ranks/rendezvous"
)

// Limits of requests.
const (
	maxRrunLine    = 512     // as in rrun
	maxRrunKey     = 255     // as in rrun
	maxRrunValue   = 1 << 20 // values are addresses of some kilobytes
	maxRrunTimeout = 24 * time.Hour
)

var okResponse = []byte("OK\n")

func errorResponse(err error) []byte {
	return []byte("ERROR " + textutil.SingleLine(err.Error(), maxRrunLine-64) + "\n")
}

type rankSession struct {
	space *jobSpace
	peers Peers
	rank  ProcID
	conn  net.Conn
	in    *bufio.Reader
}

type rrunRequest struct {
	command string
	key     string
	value   []byte
	timeout time.Duration
	err     error // reason to reject the request; nil if it is acceptable
}

// serve handles requests until the rank disconnects or ctx ends.
func (v *rankSession) serve(ctx context.Context) {
	serveRequests(ctx, v.conn, func(accept func(rrunRequest) bool) {
		for {
			if r, err := readRrunRequest(v.in); err != nil || !accept(r) {
				return
			}
		}
	}, func(ctx context.Context, r rrunRequest) error {
		_, err := v.conn.Write(v.handleRequest(ctx, r))
		return err
	})
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

func (v *rankSession) enterBarrier(ctx context.Context, kind CollectiveKind) error {
	return v.peers.EnterProcs(ctx, kind, v.space.allRanks(), v.rank, rendezvous.Exchange{})
}
