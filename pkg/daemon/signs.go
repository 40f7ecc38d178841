package daemon

import (
	"slices"
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

	mu      sync.Mutex
	peers   map[int]sign // guarded by mu
	running bool         // the job does; guarded by mu
	bears   bool         // nobody needs the share now: a peer whose share hangs is as good as any; guarded by mu
	// A daemon that was stopped, or had no processor, finds at its return that
	// it has heard nobody for long: what is there to be heard comes first.
	ticked time.Time // when this daemon last ran, as far as it knows; guarded by mu
	woke   time.Time // when it came back from not having run; guarded by mu
}

// sign is what was heard of one peer.
type sign struct {
	connected bool
	heard     time.Time // well, or of use all the same
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

// run notes that the job runs, and whether a share that hangs is outwaited.
func (s *signs) run(outwaits bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.running, s.bears = true, outwaits
}

// runs tells whether the job runs.
func (s *signs) runs() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.running
}

// hear notes a sign of life. Of a peer whose share hangs it does not count as one
// where that is of no use to the others.
func (s *signs) hear(rank int, sick bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.peers[rank]
	p.sick, p.spoke = sick, time.Now()
	if !sick || s.bears {
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

// quiet is for how long the peer has not been heard, well or sick, whether it is
// connected or not; false where it never was.
func (s *signs) quiet(rank int, now time.Time) (time.Duration, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p, ever := s.peers[rank]
	if now.Sub(s.ticked) > overdue*s.beat {
		return 0, ever // we are the ones who were away
	}
	if s.woke.After(p.spoke) {
		return now.Sub(s.woke), ever
	}
	return now.Sub(p.spoke), ever
}

// sick are the peers, in order, that say that the share does not answer them.
func (s *signs) sick() (ranks []int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for rank, p := range s.peers {
		if p.connected && p.sick {
			ranks = append(ranks, rank)
		}
	}
	slices.Sort(ranks)
	return ranks
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
