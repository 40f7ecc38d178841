package daemon

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/bringupd/bringupd/pkg/roles"
	"github.com/bringupd/bringupd/pkg/signal"
)

// callName is how a node's output is told from the others': by its host, unless
// that has more daemons than one.
func (h *head) callName(rank int) string {
	host := h.id.HostOf(rank)
	if host == "" || slices.Index(h.id.Hosts, host) != rank || slices.Contains(h.id.Hosts[rank+1:], host) {
		return fmt.Sprintf("rank %d", rank)
	}
	return host
}

// choose returns the ranks, in order, that the words of a request mean.
func (h *head) choose(words []string) ([]int, error) {
	joined := h.nodes.Last().Ranks(signal.Joined)
	absent := h.roster.absent(h.nodes.Last())
	var ranks []int
	for _, word := range words {
		switch word {
		case signal.ExecHead:
			ranks = append(ranks, 0)
			continue
		case signal.ExecAll:
			if missing := h.nodes.Last().Missing(signal.Joined, h.id.Size); !h.roster.spares && len(missing) > 0 {
				return nil, fmt.Errorf("%s have not joined yet", h.hostsOf(missing))
			}
			ranks = append(ranks, without(slices.Clone(joined), absent)...)
			continue
		}
		rank, err := roles.RankNamed(word, h.id.Size, h.id.HostOf)
		if err != nil {
			return nil, err
		}
		if _, there := slices.BinarySearch(joined, rank); !there || slices.Contains(absent, rank) {
			return nil, fmt.Errorf("%s is not there: it has not joined, or is lost", h.name(rank))
		}
		ranks = append(ranks, rank)
	}
	slices.Sort(ranks)
	ranks = slices.Compact(ranks)
	if len(ranks) == 0 {
		return nil, errors.New("no node is named")
	}
	return ranks, nil
}

// order has the nodes begin what is fresh and end what is canceled: the others
// by records in Control, this one at once.
func (h *head) order(ctx context.Context, fresh, canceled []signal.ExecID) {
	var orders signal.ExecOrders
	var ids []signal.ExecID
	size, targets := 0, make(map[int]bool)
	send := func() {
		if len(ids) == 0 {
			return
		}
		h.requests.orders++
		number := h.requests.orders
		h.requests.batch[number] = ids
		record := orders
		short, cancel := context.WithTimeoutCause(ctx, h.cfg.Times.Peer, errDeadline)
		defer cancel()
		h.logged(h.dir.Publish(short, signal.Control, signal.OrdersName(number), &record, false))
		h.nudgeRanks(targets)
		orders, ids, size, targets = signal.ExecOrders{}, nil, 0, make(map[int]bool)
	}
	for _, id := range fresh {
		q := h.requests.known[id]
		if len(q.ranks) == 0 {
			continue
		}
		order := signal.ExecOrder{ID: id, Argv: q.record.Argv, Env: q.record.Env, Ranks: q.ranks}
		if q.ranks[0] == 0 {
			h.run(order)
		}
		if len(q.ranks) == 1 && q.ranks[0] == 0 {
			continue
		}
		length := 0
		for _, text := range append(slices.Clone(order.Argv), order.Env...) {
			length += len(text)
		}
		if size > 0 && size+length > orderSize {
			send()
		}
		size += length
		orders.Start, ids = append(orders.Start, order), append(ids, id)
		for _, rank := range q.ranks {
			targets[rank] = true
		}
	}
	for _, id := range canceled {
		q := h.requests.known[id]
		h.errands.cancel(id)
		orders.Cancel, ids = append(orders.Cancel, id), append(ids, id)
		for rank := range q.missing {
			targets[rank] = true
		}
	}
	send()
}

// nudgeRanks has those workers look at Control.
func (h *head) nudgeRanks(ranks map[int]bool) {
	if h.lines == nil || h.lines.head == nil {
		return
	}
	for rank := range ranks {
		h.lines.head.NudgeRank(rank)
	}
}

// discardOrders removes the orders that all have carried out: they may hold what
// is not to stay.
func (h *head) discardOrders() {
	for number, ids := range h.requests.batch {
		if slices.ContainsFunc(ids, h.requests.runs) {
			continue
		}
		delete(h.requests.batch, number)
		h.background(func(ctx context.Context) {
			h.logged(h.dir.Discard(ctx, signal.Control, signal.OrdersName(number)))
		})
	}
}

// tidyOrders removes, at the end of the run, what orders are left.
func (h *head) tidyOrders() {
	if h.silence() > sickShare {
		return
	}
	ctx, cancel := context.WithTimeoutCause(h.hurry, evidenceTime, errDeadline)
	defer cancel()
	for _, number := range h.control.Last().Orders() {
		h.logged(h.dir.Discard(ctx, signal.Control, signal.OrdersName(number)))
	}
}
