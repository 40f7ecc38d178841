package health

import "time"

// PeerLossFailures returns the failures for lost nodes, one for each kind of loss. since is the
// time without a sign of life, name returns the name of one node for messages, and names that of
// several.
func PeerLossFailures(kinds map[Kind][]int, since time.Duration, name func(node int) string, names func(nodes []int) string) []*Failure {
	var all []*Failure
	for _, row := range []struct {
		kind      Kind
		one, many string
	}{
		{DaemonDied, "the daemon of %s has died: its host has reset the peer link, and it has not reconnected for %s",
			"the daemons of %s have died: their hosts have reset the peer links, and they have not reconnected for %s"},
		{HostLost, "the host of %s is lost: nothing there has responded for %s", "the hosts of %s are lost: nothing there has responded for %s"},
		{HostHangs, "%s hangs: the kernel of its host responds, but its daemon, or its mount of the shared file system, has not for %s",
			"%s hang: the kernels of their hosts respond, but their daemons, or their mounts of the shared file system, have not for %s"},
		{PeerLost, "%s is lost: no heartbeat for %s (the daemon was killed, or the node or its mount hangs)",
			"%s are lost: no heartbeat for %s (the daemons were killed, or the nodes or their mounts hang)"},
	} {
		nodes := kinds[row.kind]
		if len(nodes) == 0 {
			continue
		}
		f := NewFailure(row.kind, row.one, name(nodes[0]), since)
		if len(nodes) > 1 {
			f = NewFailure(row.kind, row.many, names(nodes), since)
		}
		f.LostNodes = nodes
		all = append(all, f)
	}
	return all
}

// HeadLoss makes the failures for a lost head, as a worker sees it. The parameter quiet of its
// methods is the time without a sign of life.
type HeadLoss struct {
	HeadName     string // the head's name in messages
	ObserverName string // the worker's name in messages
}

// LinkClosed returns the failure for a peer link that was closed.
func (h HeadLoss) LinkClosed() *Failure {
	return NewFailure(DaemonDied, "the daemon of the head, %s, has died: its host has closed the peer link and nothing listens there any more", h.HeadName)
}

// LinkReset returns the failure for a peer link that was reset, if the heartbeats have stopped,
// too.
func (h HeadLoss) LinkReset() *Failure {
	return NewFailure(DaemonDied, "the daemon of the head, %s, has died: its host has reset the peer link, and its heartbeats have stopped", h.HeadName)
}

// ConnectionRefused returns the failure for a host that has accepted a connection earlier and
// refuses connections now.
func (h HeadLoss) ConnectionRefused() *Failure {
	return NewFailure(DaemonDied, "the daemon of the head, %s, has died: its host accepted a connection and closed it, and nothing listens there any more", h.HeadName)
}

// NeverAccepted returns the failure for a host that has never accepted a connection, and refuses
// them.
func (h HeadLoss) NeverAccepted(quiet time.Duration) *Failure {
	return NewFailure(DaemonDied, "the daemon of the head, %s, has died: %s has seen no heartbeat of it for %s, and nothing listens at its port any more",
		h.HeadName, h.ObserverName, roundToTenths(quiet))
}

// LeftWithoutOutcome returns the failure for a head that has sent a goodbye message without
// publishing an outcome.
func (h HeadLoss) LeftWithoutOutcome() *Failure {
	return NewFailure(HostHangs, "the head, %s, hangs: its daemon has ended and could not record this in the run directory", h.HeadName)
}

// DaemonHangs returns the failure for a head whose peer link is open but silent.
func (h HeadLoss) DaemonHangs(quiet time.Duration) *Failure {
	return NewFailure(HostHangs, "the head, %s, hangs: the kernel of its host responds, but its daemon has not for %s", h.HeadName, roundToTenths(quiet))
}

// HostUnreachable returns the failure for a peer link whose other end does not answer.
func (h HeadLoss) HostUnreachable(quiet time.Duration) *Failure {
	return NewFailure(HostLost, "the host of the head, %s, is lost: %s has had no response from it for %s", h.HeadName, h.ObserverName, roundToTenths(quiet))
}

// HeartbeatsMissing returns the failure for a head that was observed by its heartbeat files only.
func (h HeadLoss) HeartbeatsMissing(quiet time.Duration) *Failure {
	return NewFailure(PeerLost, "the head, %s, is lost: %s has seen no heartbeat of it for %s", h.HeadName, h.ObserverName, roundToTenths(quiet))
}

func roundToTenths(d time.Duration) time.Duration { return d.Round(time.Second / 10) }
