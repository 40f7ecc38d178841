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
	"testing/synctest"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/bringupd/bringupd/internal/ctxutil"
	"github.com/bringupd/bringupd/pkg/config"
	"github.com/bringupd/bringupd/pkg/daemon/deps"
	"github.com/bringupd/bringupd/pkg/framework"
	"github.com/bringupd/bringupd/pkg/health"
	"github.com/bringupd/bringupd/pkg/peerlink"
	"github.com/bringupd/bringupd/pkg/signal"
	"github.com/bringupd/bringupd/pkg/signal/record"
	"github.com/bringupd/bringupd/test/memory"
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

// count returns the number of connections that were opened since the last cut.
func (n *network) count() int {
	n.mu.Lock()
	defer n.mu.Unlock()
	return len(n.conns)
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
		t.Run(string(tc.mode), func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
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
		})
	}
}

// TestNoLifelineIsToldOnce verifies that this is logged once, however long it lasts.
func TestNoLifelineIsToldOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		core, said := observer.New(zap.WarnLevel)
		w := &worker{node: bare(t, deps.Config{Config: config.Config{Times: config.DefaultTimeouts()}}, nil)}
		w.Log, w.Links = zap.New(core), health.NewLinks(health.LinksConfig{Interval: time.Second}, time.Now())
		w.link = new(headLink)
		ctx, cancel := context.WithTimeout(t.Context(), 5*w.cfg.Times.Peer)
		defer cancel()
		w.watchHeadLink(ctx)
		if said.Len() != 1 {
			t.Errorf("it is said %d times", said.Len())
		}
	})
}

// TestWhoMissesTheHeadGoesOnLooking verifies that a node without a peer link, one of many, polls
// often as soon as it misses heartbeats of the head, even right after it has slowed its polling.
func TestWhoMissesTheHeadGoesOnLooking(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const size = 1024
		access := signal.Access{NoHints: true}
		place := signal.Location{LogDir: t.TempDir(), Run: "17.0", Key: "facts", NodeIndex: 1, Size: size, Host: "n1", Access: access}
		dir, err := signal.CreateRun(t.Context(), place, record.Job{})
		if err != nil {
			t.Fatal(err)
		}
		w := &worker{node: bare(t, deps.Config{Config: config.Config{Identity: testIdentity(1, size), Times: config.DefaultTimeouts()}}, dir)}
		w.ControlWatch = dir.NewWatch(signal.ControlDir, signal.WorkerPace(size))
		w.Links = health.NewLinks(health.LinksConfig{Interval: w.cfg.Times.LinkHeartbeatInterval()}, time.Now())
		w.link = new(headLink)
		w.Background(w.ControlWatch.Run)
		w.Background(w.watchHeadLink)
		w.slowPolling()
		w.ControlWatch.SpeedUp()
		w.ControlWatch.NotifyChange()
		ctxutil.SleepContext(t.Context(), 2*time.Second)
		if err := dir.WriteMark(t.Context(), signal.ControlDir, signal.NameGateOpen); err != nil {
			t.Fatal(err)
		}
		began := time.Now()
		_, err = w.ControlWatch.FollowListings(bounded(t), func(l signal.Listing) bool { return l.HasName(signal.NameGateOpen) })
		if took := time.Since(began); err != nil || took > 2*time.Second {
			t.Errorf("it was seen after %s: %v", took, err)
		}
		w.Close()
	})
}

// TestALifelineBreaks verifies that a broken connection is established again and that no node is
// declared lost.
func TestALifelineBreaks(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		mark := t.TempDir() + "/over"
		j := newJob(t, 3, "until [ -e "+mark+" ]; do sleep 0.05; done")
		net := j.network()
		j.all(func(c *deps.Config) { c.Network = net })
		j.start()
		j.untilNamed(signal.ControlDir, signal.NameGateOpen)
		for broken := 0; broken < 6; {
			j.until("connections", func() bool {
				cut := net.cut()
				broken += cut
				return cut > 0
			})
		}
		touch(t, mark)
		j.expect(0, 0, 0)
	})
}

