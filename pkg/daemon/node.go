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

// node is the part that all daemons have in common, including the head.
type node struct {
	cfg   config.Config
	id    roles.Identity
	tempo health.Tempo
	voice *voice.Voice

	*run.Lifetime
	*run.Records
	children *service.Children
	private  *service.Private
	ties     *ties // nil if this daemon has no peer link
	post     team.Post
	shown    *shown.Shown

	sandboxTold sync.Once // records the failure of this node's sandbox

	fitness *fitness
	cards   *cards.Cards
	local

	commands     *request.Node                // commands from outside; nil without a run directory
	remote       *remote.Node                 // commands of an mpirun; nil without a run directory
	surroundings atomic.Pointer[surroundings] // nil until the service is up
}

// finish ends this node's part in the run by an outcome that is final for the whole run.
func (n *node) finish(end *run.Ending) {
	n.shown.Ending(end.Why)
	n.Over(end)
	n.End(end)
}

// isUp reports to telemetry that this node is up, and how, unless the run has ended.
func (n *node) isUp(how string) {
	if n.Life.Err() == nil {
		n.shown.Up(how)
	}
}

// name returns the name of a node for messages, such as "node 1 (t1)".
func (n *node) name(rank int) string { return advice.Name(rank, n.id, n.cfg.World.Wanted()) }

// hostsOf returns a list of nodes for messages.
func (n *node) hostsOf(ranks []int) string { return advice.Names(ranks, n.id, n.cfg.World.Wanted()) }

// header returns the header of this node's records.
func (n *node) header() signal.Header {
	return signal.Header{Version: signal.Version, Nonce: n.Dir.Nonce(), Rank: n.id.Rank, Host: n.id.Host, At: time.Now()}
}

// report publishes err as a failure of this node, under the given state, and returns it. The record
// is durable, so that the failure is never lost.
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
		// A daemon that was asked to end does not wait for the file system.
		n.Background(publish)
	} else {
		publish(n.Work)
	}
	return f
}

// keepEvidence copies logs of services from the private directory to the run directory. It copies
// more of them if this node has caused the end of the run, or is the head.
func (n *node) keepEvidence(end *run.Ending) {
	if n.Silence() <= run.SickShare {
		n.children.KeepEvidence(end.Cause != nil && (end.Cause.Rank == n.id.Rank || n.id.Rank == 0))
	}
}

// stopAll ends all children concurrently, and returns the names of those that could not be ended.
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

// cardsOf returns the GPU monitor of a node.
func cardsOf(n *node) *cards.Cards {
	return cards.New(cards.Config{
		GPUs: n.cfg.GPUs, Name: n.name(n.id.Rank), Rank: n.id.Rank, Size: n.id.Size, Private: func() (string, error) { return n.private.Dir() },
		Life: n.Life, Background: n.Background, End: n.End, Trail: n.Trail, Log: n.Log, Header: n.header, Past: func() cards.Past { return n.Dir.Past() },
		Publish: func(name string, record *signal.EventRecord) { n.Logged(n.Publish(signal.Nodes, name, record, false)) },
	})
}

// everything selects all children.
func everything(string) bool { return true }

// trace returns the trace context of the run. It must not be called before there is a run
// directory.
func (n *node) trace() trail.TraceContext {
	return trail.ContextOf(n.cfg.Environ, n.Dir.Name(), n.Dir.Nonce())
}
