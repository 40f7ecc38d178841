package daemon

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bringupd/bringupd/pkg/config"
	"github.com/bringupd/bringupd/pkg/daemon/deps"
	"github.com/bringupd/bringupd/pkg/daemon/lifecycle"
	"github.com/bringupd/bringupd/pkg/framework"
	"github.com/bringupd/bringupd/pkg/health"
	"github.com/bringupd/bringupd/pkg/peerlink"
	"github.com/bringupd/bringupd/pkg/signal"
	"github.com/bringupd/bringupd/pkg/signal/record"
)

// peer is a peer simulated by the test: it writes what a daemon would write, and can fall silent
// like a daemon whose node hangs.
type peer struct {
	t   *testing.T
	dir *signal.Dir
	sub string
	// silence stops its heartbeats and waits until they have stopped.
	silence func()
}

func bounded(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeoutCause(context.Background(), ceiling, errCeiling)
	t.Cleanup(cancel)
	return ctx
}

func (j *job) placeOf(nodeIndex int) signal.Location {
	id := j.configs[0].Identity
	return signal.Location{LogDir: j.logDir, Run: id.RunName(), Key: id.LaunchKey, NodeIndex: nodeIndex, Size: j.size, Host: "n" + strconv.Itoa(nodeIndex), Access: j.through(signal.Access{})}
}

// playWorker joins as a node and sends heartbeats.
func (j *job) playWorker(nodeIndex int) *peer {
	j.t.Helper()
	dir, job, err := signal.NewFinder(j.placeOf(nodeIndex)).AwaitRun(bounded(j.t))
	if err != nil {
		j.t.Fatal(err)
	}
	p := &peer{t: j.t, dir: dir, sub: signal.NodesDir}
	p.publish(signal.NodeName(nodeIndex, j.size, record.StateJoined), &record.Joined{JobNonce: job.Nonce})
	p.pulse(record.StateHeartbeat)
	return p
}

// playHead creates the run directory and sends heartbeats. It offers peer links at the given
// addresses.
func (j *job) playHead(lifeline ...string) *peer {
	j.t.Helper()
	dir, err := signal.CreateRun(bounded(j.t), j.placeOf(0), record.Job{
		ConfigDigest: j.configs[0].Digest(), Steps: j.configs[0].Identity.Steps, LinkAddresses: lifeline,
	})
	if err != nil {
		j.t.Fatal(err)
	}
	p := &peer{t: j.t, dir: dir, sub: signal.ControlDir}
	p.pulse(record.StateHeartbeat)
	return p
}

func (p *peer) publish(name string, rec record.Record) {
	p.t.Helper()
	if err := p.dir.PublishRecord(bounded(p.t), p.sub, name, rec, false); err != nil {
		p.t.Fatal(err)
	}
}

func (p *peer) pulse(state record.State) {
	ctx, cancel := context.WithCancel(bounded(p.t))
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for ctx.Err() == nil {
			if err := p.dir.WriteHeartbeat(ctx, p.sub, state); err != nil && ctx.Err() == nil {
				p.t.Error(err)
			}
			select {
			case <-ctx.Done():
			case <-time.After(100 * time.Millisecond):
			}
		}
	}()
	p.silence = func() {
		cancel()
		<-ended
	}
	p.t.Cleanup(p.silence)
}

func TestSilentWorker(t *testing.T) {
	t.Parallel()
	const size = 3
	for _, tc := range []struct {
		name    string
		silent  []int
		started []int // the real workers
	}{
		{"one of two", []int{2}, []int{1}},
		{"all of them", []int{1, 2}, nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			inBubble(t, func(t *testing.T) {
				j := newJob(t, size, "exec sleep 300").start(tc.silent...)
				var played []*peer
				for _, nodeIndex := range tc.silent {
					played = append(played, j.playWorker(nodeIndex))
				}
				j.untilNamed(signal.ControlDir, signal.NameGateOpen)
				// This is longer than a peer may be silent: heartbeats alone keep a peer alive.
				time.Sleep(j.configs[0].Times.Peer)
				if j.has(signal.ControlDir, signal.AbortName(0, size)) {
					t.Fatal("the run was aborted though all peers beat")
				}
				began := time.Now()
				for _, p := range played {
					p.silence()
				}
				j.untilNamed(signal.ControlDir, signal.AbortName(0, size))
				if took := time.Since(began); took > j.configs[0].Times.Peer+time.Second {
					t.Errorf("it took %s to tell of the loss", took)
				}
				want := everyone(76, size)
				for _, nodeIndex := range tc.silent {
					want[nodeIndex] = -1
				}
				j.expect(want...)
				cause := j.blames(0, health.PeerLost, 76)
				// If several fall silent, the first losses are enough to end the run.
				if len(cause.LostNodes) == 0 || slices.ContainsFunc(cause.LostNodes, func(nodeIndex int) bool { return !slices.Contains(tc.silent, nodeIndex) }) {
					t.Errorf("lost are %v, of %v that are silent", cause.LostNodes, tc.silent)
				}
				for i, host := range j.result().BadNodes {
					if want := "n" + strconv.Itoa(cause.LostNodes[i]); host != want {
						t.Errorf("a node to stay away from is %s, not %s", host, want)
					}
				}
			})
		})
	}
}

