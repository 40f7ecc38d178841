package pmi

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
	"sync"
	"testing"

	"go.uber.org/zap"
	"golang.org/x/sys/unix"
)

// client is a rank's connection to its PMI server, like MPICH's. Only one goroutine at a time may
// use it. It cannot be used after a call has ended with its context.
type client struct {
	rank, size int
	name       string // of the key-value space, returned by init

	conn  io.ReadWriteCloser
	lines *bufio.Scanner
}

// over returns the client of a connection.
func over(conn io.ReadWriteCloser) *client { return &client{conn: conn, lines: newLineScanner(conn)} }

// dial connects to the server through the descriptor named in the environment.
func dial(environ func(name string) string) (*client, error) {
	fd, fdErr := strconv.Atoi(environ("PMI_FD"))
	rank, rankErr := strconv.Atoi(environ("PMI_RANK"))
	size, sizeErr := strconv.Atoi(environ("PMI_SIZE"))
	if err := errors.Join(fdErr, rankErr, sizeErr); err != nil {
		return nil, err
	}
	file := os.NewFile(uintptr(fd), "PMI_FD")
	defer file.Close()
	conn, err := net.FileConn(file)
	if err != nil {
		return nil, err
	}
	c := over(conn)
	c.rank, c.size = rank, size
	return c, nil
}

func (c *client) close() { _ = c.conn.Close() }

func (c *client) init(ctx context.Context) error {
	if _, err := c.ask(ctx, "init", "response_to_init", "pmi_version", "1", "pmi_subversion", "1"); err != nil {
		return err
	}
	m, err := c.ask(ctx, "get_my_kvsname", "my_kvsname")
	c.name = m.fields["kvsname"]
	return err
}

func (c *client) put(ctx context.Context, key, value string) error {
	_, err := c.ask(ctx, "put", "put_result", "kvsname", c.name, "key", key, "value", value)
	return err
}

func (c *client) get(ctx context.Context, key string) (string, error) {
	m, err := c.ask(ctx, "get", "get_result", "kvsname", c.name, "key", key)
	return m.fields["value"], err
}

func (c *client) barrier(ctx context.Context) error {
	_, err := c.ask(ctx, "barrier_in", "barrier_out")
	return err
}

func (c *client) finalize(ctx context.Context) error {
	_, err := c.ask(ctx, "finalize", "finalize_ack")
	return err
}

// ask sends a command and returns its answer.
func (c *client) ask(ctx context.Context, command, answer string, pairs ...string) (message, error) {
	return c.exchange(ctx, formatLine(command, pairs...), answer)
}

func (c *client) exchange(ctx context.Context, lines, answer string) (message, error) {
	defer context.AfterFunc(ctx, c.close)()
	if _, err := io.WriteString(c.conn, lines); err != nil {
		return message{}, causeOr(ctx, err)
	}
	if !c.lines.Scan() {
		return message{}, causeOr(ctx, errors.Join(c.lines.Err(), io.EOF))
	}
	m, err := parseMessage(c.lines.Text())
	switch rc := m.fields["rc"]; {
	case err != nil:
		return m, err
	case m.command != answer:
		return m, fmt.Errorf("cannot continue: the server answers %q and not %s", c.lines.Text(), answer)
	case !slices.Contains([]string{"", "0"}, rc):
		return m, fmt.Errorf("cannot continue: %s, rc %s", strings.ReplaceAll(m.fields["msg"], "_", " "), rc)
	}
	return m, nil
}

// causeOr returns the cause of the end of ctx, or err if it has not ended.
func causeOr(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}

// TestDescriptor serves a rank through the descriptor and the environment that a launcher provides.
func TestDescriptor(t *testing.T) {
	ours, theirs, err := NewConnPair()
	if err != nil {
		t.Fatal(err)
	}
	fd, err := unix.Dup(int(theirs.Fd())) // the client closes it
	if err = errors.Join(err, theirs.Close()); err != nil {
		t.Fatal(err)
	}
	h := newHall()
	j := job(0)
	environ := PMI1Environ(j, 0, fd)
	c, err := dial(func(name string) string { return environ[name] })
	if err != nil {
		t.Fatal(err)
	}
	var serving sync.WaitGroup
	space := NewPMI1Server(PMI1Config{Job: j, Log: zap.NewNop(), Handlers: Handlers{Peers: h}})
	serving.Go(func() { space.ServeRank(t.Context(), 0, ours) })
	defer serving.Wait()
	defer c.close()
	h.jobs[j.Name] = j
	ctx := t.Context()
	for name, err := range map[string]error{"init": c.init(ctx), "put": c.put(ctx, "k", "a value"),
		"barrier": c.barrier(ctx)} {
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	if value, err := c.get(ctx, "k"); err != nil || value != "a value" {
		t.Errorf("it gets %q: %v", value, err)
	}
	if err := c.finalize(ctx); err != nil {
		t.Error(err)
	}
}
