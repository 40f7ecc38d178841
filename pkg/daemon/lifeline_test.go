package daemon

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/bringupd/bringupd/internal/ctxutil"
	"github.com/bringupd/bringupd/pkg/config"
	"github.com/bringupd/bringupd/pkg/daemon/deps"
	"github.com/bringupd/bringupd/pkg/framework"
	"github.com/bringupd/bringupd/pkg/health"
	"github.com/bringupd/bringupd/pkg/peerlink"
	"github.com/bringupd/bringupd/pkg/signal"
	"github.com/bringupd/bringupd/pkg/signal/record"
)

// network is a network whose connections the test may cut or refuse.
type network struct {
	peerlink.Network
	refuses atomic.Bool

	mu    sync.Mutex
	conns []net.Conn // guarded by mu
}

// network returns a network, with connections of its own, that leads to the job's network.
func (j *job) network() *network { return &network{Network: j.net.Host("wire")} }

func (n *network) Dial(ctx context.Context, address string) (net.Conn, error) {
	if n.refuses.Load() {
		return nil, &net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}
	}
	conn, err := n.Network.Dial(ctx, address)
	if err != nil {
		return nil, err
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.conns = append(n.conns, conn)
	return conn, nil
}

// cut resets all open connections and returns their number.
func (n *network) cut() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, conn := range n.conns {
		_ = conn.(interface{ SetLinger(int) error }).SetLinger(0)
		_ = conn.Close()
	}
	defer func() { n.conns = nil }()
	return len(n.conns)
}

// TestNoLifelineCanBeHeld verifies that a daemon that cannot get a peer link is observed by its
// heartbeat files, and that the log says so.
func TestNoLifelineCanBeHeld(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		mode config.LinkMode
		code int
		says string
	}{
		{config.LinkAuto, 0, "beat files replace it"},
		{config.LinkOn, 65, "cannot keep the peer link: node 1 (n1) could not reach the head"},
	} {
		rowInBubble(t, string(tc.mode), func(t *testing.T) {
			mark := t.TempDir() + "/over"
			j := newJob(t, 2, "until [ -e "+mark+" ]; do sleep 0.05; done")
			firewall := j.network()
			firewall.refuses.Store(true)
			j.all(func(c *deps.Config) {
				c.Lifeline, c.Network = tc.mode, firewall
			})
			j.start()
			j.until("the word of it", func() bool { return strings.Contains(j.said(), tc.says) })
			touch(t, mark)
			j.expect(everyone(tc.code, 2)...)
		})
	}
}

// TestAWorkersLifelineEnds ends a worker's peer link in every way that a test can simulate; each
// way is another kind of loss.
func TestAWorkersLifelineEnds(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name string
		end  func(*playedLine)
		kind health.Kind
		what string
	}{
		{"its kernel closes it", func(p *playedLine) { p.close() }, health.DaemonDied, "has died"},
		{"its kernel resets it", func(p *playedLine) { p.net.refuses.Store(true); p.net.cut() }, health.DaemonDied, ""},
		{"its daemon falls silent", func(p *playedLine) { p.freeze() }, health.HostHangs, "hangs"},
		{"its share hangs", func(p *playedLine) { p.sick.Store(true) }, health.HostHangs, "hangs"},
		{"it leaves, and has not said why", func(p *playedLine) { p.worker.SayGoodbye() },
			health.HostHangs, "could not record this in the run directory"},
	} {
		rowInBubble(t, tc.name, func(t *testing.T) {
			j := newJob(t, 3, "sleep 100")
			j.start(1)
			p := j.playWorker(1)
			line := j.playLine(p, 1)
			j.untilNamed(signal.ControlDir, signal.NameGateOpen)
			p.silence()
			tc.end(line)
			j.expect(76, -1, 76)
			cause := j.blames(0, tc.kind, 76)
			if !strings.Contains(cause.Message, tc.what) {
				t.Errorf("the head says %q", cause.Message)
			}
			// Otherwise a process that died because of the loss, before the loss was recorded, would seem
			// to be the cause.
			if cause.RecordDelay <= 0 || tc.what == "has died" && cause.RecordDelay < peerlink.ReconnectTimeout {
				t.Errorf("it is told to have happened %s before it was told of", cause.RecordDelay)
			}
			if said := j.said(); strings.Contains(said, "not all nodes have reported") {
				t.Errorf("the end has waited for who is lost:\n%s", said)
			}
			if !slices.Equal(cause.LostNodes, []int{1}) || !slices.Equal(j.result().BadNodes, []string{"n1"}) {
				t.Errorf("the head takes %v for lost, and %v for bad", cause.LostNodes, j.result().BadNodes)
			}
		})
	}
}

