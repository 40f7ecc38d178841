package daemon

import (
	"context"
	"sync"
	"sync/atomic"
	"time"

	"github.com/bringupd/bringupd/pkg/advice"
	"github.com/bringupd/bringupd/pkg/cards"
	"github.com/bringupd/bringupd/pkg/config"
	"github.com/bringupd/bringupd/pkg/health"
	"github.com/bringupd/bringupd/pkg/remote"
	"github.com/bringupd/bringupd/pkg/request"
	"github.com/bringupd/bringupd/pkg/roles"
	"github.com/bringupd/bringupd/pkg/run"
	"github.com/bringupd/bringupd/pkg/service"
	"github.com/bringupd/bringupd/pkg/shown"
	"github.com/bringupd/bringupd/pkg/signal"
	"github.com/bringupd/bringupd/pkg/team"
	"github.com/bringupd/bringupd/pkg/trail"
	"github.com/bringupd/bringupd/pkg/voice"
)

// node is what every daemon is, the head's too.
type node struct {
	cfg   config.Config
	id    roles.Identity
	tempo health.Tempo
	voice *voice.Voice

	*run.Lifetime
	*run.Records
	children *service.Children
	private  *service.Private
	ties     *ties // nil without any lifeline
	post     team.Post
	shown    *shown.Shown

	sandboxTold sync.Once // the failure of this node's sandbox is recorded

	fitness *fitness
	cards   *cards.Cards
	local

	commands     *request.Node                // what somebody outside has this node run; nil before there is a run directory
	remote       *remote.Node                 // commands between nodes, for an mpirun; nil before there is a run directory
	surroundings atomic.Pointer[surroundings] // nil until the service is up
}

// finish ends this node by a published end.
func (n *node) finish(end *run.Ending) {
	n.shown.Ending(end.Why)
	n.Over(end)
	n.End(end)
}

// isUp shows that this node is up, and how.
func (n *node) isUp(how string) {
	if n.Life.Err() == nil {
		n.shown.Up(how)
	}
}

// name is how messages speak of a node.
func (n *node) name(rank int) string { return advice.Name(rank, n.id, n.cfg.World.Wanted()) }

// hostsOf is a list of nodes as people read it.
func (n *node) hostsOf(ranks []int) string { return advice.Names(ranks, n.id, n.cfg.World.Wanted()) }

// header is what tells this node as the one that saw something.
func (n *node) header() signal.Header {
	return signal.Header{Version: signal.Version, Nonce: n.Dir.Nonce(), Rank: n.id.Rank, Host: n.id.Host, At: time.Now()}
}

// report publishes a failure of this node's as state, so that it is never lost,
// and returns it as a failure.
func (n *node) report(err error, state string) *health.Failure {
	f := &health.Failure{FailedRecord: health.AsFailure(err).FailedRecord}
	f.Header = n.header()
	if !f.Seen.IsZero() {
		f.Age = time.Since(f.Seen)
	}
	if f.Phase == "" {
		f.Phase = n.Trail.Phase()
	}
	n.Trail.Event(trail.Failed, trail.Fields{Kind: f.Kind, What: f.What})
	record := f.FailedRecord
	publish := func(context.Context) {
		n.Logged(n.Publish(signal.Nodes, signal.NodeName(n.id.Rank, n.id.Size, state), &record, true))
	}
	if health.Gentle(health.Kind(f.Kind)) {
		n.Background(publish) // who was told to end does not wait for the share
	} else {
		publish(n.Work)
	}
	return f
}

// keepEvidence saves what services have written in the private directory: more of it
// where the run ends by this node, or this is the head.
func (n *node) keepEvidence(end *run.Ending) {
	if n.Silence() <= run.SickShare {
		n.children.KeepEvidence(end.Cause != nil && (end.Cause.Rank == n.id.Rank || n.id.Rank == 0))
	}
}

// stopAll ends all children side by side, and returns what would not die.
func (n *node) stopAll(end *run.Ending) (left []string) {
	if n.cfg.World.Wanted() {
		n.stopUsers(end)
		n.hushRanks()
	}
	left = n.children.Stop(n.cfg.Times.GraceOfOthers(end.Failed()), everything)
	if n.commands != nil && n.Silence() < run.SickShare {
		n.commands.Settle(run.SickShare)
	}
	return left
}

// cardsOf are the GPUs of a node, which tell it what befalls them.
func cardsOf(n *node) *cards.Cards {
	return cards.New(cards.Config{
		GPUs: n.cfg.GPUs, Name: n.name(n.id.Rank), Rank: n.id.Rank, Size: n.id.Size, Private: func() (string, error) { return n.private.Dir() },
		Life: n.Life, Background: n.Background, End: n.End, Trail: n.Trail, Log: n.Log, Header: n.header, Past: func() cards.Past { return n.Dir.Past() },
		Publish: func(name string, record *signal.EventRecord) { n.Logged(n.Publish(signal.Nodes, name, record, false)) },
	})
}

func everything(string) bool { return true }

// trace is the run's place in a trace, once there is a run directory.
func (n *node) trace() trail.TraceContext {
	return trail.ContextOf(n.cfg.Environ, n.Dir.Name(), n.Dir.Nonce())
}
