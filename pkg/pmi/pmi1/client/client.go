// Package client is a rank's side of PMI-1, as MPICH's own is: for programs of ours that want to see what ranks are told.
package client

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/bringupd/bringupd/pkg/pmi"
	"github.com/bringupd/bringupd/pkg/pmi/pmi1/wire"
)

// Client is a rank's connection to its PMI server. One goroutine at a time may use it; Abort alone may come beside another. It is of
// no more use once a call has ended with its context.
type Client struct {
	Rank, Size int
	Spawned    bool   // by MPI_Comm_spawn
	Name       string // of the key-value space, as of Init

	conn  io.ReadWriteCloser
	lines *bufio.Scanner
}

// ErrNoServer is that nothing in the environment names a server.
var ErrNoServer = errors.New("cannot find a PMI-1 server: neither PMI_FD nor PMI_PORT is set, as a launcher of MPI ranks does")

// Dial connects to the server that the environment names: by a descriptor, or by an address and who it is there.
func Dial(ctx context.Context, environ func(name string) string) (*Client, error) {
	fd, port := environ("PMI_FD"), environ("PMI_PORT")
	switch {
	case fd != "":
		return inherit(fd, environ)
	case port != "":
		return dial(ctx, port, environ("PMI_ID"))
	}
	return nil, ErrNoServer
}

func inherit(fd string, environ func(name string) string) (*Client, error) {
	number, err := strconv.Atoi(fd)
	if err != nil {
		return nil, fmt.Errorf("cannot reach the PMI-1 server: PMI_FD=%s is not a number", fd)
	}
	file := os.NewFile(uintptr(number), "PMI_FD")
	defer file.Close()
	conn, err := net.FileConn(file)
	if err != nil {
		return nil, fmt.Errorf("cannot reach the PMI-1 server by PMI_FD=%s: %v", fd, err)
	}
	c := Over(conn)
	if c.Rank, c.Size, err = place(environ("PMI_RANK"), environ("PMI_SIZE")); err != nil {
		c.Close()
		return nil, err
	}
	c.Spawned = environ("PMI_SPAWNED") == "1"
	return c, nil
}

func dial(ctx context.Context, address, id string) (*Client, error) {
	var dialer net.Dialer
	conn, err := dialer.DialContext(ctx, "tcp", address)
	if err != nil {
		return nil, fmt.Errorf("cannot reach the PMI-1 server of PMI_PORT: %v", err)
	}
	c := Over(conn)
	if err := c.introduce(ctx, id); err != nil {
		c.Close()
		return nil, err
	}
	return c, nil
}

// introduce says who this is, and is told the rest.
func (c *Client) introduce(ctx context.Context, id string) error {
	if _, err := c.ask(ctx, "initack", "initack", "pmiid", id); err != nil {
		return err
	}
	told := make(map[string]string)
	for _, name := range []string{"size", "rank", "debug"} {
		m, err := c.hear(ctx, "set")
		if err != nil {
			return err
		}
		told[name] = m.Fields[name]
	}
	var err error
	c.Rank, c.Size, err = place(told["rank"], told["size"])
	return err
}

func place(rank, size string) (r, s int, err error) {
	r, rankErr := strconv.Atoi(rank)
	s, sizeErr := strconv.Atoi(size)
	if rankErr != nil || sizeErr != nil || r < 0 || r >= s {
		return 0, 0, fmt.Errorf("cannot tell which rank this is: PMI_RANK=%q of PMI_SIZE=%q is none", rank, size)
	}
	return r, s, nil
}

// Over returns the client of a connection.
func Over(conn io.ReadWriteCloser) *Client { return &Client{conn: conn, lines: wire.Scanner(conn)} }

// Close ends the connection. A server takes it for a death, but after Finalize.
func (c *Client) Close() { _ = c.conn.Close() }

// Init begins to speak.
func (c *Client) Init(ctx context.Context) error {
	if _, err := c.ask(ctx, "init", "response_to_init", "pmi_version", "1", "pmi_subversion", "1"); err != nil {
		return err
	}
	m, err := c.ask(ctx, "get_my_kvsname", "my_kvsname")
	c.Name = m.Fields["kvsname"]
	return err
}

// Put lets other ranks have a value, after the next barrier.
func (c *Client) Put(ctx context.Context, key, value string) error {
	_, err := c.ask(ctx, "put", "put_result", "kvsname", c.Name, "key", key, "value", value)
	return err
}

// Get returns a value that was put.
func (c *Client) Get(ctx context.Context, key string) (string, error) {
	m, err := c.ask(ctx, "get", "get_result", "kvsname", c.Name, "key", key)
	return m.Fields["value"], err
}

// Barrier waits for all ranks of the job.
func (c *Client) Barrier(ctx context.Context) error {
	_, err := c.ask(ctx, "barrier_in", "barrier_out")
	return err
}

