package health

import (
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/bringupd/bringupd/pkg/peerlink"
)

// story is the state of peer links, and the time that passes.
type story struct {
	*Links
	now time.Time
}

// run lets time pass while this daemon runs.
func (s *story) run(d time.Duration) {
	runTo(s.Links, s.now, s.now.Add(d))
	s.now = s.now.Add(d)
}

func TestSigns(t *testing.T) {
	const beat = time.Second
	for _, tc := range []struct {
		name  string
		story func(*story)
		quiet time.Duration // -1: it cannot be observed
		well  bool
	}{
		{"never connected", func(s *story) { s.run(beat) }, -1, false},
		{"just connected", func(s *story) { s.SetConnected(1, s.now) }, 0, true},
		{"a beat late", func(s *story) { s.SetConnected(1, s.now); s.run(beat) }, beat, true},
		{"long silent", func(s *story) { s.SetConnected(1, s.now); s.run(5 * beat) }, 5 * beat, false},
		{"heard again", func(s *story) {
			s.SetConnected(1, s.now)
			s.run(5 * beat)
			s.RecordHeartbeat(1, false, s.now)
			s.run(beat)
		}, beat, true},
		{"its share hangs", func(s *story) {
			s.SetConnected(1, s.now)
			s.run(3 * beat)
			s.RecordHeartbeat(1, true, s.now)
		}, 3 * beat, false},
		{"gone", func(s *story) {
			s.SetConnected(1, s.now)
			s.run(beat)
			s.SetDisconnected(1,
				peerlink.Broken)
		}, -1, false},
		{"back", func(s *story) {
			s.SetConnected(1, s.now)
			s.SetDisconnected(1, peerlink.Broken)
			s.run(3 * beat)
			s.SetConnected(1, s.now)
		}, 0, true},
		{"we did not run", func(s *story) { s.SetConnected(1, s.now); s.now = s.now.Add(9 * beat) }, 0, false},
		{"we run again", func(s *story) {
			s.SetConnected(1,
				s.now)
			s.now = s.now.Add(9 * beat)
			s.run(beat)
		}, beat, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			began := time.Now()
			s := &story{NewLinks(LinksConfig{Interval: beat}, began), began}
			s.Required = 1
			tc.story(s)
			p := s.Peer(1, s.now)
			quiet := s.now.Sub(p.LastCounted)
			if !p.Connected {
				quiet = -1
			}
			if quiet != tc.quiet {
				t.Errorf("it is quiet for %s, want %s", quiet, tc.quiet)
			}
			if got := s.AllOnTime(s.now); got != tc.well {
				t.Errorf("well: %t, want %t", got, tc.well)
			}
			s.Required = 2
			if s.AllOnTime(s.now) {
				t.Error("two are well, and one was ever connected")
			}
		})
	}
}

// TestLinksOfSteps verifies that heartbeat files are needed while a daemon of a further job step, or a
// node, has no link.
func TestLinksOfSteps(t *testing.T) {
	needed := map[int]int64{1: 0, 2: 0}
	now := time.Unix(1000, 0)
	l := NewLinks(LinksConfig{Interval: time.Second, Required: 2, HasSteps: true,
		NeededPeers: func() map[int]int64 { return needed }}, now)
	want := func(what string, want bool) {
		t.Helper()
		if got := l.AllOnTime(now); got != want {
			t.Errorf("%s: got %t, want %t", what, got, want)
		}
	}
	l.SetConnected(1, now)
	l.SetConnected(4, now) // a daemon of a step counts for no node
	want("a node without a link", false)
	l.SetConnected(2, now)
	want("all links", true)
	needed[5] = 0
	want("a daemon of a step without a link", false)
	l.SetConnected(5, now)
	want("all links again", true)
}

