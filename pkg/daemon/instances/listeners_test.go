package instances

import (
	"fmt"
	"io"
	"net"
	"slices"
	"testing"
	"time"

	"go.uber.org/zap/zapcore"

	"github.com/bringupd/bringupd/pkg/daemon/planning"
	"github.com/bringupd/bringupd/pkg/ranks/affinity"
	"github.com/bringupd/bringupd/pkg/roles"
	"github.com/bringupd/bringupd/pkg/signal"
	"github.com/bringupd/bringupd/test/users"
)

// portsRun runs a test with a node that keeps its ports, of a block that begins at a port and that no
// other process claims.
func portsRun(t *testing.T, file string, begin func(first int), test func(r *run)) {
	t.Helper()
	background, _ := testTasks(t)
	block, err := planning.ClaimBlock(background, t.Name(), 0)
	if err != nil {
		t.Fatal(err)
	}
	block.KeepOnly()
	begin(block.First)
	inBubbleOf(t, func(r *run) {
		r.listen, r.hasPorts, r.address, r.firstPort = true, true, "127.0.0.1", block.First
	}, 1, file, test)
}

// listenAt listens on a port of an address of this machine.
func listenAt(t *testing.T, host string, port int) io.Closer {
	t.Helper()
	listener, err := net.Listen("tcp", fmt.Sprintf("%s:%d", host, port))
	if err != nil {
		t.Fatal(err)
	}
	return listener
}

// isKept reports whether no process can listen on a port.
func isKept(port int) bool {
	listener, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port))
	if err == nil {
		_ = listener.Close()
	}
	return err != nil
}

// listenAsStranger does the same as another user, on another address of this machine.
func listenAsStranger(t *testing.T, port int) (listener io.Closer) {
	t.Helper()
	users.Stranger.Do(t, func() { listener = listenAt(t, "127.0.0.2", port) })
	return listener
}

// wantStrangers checks at which levels the head's node has said something of another user.
func (r *run) wantStrangers(want ...zapcore.Level) {
	r.t.Helper()
	var levels []zapcore.Level
	for _, entry := range r.logged.FilterMessageSnippet("127.0.0.2").All() {
		levels = append(levels, entry.Level)
	}
	if !slices.Equal(levels, want) {
		r.t.Errorf("logged at %v, want %v: %v", levels, want, r.logged.All())
	}
}

// TestListeningIsPublished checks that a node publishes once in each generation that the process of
// rank 0, or each process if all are endpoints, listens at its endpoint, and no other process there.
func TestListeningIsPublished(t *testing.T) {
	first := 0
	portsRun(t, `
  - {name: server, nodes: all, command: serve, ports: {http: auto, rpc: {count: 2}}, restarts: 1}
  - {name: ranks, nodes: all, ranks-per-node: 2, command: serve, ports: {http: auto}}
  - {name: peers, nodes: all, ranks-per-node: 2, command: serve, ports: {http: auto}, endpoints: all}
`, func(port int) { first = port }, func(r *run) {
		ports := func(role, rank int) []int { return r.plan.Roles[role].Instances[0].Processes[rank].Ports }
		if ports(0, 0)[0] != first {
			t.Fatalf("the port of the server is %v", ports(0, 0))
		}
		listed := func(what string, want ...string) {
			t.Helper()
			r.sleep(6 * time.Second)
			r.want(what, r.names(signal.NodesDir, ".ready.000001"), want...)
		}
		const serverListens, ranksListen = "0000.i0000.g0.ready.000001", "0000.i0001.g0.ready.000001"
		const peersListen = "0000.i0002.g0.ready.000001"
		listed("nobody listens")
		rpc := listenAt(t, "127.0.0.1", ports(0, 0)[1])
		server := listenAt(t, "127.0.0.1", ports(0, 0)[0])
		defer server.Close()
		listed("another process listens at the endpoint")
		r.listens.Store(true)
		listed("the server listens", serverListens)
		defer listenAt(t, "127.0.0.1", ports(1, 0)[0]).Close()
		defer listenAt(t, "127.0.0.1", ports(2, 0)[0]).Close()
		listed("ranks 0 listen", serverListens, ranksListen)
		defer listenAt(t, "127.0.0.1", ports(2, 1)[0]).Close()
		listed("all peers listen", serverListens, ranksListen, peersListen)
		_, _ = rpc.Close(), server.Close()
		r.exit("server.0.0.g0", 1)
		r.later()
		server = listenAt(t, "127.0.0.1", ports(0, 0)[0])
		defer server.Close()
		listed("the server listens again", serverListens, "0000.i0000.g1.ready.000001", ranksListen, peersListen)
	})
}

