package schedules

import (
	"time"

	"github.com/bringupd/bringupd/test/memory"
)

// weather is what becomes of what the daemons of a schedule send each other.
type weather struct {
	Off     bool          // no lifelines: beat files alone
	Latency time.Duration // mean of a parcel's way
}

// connect puts the daemons of an attempt on the network.
func (w *world) connect(a *attempt) {
	for _, d := range a.daemons {
		d.host = w.net.Host(d.name())
		w.hosts[d.host] = d
	}
}

// newNet returns the network of a world: each arrival is a step at an instant of
// its own, and what a machine that is cut off sends, or is sent, arrives when it
// is back.
func (w *world) newNet(mean time.Duration) *memory.Net {
	return &memory.Net{
		Travel: func(from, to *memory.Host, what memory.Parcel) time.Duration {
			w.Lock()
			defer w.Unlock()
			one, other := w.hosts[from], w.hosts[to]
			until := max(one.machine.parted.until, other.machine.parted.until, w.Now())
			h := one.draw("way of "+string(what), to.Name)
			mean := uint64(mean)
			if h>>56 < 4 {
				mean *= 10
			}
			return until - w.Now() + time.Duration(1+h%(2*mean))
		},
		Cut: func(one, other *memory.Host) time.Duration {
			w.Lock()
			defer w.Unlock()
			return max(w.hosts[one].machine.parted.since(w.Now()), w.hosts[other].machine.parted.since(w.Now()))
		},
		Arrived: func(from, to *memory.Host, what memory.Parcel) {
			w.Lock()
			defer w.Unlock()
			w.note(w.hosts[to].client, "gets: "+string(what), "from "+from.Name, nil)
		},
	}
}

// parting is a time in which a machine is cut off the network, but not the share.
type parting struct{ from, until time.Duration }

// since returns for how long it has been going on; 0: it is over, or never was.
func (p parting) since(now time.Duration) time.Duration {
	if now >= p.until {
		return 0
	}
	return now - p.from + 1
}

// part needs the share's lock.
func (d *running) part(span time.Duration) {
	w := d.world
	w.note(nil, "cuts off the network for "+span.String()+" the machine of", d.name(), nil)
	p := &d.machine.parted
	if p.since(w.Now()) == 0 {
		p.from = w.Now()
	}
	p.until = max(p.until, w.Now()+span)
	d.machine.disturbed = true
	if d.draw("whether connections survive", "")%2 == 0 {
		d.cutConnections()
	}
}

// cutConnections breaks what lifelines the daemon has. It needs the share's lock,
// which the network must not meet.
func (d *running) cutConnections() {
	d.world.note(nil, "breaks the connections of", d.name(), nil)
	d.machine.disturbed = true
	time.AfterFunc(1, func() {
		for _, other := range d.attempt.daemons {
			if other != d {
				d.world.net.Break(d.host, other.host)
			}
		}
	})
}