// TestPeersAreSilentAndNothingCanBeWritten lets the peers fall silent while the head's own
// heartbeats are refused: it cannot determine which peers live, and blames the shared file system,
// whichever heartbeat was the first to stop.
func TestPeersAreSilentAndNothingCanBeWritten(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		const size = 3
		var refuses atomic.Bool
		j := newJob(t, size, "exec sleep 300").all(func(c *deps.Config) { c.Times.Peer = 4 * time.Second })
		j.configs[0].Access = asking(func(_ signal.Op, path string) error {
			if refuses.Load() && strings.Contains(filepath.Base(path), string(record.StateHeartbeat)) {
				return syscall.EROFS
			}
			return nil
		})
		j.start(1, 2)
		first, second := j.playWorker(1), j.playWorker(2)
		j.untilNamed(signal.ControlDir, signal.NameGateOpen)
		first.silence()
		time.Sleep(time.Second) // otherwise the head's own heartbeats would be overdue before theirs
		second.silence()
		refuses.Store(true)
		j.expect(66, -1, -1)
		if said := j.said(); strings.Contains(said, "lost") {
			t.Errorf("a peer is blamed:\n%s", said)
		}
	})
}

// TestWorkerLosesTheHead lets a worker declare a healthy head lost: the head accepts this, and all
// daemons end alike.
func TestWorkerLosesTheHead(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		const size = 3
		j := newJob(t, size, "exec sleep 300").start(2)
		p := j.playWorker(2)
		j.untilNamed(signal.ControlDir, signal.NameGateOpen)
		p = &peer{t: t, dir: p.dir, sub: signal.ControlDir}
		cause := health.NewFailure(health.PeerLost, "the head is lost").Failure
		cause.NodeIndex, cause.LostNodes = 2, []int{0}
		p.publish(signal.AbortName(2, size), &record.Abort{Code: 76, Outcome: "peer-lost", Cause: cause})
		j.expect(76, 76, -1)
		j.blames(2, health.PeerLost, 76)
	})
}

// TestAHeadThatIsLostIsNotWaitedFor lets a peer be ended by a signal and the head fall silent: the
// worker does not stay for the grace period of the head's driver, however long it is.
func TestAHeadThatIsLostIsNotWaitedFor(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		const size = 3
		j := newJob(t, size, "exit 0").all(func(c *deps.Config) {
			c.Times.Peer, c.Times.DriverGrace = 1500*time.Millisecond, 2*ceiling
		})
		head := j.playHead()
		head.silence()
		p := &peer{t: t, dir: head.dir.ForNode(2), sub: signal.ControlDir}
		cause := health.NewFailure(health.Terminated, "it was told to end").Failure
		cause.NodeIndex = 2
		p.publish(signal.AbortName(2, size), &record.Abort{Code: 143, Outcome: string(health.Terminated), Cause: cause})
		j.start(0, 2)
		j.expect(-1, 143, -1)
	})
}

