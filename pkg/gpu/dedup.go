package gpu

import "time"

// A repeated event is told at once, and after these times: an error in a loop
// comes a thousand times a second.
const (
	firstRepeat = 10 * time.Second
	lastRepeat  = 10 * time.Minute

	mostRepeated = 4096 // different events that are told apart: 16 GPUs have far fewer
)

// Dedup thins out events that are repeated. The zero Dedup has seen none. It is
// not safe for concurrent use.
type Dedup struct{ seen map[repeated]*repeats }

// repeated is what makes two events the same.
type repeated struct {
	kind     Kind
	xid, gpu int
	uuid     string
	recovery int
	detail   string
}

type repeats struct {
	untold int
	next   time.Time
	pause  time.Duration
}

// Pass tells whether an event is to be told now. Where it was repeated, its
// Count is set to how often since it was told before.
func (d *Dedup) Pass(e Event, now time.Time) (Event, bool) {
	if d.seen == nil {
		d.seen = map[repeated]*repeats{}
	}
	key := repeated{e.Kind, e.Xid, e.GPU, e.UUID, e.Recovery, e.Detail}
	if len(e.Bus) > 0 && e.UUID == "" {
		key.uuid = e.Bus
	}
	was := d.seen[key]
	if was == nil && len(d.seen) >= mostRepeated {
		key = repeated{}
		was = d.seen[key]
	}
	if was == nil {
		d.seen[key] = &repeats{next: now.Add(firstRepeat), pause: firstRepeat}
		return e, true
	}
	was.untold += max(e.Count, 1)
	if now.Before(was.next) {
		return Event{}, false
	}
	e.Count, was.untold = was.untold, 0
	was.pause = min(2*was.pause, lastRepeat)
	was.next = now.Add(was.pause)
	return e, true
}