// Universe returns for how many processes there is room in all.
func (c *Client) Universe(ctx context.Context) (int, error) {
	m, err := c.ask(ctx, "get_universe_size", "universe_size")
	if err != nil {
		return 0, err
	}
	return strconv.Atoi(m.Fields["size"])
}

// Publish lets all jobs look up a port by a name.
func (c *Client) Publish(ctx context.Context, service, port string) error {
	_, err := c.ask(ctx, "publish_name", "publish_result", "service", service, "port", port)
	return err
}

// Lookup returns a port that was published.
func (c *Client) Lookup(ctx context.Context, service string) (string, error) {
	m, err := c.ask(ctx, "lookup_name", "lookup_result", "service", service)
	return m.Fields["port"], err
}

// Unpublish takes a name back.
func (c *Client) Unpublish(ctx context.Context, service string) error {
	_, err := c.ask(ctx, "unpublish_name", "unpublish_result", "service", service)
	return err
}

// Spawn starts a job, which finds in its key-value space what was put there before.
func (c *Client) Spawn(ctx context.Context, commands []pmi.Command, preput map[string]string) error {
	var b strings.Builder
	for i, command := range commands {
		fmt.Fprintf(&b, "mcmd=spawn\nnprocs=%d\nexecname=%s\ntotspawns=%d\nspawnssofar=%d\nargcnt=%d\n",
			command.Ranks, command.Argv[0], len(commands), i+1, len(command.Argv)-1)
		for n, arg := range command.Argv[1:] {
			fmt.Fprintf(&b, "arg%d=%s\n", n+1, arg)
		}
		if i > 0 {
			preput = nil
		}
		numbered(&b, "preput", preput)
		numbered(&b, "info", command.Info)
		b.WriteString("endcmd\n")
	}
	_, err := c.exchange(ctx, b.String(), "spawn_result")
	return err
}

func numbered(b *strings.Builder, kind string, pairs map[string]string) {
	fmt.Fprintf(b, "%s_num=%d\n", kind, len(pairs))
	n := 0
	for key, value := range pairs {
		fmt.Fprintf(b, "%s_key_%d=%s\n%s_val_%d=%s\n", kind, n, key, kind, n, value)
		n++
	}
}

// Abort asks that all ranks be ended, this one too; there is no answer.
func (c *Client) Abort(code int, message string) error {
	if _, err := io.WriteString(c.conn, wire.Line("abort", "exitcode", strconv.Itoa(code), "message", message)); err != nil {
		return fmt.Errorf("cannot ask the PMI-1 server to abort: %v", err)
	}
	return nil
}

// Finalize says that this rank will go.
func (c *Client) Finalize(ctx context.Context) error {
	_, err := c.ask(ctx, "finalize", "finalize_ack")
	return err
}

// ask sends a command and returns its answer.
func (c *Client) ask(ctx context.Context, command, answer string, pairs ...string) (wire.Message, error) {
	for i, text := range pairs {
		last := i == len(pairs)-1
		if strings.ContainsAny(text, "\n\x00") || !last && strings.Contains(text, " ") {
			return wire.Message{}, fmt.Errorf("cannot ask for %s: PMI-1 has no way to write %q", command, text)
		}
	}
	return c.exchange(ctx, wire.Line(command, pairs...), answer)
}

func (c *Client) exchange(ctx context.Context, lines, answer string) (wire.Message, error) {
	defer context.AfterFunc(ctx, c.Close)()
	if _, err := io.WriteString(c.conn, lines); err != nil {
		return wire.Message{}, c.broken(ctx, err)
	}
	return c.hear(ctx, answer)
}

// hear reads the next line, which must be that answer.
func (c *Client) hear(ctx context.Context, answer string) (wire.Message, error) {
	defer context.AfterFunc(ctx, c.Close)()
	if !c.lines.Scan() {
		return wire.Message{}, c.broken(ctx, c.lines.Err())
	}
	m, err := wire.Parse(c.lines.Text())
	switch rc := m.Fields["rc"]; {
	case err != nil:
		return m, err
	case m.Command != answer:
		return m, fmt.Errorf("cannot go on with the PMI-1 server: it answers %q where %q is due", c.lines.Text(), answer)
	case !slices.Contains([]string{"", "0"}, rc):
		return m, fmt.Errorf("cannot have what was asked of the PMI-1 server: %s, rc %s", strings.ReplaceAll(m.Fields["msg"], "_", " "), rc)
	}
	return m, nil
}

// broken is why the connection is of no more use.
func (c *Client) broken(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	if err == nil {
		err = io.EOF
	}
	return fmt.Errorf("cannot go on with the PMI-1 server: %v", err)
}
