package daemon

import (
	"net/netip"
	"time"

	"github.com/bringupd/bringupd/pkg/health"
	"github.com/bringupd/bringupd/pkg/lifeline"
)

// ties are what this daemon's lifelines mean to it. Nil ties are none.
type ties struct {
	*lifeline.Signs // of those that lifelines are held with

	// calm tells whether every lifeline is well; nil where beats by files must
	// not rest.
	calm func(now time.Time) bool
	// hears tells whether everybody who matters is heard.
	hears func(now time.Time) bool
	// address is this node's end of its lifeline; nil on the head.
	address func() netip.Addr
}

// areCalm tells whether nobody needs beats by files.
func (t *ties) areCalm(now time.Time) bool { return t != nil && t.calm != nil && t.calm(now) }

// bear tells whether the job runs, and everybody who matters is heard.
func (t *ties) bear(now time.Time) bool { return t != nil && t.Runs() && t.hears(now) }

// watchLink ends a node that hears nobody and has no link any more: its looks
// at the share, which might tell, may hang for the same reason.
func (n *node) watchLink(now time.Time) {
	silence, ever := n.ties.Silence(now)
	if !ever || silence < n.tempo.Silent || n.life.Err() != nil {
		return
	}
	if f := n.linkDown(); f != nil {
		n.end(f)
	}
}

// linkDown is the failure of this node that its network interface is down; nil
// where it is not.
func (n *node) linkDown() *health.Failure {
	address, _ := n.cfg.Address()
	addr, err := netip.ParseAddr(address)
	if n.ties.address != nil {
		addr, err = n.ties.address(), nil
	}
	if err != nil {
		return nil
	}
	link, down := lifeline.LinkDown(addr)
	if !down {
		return nil
	}
	return n.cutOff("its network interface " + link + " is down")
}

// cutOff is the failure of a node that can't be reached by the others.
func (n *node) cutOff(why string) *health.Failure {
	f := health.Failed(health.CutOff, "%s is cut off from the others: %s", n.name(n.id.Rank), why)
	f.Lost = []int{n.id.Rank}
	return f
}
