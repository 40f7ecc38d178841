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

	"github.com/google/go-cmp/cmp"
	"go.uber.org/zap"
	"golang.org/x/sys/unix"
)

// client is a rank's connection to its PMI server, like MPICH's. Only one goroutine at a time may
// use it. It cannot be used after a call has ended with its context.
type client struct {
	rank, size int
	spawned    bool
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
	c.rank, c.size, c.spawned = rank, size, environ("PMI_SPAWNED") == "1"
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

func (c *client) universe(ctx context.Context) (int, error) {
	m, err := c.ask(ctx, "get_universe_size", "universe_size")
	if err != nil {
		return 0, err
	}
	return strconv.Atoi(m.fields["size"])
}

// spawn starts a job, whose key-value space contains preput.
func (c *client) spawn(ctx context.Context, commands []Command, preput map[string]string) error {
	var b strings.Builder
	numbered := func(kind string, pairs map[string]string) {
		fmt.Fprintf(&b, "%s_num=%d\n", kind, len(pairs))
		for n, key := range keysOf(pairs) {
			fmt.Fprintf(&b, "%s_key_%d=%s\n%s_val_%d=%s\n", kind, n, key, kind, n, pairs[key])
		}
	}
	for i, command := range commands {
		fmt.Fprintf(&b, "mcmd=spawn\nnprocs=%d\nexecname=%s\ntotspawns=%d\nspawnssofar=%d\nargcnt=%d\n",
			command.Ranks, command.Argv[0], len(commands), i+1, len(command.Argv)-1)
		for n, arg := range command.Argv[1:] {
			fmt.Fprintf(&b, "arg%d=%s\n", n+1, arg)
		}
		if i > 0 {
			preput = nil
		}
		numbered("preput", preput)
		numbered("info", command.Info)
		b.WriteString("endcmd\n")
	}
	_, err := c.exchange(ctx, b.String(), "spawn_result")
	return err
}

// abort requests the end of all ranks, including this one; there is no answer.
func (c *client) abort(code int, message string) error {
	_, err := io.WriteString(c.conn, formatLine("abort", "exitcode", strconv.Itoa(code), "message", message))
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
	var spawned SpawnRequest
	h, aborts := newHall(), make(chan aborted, 1)
	h.spawn = func(_ *hall, s SpawnRequest) (string, error) { spawned = s; return "job.1", nil }
	j := job(0)
	environ := PMI1Environ(j, 0, fd)
	c, err := dial(func(name string) string { return environ[name] })
	if err != nil {
		t.Fatal(err)
	}
	var serving sync.WaitGroup
	space := NewPMI1Server(PMI1Config{Job: j, Log: zap.NewNop(), Handlers: Handlers{Peers: h, AbortJob: func(by ProcID, code int, words string) {
		aborts <- aborted{by.Rank, code, words}
	}}})
	serving.Go(func() { space.ServeRank(t.Context(), 0, ours) })
	defer serving.Wait()
	defer c.close()
	h.jobs[j.Name] = j
	ctx := t.Context()
	commands := []Command{
		{Argv: []string{"a", "", "b c"}, Ranks: 2, Info: map[string]string{"host": "h"}},
		{Argv: []string{"d"}, Ranks: 1, Info: map[string]string{}},
	}
	for name, err := range map[string]error{
		"init": c.init(ctx), "put": c.put(ctx, "k", "a value"), "barrier": c.barrier(ctx),
		"spawn": c.spawn(ctx, commands, map[string]string{"p": "q"}), "abort": c.abort(7, "it is enough"),
	} {
		if err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	if value, err := c.get(ctx, "k"); err != nil || value != "a value" {
		t.Errorf("it gets %q: %v", value, err)
	}
	if size, err := c.universe(ctx); err != nil || size != 16 {
		t.Errorf("the universe has %d: %v", size, err)
	}
	want := SpawnRequest{Requester: ProcID{Job: "job"}, Commands: commands, Preput: map[string]string{"p": "q"}}
	if diff := cmp.Diff(want, spawned); diff != "" {
		t.Error(diff)
	}
	if got := <-aborts; got != (aborted{0, 7, "it is enough"}) {
		t.Errorf("the abort is %+v", got)
	}
	if err := c.finalize(ctx); err != nil {
		t.Error(err)
	}
}