// TestListensElsewhere checks that the daemon says once that a process without a probe listens on other
// ports than that of its endpoint.
func TestListensElsewhere(t *testing.T) {
	portsRun(t, `
  - {name: server, nodes: all, command: serve}
`, func(int) {}, func(r *run) {
		defer listenAt(t, "127.0.0.1", 0).Close()
		r.listens.Store(true)
		r.sleep(time.Minute)
		if said := r.logged.FilterMessageSnippet("instead: give them $BRINGUPD_PORT").Len(); said != 1 {
			t.Errorf("said %d times: %v", said, r.logged.All())
		}
	})
}

// TestIdleGPUs checks that the head can say which GPUs no process gets.
func TestIdleGPUs(t *testing.T) {
	change := func(r *run) { r.layout.GPUs = make([]affinity.GPU, 4) }
	for file, want := range map[string]int{
		"\n  - {name: server, nodes: all, command: serve}\n": 1,
		"\n  - {name: server, nodes: 2, command: serve}\n":   0,
	} {
		inBubbleOf(t, change, 2, file, func(r *run) {
			r.head.WarnIdleGPUs()
			if said := r.logged.FilterMessageSnippet("no process gets GPUs 0-3 of n0-n1").Len(); said != want {
				t.Errorf("%s: said %d times: %v", file, said, r.logged.All())
			}
		})
	}
}

// TestStrangerAtPort checks that a process without a probe starts although another user listens on its
// port, which does not make it an endpoint, and that the daemon says so once. It also says it, less
// urgently, of one that begins to listen on one of the ports beside the process.
func TestStrangerAtPort(t *testing.T) {
	users.Need(t)
	var stranger io.Closer
	portsRun(t, `
  - {name: server, nodes: all, command: serve, ports: {http: auto}}
  - {name: other, nodes: all, command: serve, ports: {http: auto, rpc: {count: 2}}}
`, func(port int) { stranger = listenAsStranger(t, port) }, func(r *run) {
		defer stranger.Close()
		r.wantStatuses(roles.StatusReady, roles.StatusReady)
		r.sleep(time.Minute)
		r.want("endpoints", r.names(signal.NodesDir, ".ready.000001"))
		r.wantStrangers(zapcore.ErrorLevel)
		ports := r.plan.Roles[1].Instances[0].Processes[0].Ports
		defer listenAt(t, "127.0.0.1", ports[0]).Close()
		r.listens.Store(true)
		r.sleep(time.Minute)
		defer listenAsStranger(t, ports[1]+1).Close()
		r.sleep(time.Minute)
		r.wantStrangers(zapcore.ErrorLevel, zapcore.WarnLevel)
	})
}

// TestPortsBetweenProcesses checks that a node keeps the ports of a process while it does not run:
// before its role starts and during its back-off, and also if the daemon of a further step starts it.
func TestPortsBetweenProcesses(t *testing.T) {
	portsRun(t, `
  - {name: prepare, nodes: all, command: prepare, oneshot: true}
  - {name: server, nodes: all, command: serve, ports: {http: auto, rpc: {count: 2}}, after: [prepare],
      restarts: {max: 1, backoff: 1m..1m}}
  - {name: judge, nodes: all, step: other, command: serve, ports: {http: auto}, after: [prepare]}
`, func(int) {}, func(r *run) {
		ports := func(role int) []int { return r.plan.Roles[role].Instances[0].Processes[0].Ports }
		server, judge := ports(1), ports(2)[0]
		want := func(what string, serverIsKept, judgeIsKept bool) {
			t.Helper()
			for _, port := range []int{server[0], server[1], server[1] + 1} {
				if got := isKept(port); got != serverIsKept {
					t.Errorf("%s: port %d of the server is kept: %t, want %t", what, port, got, serverIsKept)
				}
			}
			if got := isKept(judge); got != judgeIsKept {
				t.Errorf("%s: the port of the judge is kept: %t, want %t", what, got, judgeIsKept)
			}
		}
		want("before the start", true, true)
		r.exit("prepare.0.0.g0", 0)
		r.later()
		want("started", false, true)
		r.exit("server.0.0.g0", 1)
		r.later()
		want("in the back-off", true, true)
		r.sleep(time.Minute)
		want("started again", false, true)
	})
}
