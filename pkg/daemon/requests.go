package daemon

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"syscall"
	"time"

	"github.com/bringupd/bringupd/pkg/process"
	"github.com/bringupd/bringupd/pkg/request"
	"github.com/bringupd/bringupd/pkg/roles"
	"github.com/bringupd/bringupd/pkg/run"
	"github.com/bringupd/bringupd/pkg/signal"
)

// runsRequests returns the part of this node that runs commands from outside (bringupd exec).
func runsRequests(n *node) *request.Node {
	return request.NewNode(request.Daemon{
		Rank: n.id.Rank, Dir: n.Dir, Control: n.Control, Log: n.Log, Trail: n.Trail, Told: n.Logged,
		Within: n.cfg.Times.Peer, Life: n.Life, Work: n.Work, Go: n.Background, About: n.children.Described,
		Start: n.starts(n.children.Launch),
	})
}

// starts returns a function that starts a command with the given start function of the children. It
// returns the process, and a function that ends it. Commands do not start when the run is ending.
func (n *node) starts(start func(context.Context, process.Spec) (process.Handle, error)) request.Start {
	return func(ctx context.Context, spec process.Spec) (process.Handle, func(), error) {
		if n.Life.Err() != nil {
			return nil, nil, errors.New("the run is ending")
		}
		spec.Env = append(requestEnv(n), spec.Env...)
		starting, started := n.lagging(ctx)
		defer started()
		child, err := start(starting, spec)
		if err != nil {
			return nil, nil, err
		}
		return child, func() {
			child.Stop(n.Hurry, n.cfg.Times.StopGrace, syscall.SIGTERM)
			n.children.Disown(child)
		}, nil
	}
}

// requestEnv returns the environment of a command from outside on this node: that of the node's
// other children, and the address of the head's service once it is up.
func requestEnv(n *node) []string {
	env := n.childEnv(process.WithEnv(n.cfg.Environ, roles.PMIVariables(n.cfg.Environ)), n.post.Seat.Load())
	if known := n.surroundings.Load(); known != nil {
		env = n.driverEnv(env, known.hosts, known.endpoint)
	}
	return env
}

// requestTeam resolves and notifies nodes for the requests from outside, on the head.
type requestTeam struct{ head *head }

var _ request.Team = requestTeam{}

// CallName returns the name by which a user can select a node: its host, or its index if the host
// is unknown or runs several daemons.
func (t requestTeam) CallName(rank int) string {
	id := t.head.id
	host := id.HostOf(rank)
	if host == "" || slices.Index(id.Hosts, host) != rank || slices.Contains(id.Hosts[rank+1:], host) {
		return fmt.Sprintf("rank %d", rank)
	}
	return host
}

// Absent returns the nodes that the job runs without.
func (t requestTeam) Absent() []int { return t.head.roster.Absent(t.head.nodes.Last()) }

// Choose returns the sorted indices of the nodes that words select: names of nodes, request.OnHead
// or request.OnAll. It returns an error if a named node has not joined or is lost.
func (t requestTeam) Choose(words []string) ([]int, error) {
	h := t.head
	joined, absent := h.nodes.Last().Ranks(signal.Joined), t.Absent()
	var ranks []int
	for _, word := range words {
		switch word {
		case request.OnHead:
			ranks = append(ranks, 0)
			continue
		case request.OnAll:
			if missing := h.nodes.Last().Missing(signal.Joined, h.id.Size); !h.roster.Spares() && len(missing) > 0 {
				return nil, fmt.Errorf("%s have not joined yet", h.hostsOf(missing))
			}
			ranks = append(ranks, signal.Without(joined, absent)...)
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

// NudgeRank notifies a worker of a new order on its peer link, if there are peer links.
func (t requestTeam) NudgeRank(rank int) {
	if t.head.lines != nil && t.head.lines.Head != nil {
		t.head.lines.Head.NudgeRank(rank)
	}
}

// tidyTime is the maximum time that the removal of orders may add to the end of the run.
const tidyTime = 2 * time.Second

// tidyOrders removes the records of commands for the workers at the end of the run. It does nothing
// if the file system is unresponsive.
func (h *head) tidyOrders() {
	if h.Silence() > run.SickShare {
		return
	}
	ctx, cancel := context.WithTimeoutCause(h.Hurry, tidyTime, errDeadline)
	defer cancel()
	h.requests.Tidy(ctx)
}