// TestAFirewallBeginsToReject verifies that no node is declared lost if a firewall resets the
// existing connections and refuses new ones. The host of a dead head behaves in the same way, but
// here the heartbeat files show that all daemons live.
func TestAFirewallBeginsToReject(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		mark := t.TempDir() + "/over"
		j := newJob(t, 3, "until [ -e "+mark+" ]; do sleep 0.05; done")
		net := j.network()
		j.all(func(c *deps.Config) {
			c.Network = net
		})
		j.start()
		j.until("two connections", func() bool { return net.count() == 2 })
		j.untilNamed(signal.ControlDir, signal.NameGateOpen)
		net.refuses.Store(true)
		net.cut()
		// The peer timeout is eight heartbeat intervals, and five missed heartbeats end the run.
		for _, beat := range []struct{ sub, name string }{
			{signal.ControlDir, "0000.beat.000010"}, {signal.NodesDir, "0001.beat.000010"}, {signal.NodesDir, "0002.beat.000010"},
		} {
			j.until(beat.name, func() bool {
				return slices.ContainsFunc(j.names(beat.sub), func(name string) bool {
					return len(name) == len(beat.name) && name[:10] == beat.name[:10] && name >= beat.name
				})
			})
		}
		touch(t, mark)
		j.expect(0, 0, 0)
	})
}

// TestTheHeadDiesBeforeTheFirstLifeline lets the head die before a worker has a peer link. If its
// heartbeats have stopped, the way in which its host handles connection attempts shows the kind of
// loss. A head that sends heartbeats is alive, whatever happens to connection attempts.
func TestTheHeadDiesBeforeTheFirstLifeline(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name    string
		takes   bool // accepts one connection and closes it
		refuses bool // refuses later connections; otherwise they get no answer
		lives   bool // for a while, behind a firewall
		dies    bool
		kind    health.Kind
		says    string
	}{
		{"a call was taken", true, true, false, true, health.DaemonDied, "its host accepted a connection"},
		{"none was", false, true, false, true, health.DaemonDied, "nothing listens at its port any more"},
		{"its host is lost", true, false, false, true, health.PeerLost, "has seen no heartbeat of it"},
		{"a firewall begins to reject", true, true, true, false, "", ""},
		{"a firewall rejects", false, true, true, false, "", ""},
		{"it dies after that", true, true, true, true, health.DaemonDied, "nothing listens at its port any more"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				net := &early{takes: tc.takes, refuses: make(chan struct{}), refused: make(chan struct{})}
				j := newJob(t, 2, "").all(func(c *deps.Config) {
					c.Network = net
					c.Times.Peer = 10 * time.Second
				})
				head := j.playHead("the head's port")
				j.start(0)
				j.untilNamed(signal.NodesDir, signal.NodeName(1, 2, record.StateJoined))
				if !tc.lives {
					head.silence()
				}
				if tc.refuses {
					close(net.refuses)
				}
				if tc.lives {
					net.await(t)
					ctxutil.SleepContext(bounded(t), j.configs[0].Times.Peer/2)
				}
				if !tc.dies {
					head.publish(signal.NameOrderlyEnd, &record.OrderlyEnd{})
					j.expect(-1, 0)
					return
				}
				head.silence()
				j.expect(-1, 76)
				abort := readRecordOf[record.Abort](j, signal.ControlDir, signal.AbortName(1, 2))
				if abort.Cause.Kind != tc.kind || !strings.Contains(abort.Cause.Message, tc.says) || !slices.Equal(abort.Cause.LostNodes, []int{0}) {
					t.Errorf("it says %+v", abort)
				}
			})
		})
	}
}

// TestTheHeadsLifelineIsReset verifies that a reset peer link counts as the head's death if its
// heartbeats have stopped. A kernel resets the connection if the head dies before it has read all
// data, but so may a firewall.
func TestTheHeadsLifelineIsReset(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		j := newJob(t, 2, "")
		net := j.network()
		j.all(func(c *deps.Config) { c.Network = net })
		listener, port := j.listen()
		head := j.playHead("127.0.0.1:" + port)
		cfg := peerlink.Config{Key: head.dir.DeriveSecret(peerlink.SecretName), Nodes: 2, HeartbeatInterval: j.configs[0].Times.LinkHeartbeatInterval()}
		peers := make(tiedPeers, 1)
		ctx, cancel := context.WithCancel(bounded(t))
		var serving sync.WaitGroup
		serving.Go(func() { peerlink.NewHead(cfg, listener, peers).Run(ctx) })
		t.Cleanup(serving.Wait)
		t.Cleanup(cancel)
		j.start(0)
		select {
		case <-peers:
		case <-ctx.Done():
			t.Fatal("the worker holds no lifeline")
		}
		net.refuses.Store(true)
		head.silence()
		net.cut()
		j.expect(-1, 76)
		abort := readRecordOf[record.Abort](j, signal.ControlDir, signal.AbortName(1, 2))
		if abort.Cause.Kind != health.DaemonDied || !strings.Contains(abort.Cause.Message, "has reset the peer link") || !slices.Equal(abort.Cause.LostNodes, []int{0}) {
			t.Errorf("it says %+v", abort)
		}
	})
}