func TestSilentPeers(t *testing.T) {
	const beat, timeout = time.Second, 5 * time.Second
	peers := map[int]int64{1: 1, 2: 1}
	for _, tc := range []struct {
		name     string
		last     []time.Duration // since the last heartbeats of nodes 1 and 2
		silent   []int
		longest  time.Duration
		replaced bool // the links replace the file system
	}{
		{"all heard", []time.Duration{0, beat}, nil, 0, true},
		{"one nearly silent", []time.Duration{timeout - 1, 0}, nil, 0, true},
		{"one silent", []time.Duration{timeout, 0}, []int{1}, timeout, true},
		{"one silent for longer", []time.Duration{0, timeout + beat}, []int{2}, timeout + beat, false},
		{"all silent", []time.Duration{timeout, timeout}, nil, 0, true},
		{"all nearly", []time.Duration{timeout, timeout - beat}, nil, 0, true},
		{"one never connected", []time.Duration{timeout}, nil, 0, false},
		{"none", nil, nil, 0, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			now := time.Now()
			l := NewLinks(LinksConfig{Interval: beat}, now)
			l.NeededPeers, l.OutageLimit = func() map[int]int64 { return peers }, timeout+beat
			for i, ago := range tc.last {
				l.SetConnected(i+1, now.Add(-ago))
			}
			if silent, longest := l.SilentPeers(peers, timeout, now); !slices.Equal(silent,
				tc.silent) || longest != tc.longest {
				t.Errorf("%v are silent for %s, want %v for %s", silent, longest, tc.silent, tc.longest)
			}
			if l.CanReplaceShare(now) {
				t.Error("the links replace the file system before the job runs")
			}
			l.SetRunning(true)
			if got := l.CanReplaceShare(now); got != tc.replaced {
				t.Errorf("the links replace the file system: %t, want %t", got, tc.replaced)
			}
		})
	}
}

// TestEndSilent verifies that only peers that are silent and without a link count as ended.
func TestEndSilent(t *testing.T) {
	now := time.Now()
	l := NewLinks(LinksConfig{Interval: time.Second}, now)
	l.SetConnected(1, now)
	l.SetConnected(2, now)
	l.SetDisconnected(2, peerlink.Broken)
	l.SetConnected(3, now)
	l.SetDisconnected(3, peerlink.Broken)
	if ended := l.EndSilent([]int{1, 2, 4}, now); !slices.Equal(ended, []int{2}) {
		t.Errorf("%v have ended, want node 2 alone", ended)
	}
	for node := 1; node <= 4; node++ {
		if got := l.Peer(node, now).HasEnded(false); got != (node == 2) {
			t.Errorf("node %d has ended: %t", node, got)
		}
	}
}

// TestUncertainPeers verifies when it is uncertain that a peer is alive.
func TestUncertainPeers(t *testing.T) {
	const beat, limit = time.Second, 6 * time.Second
	for _, tc := range []struct {
		name  string
		last  time.Duration // since its last heartbeat
		asked time.Duration // since it was asked for one; 0: never
		state peerlink.TCPState
		gone  bool
		want  bool
	}{
		{"on time", beat, 0, peerlink.TCPState{Connected: true}, false, false},
		{"late", 2*beat + 1, 0, peerlink.TCPState{Connected: true}, false, true},
		{"asked, and no answer", beat, beat / 2, peerlink.TCPState{Connected: true}, false, true},
		{"asked, and it answered", beat, 2 * beat, peerlink.TCPState{Connected: true}, false, false},
		{"its kernel has closed the link", 0, 0, peerlink.TCPState{}, false, true},
		{"its link has ended", limit, 0, peerlink.TCPState{}, true, true},
		{"long ago", limit + 1, 0, peerlink.TCPState{}, true, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			now, asked := time.Now(), time.Time{}
			l := NewLinks(LinksConfig{Interval: beat}, now)
			l.TCPState = func(int) peerlink.TCPState { return tc.state }
			if tc.asked > 0 {
				asked = now.Add(-tc.asked)
			}
			if l.IsUncertain(1, limit, now, asked) {
				t.Error("a peer that was never connected is uncertain")
			}
			l.SetConnected(1, now.Add(-tc.last))
			if tc.gone {
				l.SetDisconnected(1, peerlink.Broken)
			}
			if got := l.IsUncertain(1, limit, now, asked); got != tc.want {
				t.Errorf("uncertain: %t, want %t", got, tc.want)
			}
		})
	}
}