// TestTwoLoseTheHead lets a peer abort the run because the head is lost while this node's peer link
// is broken: the node does not wait for heartbeats of the head, which may be old.
func TestTwoLoseTheHead(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		const size = 3
		j := newJob(t, size, "exit 0")
		wire := j.network()
		j.all(func(c *deps.Config) {
			c.Network = wire
			c.Times.Peer = 6 * time.Second
		})
		head, lines, _ := j.playLines()
		j.start(0, 2)
		j.until("a lifeline", func() bool { return lines.heard() == 1 })
		wire.refuses.Store(true)
		wire.cut()
		cause := health.NewFailure(health.DaemonDied, "the daemon of the head has died").Failure
		cause.NodeIndex, cause.LostNodes = 2, []int{0}
		p := &peer{t: t, dir: head.dir.ForNode(2), sub: signal.ControlDir}
		p.publish(signal.AbortName(2, size), &record.Abort{Code: 76, Outcome: string(health.DaemonDied), Cause: cause})
		j.expect(-1, 76, -1)
	})
}

// TestTug verifies that names that workers do not wait for cause no notification, because each
// notification costs every worker a poll.
func TestTug(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		rank      int
		sub, name string
		tugs      bool
	}{
		{0, signal.ControlDir, signal.NameGateOpen, true},
		{0, signal.ControlDir, signal.NameHeadFinished, false},
		{0, signal.ControlDir, signal.NameOrderlyEnd, false},
		{0, signal.NodesDir, signal.NodeName(0, 2, record.StateDone), false},
		{1, signal.NodesDir, signal.NodeName(1, 2, record.StateDone), true},
		{1, signal.ControlDir, signal.AbortName(1, 2), true},
	} {
		tugs := false
		r := &lifecycle.Publisher{Notify: func() { tugs = true }}
		r.NodeIndex.Store(int64(tc.rank))
		r.NotifyPeers(tc.sub, tc.name)
		if tugs != tc.tugs {
			t.Errorf("node %d publishes %s/%s: the other side is nudged: %t, want %t", tc.rank, tc.sub, tc.name, tugs, tc.tugs)
		}
	}
	new(lifecycle.Publisher).NotifyPeers(signal.ControlDir, signal.NameGateOpen) // without a peer link
}

// TestTheHeadWaitsForWhoIsNotDone lets a worker fail that needs time to end its processes: Slurm
// may kill its step when the first daemon exits with a nonzero code.
func TestTheHeadWaitsForWhoIsNotDone(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		const size = 2
		j := newJob(t, size, "exec sleep 300").all(func(c *deps.Config) { c.Times.StopGrace = health.FinalTermTimeout / 2 })
		meter := new(signal.CallMeter)
		j.configs[0].Access.Meter = meter
		j.start(1)
		p := j.playWorker(1)
		j.untilNamed(signal.ControlDir, signal.NameGateOpen)
		cause := health.NewFailure(health.ServiceDied, "the service has died").Failure
		cause.NodeIndex = 1
		p.publish(signal.NodeName(1, size, record.StateFailed), &cause)
		j.untilNamed(signal.NodesDir, signal.NodeName(0, size, record.StateDone))
		looks := func() int64 { return meter.CallStats().ByKind[signal.OpList.String()] }
		before := looks()
		j.until("some more looks of the head", func() bool { return looks() > before+10 || len(j.ended()) > 0 })
		if ended := j.ended(); len(ended) > 0 || j.has(signal.ControlDir, signal.NameHeadFinished) {
			t.Errorf("the head has not waited for node 1: %v has ended, and %v are there", ended, j.names(signal.ControlDir))
		}
		p.publish(signal.NodeName(1, size, record.StateDone), &record.Done{})
		j.untilNamed(signal.ControlDir, signal.NameHeadFinished)
		j.expect(77, -1)
	})
}

// playLines is like playHead, with peer links; die closes them without a goodbye message.
func (j *job) playLines() (head *peer, lines *playedLines, die func()) {
	j.t.Helper()
	listener, port := j.listen()
	head = j.playHead("127.0.0.1:" + port)
	cfg := peerlink.Config{Key: head.dir.DeriveSecret(peerlink.SecretName), Nodes: len(j.configs), HeartbeatInterval: health.HeadHeartbeatTiming(j.configs[1].Times.Peer, 1).HeartbeatInterval}
	lines = new(playedLines)
	lines.Head = peerlink.NewHead(cfg, listener, &lines.ranks)
	ctx, end := context.WithCancel(bounded(j.t))
	var running sync.WaitGroup
	running.Go(func() { lines.Run(ctx) })
	die = func() {
		end()
		running.Wait()
	}
	j.t.Cleanup(die)
	return head, lines, die
}

