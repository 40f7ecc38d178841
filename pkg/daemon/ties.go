package daemon

import (
	"net/netip"
	"time"

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
