package daemon

import (
	"sync"
	"time"

	"github.com/bringupd/bringupd/pkg/lifeline"
)

// overdue is how many beats late a sign over a lifeline may come before the
// files are looked at for one.
const overdue = 2

// signs are when the peers were last heard over their lifelines. It is safe for
// concurrent use.
type signs struct {
	beat time.Duration // what lies between two signs of a peer that is well

	mu    sync.Mutex
	peers map[int]sign // guarded by mu
	// A daemon that was stopped, or had no processor, finds at its return that
	// it has heard nobody for long: what is there to be heard comes first.
	ticked time.Time // when this daemon last ran, as far as it knows; guarded by mu
	woke   time.Time // when it came back from not having run; guarded by mu
}

// sign is what was heard of one peer.
type sign struct {
	connected bool
	heard     time.Time // well
	spoke     time.Time // well or sick
	sick      bool      // its own share does not answer it
	parting   lifeline.Parting
}

func newSigns(beat time.Duration) *signs {
	return &signs{beat: beat, peers: make(map[int]sign), ticked: time.Now()}
}

// connect notes that the peer can be heard from now on.
func (s *signs) connect(rank int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	s.peers[rank] = sign{connected: true, heard: now, spoke: now}
}

// hear notes a sign of life. A peer whose share hangs is of no use to the
// others: its sign does not count as one.
func (s *signs) hear(rank int, sick bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.peers[rank]
	p.sick, p.spoke = sick, time.Now()
	if !sick {
		p.heard = p.spoke
	}
	s.peers[rank] = p
}

// part notes that the peer can't be heard any more.
func (s *signs) part(rank int, how lifeline.Parting) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.peers[rank]
	p.connected, p.parting = false, how
	s.peers[rank] = p
}

// of is what is known of the peer; false where it never was connected.
func (s *signs) of(rank int) (sign, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p, ever := s.peers[rank]
	return p, ever
}

// last returns when the peer was last heard; false where there is nothing to
// hear it by.
func (s *signs) last(rank int, now time.Time) (time.Time, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.peers[rank]
	if now.Sub(s.ticked) > overdue*s.beat {
		return now, p.connected // we are the ones who were away
	}
	if s.woke.After(p.heard) {
		return s.woke, p.connected
	}
	return p.heard, p.connected
}

// well tells whether so many peers are connected and heard in time.
func (s *signs) well(peers int, now time.Time) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.peers) < peers {
		return false
	}
	for _, p := range s.peers {
		if !p.connected || now.Sub(p.heard) > overdue*s.beat {
			return false
		}
	}
	return true
}

// silence is for how long nobody has been heard, well or sick; false where
// nobody ever was.
func (s *signs) silence(now time.Time) (time.Duration, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	newest := s.woke
	for _, p := range s.peers {
		if p.spoke.After(newest) {
			newest = p.spoke
		}
	}
	if now.Sub(s.ticked) > overdue*s.beat {
		newest = now
	}
	return now.Sub(newest), len(s.peers) > 0
}

// tick notes that this daemon runs; it is to be called twice a beat.
func (s *signs) tick(now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if now.Sub(s.ticked) > overdue*s.beat {
		s.woke = now
	}
	s.ticked = now
}
