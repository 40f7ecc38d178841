package peerlink

import (
	"slices"
	"sync"
	"time"
)

// MaxLateHeartbeats is the number of heartbeat intervals after which a heartbeat on a link is late.
// Then the run directory is polled for heartbeat files.
const MaxLateHeartbeats = 2

// Liveness records when each peer last sent a heartbeat on its link. It is safe for concurrent use.
type Liveness struct {
	interval time.Duration // heartbeat interval

	mu      sync.Mutex
	peers   map[int]PeerState // guarded by mu
	running bool              // the job runs; guarded by mu
	// the job tolerates an unresponsive shared file system; guarded by mu
	toleratesOutage bool
	// After a pause (this daemon was stopped, or had no processor) all peers seem to have been silent
	// for long. The time of the pause must not count, because the daemon has not yet received the data
	// that has arrived meanwhile.
	lastTick   time.Time // time of the last call of [Liveness.RecordTick]; guarded by mu
	lastResume time.Time // end of the last pause of this daemon; guarded by mu
}

// PeerState is the state of one peer.
type PeerState struct {
	Connected         bool
	ShareUnresponsive bool // the shared file system is unresponsive on the peer
	// reason for the end of its connection, if it is not connected any more
	CloseReason CloseReason

	lastCounted   time.Time // time of the last heartbeat that counts: see [Liveness.RecordHeartbeat]
	lastHeartbeat time.Time // time of the last heartbeat of any kind
}

// NewLiveness returns [Liveness] without peers. The heartbeat interval is beat.
func NewLiveness(beat time.Duration) *Liveness {
	return &Liveness{interval: beat, peers: make(map[int]PeerState), lastTick: time.Now()}
}

// SetConnected records that the peer is connected.
func (s *Liveness) SetConnected(node int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	s.peers[node] = PeerState{Connected: true, lastCounted: now, lastHeartbeat: now}
}

// SetRunning records that the job runs, and whether it tolerates an unresponsive shared file
// system.
func (s *Liveness) SetRunning(outwaits bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.running, s.toleratesOutage = true, outwaits
}

// IsRunning reports whether the job runs.
func (s *Liveness) IsRunning() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.running
}

// RecordHeartbeat records a heartbeat of the peer. If the shared file system is unresponsive on the
// peer (sick), the heartbeat counts only if the job tolerates that.
func (s *Liveness) RecordHeartbeat(node int, sick bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.peers[node]
	p.ShareUnresponsive, p.lastHeartbeat = sick, time.Now()
	if !sick || s.toleratesOutage {
		p.lastCounted = p.lastHeartbeat
	}
	s.peers[node] = p
}

// SetDisconnected records that the peer is not connected any more, and the reason.
func (s *Liveness) SetDisconnected(node int, how CloseReason) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.peers[node]
	p.Connected, p.CloseReason = false, how
	s.peers[node] = p
}

// PeerState returns the state of the peer. It returns false if the peer was never connected.
func (s *Liveness) PeerState(node int) (PeerState, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p, ever := s.peers[node]
	return p, ever
}

// LastHeartbeat returns the time of the last heartbeat of the peer that counts. It returns false if
// the peer is not connected.
func (s *Liveness) LastHeartbeat(node int, now time.Time) (time.Time, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.peers[node]
	return s.effectiveTime(p.lastCounted, now), p.Connected
}

// effectiveTime returns the effective time of a heartbeat that was received at noted: if this
// daemon has paused since, the end of the pause. mu must be held.
func (s *Liveness) effectiveTime(noted, now time.Time) time.Time {
	switch {
	case now.Sub(s.lastTick) > MaxLateHeartbeats*s.interval:
		return now
	case s.lastResume.After(noted):
		return s.lastResume
	default:
		return noted
	}
}

// AllOnTime reports whether at least the given number of peers is known, and all are connected and
// on time.
func (s *Liveness) AllOnTime(peers int, now time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.peers) < peers {
		return false
	}
	for _, p := range s.peers {
		if !p.Connected || now.Sub(p.lastCounted) > MaxLateHeartbeats*s.interval {
			return false
		}
	}
	return true
}

// PeerSilence returns the time since the peer last sent a heartbeat of any kind, whether it is
// connected or not. It returns false if the peer was never connected.
func (s *Liveness) PeerSilence(node int, now time.Time) (time.Duration, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p, ever := s.peers[node]
	return now.Sub(s.effectiveTime(p.lastHeartbeat, now)), ever
}

// UnresponsivePeers returns the sorted node indices of the connected peers on which the shared file
// system is unresponsive.
func (s *Liveness) UnresponsivePeers() (nodes []int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for node, p := range s.peers {
		if p.Connected && p.ShareUnresponsive {
			nodes = append(nodes, node)
		}
	}
	slices.Sort(nodes)
	return nodes
}

// TotalSilence returns the time since any peer last sent a heartbeat of any kind. It returns false
// if no peer was ever connected.
func (s *Liveness) TotalSilence(now time.Time) (time.Duration, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var newest time.Time
	for _, p := range s.peers {
		if p.lastHeartbeat.After(newest) {
			newest = p.lastHeartbeat
		}
	}
	return now.Sub(s.effectiveTime(newest, now)), len(s.peers) > 0
}

// RecordTick records that this daemon runs. It must be called twice per heartbeat interval.
func (s *Liveness) RecordTick(now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if now.Sub(s.lastTick) > MaxLateHeartbeats*s.interval {
		s.lastResume = now
	}
	s.lastTick = now
}
