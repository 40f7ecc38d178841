package exec

import (
	"context"
	"os"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/bringupd/bringupd/pkg/process"
)

func TestRuns(t *testing.T) {
	s := raise(t)
	for _, tc := range []struct {
		name          string
		from          int
		host, command string
		want          said
	}{
		{"from the head", 0, "n2", "echo $NODE; echo two >&2; exit 7", said{code: 7, out: "n2\n", err: "two\n"}},
		{"from another node", 1, "n2", "echo $NODE", said{out: "n2\n"}},
		{"on the head", 2, "n0", "echo $NODE", said{out: "n0\n"}},
		{"on its own node", 1, "localhost", "echo $NODE", said{out: "n1\n"}},
		{"without the domain", 0, "n1", "echo $NODE", said{out: "n1\n"}},
		{"by its address", 0, "10.0.0.2", "echo $NODE", said{out: "n1\n"}},
		{"by a signal", 0, "n1", "kill -9 $$", said{code: 128 + 9}},
		{"nothing in", 0, "n1", "cat", said{}},
		{"a socket of its own", 0, "n1", `[ "$` + SocketVariable + `" = "` +
			s.nodes[1].SocketPath() + `" ] && echo so`, said{out: "so\n"}},
		{"nobody's host", 0, "n9", "true", said{code: NoCode,
			why: "cannot run a command on n9: it is not one of this run's nodes: n0,n1.site,n2,n3"}},
		{"no lifeline", 0, "n3", "true", said{code: NoCode, why: "cannot run a command on n3: n3 holds no lifeline"}},
		{"from where there is none", 3, "n1", "true",
			said{code: NoCode, why: "cannot run a command on n1: " + errNoPeerLink.Error()}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got := s.call(t.Context(), tc.from, tc.host, tc.command); got != tc.want {
				t.Errorf("it said %+v, not %+v", got, tc.want)
			}
		})
	}
}

func TestMuchOutputOfMany(t *testing.T) {
	s := raise(t)
	var calls sync.WaitGroup
	for i := range 12 {
		calls.Go(func() {
			got := s.call(t.Context(), i%3, "n"+strconv.Itoa(1+i%2), "head -c 1000000 /dev/zero; exit "+strconv.Itoa(i))
			if got.code != i || len(got.out) != 1000000 || got.why != "" {
				t.Errorf("call %d: code %d after %d bytes: %s", i, got.code, len(got.out), got.why)
			}
		})
	}
	calls.Wait()
}

func TestEndsWithItsAgent(t *testing.T) {
	for host, from := range map[string]int{"n0": 0, "n1": 0, "n2": 1} {
		t.Run(host, func(t *testing.T) {
			s := raise(t)
			path := t.TempDir() + "/pid"
			ctx, cancel := context.WithCancel(t.Context())
			var call sync.WaitGroup
			call.Go(func() { s.call(ctx, from, host, "sleep 1000 & echo $! > "+path+"; wait") })
			pid, err := strconv.Atoi(file(t, path))
			must(t, err)
			cancel()
			call.Wait()
			for end := time.Now().Add(ceiling); lives(pid); time.Sleep(5 * time.Millisecond) {
				if time.Now().After(end) {
					t.Fatal("what it has started lives on")
				}
			}
		})
	}
}

// lives reports whether a process runs and is not a zombie that init will reap.
func lives(pid int) bool {
	stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	return err == nil && !strings.Contains(string(stat), ") Z ")
}

func TestLostNode(t *testing.T) {
	s := raise(t)
	path := t.TempDir() + "/pid"
	var call sync.WaitGroup
	call.Go(func() {
		got := s.call(t.Context(), 0, "n1", "echo $$ > "+path+"; exec sleep 1000")
		if got.code != NoCode || !strings.Contains(got.why, "the node is lost") {
			t.Errorf("it said %+v", got)
		}
	})
	file(t, path)
	s.exchange.CloseNodeConns(1)
	call.Wait()
	const want = "a command that it ran on n1 with bringupd rsh was killed or disconnected"
	// The caller may be notified first.
	if told := s.exchange.DescribeBroken(t.Context()); told != want {
		t.Errorf("told %q, want %q", told, want)
	}
}

// TestBrokenHostsAreCountedOnce verifies that a host with several killed commands is one host.
func TestBrokenHostsAreCountedOnce(t *testing.T) {
	s := raise(t)
	for _, host := range []string{"n2", "n1", "n2", "n2"} {
		s.call(t.Context(), 0, host, "kill -9 $$")
	}
	const want = "commands that it ran on n2 and 1 more with bringupd rsh were killed or disconnected"
	if told := s.exchange.DescribeBroken(t.Context()); told != want {
		t.Errorf("told %q, want %q", told, want)
	}
}

func TestSilentNode(t *testing.T) {
	s := raise(t)
	s.deaf = true
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	conn, err := s.exchange.requestConn(ctx, 1)
	if err == nil || conn != nil {
		t.Errorf("%v, %v came of it", conn, err)
	}
	s.nodes[1].HandleConnRequest() // no goroutine waits for it any more
	s.deaf = false
	if got := s.call(t.Context(), 0, "n1", "exit 3"); got.code != 3 {
		t.Errorf("then it said %+v", got)
	}
}

func TestRunOver(t *testing.T) {
	s := raise(t)
	over, end := context.WithCancel(s.ctx)
	s.nodes[0].Go = func(task func(context.Context)) { go task(over) }
	started, startRemote := make(chan struct{}), s.nodes[0].StartRemote
	s.nodes[0].StartRemote = func(ctx context.Context, spec process.Spec) (process.Handle, func(), error) {
		defer close(started)
		return startRemote(ctx, spec)
	}
	var call sync.WaitGroup
	call.Go(func() {
		if got := s.call(t.Context(), 0, "n0", "exec sleep 1000"); got.code != 128+int(syscall.SIGTERM) {
			t.Errorf("it said %+v", got)
		}
	})
	<-started
	end()
	call.Wait()
}

func TestNoSocket(t *testing.T) {
	for socket, want := range map[string]string{
		"": "cannot run a command on n1: BRINGUPD_RSH_SOCKET is not set; bringupd rsh " +
			"works only in programs that a run's driver starts",
		"/dev/null": "cannot run a command on n1: the daemon of this node does not respond",
	} {
		code, err := Agent{Socket: socket}.Run(t.Context(), "n1", "true")
		if code != NoCode || err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("by %q: %d, %v", socket, code, err)
		}
	}
}
