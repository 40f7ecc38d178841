package health

import (
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/bringupd/bringupd/pkg/peerlink"
)

// maxLateHeartbeats is the number of heartbeat intervals after which a heartbeat on a link is late.
// Then the run directory is polled for heartbeat files.
const maxLateHeartbeats = 2

// Links is the state of a daemon's peer links. It is safe for concurrent use, and has no clock: the
// times are those of its user. If it is nil, there are no peer links.
type Links struct {
	LinksConfig

	mu              sync.Mutex
	peers           map[int]PeerState // guarded by mu
	running         bool              // the job runs; guarded by mu
	toleratesOutage bool              // the job tolerates an unresponsive shared file system; guarded by mu
	// After a pause (this daemon was stopped, or had no processor) all peers seem to have been silent
	// for long. The time of the pause must not count, because the daemon has not yet received the data
	// that has arrived meanwhile.
	lastTick   time.Time // time of the last call of [Links.RecordTick]; guarded by mu
	lastResume time.Time // end of the last pause of this daemon; guarded by mu
}

// LinksConfig configures [Links]. Its functions are called only once a peer has been connected.
type LinksConfig struct {
	Interval time.Duration // heartbeat interval
	// Required is the number of healthy links that replace heartbeat files; 0: they are needed anyway.
	// On the head they are those of the nodes from 1 on.
	Required int
	// HasSteps reports that links of daemons of further job steps are required, too, when these are
	// among the peers that the job needs.
	HasSteps bool
	// NeededPeers returns the peers that the running job needs. It can continue without the shared file
	// system while each of them has sent a heartbeat within OutageLimit.
	NeededPeers  func() map[int]int64
	OutageLimit  time.Duration
	TCPState     func(node int) peerlink.TCPState // what this node's kernel knows about a connection
	LocalAddress func() netip.Addr                // of this node's link; nil on the head
}

// PeerState is the state of one peer at one moment. The zero value is that of a peer that was never
// connected.
type PeerState struct {
	Known             bool // it is, or was, connected
	Connected         bool
	ShareUnresponsive bool // the shared file system is unresponsive on the peer
	// reason for the end of its connection, if it is not connected any more
	CloseReason peerlink.CloseReason
	LastCounted time.Time // time of the last heartbeat that counts: see [Links.RecordHeartbeat]
	LastHeard   time.Time // time of the last heartbeat of any kind
}

// NewLinks returns [Links] without peers at the time now.
func NewLinks(cfg LinksConfig, now time.Time) *Links {
	return &Links{LinksConfig: cfg, peers: make(map[int]PeerState), lastTick: now}
}

// SetConnected records that the peer is connected.
func (l *Links) SetConnected(node int, now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.peers[node] = PeerState{Known: true, Connected: true, LastCounted: now, LastHeard: now}
}

// SetRunning records that the job runs, and whether it tolerates an unresponsive shared file
// system.
func (l *Links) SetRunning(toleratesOutage bool) {
	if l == nil {
		return
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.running, l.toleratesOutage = true, toleratesOutage
}

// RecordHeartbeat records a heartbeat of the peer. If the shared file system is unresponsive on the
// peer, the heartbeat counts only if the job tolerates that.
func (l *Links) RecordHeartbeat(node int, shareUnresponsive bool, now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	p := l.peers[node]
	p.Known, p.ShareUnresponsive, p.LastHeard = true, shareUnresponsive, now
	if !shareUnresponsive || l.toleratesOutage {
		p.LastCounted = now
	}
	l.peers[node] = p
}

// SetDisconnected records that the peer is not connected any more, and the reason.
func (l *Links) SetDisconnected(node int, how peerlink.CloseReason) {
	l.mu.Lock()
	defer l.mu.Unlock()
	p := l.peers[node]
	p.Known, p.Connected, p.CloseReason = true, false, how
	l.peers[node] = p
}

// RecordTick records that this daemon runs. It must be called twice per heartbeat interval.
func (l *Links) RecordTick(now time.Time) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if now.Sub(l.lastTick) > maxLateHeartbeats*l.Interval {
		l.lastResume = now
	}
	l.lastTick = now
}

