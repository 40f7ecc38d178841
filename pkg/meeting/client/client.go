// Package client is a program's side of its node's meeting: put, get, fence, abort and watch, by the socket that
// BRINGUPD_SOCKET names. docs/kv.md has the protocol.
package client

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"os"
	"strconv"
	"sync"
	"time"

	"github.com/bringupd/bringupd/pkg/pause"
)

// Where a program finds the socket, and which rank it is.
const (
	SocketVariable = "BRINGUPD_SOCKET"
	RankVariable   = "BRINGUPD_RANK"
)

// Limits of what is put, in bytes, and of keys in all.
const (
	LongestKey   = 255
	LargestValue = 1 << 20
	MostKeys     = 100_000
)

// Ask is a request: one line of JSON.
type Ask struct {
	ID      uint64  `json:"id"`
	Op      string  `json:"op"`                // hello, put, commit, get, fence, abort, watch or waits
	Rank    *int    `json:"rank,omitempty"`    // of hello: which rank asks; none for another program of the node
	Key     string  `json:"key,omitempty"`     // of put and get
	Value   []byte  `json:"value,omitempty"`   // of put, in base64
	Commit  bool    `json:"commit,omitempty"`  // of put: commit at once
	Owner   string  `json:"owner,omitempty"`   // of get: a rank's number, or n and a node's; empty for whoever has put it
	Timeout float64 `json:"timeout,omitempty"` // of get and fence, in seconds; 0 for no deadline
	Name    string  `json:"name,omitempty"`    // of fence
	Collect bool    `json:"collect,omitempty"` // of fence: have all its data sent to every node
	Code    int     `json:"code,omitempty"`    // of abort
	Message string  `json:"message,omitempty"` // of abort
}

// Answer is the answer to a request, or one of those to watch: one line of JSON.
type Answer struct {
	ID    uint64 `json:"id"`
	Error string `json:"error,omitempty"`
	Late  bool   `json:"late,omitempty"` // the error is that the deadline passed
	Gone  bool   `json:"gone,omitempty"` // the error is that what is waited for will never be
	// Refused is that the error is that the node has no peer link, which the request takes.
	Refused bool `json:"refused,omitempty"`

	Value []byte `json:"value,omitempty"` // of get, in base64
	Owner string `json:"owner,omitempty"` // of get: who has put it
	Event *Event `json:"event,omitempty"` // of watch
	Waits []Wait `json:"waits,omitempty"` // of waits
}

// Wait is what a program of the node waits for.
type Wait struct {
	Rank    int     `json:"rank"`              // -1 for another program
	Kind    string  `json:"kind"`              // fence or get
	Name    string  `json:"name"`              // the fence's, or the key
	SinceS  float64 `json:"since_s"`           // for how many seconds
	Missing []int   `json:"missing,omitempty"` // ranks that it waits for, where they are known
}

// Event is something that has happened in the world.
type Event struct {
	Kind string `json:"kind"` // ended, lost, aborted or fence
	Who  string `json:"who"`  // "rank 3 on n1", "n2", or the fence's name
	What string `json:"what"` // how it has ended, or the abort's message
	Code int    `json:"code,omitempty"`
}

// Client is a connection to the node's meeting. Its methods may be called side by side.
type Client struct {
	conn    net.Conn
	reading sync.WaitGroup

	mu      sync.Mutex
	last    uint64
	waiting map[uint64]*inbox
	err     error // why nothing more is answered
}

// inbox is what has come for a request, and nobody has taken yet.
type inbox struct {
	answers []Answer
	bell    chan struct{} // buffered by one: there is more, or nothing more will come
}

// ErrNoMeeting is that this program was not started by a daemon that has a meeting.
var ErrNoMeeting = errors.New("cannot find a place to meet: " + SocketVariable + " is not set; the ranks of a world have it (--ranks-per-node), and commands of bringupd exec in one")

// What errors of this package may be; errors.Is tells. Any other is of a request that was wrong.
var (
	// ErrLate is that the deadline of a request has passed. The error says who is missing.
	ErrLate = errors.New("the deadline passed")
	// ErrGone is that what is waited for will never be, as a rank or the run has ended. The error says which.
	ErrGone = errors.New("it will never be")
	// ErrRefused is that the node has no peer link. The error says what to do.
	ErrRefused = errors.New("there is no peer link")
)

// waitError is why a request was in vain.
type waitError struct {
	says string
	kind error
}

func (e waitError) Error() string        { return e.says }
func (e waitError) Is(target error) bool { return target == e.kind }

// Dial connects to the socket that the environment names, as the rank that it names.
func Dial(ctx context.Context) (*Client, error) {
	path := os.Getenv(SocketVariable)
	if path == "" {
		return nil, ErrNoMeeting
	}
	var rank *int
	if text := os.Getenv(RankVariable); text != "" {
		number, err := strconv.Atoi(text)
		if err != nil {
			return nil, fmt.Errorf("cannot tell which rank this is: %s=%s is not a number", RankVariable, text)
		}
		rank = &number
	}
	return DialAs(ctx, path, rank)
}

// DialAs connects to a socket as a rank of this node, or as another program where rank is nil.
func DialAs(ctx context.Context, path string, rank *int) (*Client, error) {
	var dialer net.Dialer
	conn, err := dialer.DialContext(ctx, "unix", path)
	if err != nil {
		return nil, fmt.Errorf("cannot reach this node's meeting: %w", err)
	}
	return Over(ctx, conn, rank)
}

