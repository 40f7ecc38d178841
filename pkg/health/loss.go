package health

import "time"

// Losses returns the failures for lost nodes, one for each kind of loss. since is the time without
// a sign of life, name returns the name of one node for messages, and names that of several.
func Losses(kinds map[Kind][]int, since time.Duration, name func(rank int) string, names func(ranks []int) string) []*Failure {
	var all []*Failure
	for _, row := range []struct {
		kind      Kind
		one, many string
	}{
		{DaemonDied, "the daemon of %s has died: its host has reset the lifeline, and it has not come back for %s",
			"the daemons of %s have died: their hosts have reset the lifelines, and they have not come back for %s"},
		{HostLost, "the host of %s is lost: nothing there has answered for %s", "the hosts of %s are lost: nothing there has answered for %s"},
		{HostHangs, "%s hangs: the kernel of its host answers, and its daemon, or its mount of the share, has not for %s",
			"%s hang: the kernels of their hosts answer, and their daemons, or their mounts of the share, have not for %s"},
		{PeerLost, "%s is lost: no beat for %s (the daemon was killed, or the node or its mount hangs)",
			"%s are lost: no beat for %s (the daemons were killed, or the nodes or their mounts hang)"},
	} {
		ranks := kinds[row.kind]
		if len(ranks) == 0 {
			continue
		}
		f := Failed(row.kind, row.one, name(ranks[0]), since)
		if len(ranks) > 1 {
			f = Failed(row.kind, row.many, names(ranks), since)
		}
		f.Lost = ranks
		all = append(all, f)
	}
	return all
}

// Head makes the failures for a lost head, as a worker sees it. The parameter quiet of its methods
// is the time without a sign of life.
type Head struct {
	Name string // the head's name in messages
	Seer string // the worker's name in messages
}

// Closed returns the failure for a peer link that was closed.
func (h Head) Closed() *Failure {
	return Failed(DaemonDied, "the daemon of the head, %s, has died: its host has closed the lifeline and nobody listens there any more", h.Name)
}

// Reset returns the failure for a peer link that was reset, if the heartbeats have stopped, too.
func (h Head) Reset() *Failure {
	return Failed(DaemonDied, "the daemon of the head, %s, has died: its host has reset the lifeline, and its beats have stopped", h.Name)
}

// TurnsAway returns the failure for a host that has accepted a connection earlier and refuses
// connections now.
func (h Head) TurnsAway() *Failure {
	return Failed(DaemonDied, "the daemon of the head, %s, has died: its host took a call and has ended it, and nobody listens there any more", h.Name)
}

// Deserted returns the failure for a host that has never accepted a connection, and refuses them.
func (h Head) Deserted(quiet time.Duration) *Failure {
	return Failed(DaemonDied, "the daemon of the head, %s, has died: %s has not seen a beat of it for %s, and its host says that nobody listens at the port it offered",
		h.Name, h.Seer, tenths(quiet))
}

// Left returns the failure for a head that has sent a goodbye message without publishing an
// outcome.
func (h Head) Left() *Failure {
	return Failed(HostHangs, "the head, %s, hangs: its daemon has ended and could not write so into the run directory", h.Name)
}

// Hangs returns the failure for a head whose peer link is open but silent.
func (h Head) Hangs(quiet time.Duration) *Failure {
	return Failed(HostHangs, "the head, %s, hangs: the kernel of its host answers, and its daemon has not for %s", h.Name, tenths(quiet))
}

// Lost returns the failure for a peer link whose other end does not answer.
func (h Head) Lost(quiet time.Duration) *Failure {
	return Failed(HostLost, "the host of the head, %s, is lost: %s has had no answer of it for %s", h.Name, h.Seer, tenths(quiet))
}

// Silent returns the failure for a head that was observed by its heartbeat files only.
func (h Head) Silent(quiet time.Duration) *Failure {
	return Failed(PeerLost, "the head, %s, is lost: %s has not seen a beat of it for %s", h.Name, h.Seer, tenths(quiet))
}

func tenths(d time.Duration) time.Duration { return d.Round(time.Second / 10) }
