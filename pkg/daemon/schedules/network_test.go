package schedules

import (
	"time"

	"github.com/bringupd/bringupd/test/memory"
)

// weather describes the network between the daemons of a schedule.
type weather struct {
	Off     bool          // no peer links: heartbeat files only
	Latency time.Duration // mean latency of a message
}

// connect puts the daemons of an attempt on the network.
func (w *world) connect(a *attempt) {
	for _, d := range a.daemons {
		d.host = w.net.Host(d.name())
		w.hosts[d.host] = d
	}
}

// newNet returns the network of a world: each arrival is a step at an instant of its own, and
// messages from or to a machine that is cut off arrive when it is connected again.
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

// parting is a period in which a machine is cut off from the network, but not from the shared file
// system.
type parting struct{ from, until time.Duration }

// since returns how long the period has lasted; 0: it is over or has never begun.
func (p parting) since(now time.Duration) time.Duration {
	if now >= p.until {
		return 0
	}
	return now - p.from + 1
}

// part cuts the machine off. The caller must hold the lock of the shared file system.
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

// cutConnections breaks the daemon's peer links. The caller must hold the lock of the shared file
// system, which the network must not take.
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
