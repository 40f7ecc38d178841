package doctor

import (
	"context"
	"fmt"
	"net"
	"slices"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/bringupd/bringupd/pkg/check"
	"github.com/bringupd/bringupd/pkg/pairs"
	"github.com/bringupd/bringupd/pkg/prose"
	"github.com/bringupd/bringupd/pkg/signal"
)

// The names and the records of transfers between the nodes.
const (
	seatsName  = "seats"  // in Control: a seatsRecord
	pairsState = "paired" // in Nodes: a transfersRecord
)

type seatsRecord struct {
	signal.Header
	Seats []pairs.Seat `json:"seats"`
}

type transfersRecord struct {
	signal.Header
	Transfers []pairs.Transfer `json:"transfers"`
}

// pace is how much is transferred; nothing where no node is to do more than look.
func (d *doctor) pace() pairs.Pace {
	switch {
	case d.Pace != (pairs.Pace{}):
		return d.Pace
	case d.Work == check.WorkShort:
		return pairs.Short
	case d.Work == check.WorkLong:
		return pairs.Long
	default:
		return pairs.Pace{}
	}
}

// pairTime is how long all transfers may take, and all that nodes wait for because of them.
func (d *doctor) pairTime() time.Duration {
	longest := d.pace().Longest(d.Identity.Size)
	if longest > 0 {
		longest += pingTime
	}
	return longest
}

// listen opens the node's ear where nodes are to transfer something; nil where they are not.
func (d *doctor) listen(dir *signal.Dir) (*pairs.Ear, error) {
	if d.Identity.Size < 2 || d.pace() == (pairs.Pace{}) {
		return nil, nil
	}
	return pairs.Listen(d.Network, dir.Secret("doctor's pairs"), d.Identity.Rank)
}

// seat is where partners reach this node's ear; nil where it has no address.
func (d *doctor) seat(ear *pairs.Ear, address string) *pairs.Seat {
	if ear == nil || address == "" {
		return nil
	}
	seat := &pairs.Seat{Rank: d.Identity.Rank, Address: net.JoinHostPort(address, ear.Port())}
	device, number, err := check.FastestRDMA(d.Root)
	switch tool := pairs.FindTool(d.Environ); {
	case err != nil:
		seat.NoVerbs = "it is not known which RDMA ports are active: " + err.Error()
	case device == "": // there is nothing to tell
	case tool == "":
		seat.NoVerbs = pairs.Tool + " is not there"
	default:
		if seat.NoVerbs = pairs.TakesVerbs(seat.Address); seat.NoVerbs == "" {
			seat.Verbs = &pairs.Port{Tool: tool, Device: device, Number: number}
		}
	}
	return seat
}

// transfer takes part in the rounds once the head tells the seats, and publishes what came. Where the head ends before,
// there are none. Own is this node's seat as it has told it; nil where it has none.
func (d *doctor) transfer(ctx context.Context, dir *signal.Dir, ear *pairs.Ear, own *pairs.Seat) error {
	waiting, cancel := context.WithTimeoutCause(ctx, d.Join+2*pingTime+d.factTime(), errEnd)
	defer cancel()
	over := false
	err := dir.Await(waiting, signal.Control, func(l signal.Listing) bool {
		over = l.Has(signal.NameDrain)
		return over || l.Has(seatsName)
	})
	switch {
	case ctx.Err() != nil:
		return context.Cause(ctx)
	case err != nil, over: // how it has ended is told to who leaves
		return nil
	}
	var told seatsRecord
	if err := dir.Read(waiting, signal.Control, seatsName, &told); err != nil {
		return err
	}
	for i, seat := range told.Seats {
		if own != nil && seat.Rank == own.Rank {
			told.Seats[i] = *own // it names a program that is run here: no record is asked which
		}
	}
	record := transfersRecord{Transfers: ear.Take(ctx, told.Seats, d.pace(), d.Environ)}
	if ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return dir.Publish(ctx, signal.Nodes, dir.NodeName(d.Identity.Rank, pairsState), &record, false)
}

// pair tells the nodes that have told their facts who takes part, and returns what they have transferred: after all
// else, so that nothing else disturbs it.
func (m *meeting) pair(ctx context.Context, facts []Facts) (all []pairs.Transfer, err error) {
	if m.Identity.Size < 2 || m.pace() == (pairs.Pace{}) {
		return nil, nil
	}
	var told seatsRecord
	var ranks []int
	for _, f := range facts {
		if f.Seat != nil {
			f.Seat.Rank = f.Rank // whatever it says
			told.Seats, ranks = append(told.Seats, *f.Seat), append(ranks, f.Rank)
		}
	}
	if err := m.dir.Publish(ctx, signal.Control, seatsName, &told, false); err != nil {
		return nil, err
	}
	_, there := m.shown(ctx, m.pairTime(), ranks, pairsState)
	reading, cancel := context.WithTimeoutCause(ctx, pingTime, errPing)
	defer cancel()
	records := make([]transfersRecord, len(there))
	var group errgroup.Group
	group.SetLimit(readers)
	for i, rank := range there {
		group.Go(func() error {
			if err := m.dir.Read(reading, signal.Nodes, m.dir.NodeName(rank, pairsState), &records[i]); err != nil {
				records[i].Transfers = nil // its partners tell of it
			}
			return nil
		})
	}
	_ = group.Wait() // it has no error
	for i, record := range records {
		for _, t := range record.Transfers {
			t.To = there[i]
			all = append(all, t)
		}
	}
	return all, nil
}

