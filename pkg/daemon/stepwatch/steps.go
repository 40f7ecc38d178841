package stepwatch

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/bringupd/bringupd/pkg/progress"
	"github.com/bringupd/bringupd/pkg/signal"
)

// ownSteps has the steps of the processes of a node.
type ownSteps struct {
	series    map[processKey]*ownSeries
	instances map[int]*ownInstance
}

// processKey identifies a process of a node over the generations of its instance.
type processKey struct{ instance, rank int }

// ownSeries has the steps of a process in the newest generation in which it has reported any.
type ownSeries struct {
	generation int
	progress.Series
}

// ownInstance has the newest generation of an instance that has reported steps, and the number of
// changes of its steps.
type ownInstance struct {
	generation int
	changes    int64
}

func newOwnSteps() ownSteps {
	return ownSteps{series: make(map[processKey]*ownSeries), instances: make(map[int]*ownInstance)}
}

func (o *ownSteps) hasAny() bool { return len(o.series) > 0 }

// add adds a step of a process, unless it is of an earlier generation.
func (o *ownSteps) add(p Process, at time.Duration, step float64) {
	instance, key := o.instances[p.Instance], processKey{p.Instance, p.Rank}
	if instance == nil || instance.generation < p.Generation {
		instance = &ownInstance{generation: p.Generation}
		o.instances[p.Instance] = instance
	}
	if p.Generation < instance.generation {
		return
	}
	series := o.series[key]
	if series == nil || series.generation < p.Generation {
		series = &ownSeries{generation: p.Generation}
		o.series[key] = series
	}
	if last, any := series.Last(); !any || step != last {
		instance.changes++
	}
	series.Add(at, step)
}

// last returns the newest step of a process in its present generation. known is false if there is
// none.
func (o *ownSteps) last(p Process) (step float64, known bool) {
	series := o.series[processKey{p.Instance, p.Rank}]
	if series == nil || series.generation != p.Generation {
		return 0, false
	}
	return series.Last()
}

func (o *ownSteps) changesOf(instance, generation int) int64 {
	if known := o.instances[instance]; known != nil && known.generation == generation {
		return known.changes
	}
	return 0
}

// list returns the newest steps of all processes of the node, which has the given index, in the
// newest generations of their instances.
func (o *ownSteps) list(node int) (steps []signal.NodeStep) {
	for key, series := range o.series {
		if series.generation < o.instances[key.instance].generation {
			continue
		}
		step, _ := series.Last()
		steps = append(steps, signal.NodeStep{Node: node, Instance: key.instance,
			Generation: series.generation, Rank: key.rank, Step: step})
	}
	return steps
}

// compareSteps orders steps by the slowest one.
func compareSteps(s, o signal.NodeStep) int {
	return cmp.Or(cmp.Compare(s.Step, o.Step), s.Instance-o.Instance, s.Node-o.Node, s.Rank-o.Rank)
}

func slowestByInstance(steps []signal.NodeStep) (slowest []signal.NodeStep) {
	lowest := make(map[int]signal.NodeStep)
	for _, s := range steps {
		if known, there := lowest[s.Instance]; !there || compareSteps(s, known) < 0 {
			lowest[s.Instance] = s
		}
	}
	for _, s := range lowest {
		slowest = append(slowest, s)
	}
	return slowest
}

// jobSteps has the steps of a whole job, as its head knows them. Those of the head's own node are
// arguments of its methods.
type jobSteps struct {
	account *progress.Account
	others  map[instanceOnNode]signal.NodeStep // the newest known steps of other nodes
	// ended has the newest generation of each instance that has ended on a node, as far as there is any.
	ended     map[instanceOnNode]int
	instances map[int]*jobInstance
}

type instanceOnNode struct{ node, instance int }

// jobInstance is the newest generation of an instance that has reported steps, and the maximum of the
// steps of all generations.
type jobInstance struct {
	generation int
	reached    float64
}

func newJobSteps(account *progress.Account) jobSteps {
	return jobSteps{account: account, others: make(map[instanceOnNode]signal.NodeStep),
		ended: make(map[instanceOnNode]int), instances: make(map[int]*jobInstance)}
}

// addListing takes over the steps of other daemons from a listing of [signal.NodesDir], and which
// instances have ended. self is the head's node: the head publishes no steps of its own.
func (j *jobSteps) addListing(l signal.Listing, self int) {
	for _, step := range l.NodeSteps() {
		// On the head's node, the instances are those of the daemons of further job steps.
		if step.Node != self || step.Instance != signal.NoInstance {
			j.others[instanceOnNode{step.Node, step.Instance}] = step
		}
	}
	for _, mark := range l.Instances() {
		if mark.State.HasEnded() {
			at := instanceOnNode{mark.Node, mark.Instance}
			if newest, there := j.ended[at]; !there || mark.Generation > newest {
				j.ended[at] = mark.Generation
			}
		}
	}
}

// newest returns all known steps of the newest generations of the instances.
func (j *jobSteps) newest(own []signal.NodeStep) []signal.NodeStep {
	generations := make(map[int]int)
	all := slices.AppendSeq(slices.Clone(own), maps.Values(j.others))
	for _, s := range all {
		generations[s.Instance] = max(generations[s.Instance], s.Generation)
	}
	return slices.DeleteFunc(all, func(s signal.NodeStep) bool { return s.Generation < generations[s.Instance] })
}

// addToAccount adds the job's step to the account: that of the rank that is furthest, in any
// instance. An instance that has been started again has lost steps.
func (j *jobSteps) addToAccount(at time.Duration, own []signal.NodeStep) {
	furthest := make(map[int]signal.NodeStep) // keyed by instance
	for _, s := range j.newest(own) {
		if known, there := furthest[s.Instance]; !there || s.Step > known.Step {
			furthest[s.Instance] = s
		}
	}
	highest, any := 0.0, false
	for number, s := range furthest {
		instance, isKnown := j.instances[number]
		if !isKnown {
			instance = &jobInstance{generation: s.Generation}
			j.instances[number] = instance
		}
		if s.Generation > instance.generation {
			j.account.AddRestart(instance.reached, s.Step)
			instance.generation = s.Generation
		}
		instance.reached = max(instance.reached, s.Step)
		highest, any = max(highest, s.Step), true
	}
	if any {
		j.account.Add(at, highest)
	}
}

// findSlowest returns the slowest process of those that run, or of all if none does: of the slowest
// ones of all instances on all nodes or, if only the head's node has reported any, of its
// processes. It also returns the median and the number of the compared, which is 0 unless there are
// two.
func (j *jobSteps) findSlowest(own []signal.NodeStep) (slowest signal.NodeStep, median float64, count int) {
	if len(j.others) > 0 {
		own = slowestByInstance(own)
	}
	compared := j.newest(own)
	isOver := func(s signal.NodeStep) bool {
		newest, hasEnded := j.ended[instanceOnNode{s.Node, s.Instance}]
		return hasEnded && newest >= s.Generation
	}
	if slices.ContainsFunc(compared, func(s signal.NodeStep) bool { return !isOver(s) }) {
		compared = slices.DeleteFunc(compared, isOver)
	}
	count = len(compared)
	if count < 2 {
		return signal.NodeStep{}, 0, 0
	}
	slices.SortFunc(compared, compareSteps)
	median = (compared[count/2].Step + compared[(count-1)/2].Step) / 2
	return compared[0], median, count
}
