package daemon

import (
	"context"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/bringupd/bringupd/pkg/config"
	"github.com/bringupd/bringupd/pkg/daemon/deps"
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
	return signal.Location{LogDir: j.logDir, Run: id.RunName(), Key: id.LaunchKey,
		NodeIndex: nodeIndex, Size: j.size, Host: "n" + strconv.Itoa(nodeIndex), Access: j.through(signal.Access{})}
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
	p.pulse()
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
	p.pulse()
	return p
}

func (p *peer) publish(name string, rec record.Record) {
	p.t.Helper()
	if err := p.dir.PublishRecord(bounded(p.t), p.sub, name, rec, false); err != nil {
		p.t.Fatal(err)
	}
}

func (p *peer) pulse() {
	ctx, cancel := context.WithCancel(bounded(p.t))
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for ctx.Err() == nil {
			if err := p.dir.WriteHeartbeat(ctx, p.sub); err != nil && ctx.Err() == nil {
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

// TestPeersFallSilentAtTheEnd verifies that the end of a job without peer links, which has lost a node,
// does not wait for another one that is silent, unless no third node has ended: then the head's own
// mount may be the reason.
func TestPeersFallSilentAtTheEnd(t *testing.T) {
	for _, tc := range []struct {
		name      string
		othersEnd bool
	}{{"and another has ended", true}, {"and no other has ended", false}} {
		rowInBubble(t, tc.name, func(t *testing.T) {
			j := newJob(t, 4, "exec sleep 300").all(func(c *deps.Config) {
				c.Times.Peer, c.Lifeline = 4*time.Second, config.LinkOff
			})
			codes := []int{76, 76, -1, -1}
			played := []int{2, 3}
			if !tc.othersEnd {
				codes[1], played = -1, []int{1, 2, 3}
			}
			j.start(played...)
			var peers []*peer
			for _, node := range played {
				peers = append(peers, j.playWorker(node))
			}
			j.untilNamed(signal.ControlDir, signal.NameGateOpen)
			began, timing := time.Now(), health.HeadHeartbeatTiming(4*time.Second, 4)
			peers[len(peers)-1].silence()
			time.Sleep(time.Second) // so that its loss ends the run before that of others is known
			for _, p := range peers[:len(peers)-1] {
				p.silence()
			}
			j.expect(codes...)
			known := time.Second + timing.SilenceTimeout + 2*timing.MaxPollInterval // the second silence
			if took := time.Since(began); (took < known) != tc.othersEnd {
				t.Errorf("the end took %s, and the second silence is known after %s\n%s", took, known, j.said())
			}
		})
	}
}

// playLines is like playHead, with peer links; die closes them without a goodbye message.
func (j *job) playLines() (head *peer, lines *playedLines, die func()) {
	j.t.Helper()
	listener, port := j.listen()
	head = j.playHead("127.0.0.1:" + port)
	cfg := peerlink.Config{Key: head.dir.DeriveSecret(peerlink.SecretName), Nodes: len(j.configs),
		HeartbeatInterval: health.HeadHeartbeatTiming(j.configs[1].Times.Peer, 1).HeartbeatInterval}
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
			rowInBubble(t, "by the head", func(t *testing.T) {
				j := newJob(t, size, "exit 0")
				head := j.playHead()
				j.start(0)
				j.untilNamed(signal.NodesDir, signal.NodeName(1, size, record.StateJoined))
				plant(j, 0)
				head.publish(signal.NameHeadFinished, &record.Mark{})
				j.expect(-1, 76)
			})
			rowInBubble(t, "by a worker", func(t *testing.T) {
				j := newJob(t, size, "exec sleep 300").start(1)
				j.playWorker(1)
				j.untilNamed(signal.ControlDir, signal.NameGateOpen)
				plant(j, 1)
				j.expect(76, -1)
			})
		})
	}
}

// TestDrainEndsServices runs services that need time to end: the head leaves after the workers'
// services have ended.
func TestDrainEndsServices(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		marks := t.TempDir()
		j := newJob(t, 3, "exit 0").all(func(c *deps.Config) {
			c.Times.StopGrace = 10 * time.Second
			slow := ending(t, marks)
			slow.WorkerCommand = strings.Replace(slow.WorkerCommand, "'touch", "'sleep 0.5; touch", 1)
			c.Framework = slow
		})
		j.start().expect(everyone(0, 3)...)
		for _, rank := range []string{"1", "2"} {
			if _, err := os.Stat(filepath.Join(marks, "ended."+rank)); err != nil {
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
		j.share.WriteFile(filepath.Join(control, signal.NameJob),
			[]byte(`{"v":999,"nonce":"n","key":"facts","size":2}`+"\n"))
		began := time.Now()
		if code := j.start(0).wait()[1]; code <= 0 || time.Since(began) > j.configs[1].Times.Join/2 {
			t.Errorf("it ended with %d after %s", code, time.Since(began))
		}
	})
}