// judgePairs judges what came between the nodes by one way.
func judgePairs(way pairs.Way) func(*page) {
	return func(p *page) {
		j := pairs.Judge(way, p.Transfers)
		switch {
		case len(j.Pairs) == 0:
			p.noPairs(way)
			return
		case j.Usual == 0:
			p.noTransfer(way, j)
			return
		case len(j.Slow)+len(j.Odd) == 0:
			p.Pass(p.rates(j))
			return
		}
		told := make(map[check.Verdict][]string)
		ranks := make(map[check.Verdict][]int)
		for _, node := range j.Slow {
			verdict := verdictOf(way, node.Lost())
			var with []string
			for _, pair := range node.With {
				with = append(with, rateOf(pair)+" with "+p.host(pair.Other(node.Rank))+reasonOf(pair))
			}
			told[verdict] = append(told[verdict], p.host(node.Rank)+": "+prose.List(with, mostSaid, ", "))
			ranks[verdict] = append(ranks[verdict], node.Rank)
		}
		for _, pair := range j.Odd {
			verdict := verdictOf(way, pair.Lost)
			told[verdict] = append(told[verdict], fmt.Sprintf("between %s and %s %s%s", p.host(pair.A), p.host(pair.B), rateOf(pair), reasonOf(pair)))
		}
		for _, verdict := range []check.Verdict{check.Fail, check.Warn} {
			if parts := told[verdict]; len(parts) > 0 {
				f := p.Say(verdict, check.Node, fmt.Sprintf("%s; the median is %s", prose.List(parts, mostSaid, "; "), rateText(j.Usual)),
					fmt.Sprintf("at least %.0f %% of it, with each", 100*pairs.SlowPart), wayHint(way))
				f.Ranks, f.Strict = ranks[verdict], len(ranks[verdict]) > 0
			}
		}
	}
}

func rateOf(pair pairs.Pair) string {
	if pair.Rate == 0 {
		return "nothing"
	}
	return rateText(pair.Rate)
}

// rateText is a rate of so many GB/s.
func rateText(rate float64) string {
	if rate < 0.1 {
		return fmt.Sprintf("%.3g MB/s", 1000*rate)
	}
	return fmt.Sprintf("%.3g GB/s", rate)
}

func reasonOf(pair pairs.Pair) string {
	if pair.Err == "" {
		return ""
	}
	return " (" + prose.Line(pair.Err, 100) + ")"
}

// verdictOf is a fail where nodes can't reach each other by what every job needs.
func verdictOf(way pairs.Way, lost bool) check.Verdict {
	if lost && way == pairs.TCP {
		return check.Fail
	}
	return check.Warn
}

func wayHint(way pairs.Way) string {
	if way == pairs.Verbs {
		return "see to its port's cable and switch port (mlxlink, ibdiagnet, perfquery), and run " + pairs.Tool + " there by hand"
	}
	return "see the firewall, the rate and the errors of its link (ethtool, ip -s link), its CPUs' load, and its switch port; " +
		"where that is the wrong network, name the right one with --interface"
}

// rates tells what was reached where all is well.
func (c *scene) rates(j pairs.Judgement) string {
	least, most := j.Pairs[0].Rate, j.Pairs[0].Rate
	for _, pair := range j.Pairs {
		least, most = min(least, pair.Rate), max(most, pair.Rate)
	}
	if len(j.Pairs) == 1 {
		return fmt.Sprintf("%s between %s; there is no other pair to compare it with", rateText(least), c.hosts(j.Nodes))
	}
	from, to := rateText(least), rateText(most)
	if from != to {
		to = from + " to " + to
	}
	return fmt.Sprintf("%s in %d pairs of %d nodes", to, len(j.Pairs), len(j.Nodes))
}

// noTransfer tells that nothing came anywhere, which is nobody's fault.
func (p *page) noTransfer(way pairs.Way, j pairs.Judgement) {
	first := j.Pairs[0]
	lost := !slices.ContainsFunc(j.Pairs, func(pair pairs.Pair) bool { return !pair.Lost })
	p.Say(verdictOf(way, lost), check.Node, fmt.Sprintf("in none of %d %s something came; between %s and %s: %s",
		len(j.Pairs), prose.Noun(len(j.Pairs), "pair"), p.host(first.A), p.host(first.B), prose.Line(first.Err, 100)), "", wayHint(way))
}

// noPairs tells why there was nobody to meet, where somebody could have been.
func (p *page) noPairs(way pairs.Way) {
	why, by := p.by(func(f Facts) string {
		if way == pairs.TCP || f.Seat == nil {
			return ""
		}
		return f.Seat.NoVerbs
	})
	for i, one := range why {
		why[i] = prose.Line(one, 100) + " on " + p.hosts(by[one])
	}
	if len(why) > 0 {
		p.Skip("no two nodes can try it: " + prose.List(why, mostSaid, "; "))
	}
}