// tiedPeers is notified when a worker's peer link is established, by its first heartbeat.
type tiedPeers chan struct{}

func (tiedPeers) WorkerConnected(int)                  {}
func (p tiedPeers) WorkerHeartbeat(int, bool)          { ctxutil.NotifyChannel(p) }
func (tiedPeers) WorkerNotified(int)                   {}
func (tiedPeers) WorkerExit(int)                       {}
func (tiedPeers) WorkerGone(int, peerlink.CloseReason) {}

// early is a network on which a worker never gets a lasting connection.
type early struct {
	takes   bool
	refuses chan struct{} // closed when connections are to be refused

	mu      sync.Mutex
	calls   int           // guarded by mu
	refused chan struct{} // closed when a connection was refused
}

// await waits until a connection was refused.
func (e *early) await(t *testing.T) {
	t.Helper()
	select {
	case <-e.refused:
	case <-bounded(t).Done():
		t.Fatal("the worker does not call the head")
	}
}

func (*early) Listen() (net.Listener, error) { return nil, syscall.ENOTSUP }

func (e *early) Dial(ctx context.Context, _ string) (net.Conn, error) {
	e.mu.Lock()
	e.calls++
	first := e.calls == 1
	e.mu.Unlock()
	if first && e.takes {
		ours, theirs := net.Pipe()
		_ = theirs.Close()
		return ours, nil
	}
	select {
	case <-e.refuses:
	case <-ctx.Done():
		return nil, ctx.Err()
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	select {
	case <-e.refused:
	default:
		close(e.refused)
	}
	return nil, &net.OpError{Op: "dial", Err: syscall.ECONNREFUSED}
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
		{"it leaves, and has not said why", func(p *playedLine) { p.worker.SayGoodbye() }, health.HostHangs, "could not record this in the run directory"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
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
		t.Run(tc.name, func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
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
	cfg := peerlink.Config{Key: p.dir.DeriveSecret(peerlink.SecretName), Nodes: j.size, HeartbeatInterval: health.HeadHeartbeatTiming(j.configs[0].Times.Peer, 1).HeartbeatInterval}
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

// TestASecondDaemonOfARank verifies that a second daemon of a node is refused, and that the job
// does not notice it.
func TestASecondDaemonOfARank(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		mark := t.TempDir() + "/over"
		j := newJob(t, 2, "until [ -e "+mark+" ]; do sleep 0.05; done")
		first := j.configs[1]
		j.start()
		j.until("the peer link of the first", func() bool {
			return strings.Contains(j.daemonEvents(1), `"up":true`)
		})
		second := newJob(t, 2, "")
		second.share, second.logDir = j.share, j.logDir
		first.Signals, first.TempDir, first.Streams = second.signals[1], second.tempDir, second.configs[1].Streams
		second.configs[1] = first
		second.start(0)
		second.expect(-1, 65)
		touch(t, mark)
		j.expect(0, 0)
	})
}

// touch creates the file that a driver waits for.
func touch(t *testing.T, path string) {
	t.Helper()
	if err := os.WriteFile(path, nil, 0o600); err != nil {
		t.Fatal(err)
	}
}

// TestStrangersAtTheLifelinesPort verifies that connections of other programs to the peer links'
// port are refused and counted, and do not disturb the job.
func TestStrangersAtTheLifelinesPort(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		mark := t.TempDir() + "/over"
		j := newJob(t, 3, "until [ -e "+mark+" ]; do sleep 0.05; done")
		j.start()
		j.untilNamed(signal.ControlDir, signal.NameGateOpen)
		port := readRecordOf[record.Job](j, signal.ControlDir, signal.NameJob).LinkAddresses[0]
		const each = 20
		stranger := j.net.Host("stranger")
		answers := make([]byte, 64)
		for i := range 3 * each {
			conn, err := stranger.Dial(t.Context(), port)
			if err != nil {
				t.Fatal(err)
			}
			switch i % 3 {
			case 0: // sends nothing
				t.Cleanup(func() { _ = conn.Close() })
			case 1:
				_, _ = conn.Write([]byte(strings.Repeat("GET / HTTP/1.1\r\n", 128)))
				_ = conn.SetReadDeadline(time.Now().Add(ceiling))
				for err == nil {
					_, err = conn.Read(answers)
				}
				_ = conn.Close()
			default:
				_ = conn.Close()
			}
		}
		j.until("the last of them turned away", func() bool {
			conn, err := stranger.Dial(t.Context(), port)
			if err != nil {
				return false
			}
			defer func() { _ = conn.Close() }()
			_, err = conn.Read(answers)
			return err == nil
		})
		touch(t, mark)
		j.expect(0, 0, 0)
		report := j.result().Links
		if report == nil || report.Rejected["garbage"]+report.Rejected["late"]+report.Rejected["wrong_key"] < 2*each {
			t.Errorf("of %d strangers, the result tells %+v", 3*each, report)
		}
	})
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
		t.Run(tc.name, func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				mark := t.TempDir() + "/dies"
				j := newJob(t, 3, "sleep 100").all(func(c *deps.Config) {
					c.Times.Peer = 6 * time.Second
					dies := "until [ -e " + mark + ".$BRINGUPD_NODE_RANK ]; do sleep 0.05; done; echo 'Transport retry count exceeded'; exit 9"
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
		})
	}
}

