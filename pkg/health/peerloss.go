package health

import (
	"fmt"
	"time"

	"github.com/bringupd/bringupd/pkg/peerlink"
)

// PeerLossFailures returns the failures for lost nodes, one for each kind of loss. since is the
// time without a sign of life, name returns the name of one node for messages, and names that of
// several.
func PeerLossFailures(kinds map[Kind][]int, since time.Duration, name func(node int) string,
	names func(nodes []int) string) []*Failure {
	var all []*Failure
	for _, row := range []struct {
		kind      Kind
		one, many string
	}{
		{DaemonDied, "the daemon of %s has died: its host has reset the peer link, and it has not reconnected for %s",
			"the daemons of %s have died: their hosts have reset the peer links, and they have not reconnected for %s"},
		{HostLost, "the host of %s is lost: nothing there has responded for %s",
			"the hosts of %s are lost: nothing there has responded for %s"},
		{HostHangs, "%s hangs: the kernel of its host responds, but its daemon, or its mount of the " +
			"shared file system, has not for %s",
			"%s hang: the kernels of their hosts respond, but their daemons, or their mounts of the " +
				"shared file system, have not for %s"},
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

// HeadLoss is what a worker knows about a head that seems to be lost.
type HeadLoss struct {
	Head, Observer string        // the names of both in messages
	Link           PeerState     // the peer link to the head; zero without one
	Quiet          time.Duration // time without a sign of life
	PortClosed     bool          // the head's host refuses connections
	Acknowledges   bool          // the kernel of the head's host has acknowledged recent data
}

// Failure returns the loss as a failure, with the kind that the evidence shows.
func (h HeadLoss) Failure() *Failure {
	died := func(why string) *Failure {
		return NewFailure(DaemonDied, "the daemon of the head, %s, has died: %s", h.Head, why)
	}
	quiet := h.Quiet.Round(time.Second / 10)
	switch link := h.Link; {
	case !link.Known && h.PortClosed:
		return died(fmt.Sprintf("%s has seen no heartbeat of it for %s, and nothing listens at its "+
			"port any more", h.Observer, quiet))
	case !link.Known:
		return NewFailure(PeerLost, "the head, %s, is lost: %s has seen no heartbeat of it for %s",
			h.Head, h.Observer, quiet)
	case link.Connected && h.Acknowledges:
		return NewFailure(HostHangs, "the head, %s, hangs: the kernel of its host responds, but its "+
			"daemon has not for %s", h.Head, quiet)
	case link.Connected:
		return NewFailure(HostLost, "the host of the head, %s, is lost: %s has had no response from "+
			"it for %s", h.Head, h.Observer, quiet)
	case link.CloseReason == peerlink.Goodbye:
		return NewFailure(HostHangs, "the head, %s, hangs: its daemon has ended and could not "+
			"record this in the run directory", h.Head)
	case link.CloseReason == peerlink.Broken: // the kernel of its host is alive, because it has sent the reset
		return died("its host has reset the peer link, and its heartbeats have stopped")
	default: // the kernel of its host has closed the link, or refuses another one
		return died("its host has closed the peer link and nothing listens there any more")
	}
}
