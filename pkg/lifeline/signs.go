package lifeline

import (
	"slices"
	"sync"
	"time"
)

// Overdue is the number of heartbeat intervals after which a heartbeat on a link is late. Then the
// run directory is polled for heartbeat files.
const Overdue = 2

// Signs records when each peer last sent a heartbeat on its link. It is safe for concurrent use.
type Signs struct {
	beat time.Duration // heartbeat interval

	mu      sync.Mutex
	peers   map[int]Sign // guarded by mu
	running bool         // the job runs; guarded by mu
	bears   bool         // the job tolerates an unresponsive shared file system; guarded by mu
	// After a pause (this daemon was stopped, or had no processor) all peers seem to have been silent
	// for long. The time of the pause must not count, because the daemon has not yet received the data
	// that has arrived meanwhile.
	ticked time.Time // time of the last call of [Signs.Tick]; guarded by mu
	woke   time.Time // end of the last pause of this daemon; guarded by mu
}

// Sign is the state of one peer.
type Sign struct {
	Connected bool
	Sick      bool    // the shared file system is unresponsive on the peer
	Parting   Parting // reason for the end of its connection, if it is not connected any more

	heard time.Time // time of the last heartbeat that counts: see [Signs.Hear]
	spoke time.Time // time of the last heartbeat of any kind
}

// NewSigns returns [Signs] without peers. The heartbeat interval is beat.
func NewSigns(beat time.Duration) *Signs {
	return &Signs{beat: beat, peers: make(map[int]Sign), ticked: time.Now()}
}

// Connect records that the peer is connected.
func (s *Signs) Connect(rank int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	s.peers[rank] = Sign{Connected: true, heard: now, spoke: now}
}

// Run records that the job runs, and whether it tolerates an unresponsive shared file system.
func (s *Signs) Run(outwaits bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.running, s.bears = true, outwaits
}

// Runs reports whether the job runs.
func (s *Signs) Runs() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.running
}

// Hear records a heartbeat of the peer. If the shared file system is unresponsive on the peer
// (sick), the heartbeat counts only if the job tolerates that.
func (s *Signs) Hear(rank int, sick bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.peers[rank]
	p.Sick, p.spoke = sick, time.Now()
	if !sick || s.bears {
		p.heard = p.spoke
	}
	s.peers[rank] = p
}

// Part records that the peer is not connected any more, and the reason.
func (s *Signs) Part(rank int, how Parting) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.peers[rank]
	p.Connected, p.Parting = false, how
	s.peers[rank] = p
}

// Of returns the state of the peer. It returns false if the peer was never connected.
func (s *Signs) Of(rank int) (Sign, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p, ever := s.peers[rank]
	return p, ever
}

// Last returns the time of the last heartbeat of the peer that counts. It returns false if the peer
// is not connected.
func (s *Signs) Last(rank int, now time.Time) (time.Time, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.peers[rank]
	return s.latest(p.heard, now), p.Connected
}

// latest returns the effective time of a heartbeat that was received at noted: if this daemon has
// paused since, the end of the pause. mu must be held.
func (s *Signs) latest(noted, now time.Time) time.Time {
	switch {
	case now.Sub(s.ticked) > Overdue*s.beat:
		return now
	case s.woke.After(noted):
		return s.woke
	default:
		return noted
	}
}

// Well reports whether at least the given number of peers is known, and all are connected and on
// time.
func (s *Signs) Well(peers int, now time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.peers) < peers {
		return false
	}
	for _, p := range s.peers {
		if !p.Connected || now.Sub(p.heard) > Overdue*s.beat {
			return false
		}
	}
	return true
}

// Quiet returns the time since the peer last sent a heartbeat of any kind, whether it is connected
// or not. It returns false if the peer was never connected.
func (s *Signs) Quiet(rank int, now time.Time) (time.Duration, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p, ever := s.peers[rank]
	return now.Sub(s.latest(p.spoke, now)), ever
}

// Sick returns the sorted node indices of the connected peers on which the shared file system is
// unresponsive.
func (s *Signs) Sick() (ranks []int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for rank, p := range s.peers {
		if p.Connected && p.Sick {
			ranks = append(ranks, rank)
		}
	}
	slices.Sort(ranks)
	return ranks
}

// Silence returns the time since any peer last sent a heartbeat of any kind. It returns false if no
// peer was ever connected.
func (s *Signs) Silence(now time.Time) (time.Duration, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	var newest time.Time
	for _, p := range s.peers {
		if p.spoke.After(newest) {
			newest = p.spoke
		}
	}
	return now.Sub(s.latest(newest, now)), len(s.peers) > 0
}

// Tick records that this daemon runs. It must be called twice per heartbeat interval.
func (s *Signs) Tick(now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if now.Sub(s.ticked) > Overdue*s.beat {
		s.woke = now
	}
	s.ticked = now
}
