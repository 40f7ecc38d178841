package exec

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.uber.org/goleak"
	"go.uber.org/zap"

	"github.com/bringupd/bringupd/pkg/process"
)

func TestMain(m *testing.M) {
	// Tests of another package lock the memory of a process, whose environment the kernel then hands
	// out late; the goroutine that reads it is given up by design and ends with the answer.
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction(
		"github.com/bringupd/bringupd/pkg/process.(*procScanner).readEnviron.func1"))
}

// ceiling limits waits that end much sooner on any machine.
const ceiling = 20 * time.Second

// stage is a run of nodes n0 to n2, which reach the head in memory, and of n3, which has no peer
// link.
type stage struct {
	t        testing.TB
	exchange *Head
	nodes    []*Node
	ctx      context.Context
	deaf     bool // nodes that should connect are not notified
}

func (s *stage) Hosts() ([]int, []string) {
	return []int{0, 1, 2, 3}, []string{"n0", "n1.site", "n2", "n3"}
}
func (*stage) SelectNodes([]string) ([]int, error) { return nil, nil }
func (*stage) OutputPrefix(int) string             { return "" }
func (*stage) AbsentNodes() []int                  { return nil }
func (*stage) NotifyWorker(int)                    {}
func (*stage) HasLink(rank int) bool               { return rank < 3 }
func (s *stage) Address(rank int) string           { return fmt.Sprintf("10.0.0.%d", rank+1) }
func (s *stage) RequestConn(rank int) error {
	if rank == 3 {
		return errors.New("n3 holds no lifeline")
	}
	if !s.deaf {
		s.nodes[rank].HandleConnRequest()
	}
	return nil
}

func raise(t testing.TB) *stage {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	s := &stage{t: t, ctx: ctx}
	super, err := process.NewSupervisor(nil)
	must(t, err)
	var tasks sync.WaitGroup
	t.Cleanup(func() {
		cancel()
		tasks.Wait()
		if err := super.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	background := func(task func(context.Context)) { tasks.Go(func() { task(ctx) }) }
	for rank := range 4 {
		dir := t.TempDir()
		node := NewNode(Daemon{})
		node.PrivateDir = func() (string, error) { return dir, nil }
		node.SocketDir = node.PrivateDir
		node.Go, node.Log = background, zap.NewNop()
		node.StartRemote = func(ctx context.Context, spec process.Spec) (process.Handle, func(), error) {
			// The environment of shells.
			spec.Env = append(os.Environ(), append(spec.Env, fmt.Sprintf("NODE=n%d", rank),
				"GORACE=atexit_sleep_ms=0")...)
			child, err := super.Start(ctx, spec)
			return child, func() { child.Stop(context.WithoutCancel(ctx), time.Second, syscall.SIGTERM) }, err
		}
		if rank == 1 || rank == 2 {
			node.Dial = func(context.Context) (Conn, error) {
				ours, theirs := pair(t)
				background(func(ctx context.Context) { s.exchange.ServeConn(ctx, rank, theirs) })
				return ours, nil
			}
		}
		s.nodes = append(s.nodes, node)
	}
	s.exchange = NewHead(s.nodes[0], s)
	return s
}

// pair returns the two ends of a connection in the kernel.
func pair(t testing.TB) (Conn, Conn) {
	t.Helper()
	fds, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC|syscall.SOCK_NONBLOCK, 0)
	must(t, err)
	return os.NewFile(uintptr(fds[0]), "one"), os.NewFile(uintptr(fds[1]), "other")
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// said is the outcome of a command.
type said struct {
	code     int
	out, err string
	why      string
}

// call lets an agent on a node run a command.
func (s *stage) call(ctx context.Context, from int, host, command string) (got said) {
	var out, err bytes.Buffer
	code, failed := Agent{Socket: s.nodes[from].SocketPath(), Out: &out, Err: &err}.Run(ctx, host, command)
	got = said{code: code, out: out.String(), err: err.String()}
	if failed != nil {
		got.why = failed.Error()
	}
	return got
}

// file waits for a file and returns its contents.
func file(t testing.TB, path string) string {
	t.Helper()
	for end := time.Now().Add(ceiling); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		if text, err := os.ReadFile(filepath.Clean(path)); err == nil && len(text) > 0 {
			return string(bytes.TrimSpace(text))
		}
	}
	t.Fatalf("there is no %s", path)
	return ""
}