// TestCalm verifies that heartbeat files are rare while the peer links are healthy, and no longer
// rare when one has ended. The end is reported later: until then a verdict waits.
func TestCalm(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		// With this interval, no callback reports an end during the test.
		cfg := peerlink.Config{Key: make([]byte, peerlink.KeySize), Nodes: 2, HeartbeatInterval: ceiling}
		net := new(memory.Net)
		listener, err := net.Host("n0").Listen()
		if err != nil {
			t.Fatal(err)
		}
		wire, told := &network{Network: net.Host("n1")}, &connected{up: make(chan struct{})}
		ends := peerlink.NewHead(cfg, listener, nobody{})
		worker, links := new(headLink), health.LinksConfig{Interval: cfg.HeartbeatInterval, Required: 1}
		toHead, toWorker := health.NewLinks(links, time.Now()), health.NewLinks(links, time.Now())
		worker.worker = peerlink.NewWorker(cfg, 1, wire, []string{listener.Addr().String()}, told, func() bool { return false })
		ctx, end := context.WithCancel(bounded(t))
		var both sync.WaitGroup
		both.Go(func() { ends.Run(ctx) })
		both.Go(func() { worker.worker.Run(ctx) })
		defer both.Wait()
		defer end()
		toWorker.TCPState = ends.WorkerTCPState
		toHead.TCPState = func(int) peerlink.TCPState { return worker.worker.TCPState() }
		toWorker.SetConnected(1, time.Now())
		toHead.SetConnected(0, time.Now())
		for _, want := range []bool{true, false} {
			if !want {
				wire.refuses.Store(true)
				wire.cut()
			}
			for {
				atHead, atWorker := toWorker.AreHealthy(time.Now()), toHead.AreHealthy(time.Now())
				doubted := toWorker.IsUncertain(1, ceiling, time.Now(), time.Time{})
				if atHead == want && atWorker == want && doubted != want {
					break
				}
				if !ctxutil.SleepContext(ctx, time.Millisecond) {
					t.Fatalf("calm is %v at the head and %v at the worker, not %v; the worker is doubted: %v", atHead, atWorker, want, doubted)
				}
			}
		}
	})
}

// TestBereft verifies that a worker no longer waits for the head if the head's host has closed the
// peer link or the head has said goodbye; a link that broke may come back.
func TestBereft(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name     string
		story    func(*health.Links) // nil: there is no peer link
		forsaken bool
		want     bool
	}{
		{"no lifeline", nil, false, false},
		{"no peer link, and nobody makes an end", nil, true, true},
		{"never connected", func(*health.Links) {}, false, false},
		{"connected", func(s *health.Links) { s.SetConnected(0, time.Now()) }, false, false},
		{"connected, and nobody makes an end", func(s *health.Links) { s.SetConnected(0, time.Now()) }, true, true},
		{"broken", func(s *health.Links) { s.SetConnected(0, time.Now()); s.SetDisconnected(0, peerlink.Broken) }, false, false},
		{"closed", func(s *health.Links) { s.SetConnected(0, time.Now()); s.SetDisconnected(0, peerlink.Closed) }, false, true},
		{"refused", func(s *health.Links) { s.SetConnected(0, time.Now()); s.SetDisconnected(0, peerlink.Refused) }, false, true},
		{"left", func(s *health.Links) { s.SetConnected(0, time.Now()); s.SetDisconnected(0, peerlink.Goodbye) }, false, true},
		{"closed, and back", func(s *health.Links) {
			s.SetConnected(0, time.Now())
			s.SetDisconnected(0, peerlink.Closed)
			s.SetConnected(0, time.Now())
		}, false, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			w := &worker{node: new(node)}
			w.headGone.Store(tc.forsaken)
			if tc.story != nil {
				w.Links = health.NewLinks(health.LinksConfig{Interval: time.Second}, time.Now())
				tc.story(w.Links)
			}
			if got := w.isHeadUnreachable(); got != tc.want {
				t.Errorf("it is %t, want %t", got, tc.want)
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
