package daemon

import (
	"github.com/bringupd/bringupd/pkg/meeting"
	"github.com/bringupd/bringupd/pkg/ranks"
	"github.com/bringupd/bringupd/pkg/signal"
)

// meet opens the socket where this node's ranks meet the others, and returns its path.
func (n *node) meet(place *seat, plan ranks.Plan, record *signal.RanksRecord, end func(error)) (*meeting.Node, string) {
	return meeting.Join(meeting.Config{
		Place: plan.Place(place.rank, record.Hosts), World: func() meeting.World { return plan.World(record.Hosts) },
		Dial: n.call, Log: n.Log, Abort: ranks.Asked(n.id.Host, end), Met: n.Trail.Met,
	}, n.private.Dir, n.Background)
}