// TestNoLinks verifies what a daemon without peer links knows.
func TestNoLinks(t *testing.T) {
	var l *Links
	l.SetRunning(true)
	_, linked := l.LocalAddr()
	_, ever := l.TotalSilence(time.Now())
	if linked || ever || l.IsRunning() || l.CanReplaceShare(time.Now()) ||
		l.AreHealthy(time.Now()) || l.Peer(1, time.Now()) != (PeerState{}) || l.Peer(1, time.Now()).HasEnded(false) {
		t.Error("a link exists")
	}
	if !l.Peer(1, time.Now()).HasEnded(true) || l.LossKind(1, time.Now()) != PeerLost {
		t.Error("heartbeat files do not decide")
	}
}

// TestKindOfLoss verifies how the silence of a worker is classified. A host that has said goodbye
// has answered, so it is not lost.
func TestKindOfLoss(t *testing.T) {
	none, open := peerlink.TCPState{}, peerlink.TCPState{Connected: true}
	responds := peerlink.TCPState{Connected: true, Acknowledges: true}
	for _, tc := range []struct {
		name      string
		connected bool
		sick      bool
		parting   peerlink.CloseReason
		state     peerlink.TCPState
		want      Kind
	}{
		{"its share hangs", true, true, peerlink.Goodbye, open, HostHangs},
		{"its kernel responds", true, false, peerlink.Goodbye, responds, HostHangs},
		{"nothing responds", true, false, peerlink.Goodbye, open, HostLost},
		{"its share hung, and it left", false, true, peerlink.Goodbye, none, HostHangs},
		{"it left", false, false, peerlink.Goodbye, none, HostHangs},
		{"its connection was reset", false, false, peerlink.Broken, none, DaemonDied},
		{"its connection was closed", false, false, peerlink.Closed, none, DaemonDied},
		{"its connection was reset a moment ago", true, false, peerlink.Goodbye, none, DaemonDied},
	} {
		t.Run(tc.name, func(t *testing.T) {
			l := NewLinks(LinksConfig{Interval: time.Second,
				TCPState: func(int) peerlink.TCPState { return tc.state }}, time.Now())
			if got := l.LossKind(1, time.Now()); got != PeerLost {
				t.Errorf("a worker without a connection is %s", got)
			}
			l.SetConnected(1, time.Now())
			l.RecordHeartbeat(1, tc.sick, time.Now())
			if !tc.connected {
				l.SetDisconnected(1, tc.parting)
			}
			if got := l.LossKind(1, time.Now()); got != tc.want {
				t.Errorf("got %s, want %s", got, tc.want)
			}
		})
	}
}

// TestUnlinked verifies which nodes have a link: those that are connected and on time, and the head.
func TestUnlinked(t *testing.T) {
	const beat = time.Second
	began := time.Now()
	s := &story{NewLinks(LinksConfig{Interval: beat}, began), began}
	for _, node := range []int{1, 2, 3} {
		s.SetConnected(node, s.now)
	}
	s.SetDisconnected(2, peerlink.Broken)
	s.run(3 * beat)
	s.RecordHeartbeat(1, true, s.now)
	want := map[int]bool{2: true, 3: true, 4: true} // broken, silent, and never connected
	if got := s.Unlinked([]int{0, 1, 2, 3, 4}, s.now); !maps.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	var none *Links
	if got := none.Unlinked([]int{0, 1}, s.now); len(got) > 0 {
		t.Errorf("without links: %v", got)
	}
}
