package rendezvous

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"time"

	"github.com/bringupd/bringupd/pkg/roles/launcher"
)

// RankVariable is the environment variable with the number of the program's rank.
const RankVariable = "BRINGUPD_RANK"

// Limits of keys and values in bytes, and of the number of keys.
const (
	MaxKeyLength = 255
	MaxValueSize = 1 << 20
	MaxKeys      = 100_000
)

// Request is a request: one line of JSON.
type Request struct {
	ID     uint64 `json:"id"`
	Op     string `json:"op"`               // hello, put, commit, get, fence, abort, progress or waits
	Rank   *int   `json:"rank,omitempty"`   // hello: number of the rank; absent for another program
	Key    string `json:"key,omitempty"`    // put and get
	Value  []byte `json:"value,omitempty"`  // put: in base64
	Commit bool   `json:"commit,omitempty"` // put: commit at once
	// get: a rank's number, or "n" and a node's number; empty: any owner
	Owner   string  `json:"owner,omitempty"`
	Timeout float64 `json:"timeout,omitempty"` // get and fence: in seconds; 0: no deadline
	Name    string  `json:"name,omitempty"`    // fence
	Code    int     `json:"code,omitempty"`    // abort: 1 to 255
	Message string  `json:"message,omitempty"` // abort
	Step    float64 `json:"step,omitempty"`    // progress
}

// Response is the response to a request: one line of JSON.
type Response struct {
	ID          uint64 `json:"id"`
	Error       string `json:"error,omitempty"`
	TimedOut    bool   `json:"late,omitempty"` // the error is that the deadline passed
	Unavailable bool   `json:"gone,omitempty"` // the error is that the wait can never succeed
	// NoPeerLink is true if the error is that the node has no peer link, which the request requires.
	NoPeerLink bool `json:"refused,omitempty"`

	Value []byte `json:"value,omitempty"` // get: in base64
	Owner string `json:"owner,omitempty"` // get: owner of the value
	Waits []Wait `json:"waits,omitempty"` // waits
}

// Wait describes a request for which a program of the node waits.
type Wait struct {
	Rank          int     `json:"rank"`              // -1 for another program
	Kind          string  `json:"kind"`              // "fence" or "get"
	Name          string  `json:"name"`              // name of the fence, or the key
	WaitedSeconds float64 `json:"since_s"`           // seconds since the request
	Missing       []int   `json:"missing,omitempty"` // missing ranks, if they are known
}

// Client is a connection to the rendezvous service of the node. One goroutine may use it at a time. If
// the context of a request ends, the connection is closed.
type Client struct {
	conn      net.Conn
	responses *json.Decoder
	lastID    uint64
}

// ErrNoSocket is returned if the program was not started by a daemon that serves a rendezvous.
var ErrNoSocket = errors.New("cannot use the key-value store of this run: " + launcher.RendezvousVariable +
	" is not set; it is set for ranks (--ranks-per-node), and for commands of bringupd exec in a run with ranks")

// Kinds of errors that this package returns; test for them with errors.Is. Any other error means
// that the request was invalid.
var (
	// ErrTimeout means that the deadline of a request has passed. The error's text names the missing
	// ranks.
	ErrTimeout = errors.New("the timeout expired")
	// ErrUnavailable means that the wait can never succeed because a rank or the run has ended. The
	// error's text names the rank.
	ErrUnavailable = errors.New("it cannot happen any more")
	// ErrNoPeerLink means that the node has no peer link. The error's text describes the remedy.
	ErrNoPeerLink = errors.New("there is no peer link")
)

// waitError is the error of a request whose wait failed. It matches kind with errors.Is.
type waitError struct {
	text string
	kind error
}

func (e waitError) Error() string        { return e.text }
func (e waitError) Is(target error) bool { return target == e.kind }

// Dial connects to the socket that the environment names, as the rank that it names.
func Dial(ctx context.Context) (*Client, error) {
	path := os.Getenv(launcher.RendezvousVariable)
	if path == "" {
		return nil, ErrNoSocket
	}
	var rank *int
	if text := os.Getenv(RankVariable); text != "" {
		number, err := strconv.Atoi(text)
		if err != nil {
			return nil, fmt.Errorf("cannot determine the rank of this process: %s=%s is not a number",
				RankVariable, text)
		}
		rank = &number
	}
	return DialAsRank(ctx, path, rank)
}