// effectiveTime returns the effective time of a heartbeat that was received at noted: if this
// daemon has paused since, the end of the pause. mu must be held.
func (l *Links) effectiveTime(noted, now time.Time) time.Time {
	switch {
	case now.Sub(l.lastTick) > maxLateHeartbeats*l.Interval:
		return now
	case l.lastResume.After(noted):
		return l.lastResume
	default:
		return noted
	}
}

// IsRunning reports whether the job runs.
func (l *Links) IsRunning() bool {
	if l == nil {
		return false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.running
}

// Peer returns the state of the peer at the time now.
func (l *Links) Peer(node int, now time.Time) PeerState {
	if l == nil {
		return PeerState{}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	p := l.peers[node]
	p.LastCounted, p.LastHeard = l.effectiveTime(p.LastCounted, now), l.effectiveTime(p.LastHeard, now)
	return p
}

// TotalSilence returns the time since any peer last sent a heartbeat of any kind. It returns false
// if no peer was ever connected.
func (l *Links) TotalSilence(now time.Time) (time.Duration, bool) {
	if l == nil {
		return 0, false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	var newest time.Time
	for _, p := range l.peers {
		if p.LastHeard.After(newest) {
			newest = p.LastHeard
		}
	}
	return now.Sub(l.effectiveTime(newest, now)), len(l.peers) > 0
}

// AllOnTime reports whether all required peers are known, and all peers are connected and on time.
// It returns false if heartbeat files are needed anyway.
func (l *Links) AllOnTime(now time.Time) bool {
	if l == nil {
		return false
	}
	var needed map[int]int64
	if l.HasSteps {
		needed = l.NeededPeers()
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.Required == 0 && len(needed) == 0 {
		return false
	}
	known := 0
	for node, p := range l.peers {
		if !p.Connected || now.Sub(p.LastCounted) > maxLateHeartbeats*l.Interval {
			return false
		}
		if node <= l.Required {
			known++
		}
	}
	for node := range needed {
		if _, isKnown := l.peers[node]; !isKnown {
			return false
		}
	}
	return known >= l.Required
}

// AreHealthy reports whether both directions of all required links work: heartbeats arrive in time,
// and the peers' kernels acknowledge this node's data. Then no heartbeat files are necessary. A
// link that has just ended is reported as gone only after the time to reconnect, but its evidence
// shows the end at once. After a network outage one direction may work seconds before the other.
func (l *Links) AreHealthy(now time.Time) bool {
	return l.AllOnTime(now) && !slices.ContainsFunc(l.selectPeers(func(PeerState) bool { return true }),
		func(node int) bool { return !l.TCPState(node).Acknowledges })
}

func (l *Links) selectPeers(match func(PeerState) bool) (nodes []int) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for node, p := range l.peers {
		if match(p) {
			nodes = append(nodes, node)
		}
	}
	slices.Sort(nodes)
	return nodes
}

// Unlinked returns those of the nodes, except for the head, from which no heartbeats arrive on a
// connection. It is for the head, and returns none if there are no peer links.
func (l *Links) Unlinked(nodes []int, now time.Time) map[int]bool {
	if l == nil {
		return nil
	}
	unlinked := make(map[int]bool)
	for _, node := range nodes {
		p := l.Peer(node, now)
		if node != 0 && (!p.Connected || now.Sub(p.LastHeard) > maxLateHeartbeats*l.Interval) {
			unlinked[node] = true
		}
	}
	return unlinked
}

// LocalAddr returns this node's address on its link. It returns false on the head, which has several
// links, and if there is none.
func (l *Links) LocalAddr() (netip.Addr, bool) {
	if l == nil || l.LocalAddress == nil {
		return netip.Addr{}, false
	}
	return l.LocalAddress(), true
}

// UnresponsivePeers returns the sorted node indices of the connected peers on which the shared file
// system is unresponsive.
func (l *Links) UnresponsivePeers() []int {
	return l.selectPeers(func(p PeerState) bool { return p.Connected && p.ShareUnresponsive })
}

// CanReplaceShare reports whether the links allow the job to continue without the shared file
// system: the job runs, and heartbeats of all peers that it needs arrive.
func (l *Links) CanReplaceShare(now time.Time) bool {
	return l.IsRunning() && len(l.unheardPeers(l.NeededPeers(), l.OutageLimit, now)) == 0
}

// unheardPeers returns those of the peers that have sent no heartbeat within limit, or never.
func (l *Links) unheardPeers(peers map[int]int64, limit time.Duration, now time.Time) (unheard []int) {
	for node := range peers {
		if p := l.Peer(node, now); !p.Known || now.Sub(p.LastHeard) >= limit {
			unheard = append(unheard, node)
		}
	}
	slices.Sort(unheard)
	return unheard
}

// SilentPeers returns those of the peers whose heartbeats have stopped for timeout, and how long the
// longest silence is. It returns none if all peers are silent, or will be in less than a heartbeat
// interval: then this node itself may be unreachable.
func (l *Links) SilentPeers(
	peers map[int]int64, timeout time.Duration, now time.Time,
) (silent []int, longest time.Duration) {
	if len(l.unheardPeers(peers, timeout-l.Interval, now)) == len(peers) {
		return nil, 0
	}
	for _, node := range l.unheardPeers(peers, timeout, now) {
		if p := l.Peer(node, now); p.Known {
			silent, longest = append(silent, node), max(longest, now.Sub(p.LastHeard))
		}
	}
	return silent, longest
}

// IsUncertain reports whether it is uncertain that the peer is alive: its link has ended and there
// is no new one, its heartbeat is overdue, or it was asked for a heartbeat at the time asked and
// has not answered. A peer without a link for longer than limit is not uncertain, because the
// heartbeat files decide about it.
func (l *Links) IsUncertain(node int, limit time.Duration, now, asked time.Time) bool {
	p := l.Peer(node, now)
	if !p.Connected {
		return p.Known && now.Sub(p.LastHeard) <= limit
	}
	return !l.TCPState(node).Connected || p.LastCounted.Before(asked) ||
		now.Sub(p.LastCounted) > maxLateHeartbeats*l.Interval
}

// SilentPeer returns the state of a silent peer. If its link has just ended, it counts as reset,
// even while the peer may still reconnect.
func (l *Links) SilentPeer(node int, now time.Time) PeerState {
	p := l.Peer(node, now)
	if p.Connected && !l.TCPState(node).Connected {
		p.Connected, p.CloseReason = false, peerlink.Broken
	}
	return p
}

// LossKind classifies the loss of a silent peer according to its link.
func (l *Links) LossKind(node int, now time.Time) Kind {
	switch p := l.SilentPeer(node, now); {
	case !p.Known:
		return PeerLost
	case !p.Connected && p.CloseReason == peerlink.Goodbye: // it could not publish that it has ended
		return HostHangs
	case !p.Connected:
		return DaemonDied // the kernel of its host is alive, because it has closed or reset the link
	case p.ShareUnresponsive || l.TCPState(node).Acknowledges:
		return HostHangs
	default:
		return HostLost
	}
}

// EndSilent returns those of the silent peers that have no link either. They count as ended from now
// on, as if the kernels of their hosts had closed the links.
func (l *Links) EndSilent(silent []int, now time.Time) (ended []int) {
	for _, node := range silent {
		if p := l.Peer(node, now); p.Known && !p.Connected {
			l.SetDisconnected(node, peerlink.Closed)
			ended = append(ended, node)
		}
	}
	return ended
}

// IsBroken reports whether the peer's link was reset, and not established again. The peer's daemon may
// still run: the network can reset a connection, too.
func (p PeerState) IsBroken() bool {
	return p.Known && !p.Connected && p.CloseReason == peerlink.Broken
}

// HasEnded reports whether the peer's daemon has ended, because the kernel of its host has closed
// its link. A daemon that has sent a goodbye message has ended, too, but is not reported, because
// the run directory has more information. If blind is true, the run directory cannot be read: then
// a link that has ended in any way, or has never existed, counts as ended.
func (p PeerState) HasEnded(blind bool) bool {
	return !p.Connected && (blind || p.Known && p.CloseReason == peerlink.Closed)
}
