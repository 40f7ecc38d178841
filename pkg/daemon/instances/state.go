package instances

import (
	"maps"
	"slices"
	"time"

	"github.com/bringupd/bringupd/pkg/health"
	"github.com/bringupd/bringupd/pkg/ranks/rendezvous"
	"github.com/bringupd/bringupd/pkg/roles"
	"github.com/bringupd/bringupd/pkg/signal/record"
)

// instanceState is what the head knows of an instance, and what it has decided about it. Its state
// follows from that by [roles.Fold].
type instanceState struct {
	roles.InstanceState
	evidence roles.Evidence
	role     *roles.RolePlan
	instance *roles.Instance

	wasReady bool // in some generation
	budget   roles.RestartBudget
	decided  int                          // the newest generation whose failure has been decided; -1: none
	handled  map[record.InstanceMark]bool // exits that have been handled
	since    time.Time                    // when the evidence changed last
	// enteredAt is when the present generation got its status.
	enteredAt time.Time
	resumeAt  time.Time // before that, the next generation does not start
	instanceOrders

	worldKey string           // its newest world's; empty: none
	world    rendezvous.World // the newest
}

// instanceOrders has the generations about which the head has decided.
type instanceOrders struct {
	ordered int // the newest before which all others were told to stop
	joined  int // the newest whose nodes may join its first one, plus 1; 0: none
	// the newest that was found to hang, plus 1; 0: none
	hungBefore int
}

func newInstanceState(role *roles.RolePlan, instance *roles.Instance, rec *roles.PlanRecord,
	rule roles.StartRule) *instanceState {
	s := &instanceState{role: role, instance: instance, decided: -1, handled: make(map[record.InstanceMark]bool)}
	s.evidence = roles.Evidence{Role: role, Started: rule == roles.StartWithPlan,
		ReadyAtStart: roles.IsReadyAtStart(role.Definition, rule)}
	s.evidence.Generation = max(0, rec.FirstGeneration(role, instance))
	for _, place := range instance.Places() {
		s.evidence.Nodes = append(s.evidence.Nodes, rec.Offers[place].NodeIndex)
	}
	s.fold()
	return s
}

// fold determines the state of the instance after a change of the evidence.
func (s *instanceState) fold() {
	before := s.InstanceState
	s.InstanceState = roles.Fold(s.evidence)
	s.wasReady = s.wasReady || s.WasReady
	s.since = time.Now()
	if s.Status != before.Status || s.Generation != before.Generation {
		s.enteredAt = s.since
	}
}

func (s *instanceState) isOn(node int) bool { return slices.Contains(s.evidence.Nodes, node) }

// spans reports whether the instance may have processes on several nodes, so that the head restarts
// it.
func (s *instanceState) spans() bool { return len(s.evidence.Nodes) > 1 || s.role.IsFlagWorld() }

// isOver reports whether the instance has no further generation: it is lost, or has ended with 0.
func (s *instanceState) isOver() bool {
	return s.Status == roles.StatusDone || s.Status == roles.StatusLost
}

// isListed reports whether the endpoints of a ready instance are known to serve. Without a probe,
// its second mark says that the processes listen.
func (s *instanceState) isListed() bool {
	endpoints := s.evidence.Nodes
	if !s.role.Program.AllEndpoints {
		endpoints = endpoints[:1] // the endpoint of rank 0
	}
	return !s.role.ListsListeners() || !slices.ContainsFunc(endpoints, func(node int) bool {
		newest, _ := s.evidence.Marks.Newest(node)
		return newest.Generation != s.Generation || newest.Change == 0
	})
}

// giveUp records that the instance is lost.
func (s *instanceState) giveUp() {
	s.evidence.GivenUp = true
	s.fold()
}

// loseNode records that a node of the instance is lost, so that its generation has failed unless the
// instance is over. Nothing is awaited from the node any more.
func (s *instanceState) loseNode(node int) {
	if !slices.Contains(s.evidence.LostNodes, node) {
		s.evidence.LostNodes = append(s.evidence.LostNodes, node)
	}
	if s.isOver() {
		s.fold()
		return
	}
	s.failGeneration()
}

// failGeneration records that the present generation has failed.
func (s *instanceState) failGeneration() {
	s.evidence.FailedBefore = s.Generation + 1
	s.fold()
}