// playedLines is the head's side of the peer links if the test simulates the head.
type playedLines struct {
	*peerlink.Head
	ranks hearing
}

// heard returns the number of workers that have sent a heartbeat: a worker sends one after it has
// noted that it is connected.
func (l *playedLines) heard() (count int) {
	l.ranks.Range(func(any, any) bool { count++; return true })
	return count
}

// hearing is the set of nodes that have sent a heartbeat.
type hearing struct {
	nobody
	sync.Map
}

func (h *hearing) WorkerHeartbeat(nodeIndex int, _ bool) { h.Store(nodeIndex, true) }

// listen opens a port for the peer links of a head that the test simulates.
func (j *job) listen() (listener net.Listener, port string) {
	j.t.Helper()
	listener, err := j.net.Host("played head").Listen()
	if err != nil {
		j.t.Fatal(err)
	}
	_, port, _ = net.SplitHostPort(listener.Addr().String())
	return listener, port
}

// TestUnreadableAbort ends the run by a record that can never be read: no daemon may wait for it.
func TestUnreadableAbort(t *testing.T) {
	t.Parallel()
	const size = 2
	for _, tc := range []struct{ name, content string }{
		{"cut short", `{"v":2,`},
		{"of another attempt", `{"v":2,"nonce":"another","code":99}` + "\n"},
		{"of another version", `{"v":999,"nonce":"another"}` + "\n"},
		{"no record at all", "abort\n"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			plant := func(j *job, nodeIndex int) {
				path := filepath.Join(j.run(), signal.ControlDir, signal.AbortName(nodeIndex, size))
				j.share.WriteFile(path, []byte(tc.content))
			}
			t.Run("by the head", func(t *testing.T) {
				inBubble(t, func(t *testing.T) {
					j := newJob(t, size, "exit 0")
					head := j.playHead()
					j.start(0)
					j.untilNamed(signal.NodesDir, signal.NodeName(1, size, record.StateJoined))
					plant(j, 0)
					head.publish(signal.NameHeadFinished, &record.Mark{})
					j.expect(-1, 76)
				})
			})
			t.Run("by a worker", func(t *testing.T) {
				inBubble(t, func(t *testing.T) {
					j := newJob(t, size, "exec sleep 300").start(1)
					j.playWorker(1)
					j.untilNamed(signal.ControlDir, signal.NameGateOpen)
					plant(j, 1)
					j.expect(76, -1)
				})
			})
		})
	}
}

// TestNobodyCame runs a job of which one task never started.
func TestNobodyCame(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		const size = 3
		j := newJob(t, size, "exit 0").all(func(c *deps.Config) { c.Times.Join = time.Second })
		j.start(2).expect(66, 66, -1)
		if cause := j.blames(0, health.ShareUnusable, 66); !slices.Equal(cause.LostNodes, []int{2}) {
			t.Errorf("missing are %v, not [2]", cause.LostNodes)
		}
	})
}

func TestNoHead(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		j := newJob(t, 2, "exit 0").all(func(c *deps.Config) { c.Times.Join = time.Second })
		j.start(0).expect(-1, 66)
	})
}

// TestWorkerLostInDrain lets a worker die after the driver's end: the job's code is the driver's.
func TestWorkerLostInDrain(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		const size = 3
		mark := filepath.Join(t.TempDir(), "end")
		j := newJob(t, size, "while ! test -e "+mark+"; do sleep 0.05; done; exit 4").start(2)
		p := j.playWorker(2)
		j.untilNamed(signal.ControlDir, signal.NameGateOpen)
		p.silence()
		if err := os.WriteFile(mark, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		j.expect(4, 0, -1)
		if result := j.result(); result.Outcome != health.DriverOutcomeName || result.Code != 4 {
			t.Errorf("the result is %+v", result)
		}
	})
}

// TestDrainEndsServices runs services that need time to end: the head leaves after the workers'
// services have ended.
func TestDrainEndsServices(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		marks := t.TempDir()
		j := newJob(t, 3, "exit 0").all(func(c *deps.Config) {
			c.Times.StopGrace = 10 * time.Second
			c.Framework = framework.None{WorkerCommand: "trap 'sleep 0.5; touch " + marks + "/saved.$BRINGUPD_NODE_RANK; exit 0' TERM; touch " + marks + "/up.$BRINGUPD_NODE_RANK; while :; do sleep 0.05; done", WorkerReady: counts(t, 3, marks+"/up.*")}
		})
		j.start().expect(everyone(0, 3)...)
		for _, rank := range []string{"1", "2"} {
			if _, err := os.Stat(filepath.Join(marks, "saved."+rank)); err != nil {
				t.Errorf("the worker of rank %s was not let to end: %v", rank, err)
			}
		}
	})
}