// Over returns the client of a connection that is made, and has it closed where the node does not let the rank in.
func Over(ctx context.Context, conn net.Conn, rank *int) (*Client, error) {
	c := &Client{conn: conn, waiting: make(map[uint64]*inbox)}
	c.reading.Go(c.read)
	if _, err := c.ask(ctx, Ask{Op: "hello", Rank: rank}); err != nil {
		c.Close()
		return nil, err
	}
	return c, nil
}

// Close ends the connection: what was put and not committed is gone.
func (c *Client) Close() {
	_ = c.conn.Close()
	c.reading.Wait()
}

// Put keeps a value for the caller until Commit. Keys have 1 to 255 printable characters of ASCII without spaces,
// values up to 1 MiB.
func (c *Client) Put(ctx context.Context, key string, value []byte) error {
	_, err := c.ask(ctx, Ask{Op: "put", Key: key, Value: value})
	return err
}

// Commit lets others have what was put: who gets it by key and owner, and everybody after a fence.
func (c *Client) Commit(ctx context.Context) error {
	_, err := c.ask(ctx, Ask{Op: "commit"})
	return err
}

// Get waits for a value until ctx ends or the timeout, where it is not 0, is over; the error then says who is missing.
// The owner is a rank's number, or n and a node's; empty for whoever has put it.
func (c *Client) Get(ctx context.Context, key, owner string, timeout time.Duration) (value []byte, from string, err error) {
	answer, err := c.ask(ctx, Ask{Op: "get", Key: key, Owner: owner, Timeout: timeout.Seconds()})
	return answer.Value, answer.Owner, err
}

// Fence waits until all ranks of the world have entered the fence of this name as often as the caller. With collect
// all that was committed before is on every node then.
func (c *Client) Fence(ctx context.Context, name string, collect bool, timeout time.Duration) error {
	_, err := c.ask(ctx, Ask{Op: "fence", Name: name, Collect: collect, Timeout: timeout.Seconds()})
	return err
}

// Abort ends the job with a code, 1 to 255, and a message.
func (c *Client) Abort(ctx context.Context, code int, message string) error {
	_, err := c.ask(ctx, Ask{Op: "abort", Code: code, Message: message})
	return err
}

// Waits returns what the programs of this node wait for, in the order of their ranks.
func (c *Client) Waits(ctx context.Context) ([]Wait, error) {
	answer, err := c.ask(ctx, Ask{Op: "waits"})
	return answer.Waits, err
}

// Watch hands over events until ctx ends or on returns an error, which it returns. Ends and losses of before come first.
func (c *Client) Watch(ctx context.Context, on func(Event) error) error {
	id, err := c.send(Ask{Op: "watch"})
	if err != nil {
		return err
	}
	defer c.forget(id)
	for {
		answer, err := c.next(ctx, id)
		switch {
		case err != nil:
			return err
		case answer.Error != "":
			return answer.failure()
		case answer.Event != nil:
			if err := on(*answer.Event); err != nil {
				return err
			}
		}
	}
}

func (c *Client) ask(ctx context.Context, ask Ask) (Answer, error) {
	id, err := c.send(ask)
	if err != nil {
		return Answer{}, err
	}
	defer c.forget(id)
	answer, err := c.next(ctx, id)
	if err == nil && answer.Error != "" {
		err = answer.failure()
	}
	if err != nil {
		return Answer{}, err
	}
	return answer, nil
}

// failure is the error of an answer that has one.
func (a Answer) failure() error {
	switch {
	case a.Late:
		return waitError{a.Error, ErrLate}
	case a.Gone:
		return waitError{a.Error, ErrGone}
	case a.Refused:
		return waitError{a.Error, ErrRefused}
	}
	return errors.New(a.Error)
}

// next waits for the next answer to a request until ctx or the connection ends.
func (c *Client) next(ctx context.Context, id uint64) (Answer, error) {
	for {
		c.mu.Lock()
		in, err := c.waiting[id], c.err
		if len(in.answers) > 0 {
			answer := in.answers[0]
			in.answers = in.answers[1:]
			c.mu.Unlock()
			return answer, nil
		}
		c.mu.Unlock()
		if err != nil {
			return Answer{}, err
		}
		select {
		case <-ctx.Done():
			return Answer{}, context.Cause(ctx)
		case <-in.bell:
		}
	}
}

// send writes a request under a number of its own, which forget must be called with.
func (c *Client) send(ask Ask) (uint64, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.err != nil {
		return 0, c.err
	}
	c.last++
	ask.ID = c.last
	c.waiting[ask.ID] = &inbox{bell: make(chan struct{}, 1)}
	line, err := json.Marshal(ask)
	if err == nil {
		_, err = c.conn.Write(append(line, '\n'))
	}
	if err != nil {
		delete(c.waiting, ask.ID)
		return 0, fmt.Errorf("cannot ask this node's meeting: %w", err)
	}
	return ask.ID, nil
}

func (c *Client) forget(id uint64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.waiting, id)
}

// read hands the answers to who waits for them.
func (c *Client) read() {
	reader := bufio.NewReader(c.conn)
	decoder := json.NewDecoder(reader)
	for {
		var answer Answer
		if err := decoder.Decode(&answer); err != nil {
			c.end(waitError{fmt.Sprintf("cannot hear this node's meeting any more: %v", err), ErrGone})
			return
		}
		c.mu.Lock()
		if in := c.waiting[answer.ID]; in != nil {
			in.answers = append(in.answers, answer)
			pause.Ring(in.bell)
		}
		c.mu.Unlock()
	}
}

func (c *Client) end(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.err = err
	for _, in := range c.waiting {
		pause.Ring(in.bell)
	}
}