// TestSeveralWorkersDieAtOnce verifies that all daemons that die at once are recorded and avoided
// later, and that the end of the run does not wait for any of them.
func TestSeveralWorkersDieAtOnce(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		const size = 5
		dead := []int{1, 2, 3}
		j := newJob(t, size, "exec sleep 300")
		j.start(dead...)
		var lines []*playedLine
		for _, nodeIndex := range dead {
			lines = append(lines, j.playLine(j.playWorker(nodeIndex), nodeIndex))
		}
		j.untilNamed(signal.ControlDir, signal.NameGateOpen)
		var closing sync.WaitGroup
		for _, line := range lines {
			closing.Go(line.close)
		}
		closing.Wait()
		j.expect(76, -1, -1, -1, 76)
		result := j.result()
		lost := slices.Clone(result.Cause.LostNodes)
		for _, failure := range result.Consequences {
			lost = append(lost, failure.LostNodes...)
		}
		slices.Sort(lost)
		nodes := slices.Sorted(slices.Values(result.BadNodes))
		if !slices.Equal(lost, dead) || !slices.Equal(nodes, []string{"n1", "n2", "n3"}) {
			t.Errorf("lost are %v, and bad nodes are %v; %v died", lost, nodes, dead)
		}
		if said := j.said(); strings.Contains(said, "not all nodes have reported") {
			t.Errorf("the end has waited for the dead:\n%s", said)
		}
	})
}

// TestDriverFailsOfALoss verifies that the loss of a node is the cause even if the driver, which
// fails because of it, notices it before the head.
func TestDriverFailsOfALoss(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name string
		lose func(*playedLine)
		kind health.Kind
	}{
		{"as its kernel closes the lifeline", func(p *playedLine) { p.close() }, health.DaemonDied},
		{"as its daemon does not answer, and its kernel does", func(p *playedLine) { p.freeze() }, health.HostHangs},
	} {
		rowInBubble(t, tc.name, func(t *testing.T) {
			mark := filepath.Join(t.TempDir(), "fail")
			j := newJob(t, 3, "until [ -e "+mark+" ]; do sleep 0.005; done; exit 1")
			j.start(1)
			p := j.playWorker(1)
			line := j.playLine(p, 1)
			j.untilNamed(signal.ControlDir, signal.NameGateOpen)
			p.silence()
			tc.lose(line)
			touch(t, mark)
			j.expect(76, -1, 76)
			j.blames(0, tc.kind, 76)
			if nodes := j.result().BadNodes; !slices.Equal(nodes, []string{"n1"}) {
				t.Errorf("the nodes to stay away from are %v", nodes)
			}
		})
	}
}

// playedLine is the peer link of a worker that the test simulates.
type playedLine struct {
	net    *network
	sick   atomic.Bool
	worker *peerlink.Worker
	close  func()
	// freeze stops the worker's heartbeats and waits until one has been withheld: the last one that it
	// sent could otherwise answer the head's next request.
	freeze func()
}