// TestNewerHead runs with a head whose records this daemon cannot read.
func TestNewerHead(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		j := newJob(t, 2, "exit 0")
		control := filepath.Join(j.run(), signal.ControlDir)
		j.share.WriteFile(filepath.Join(control, signal.NameJob), []byte(`{"v":999,"nonce":"n","key":"facts","size":2}`+"\n"))
		began := time.Now()
		if code := j.start(0).wait()[1]; code <= 0 || time.Since(began) > j.configs[1].Times.Join/2 {
			t.Errorf("it ended with %d after %s", code, time.Since(began))
		}
	})
}

// TestWorkerStaysForTheEnd runs a head that needs time to end an aborted run: the first task that
// exits with a nonzero code ends the step, so the worker stays.
func TestWorkerStaysForTheEnd(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		const size = 2
		j := newJob(t, size, "exit 0").all(func(c *deps.Config) { c.Times.DriverGrace = 15 * time.Second })
		head := j.playHead()
		j.start(0)
		j.untilNamed(signal.NodesDir, signal.NodeName(1, size, record.StateJoined))
		cause := health.NewFailure(health.SetupFailed, "it failed").Failure
		head.publish(signal.AbortName(0, size), &record.Abort{Code: 77, Outcome: "service", Cause: cause})
		j.untilNamed(signal.NodesDir, signal.NodeName(1, size, record.StateDone))
		time.Sleep(j.configs[1].Times.DriverGrace - time.Second)
		if ended := j.ended(); len(ended) > 0 {
			t.Errorf("the worker has left: %v", ended)
		}
		head.publish(signal.NameHeadFinished, &record.Mark{})
		j.expect(-1, 77)
	})
}

// TestTheEndIsAwaitedOnASilentShare verifies how long a worker stays for the end. If it was asked
// to end, it serves the driver while that saves its work, even if the shared file system is silent
// for as long as a peer may be; if it has failed, it has no reason to stay.
func TestTheEndIsAwaitedOnASilentShare(t *testing.T) {
	t.Parallel()
	times := config.DefaultTimeouts()
	silent := health.WorkerHeartbeatTiming(times.Peer, 2).SilenceTimeout
	for _, tc := range []struct {
		name  string
		kind  health.Kind
		grace time.Duration
		want  time.Duration
	}{
		{"it was told to end", health.Terminated, time.Minute, silent},
		{"and the driver has a short grace", health.Terminated, silent * 3 / 4, silent * 3 / 4},
		{"and no grace", health.Terminated, 0, silent / 2},
		{"it has failed", health.ServiceDied, time.Minute, silent / 2},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				hang := make(chan struct{})
				var hangs bool
				access := asking(func(signal.Op, string) error {
					if hangs {
						<-hang
					}
					return nil
				})
				access.NoHints = true
				dir, err := signal.CreateRun(t.Context(), signal.Location{LogDir: t.TempDir(), Run: "17.0", Key: "facts", NodeIndex: 1, Size: 2, Host: "n1", Access: access}, record.Job{})
				if err != nil {
					t.Fatal(err)
				}
				w := &worker{node: bare(t, deps.Config{Config: config.Config{Identity: testIdentity(1, 2), Times: times}, Set: deps.Set{Access: access}}, dir)}
				w.cfg.Times.DriverGrace = tc.grace
				w.ControlWatch = dir.NewWatch(signal.ControlDir, signal.WorkerPace(2))
				hangs = true
				w.Background(w.ControlWatch.Run)
				began := time.Now()
				if end := w.awaitHeadOutcome(health.NewFailure(tc.kind, "it ends")); end != nil {
					t.Errorf("it ends by %v", end)
				}
				if took := time.Since(began); took < tc.want || took > tc.want+lifecycle.UnresponsiveTimeout {
					t.Errorf("it has waited %s, want %s", took, tc.want)
				}
				close(hang)
				w.Close()
			})
		})
	}
}
