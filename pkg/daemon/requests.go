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

// runsRequests returns what runs commands from outside on this node.
func runsRequests(n *node) *request.Node {
	return request.NewNode(request.Daemon{
		Rank: n.id.Rank, Dir: n.Dir, Control: n.Control, Log: n.Log, Trail: n.Trail, Told: n.Logged,
		Within: n.cfg.Times.Peer, Life: n.Life, Work: n.Work, Go: n.Background, About: n.children.Described,
		Start: n.starts(n.children.Launch),
	})
}

// starts returns what starts commands that end before the run does, by a start of the children's.
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

// requestEnv is the environment of a command from outside: that of the node's
// other children, and where the service is.
func requestEnv(n *node) []string {
	env := n.childEnv(process.WithEnv(n.cfg.Environ, roles.PMIVariables(n.cfg.Environ)), n.post.Seat.Load())
	if known := n.surroundings.Load(); known != nil {
		env = n.driverEnv(env, known.hosts, known.endpoint)
	}
	return env
}

// requestTeam is what requests from outside are told of the nodes.
type requestTeam struct{ head *head }

var _ request.Team = requestTeam{}

// CallName is a node's host, unless that has more daemons than one.
func (t requestTeam) CallName(rank int) string {
	id := t.head.id
	host := id.HostOf(rank)
	if host == "" || slices.Index(id.Hosts, host) != rank || slices.Contains(id.Hosts[rank+1:], host) {
		return fmt.Sprintf("rank %d", rank)
	}
	return host
}

// Absent returns those that the job goes on without.
func (t requestTeam) Absent() []int { return t.head.roster.Absent(t.head.nodes.Last()) }

// Choose returns the ranks that words mean, which have joined and are not lost.
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

// NudgeRank nudges by the worker's lifeline.
func (t requestTeam) NudgeRank(rank int) {
	if t.head.lines != nil && t.head.lines.Head != nil {
		t.head.lines.Head.NudgeRank(rank)
	}
}

// tidyTime bounds what tidying may add to the end.
const tidyTime = 2 * time.Second

// tidyOrders removes, at the end of the run, what the workers were told to run.
func (h *head) tidyOrders() {
	if h.Silence() > run.SickShare {
		return
	}
	ctx, cancel := context.WithTimeoutCause(h.Hurry, tidyTime, errDeadline)
	defer cancel()
	h.requests.Tidy(ctx)
}
