package roles

import (
	"maps"
	"slices"
	"time"

	"github.com/bringupd/bringupd/pkg/signal"
	"github.com/bringupd/bringupd/pkg/signal/record"
)

// History is what the head knows of an instance, and what it has decided about it. The state of the
// instance follows from the evidence by [Fold].
type History struct {
	InstanceState
	Evidence Evidence // changed by the methods of History only
	Role     *RolePlan
	Instance *Instance

	wasReady bool // in some generation
	budget   RestartBudget
	decided  int                          // the newest generation whose failure has been decided; -1: none
	handled  map[record.InstanceMark]bool // exits that have been handled
	ordered  int                          // the newest generation before which all others were told to stop
	joined   int                          // the newest whose nodes may join its first one, plus 1; 0: none

	ChangedAt  time.Time // when the evidence has changed last
	EnteredAt  time.Time // when the present generation got its status
	readySince time.Time // when it was ready; zero if it was not
	ResumeAt   time.Time // before that, the next generation does not start
}

// NewHistory returns the history of an instance that begins with a plan, and starts by a rule.
func NewHistory(role *RolePlan, instance *Instance, rec *PlanRecord, rule StartRule) *History {
	s := &History{Role: role, Instance: instance, decided: -1, handled: make(map[record.InstanceMark]bool)}
	s.Evidence = Evidence{Role: role, Started: rule == StartWithPlan,
		ReadyAtStart: IsReadyAtStart(role.Definition, rule)}
	s.Evidence.Generation = max(0, rec.FirstGeneration(role, instance))
	for _, place := range instance.Places() {
		s.Evidence.Nodes = append(s.Evidence.Nodes, rec.Offers[place].NodeIndex)
	}
	s.update()
	return s
}

// update determines the state of the instance after a change of the evidence.
func (s *History) update() {
	before := s.InstanceState
	s.InstanceState = Fold(s.Evidence)
	s.wasReady = s.wasReady || s.WasReady
	s.ChangedAt = time.Now()
	if s.Status != before.Status || s.Generation != before.Generation {
		s.EnteredAt = s.ChangedAt
	}
	if s.Generation != before.Generation {
		s.readySince = time.Time{}
	}
	if s.Status == StatusReady && s.readySince.IsZero() {
		s.readySince = s.ChangedAt
	}
}

// IsOn reports whether the instance has processes on a node.
func (s *History) IsOn(node int) bool { return slices.Contains(s.Evidence.Nodes, node) }

// Spans reports whether the instance may have processes on several nodes, so that the head restarts
// it.
func (s *History) Spans() bool { return len(s.Evidence.Nodes) > 1 || s.Role.IsFlagWorld() }

// IsEnded reports whether the instance has no further generation: it is lost, or has ended with 0.
func (s *History) IsEnded() bool { return s.Status == StatusDone || s.Status == StatusLost }

// MayRun reports whether processes of the instance may be running, or be started by a node: the head
// starts none at the end.
func (s *History) MayRun() bool { return s.Evidence.Started && !s.IsGone }

// Start records that the role of the instance has been started.
func (s *History) Start() {
	s.Evidence.Started = true
	s.update()
}

// IsListed reports whether the endpoints of a ready instance are known to serve. Without a probe,
// its second mark says that the processes listen.
func (s *History) IsListed() bool {
	endpoints := s.Evidence.Nodes
	if !s.Role.Program.AllEndpoints {
		endpoints = endpoints[:1] // the endpoint of rank 0
	}
	return !s.Role.ListsListeners() || !slices.ContainsFunc(endpoints, func(node int) bool {
		newest, _ := s.Evidence.Marks.Newest(node)
		return newest.Generation != s.Generation || newest.Change == 0
	})
}

// GiveUp records that the instance is lost.
func (s *History) GiveUp() {
	s.Evidence.GivenUp = true
	s.update()
}

// LoseNode records that a node of the instance is lost, so that its generation has failed unless the
// instance is over. Nothing is awaited from the node any more.
func (s *History) LoseNode(node int) {
	if !slices.Contains(s.Evidence.LostNodes, node) {
		s.Evidence.LostNodes = append(s.Evidence.LostNodes, node)
	}
	if s.IsEnded() {
		s.update()
		return
	}
	s.failGeneration()
}

// failGeneration records that the present generation has failed.
func (s *History) failGeneration() {
	s.Evidence.FailedBefore = s.Generation + 1
	s.update()
}

// ReplaceNode records that a spare has taken the place of a lost node, with the generation next.
// The lost node may have started a later one by itself, which counts no more.
func (s *History) ReplaceNode(lost, spare, next int) {
	s.Evidence.Nodes[slices.Index(s.Evidence.Nodes, lost)] = spare
	s.Evidence.LostNodes = slices.DeleteFunc(s.Evidence.LostNodes, func(node int) bool { return node == lost })
	s.Evidence.Marks.Add(record.InstanceMark{Node: spare, Generation: next - 1, State: record.InstanceStopped})
	s.Evidence.FailedBefore = next
	s.update()
}

// AddMark adds a mark, and reports whether it says anything new, and whether it is an exit that has
// not been handled yet.
func (s *History) AddMark(mark record.InstanceMark) (isNew, isExit bool) {
	if s.Evidence.Marks.Add(mark) {
		s.update()
		isNew = true
		if len(s.Evidence.LostNodes) > 0 && s.Generation >= s.Evidence.FailedBefore {
			s.failGeneration() // a lost node has started it by itself before
		}
	}
	return isNew, mark.State == record.InstanceExited && !s.isRemoved(mark.Generation) && !s.handled[mark]
}

// KeptGenerations is the number of generations of an instance whose names are kept in the run
// directory: the present one, and those before it that the head may not have seen yet.
const KeptGenerations = 3

