package client_test

import (
	"context"
	"errors"
	"net"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"
	"go.uber.org/zap"
	"golang.org/x/sys/unix"

	"github.com/bringupd/bringupd/pkg/pmi"
	"github.com/bringupd/bringupd/pkg/pmi/pmi1"
	"github.com/bringupd/bringupd/pkg/pmi/pmi1/client"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// alone is Peers of a job on one node.
type alone struct {
	published map[string]pmi.Entry
	spawned   pmi.Spawn
}

func (*alone) Gather(_ context.Context, _ pmi.Meet, _ []pmi.Proc, data []byte) ([]byte, error) {
	return data, nil
}

func (a *alone) Publish(_ context.Context, entries []pmi.Entry) error {
	for _, e := range entries {
		a.published[e.Key] = e
	}
	return nil
}

func (a *alone) Lookup(_ context.Context, keys []string, _ bool) ([]pmi.Entry, error) {
	if e, found := a.published[keys[0]]; found {
		return []pmi.Entry{e}, nil
	}
	return nil, pmi.NotFound
}

func (a *alone) Unpublish(_ context.Context, _ pmi.Proc, keys []string) error {
	delete(a.published, keys[0])
	return nil
}

func (a *alone) Spawn(_ context.Context, s pmi.Spawn) (string, error) {
	a.spawned = s
	return "job.1", nil
}

// dialled returns a rank of a job of one, who serves it, and what has come of it when both have ended.
func dialled(t *testing.T, peers *alone, abort func(int, int, string), dial func(*pmi.Job, *pmi1.Space) *client.Client) *client.Client {
	t.Helper()
	job := &pmi.Job{Name: "job", Hosts: []string{"host"}, Nodes: []int{0}, Universe: 4}
	return dial(job, pmi1.New(pmi1.Config{Job: job, Peers: peers, Abort: abort, Log: zap.NewNop()}))
}

func byDescriptor(t *testing.T) func(*pmi.Job, *pmi1.Space) *client.Client {
	return func(job *pmi.Job, space *pmi1.Space) *client.Client {
		ours, theirs, err := pmi1.Pair()
		if err != nil {
			t.Fatal(err)
		}
		fd, err := unix.Dup(int(theirs.Fd())) // as a child has it: Dial makes it its own
		if err = errors.Join(err, theirs.Close()); err != nil {
			t.Fatal(err)
		}
		environ := pmi1.Environ(job, 0, fd)
		c, err := client.Dial(t.Context(), func(name string) string { return environ[name] })
		if err != nil {
			t.Fatal(err)
		}
		serve(t, space, ours, c)
		return c
	}
}

func byPort(t *testing.T) func(*pmi.Job, *pmi1.Space) *client.Client {
	return func(_ *pmi.Job, space *pmi1.Space) *client.Client {
		listener, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		defer listener.Close()
		accepted := make(chan net.Conn, 1)
		var serving sync.WaitGroup
		serving.Go(func() {
			conn, err := listener.Accept()
			if err != nil {
				t.Error(err)
				return
			}
			accepted <- conn
			space.Serve(t.Context(), 0, conn)
		})
		environ := map[string]string{"PMI_PORT": listener.Addr().String(), "PMI_ID": "0"}
		c, err := client.Dial(t.Context(), func(name string) string { return environ[name] })
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close(); serving.Wait() })
		return c
	}
}

func serve(t *testing.T, space *pmi1.Space, conn net.Conn, c *client.Client) {
	var serving sync.WaitGroup
	serving.Go(func() { space.Serve(t.Context(), 0, conn) })
	t.Cleanup(func() { c.Close(); serving.Wait() })
}

func TestAll(t *testing.T) {
	for name, dial := range map[string]func(*testing.T) func(*pmi.Job, *pmi1.Space) *client.Client{"descriptor": byDescriptor, "port": byPort} {
		t.Run(name, func(t *testing.T) {
			ctx, peers := t.Context(), &alone{published: make(map[string]pmi.Entry)}
			aborts := make(chan string, 1)
			c := dialled(t, peers, func(rank, code int, words string) {
				aborts <- strconv.Itoa(rank) + " " + strconv.Itoa(code) + " " + words
			}, dial(t))
			must := func(err error) {
				t.Helper()
				if err != nil {
					t.Fatal(err)
				}
			}
			must(c.Init(ctx))
			if c.Rank != 0 || c.Size != 1 || c.Name != "job" {
				t.Errorf("it is rank %d of %d of %q", c.Rank, c.Size, c.Name)
			}
			must(c.Put(ctx, "k", "a value"))
			must(c.Barrier(ctx))
			if value, err := c.Get(ctx, "k"); err != nil || value != "a value" {
				t.Errorf("it gets %q: %v", value, err)
			}
			if _, err := c.Get(ctx, "none"); err == nil || !strings.Contains(err.Error(), "key not found") {
				t.Errorf("what was not put is answered by %v", err)
			}
			if size, err := c.Universe(ctx); err != nil || size != 4 {
				t.Errorf("the universe has %d: %v", size, err)
			}
			must(c.Publish(ctx, "s", "tag#0$"))
			if port, err := c.Lookup(ctx, "s"); err != nil || port != "tag#0$" {
				t.Errorf("it looks up %q: %v", port, err)
			}
			must(c.Unpublish(ctx, "s"))
			if _, err := c.Lookup(ctx, "s"); err == nil {
				t.Error("what is no more published is found")
			}
			commands := []pmi.Command{{Argv: []string{"a", "", "b c"}, Ranks: 2, Info: map[string]string{"host": "h"}}, {Argv: []string{"d"}, Ranks: 1, Info: map[string]string{}}}
			must(c.Spawn(ctx, commands, map[string]string{"p": "q"}))
			want := pmi.Spawn{By: pmi.Proc{Job: "job"}, Commands: commands, Preput: map[string]string{"p": "q"}}
			if diff := cmp.Diff(want, peers.spawned); diff != "" {
				t.Error(diff)
			}
			if err := c.Put(ctx, "k", "two\nlines"); err == nil {
				t.Error("a value of two lines was sent")
			}
			must(c.Abort(7, "it is enough"))
			if got := <-aborts; got != "0 7 it is enough" {
				t.Errorf("the abort is %q", got)
			}
			must(c.Finalize(ctx))
		})
	}
}

func TestDialRefuses(t *testing.T) {
	file, err := os.CreateTemp(t.TempDir(), "")
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	fd, err := unix.Dup(int(file.Fd()))
	if err != nil {
		t.Fatal(err)
	}
	for name, environ := range map[string]map[string]string{
		"neither PMI_FD nor": {}, "is not a number": {"PMI_FD": "x"}, "by PMI_FD": {"PMI_FD": strconv.Itoa(fd)}, "of PMI_PORT": {"PMI_PORT": "nonsense"},
	} {
		if _, err := client.Dial(t.Context(), func(name string) string { return environ[name] }); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%v: %v", environ, err)
		}
	}
}