// DialAsRank connects to a socket as a rank of this node, or as another program if rank is nil.
func DialAsRank(ctx context.Context, path string, rank *int) (*Client, error) {
	var dialer net.Dialer
	conn, err := dialer.DialContext(ctx, "unix", path)
	if err != nil {
		return nil, fmt.Errorf("cannot connect to this node's key-value store: %w", err)
	}
	return NewClient(ctx, conn, rank)
}

// NewClient returns a client that uses an open connection. If the node rejects the rank, it closes
// the connection and returns an error.
func NewClient(ctx context.Context, conn net.Conn, rank *int) (*Client, error) {
	c := &Client{conn: conn, responses: json.NewDecoder(bufio.NewReader(conn))}
	if _, err := c.roundTrip(ctx, Request{Op: "hello", Rank: rank}); err != nil {
		c.Close()
		return nil, err
	}
	return c, nil
}

// Close closes the connection. Values that were put and not committed are discarded.
func (c *Client) Close() { _ = c.conn.Close() }

// PutValue sets a value that becomes visible to others with [Client.CommitValues]. Keys have 1 to
// 255 printable ASCII characters without spaces; values have at most 1 MiB.
func (c *Client) PutValue(ctx context.Context, key string, value []byte) error {
	_, err := c.roundTrip(ctx, Request{Op: "put", Key: key, Value: value})
	return err
}

// CommitValues makes the values that were put available to other programs.
func (c *Client) CommitValues(ctx context.Context) error {
	_, err := c.roundTrip(ctx, Request{Op: "commit"})
	return err
}

// GetValue waits for a value until ctx ends or the timeout expires; 0 is no timeout. The error of
// an expired timeout names the missing ranks. owner is a rank's number, or "n" and a node's number;
// if it is empty, the value of any owner is returned. from is the owner of the returned value.
func (c *Client) GetValue(ctx context.Context, key, owner string,
	timeout time.Duration) (value []byte, from string, err error) {
	answer, err := c.roundTrip(ctx, Request{Op: "get", Key: key, Owner: owner, Timeout: timeout.Seconds()})
	return answer.Value, answer.Owner, err
}

// AwaitFence waits until all ranks of the world have entered the named fence as often as the caller.
func (c *Client) AwaitFence(ctx context.Context, name string, timeout time.Duration) error {
	_, err := c.roundTrip(ctx, Request{Op: "fence", Name: name, Timeout: timeout.Seconds()})
	return err
}

// AbortJob ends the job with an exit code from 1 to 255 and a message.
func (c *Client) AbortJob(ctx context.Context, code int, message string) error {
	_, err := c.roundTrip(ctx, Request{Op: "abort", Code: code, Message: message})
	return err
}

// ReportStep reports the step that this rank has reached.
func (c *Client) ReportStep(ctx context.Context, step float64) error {
	_, err := c.roundTrip(ctx, Request{Op: "progress", Step: step})
	return err
}

// PendingWaits returns what the programs of this node wait for, in the order of their ranks.
func (c *Client) PendingWaits(ctx context.Context) ([]Wait, error) {
	answer, err := c.roundTrip(ctx, Request{Op: "waits"})
	return answer.Waits, err
}

// roundTrip sends a request and waits for its answer until ctx or the connection ends.
func (c *Client) roundTrip(ctx context.Context, ask Request) (answer Response, err error) {
	defer context.AfterFunc(ctx, c.Close)()
	c.lastID++
	ask.ID = c.lastID
	line, err := json.Marshal(ask)
	if err == nil {
		_, err = c.conn.Write(append(line, '\n'))
	}
	if err == nil {
		err = c.responses.Decode(&answer)
	}
	switch {
	case err == nil && answer.Error != "":
		return answer, answer.toError()
	case err == nil:
		return answer, nil
	case ctx.Err() != nil:
		return answer, context.Cause(ctx)
	}
	return answer, waitError{fmt.Sprintf("cannot use this node's key-value store any longer: %v", err), ErrUnavailable}
}

func (a Response) toError() error {
	switch {
	case a.TimedOut:
		return waitError{a.Error, ErrTimeout}
	case a.Unavailable:
		return waitError{a.Error, ErrUnavailable}
	case a.NoPeerLink:
		return waitError{a.Error, ErrNoPeerLink}
	}
	return errors.New(a.Error)
}