func (j *job) playLine(p *peer, nodeIndex int) *playedLine {
	j.t.Helper()
	job := readRecordOf[record.Job](j, signal.ControlDir, signal.NameJob)
	l := &playedLine{net: j.network()}
	hang, withheld := make(chan struct{}), make(chan struct{})
	withhold := sync.OnceFunc(func() { close(withheld) })
	cfg := peerlink.Config{Key: p.dir.DeriveSecret(peerlink.SecretName), Nodes: j.size,
		HeartbeatInterval: health.HeadHeartbeatTiming(j.configs[0].Times.Peer, 1).HeartbeatInterval}
	heard := &connected{up: make(chan struct{})}
	ctx, cancel := context.WithCancel(bounded(j.t))
	l.worker = peerlink.NewWorker(cfg, nodeIndex, l.net, job.LinkAddresses, heard, func() bool {
		select {
		case <-hang:
			withhold()
			<-ctx.Done()
		default:
		}
		return l.sick.Load()
	})
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		l.worker.Run(ctx)
	}()
	l.close = func() { cancel(); <-ended }
	l.freeze = func() {
		close(hang)
		if !ctxutil.AwaitDoneFor(withheld, ceiling) {
			j.t.Error("the worker that is to hang gives beats")
		}
	}
	j.t.Cleanup(l.close)
	p.publish(signal.NodeName(nodeIndex, j.size, record.StateServiceUp), &record.Mark{})
	select {
	case <-heard.up:
	case <-bounded(j.t).Done():
		j.t.Fatal("the head does not take the lifeline")
	}
	return l
}

// connected closes a channel at the first connection.
type connected struct {
	once sync.Once
	up   chan struct{}
}

func (c *connected) HeadConnected()                { c.once.Do(func() { close(c.up) }) }
func (c *connected) HeadHeartbeat(bool)            {}
func (c *connected) HeadGone(peerlink.CloseReason) {}
func (c *connected) DuplicateDaemon(string)        {}

// touch creates the file that a driver waits for.
func touch(t *testing.T, path string) {
	t.Helper()
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
}

// TestDeathsOfALoss verifies that the verdict waits while a peer is missed: a service that dies
// meanwhile, or a rank that loses a connection, has probably failed because of the missing peer.
func TestDeathsOfALoss(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name  string
		ranks bool // otherwise a service
		kills bool // otherwise the silence ends
		kind  health.Kind
		code  int
	}{
		{"a service, and it is one", false, true, health.HostHangs, 76},
		{"a service, and it was none", false, false, health.ServiceDied, 77},
		{"a rank, and it is one", true, true, health.HostHangs, 76},
		{"a rank, and it was none", true, false, health.RankFailed, 9},
	} {
		rowInBubble(t, tc.name, func(t *testing.T) {
			mark := t.TempDir() + "/dies"
			j := newJob(t, 3, "sleep 100").all(func(c *deps.Config) {
				c.Times.Peer = 6 * time.Second
				dies := "until [ -e " + mark +
					".$BRINGUPD_NODE_RANK ]; do sleep 0.05; done; echo 'Transport retry count exceeded'; exit 9"
				if tc.ranks {
					c.World.PerNode, c.World.Oversubscribe, c.Driver = "1", true, []string{"sh", "-c", dies}
				} else {
					c.Framework = framework.None{WorkerCommand: dies}
				}
			})
			j.start(1)
			p := j.playWorker(1)
			line := j.playLine(p, 1)
			j.untilNamed(signal.ControlDir, signal.NameGateOpen)
			p.silence()
			line.sick.Store(true) // it sends heartbeats, but reports its file system as unresponsive
			beats := health.HeadHeartbeatTiming(6*time.Second, 1)
			// Wait until the peer is missed, but not yet declared lost.
			ctxutil.SleepContext(bounded(t), 3*beats.HeartbeatInterval)
			touch(t, mark+".2")
			if !tc.kills {
				line.sick.Store(false)
			}
			codes := j.wait()
			if codes[0] != tc.code {
				t.Errorf("the head returned %d, want %d", codes[0], tc.code)
			}
			if cause := j.result().Cause; cause == nil || cause.Kind != tc.kind {
				t.Errorf("the cause is %+v, want %s", cause, tc.kind)
			}
		})
	}
}

// nobody ignores all events of a head's peer links.
type nobody struct{}

func (nobody) WorkerConnected(int)                  {}
func (nobody) WorkerHeartbeat(int, bool)            {}
func (nobody) WorkerNotified(int)                   {}
func (nobody) WorkerExit(int)                       {}
func (nobody) WorkerGone(int, peerlink.CloseReason) {}