// isRemoved reports whether the names of a generation may have been removed already.
func (s *History) isRemoved(generation int) bool {
	return generation <= s.Generation-KeptGenerations
}

// ExitOutcome is what follows from an exit.
type ExitOutcome int

const (
	ExitIgnored    ExitOutcome = iota // it is of an instance that starts again or is lost already
	ExitRestarts                      // the instance starts again
	ExitIsLoss                        // the instance is lost
	ExitSuperseded                    // it has started again meanwhile
)

// IsFirstExit reports whether a mark is that of the first exit in the present generation, which
// decides about a restart.
func (s *History) IsFirstExit(mark record.InstanceMark) bool {
	isPresent := mark.Generation > s.decided && mark.Generation == s.Generation
	return isPresent && s.IsOn(mark.Node) && !s.Evidence.GivenUp
}

// RecordExit records an exit on a node, and returns what follows from it. That of an instance on several
// nodes is decided here; exit describes it.
func (s *History) RecordExit(mark record.InstanceMark, rec *record.InstanceExit, exit Exit,
	at time.Time) ExitOutcome {
	s.handled[mark] = true
	maps.DeleteFunc(s.handled, func(known record.InstanceMark, _ bool) bool { return s.isRemoved(known.Generation) })
	switch {
	case mark.Generation < s.Generation && !s.Spans() && mark.Generation > s.decided:
		s.decided = mark.Generation
		return ExitSuperseded
	case !s.IsFirstExit(mark):
		return ExitIgnored
	case mark.Generation < s.Evidence.FailedBefore: // a spare is about to take a place of the instance
		return ExitIgnored
	}
	s.decided = mark.Generation
	s.Evidence.Exit, s.Evidence.ExitGeneration = rec, mark.Generation
	isLoss := !rec.WillRestart
	s.ResumeAt = at.Add(rec.Pause)
	if s.Spans() && !s.Role.IsFlagWorld() {
		exit.WasReady = s.wasReady
		if !s.readySince.IsZero() {
			exit.UpFor = at.Sub(s.readySince)
		}
		action, pause := s.Role.Decide(exit, &s.budget, at)
		isLoss = action != ActionRestart
		s.ResumeAt = at.Add(pause)
	}
	switch {
	case isLoss:
		s.GiveUp()
		if s.Spans() {
			rec.Message += s.budget.DescribeUsed(s.Role.Restarts)
		}
		return ExitIsLoss
	case s.Spans():
		s.failGeneration()
	default:
		s.update()
	}
	return ExitRestarts
}

// TakeOrders returns the orders by which the head carries out what follows from the state at a time, and
// records that they are given. It also returns those of old generations, which can be removed.
func (s *History) TakeOrders(now time.Time) (orders, old []string) {
	next, number := s.Generation+1, s.Instance.Number
	resumes := s.mayResume(now)
	if s.mayJoin() && s.joined <= s.Generation {
		s.joined = next
		orders = append(orders, signal.OrderName(number, s.Generation, signal.OrderConnect))
	}
	// The processes that are left are stopped after the failure of another one, or the loss of a node. If the
	// role has not been started, the nodes learn from the order which generation to start.
	hasFailed := s.Status == StatusRestarting || s.Status == StatusLost
	mustStop := hasFailed && s.MayRun() || resumes && !s.Evidence.Started
	if s.Spans() && mustStop && s.ordered < next {
		s.ordered = next
		orders = append(orders, signal.OrderName(number, next, signal.OrderStop))
	}
	if !resumes {
		return orders, nil
	}
	if s.Spans() { // a spare starts an instance that is alone on its node by the plan
		orders = append(orders, signal.OrderName(number, next, signal.OrderStart))
		if removed := next - KeptGenerations; removed > 0 {
			old = append(old, signal.OrderName(number, removed, signal.OrderStop),
				signal.OrderName(number, removed, signal.OrderStart))
			if s.Role.Program.Framework != "" {
				old = append(old, signal.OrderName(number, removed, signal.OrderConnect))
			}
		}
	}
	s.Evidence.Generation = next
	s.update()
	return orders, old
}

// mayJoin reports whether the other nodes of a cluster may connect to its first one: that has the
// head's service of the generation.
func (s *History) mayJoin() bool {
	newest, _ := s.Evidence.Marks.Newest(s.Evidence.Nodes[0])
	isCluster := s.Role.Program.Framework != "" && len(s.Instance.Processes) > 1
	return isCluster && newest.Generation == s.Generation && newest.State != "" && !newest.State.HasEnded()
}

// mayResume reports whether the head must start the next generation of the instance now. Nothing
// needs to end before that if the role has not been started.
func (s *History) mayResume(now time.Time) bool {
	return s.Status == StatusRestarting && s.Generation < s.Evidence.FailedBefore &&
		len(s.Evidence.LostNodes) == 0 && !s.MayRun() && !now.Before(s.ResumeAt)
}

// dueSlack is how much later than planned the record of a node may appear.
const dueSlack = time.Minute

// DueAt returns until when something must happen to the instance by itself; zero if nothing must. Processes
// of a silent node may run for a delay.
func (s *History) DueAt(silentDelay time.Duration) time.Time {
	within := s.Role.Ready.Timeout + s.Role.Stop.Grace + dueSlack
	switch s.Status {
	case StatusStarting:
		return s.ChangedAt.Add(within)
	case StatusRestarting:
		// The grace period of those that are left, the back-off, and the start of the next generation.
		return slices.MaxFunc([]time.Time{s.ChangedAt.Add(silentDelay), s.ResumeAt}, time.Time.Compare).Add(within)
	}
	return time.Time{}
}
