package lifeline

import (
	"slices"
	"sync"
	"time"
)

// Overdue is how many beats late a sign over a lifeline may come before the
// files are looked at for one.
const Overdue = 2

// Signs are when the peers were last heard over their lifelines. It is safe for
// concurrent use.
type Signs struct {
	beat time.Duration // what lies between two signs of a peer that is well

	mu      sync.Mutex
	peers   map[int]Sign // guarded by mu
	running bool         // the job does; guarded by mu
	bears   bool         // nobody needs the share now: a peer whose share hangs is as good as any; guarded by mu
	// A daemon that was stopped, or had no processor, finds at its return that
	// it has heard nobody for long: what is there to be heard comes first.
	ticked time.Time // when this daemon last ran, as far as it knows; guarded by mu
	woke   time.Time // when it came back from not having run; guarded by mu
}

// Sign is what was heard of one peer.
type Sign struct {
	Connected bool
	Sick      bool    // its own share does not answer it
	Parting   Parting // how it ended, where it is connected no more

	heard time.Time // well, or of use all the same
	spoke time.Time // well or sick
}

// NewSigns returns the signs of peers that beat so often.
func NewSigns(beat time.Duration) *Signs {
	return &Signs{beat: beat, peers: make(map[int]Sign), ticked: time.Now()}
}

// Connect notes that the peer can be heard from now on.
func (s *Signs) Connect(rank int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	now := time.Now()
	s.peers[rank] = Sign{Connected: true, heard: now, spoke: now}
}

// Run notes that the job runs, and whether a share that hangs is outwaited.
func (s *Signs) Run(outwaits bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.running, s.bears = true, outwaits
}

// Runs tells whether the job runs.
func (s *Signs) Runs() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.running
}

// Hear notes a sign of life. Of a peer whose share hangs it does not count as one
// where that is of no use to the others.
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

// Part notes that the peer can't be heard any more.
func (s *Signs) Part(rank int, how Parting) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.peers[rank]
	p.Connected, p.Parting = false, how
	s.peers[rank] = p
}

// Of is what is known of the peer; false where it never was connected.
func (s *Signs) Of(rank int) (Sign, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p, ever := s.peers[rank]
	return p, ever
}

// Last returns when the peer was last heard; false where there is nothing to
// Hear it by.
func (s *Signs) Last(rank int, now time.Time) (time.Time, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p := s.peers[rank]
	return s.latest(p.heard, now), p.Connected
}

// latest returns when a sign came that was noted at that time: where this daemon
// did not run since, not before its return. It needs mu.
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

// Well tells whether so many peers are connected and heard in time.
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

// Quiet is for how long the peer has not been heard, well or sick, whether it is
// connected or not; false where it never was.
func (s *Signs) Quiet(rank int, now time.Time) (time.Duration, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	p, ever := s.peers[rank]
	return now.Sub(s.latest(p.spoke, now)), ever
}

// Sick are the peers, in order, that say that the share does not answer them.
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

// Silence is for how long nobody has been heard, well or sick; false where
// nobody ever was.
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

// Tick notes that this daemon runs; it is to be called twice a beat.
func (s *Signs) Tick(now time.Time) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if now.Sub(s.ticked) > Overdue*s.beat {
		s.woke = now
	}
	s.ticked = now
}