// replaceNode records that a spare has taken the place of a lost node, with the generation next.
// The lost node may have started a later one by itself, which counts no more.
func (s *instanceState) replaceNode(lost, spare, next int) {
	s.evidence.Nodes[slices.Index(s.evidence.Nodes, lost)] = spare
	s.evidence.LostNodes = slices.DeleteFunc(s.evidence.LostNodes, func(node int) bool { return node == lost })
	s.evidence.Marks.Add(record.InstanceMark{Node: spare, Generation: next - 1, State: record.InstanceStopped})
	s.evidence.FailedBefore = next
	s.fold()
}

// addMark adds a mark, and reports whether it says anything new, and whether it is an exit that has
// not been handled yet.
func (s *instanceState) addMark(mark record.InstanceMark) (isNew, isExit bool) {
	if s.evidence.Marks.Add(mark) {
		s.fold()
		isNew = true
		if len(s.evidence.LostNodes) > 0 && s.Generation >= s.evidence.FailedBefore {
			s.failGeneration() // a lost node has started it by itself before
		}
	}
	return isNew, mark.State == record.InstanceExited && !s.isRemoved(mark.Generation) && !s.handled[mark]
}

// keptGenerations is the number of generations of an instance whose names are kept in the run
// directory: the present one, and those before it that the head may not have seen yet.
const keptGenerations = 3

// isRemoved reports whether the names of a generation may have been removed already.
func (s *instanceState) isRemoved(generation int) bool {
	return generation <= s.Generation-keptGenerations
}

// exitEffect is what follows from an exit.
type exitEffect int

const (
	exitIgnored    exitEffect = iota // it is of an instance that starts again or is lost already
	exitRestarts                     // the instance starts again
	exitIsLoss                       // the instance is lost
	exitSuperseded                   // it has started again meanwhile
)

// isFirstExit reports whether a mark is that of the first exit in the present generation, which
// decides about a restart.
func (s *instanceState) isFirstExit(mark record.InstanceMark) bool {
	isPresent := mark.Generation > s.decided && mark.Generation == s.Generation
	return isPresent && s.isOn(mark.Node) && !s.evidence.GivenUp
}

// recordExit records an exit on a node, and returns what follows from it.
func (s *instanceState) recordExit(mark record.InstanceMark, rec *record.InstanceExit, at time.Time) exitEffect {
	s.handled[mark] = true
	maps.DeleteFunc(s.handled, func(known record.InstanceMark, _ bool) bool { return s.isRemoved(known.Generation) })
	switch {
	case mark.Generation < s.Generation && !s.spans() && mark.Generation > s.decided:
		s.decided = mark.Generation
		return exitSuperseded
	case !s.isFirstExit(mark):
		return exitIgnored
	case mark.Generation < s.evidence.FailedBefore: // a spare is about to take a place of the instance
		return exitIgnored
	}
	s.decided = mark.Generation
	s.evidence.Exit, s.evidence.ExitGeneration = rec, mark.Generation
	isLoss := !rec.WillRestart
	s.resumeAt = at.Add(rec.Pause)
	if s.spans() && !s.role.IsFlagWorld() {
		code := health.OutcomeOfCause(rec.Failure).Code
		action, pause := s.role.Decide(roles.Exit{Code: max(code, 1), WasReady: s.wasReady,
			CannotExecute: isFinal(rec.Failure)}, &s.budget, at)
		isLoss = action != roles.ActionRestart
		s.resumeAt = at.Add(pause)
	}
	switch {
	case isLoss:
		s.giveUp()
		return exitIsLoss
	case s.spans():
		s.failGeneration()
	default:
		s.fold()
	}
	return exitRestarts
}

// needsStop reports whether the processes of the generation that are left must be stopped by the
// head: another process of the instance has failed, or a node of it is lost.
func (s *instanceState) needsStop() bool {
	hasFailed := s.Status == roles.StatusRestarting || s.Status == roles.StatusLost
	return s.spans() && hasFailed && s.evidence.Started && !s.IsGone
}

// mayJoin reports whether the other nodes of a cluster may connect to its first one: that has the
// head's service of the generation.
func (s *instanceState) mayJoin() bool {
	newest, _ := s.evidence.Marks.Newest(s.evidence.Nodes[0])
	isCluster := s.role.Program.Framework != "" && len(s.instance.Processes) > 1
	return isCluster && newest.Generation == s.Generation && newest.State != "" && !newest.State.HasEnded()
}

// mayResume reports whether the head must start the next generation of the instance now. Nothing
// needs to end before that if the role has not been started.
func (s *instanceState) mayResume(now time.Time) bool {
	hasLeft := s.evidence.Started && !s.IsGone
	return s.Status == roles.StatusRestarting && s.Generation < s.evidence.FailedBefore &&
		len(s.evidence.LostNodes) == 0 && !hasLeft && !now.Before(s.resumeAt)
}
