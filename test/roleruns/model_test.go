package roleruns

import (
	"maps"
	"slices"
	"time"

	"github.com/bringupd/bringupd/pkg/health"
	"github.com/bringupd/bringupd/pkg/signal/record"
)

// state is the state of an instance in the model.
type state struct {
	generation int
	restarts   int // that count
	wasReady   bool
	lost       bool
	done       []bool // the processes that have ended with 0, as they may
	unready    []bool // the processes whose port is closed
	flapped    bool   // a port has been closed
	nodes      []int  // of the processes
	// failedStart is the newest generation that has failed before it was ready: then the start of its other
	// processes may have been given up. It is 0 if none has.
	failedStart int
}

// begin begins the next generation.
func (s *state) begin() {
	s.generation++
	clear(s.done)
	clear(s.unready)
}

// isReady reports whether the instance is ready.
func (s *state) isReady() bool {
	return !s.lost && !s.isDone() && !slices.Contains(s.unready, true)
}

// isListed reports whether an instance is listed with its endpoints: it is ready, and if no probe has
// proven them, processes are left on their nodes.
func (s *state) isListed(r *role) bool {
	return s.isReady() && (r.probe != "" || r.endpointNodesRun(s))
}

// endpointNodesRun reports whether each node with an endpoint of the instance has a process left.
func (r *role) endpointNodesRun(s *state) bool {
	for rank, node := range s.nodes {
		isEndpoint := rank == 0 || r.allEndpoints
		runs := false
		for other, at := range s.nodes {
			runs = runs || at == node && !s.done[other]
		}
		if isEndpoint && !runs {
			return false
		}
	}
	return true
}

func (s *state) isDone() bool { return !slices.Contains(s.done, false) }

// ending is a predicted end of a run.
type ending struct {
	orderly bool
	stopped bool // orderly, from outside
	early   bool // roles may not have started yet
	code    int
	kind    record.Kind
	child   string // the process that is the cause; empty: any, or none
	node    int    // of the cause
	how     string // part of the message of the cause
	// losses has the nodes of which any may be the lost ones, however that was noticed; nil: node.
	losses []int
}

// model is a run, as the documentation says that it behaves.
type model struct {
	roles  []*role
	size   int   // number of nodes
	spares []int // nodes that are left for places of others
	states map[string][]*state
	common map[string]int // how often all instances of a role have failed together
	dead   map[int]bool   // member indices of the daemons that are dead
	gate   bool
	end    *ending
}

func newModel(s schedule) *model {
	m := &model{
		roles: s.roles, size: s.size(), spares: countTo(s.nodes, s.size()),
		states: make(map[string][]*state), common: make(map[string]int), dead: make(map[int]bool),
	}
	for _, r := range s.roles {
		for _, places := range r.places {
			m.states[r.name] = append(m.states[r.name], &state{
				done: make([]bool, len(places)), unready: make([]bool, len(places)),
				nodes: slices.Clone(places),
			})
		}
	}
	return m
}

// clone returns a copy of the model.
func (m *model) clone() *model {
	c := *m
	c.spares, c.dead, c.common = slices.Clone(m.spares), maps.Clone(m.dead), maps.Clone(m.common)
	c.states = make(map[string][]*state)
	for name, states := range m.states {
		for _, s := range states {
			own := *s
			own.done, own.nodes = slices.Clone(s.done), slices.Clone(s.nodes)
			own.unready = slices.Clone(s.unready)
			c.states[name] = append(c.states[name], &own)
		}
	}
	return &c
}

func (m *model) find(name string) *role {
	return m.roles[slices.IndexFunc(m.roles, func(r *role) bool { return r.name == name })]
}

// bringUp applies the starts that fail, and everything else becomes ready.
func (m *model) bringUp(bad []fault) {
	for _, f := range bad {
		m.gate = m.find(f.role).primary
		m.apply(f)
		if m.end != nil {
			m.end.early = true
			return
		}
	}
	m.gate = true
	for _, r := range m.roles {
		for i, s := range m.states[r.name] {
			s.wasReady = s.wasReady || !s.lost
			if r.oneshot && !s.lost {
				m.states[r.name][i].done = slices.Repeat([]bool{true}, len(s.done))
			}
		}
	}
}

// apply applies a fault.
func (m *model) apply(f fault) {
	if m.end != nil {
		return
	}
	if f.kind == stopRun {
		m.end = &ending{orderly: true, stopped: true, code: 143}
		return
	}
	if f.isDaemon() {
		if f.isLoss() {
			m.loseMember(f.node)
		}
		return
	}
	r := m.find(f.role)
	switch how := f.how(r); f.kind {
	case flap:
		s := m.states[f.role][f.index]
		s.flapped, s.unready[f.rank] = true, f.stays
	case finishProcess:
		m.states[f.role][f.index].done[f.rank] = true
		m.endIfFinished()
	case badRestart:
		before := m.states[f.role][f.index].generation
		m.exit(r, f, 137, how)
		if m.end == nil && m.states[f.role][f.index].generation > before {
			m.states[f.role][f.index].failedStart = before + 1
			m.exit(r, f, f.code, "before it was ready")
		}
	default:
		m.exit(r, f, f.exitCode(), how)
	}
}

// loseMember applies the death of a daemon. A spare takes the place of its node if an instance may
// start again there, which is not counted as a restart, and none there is of a further job step.
func (m *model) loseMember(member int) {
	m.dead[member] = true
	node, jobStep := record.NodeOfMember(member, m.size), ""
	if number := record.StepOfMember(member, m.size); number > 0 {
		jobStep = jobSteps(m.roles)[number-1]
	}
	if at := slices.Index(m.spares, node); at >= 0 {
		if jobStep == "" {
			m.spares = slices.Delete(m.spares, at, at+1)
		}
		return
	}
	isMoved, maySpare := false, len(m.spares) > 0
	for _, r := range m.roles {
		for _, s := range m.states[r.name] {
			maySpare = maySpare && (r.jobStep == "" || !slices.Contains(s.nodes, node))
		}
	}
	for _, r := range m.roles {
		left := 0
		for _, s := range m.states[r.name] {
			mayMove := maySpare && r.restarts > 0
			switch isHere := slices.Contains(s.nodes, node) && r.jobStep == jobStep; {
			case s.lost:
				continue
			case isHere && !s.isDone() && !mayMove:
				s.lost = true
				continue
			case isHere && !s.isDone():
				isMoved = true
				s.begin()
				for rank, other := range s.nodes {
					if other == node {
						s.nodes[rank] = m.spares[0]
					}
				}
			}
			left++
		}
		if left < r.needs(true) {
			m.end = &ending{code: 76, kind: health.DaemonDied, node: member}
		}
	}
	if isMoved {
		m.spares = m.spares[1:]
	}
	if member == 0 {
		m.end = &ending{code: 76, kind: health.DaemonDied}
	}
	if m.end == nil {
		m.endIfFinished()
	}
}

// primaryKind returns the kind of a failure of a primary role: the ranks of a world are named.
func (r *role) primaryKind() record.Kind {
	if r.ranksPer > 0 {
		return health.RankFailed
	}
	return health.DriverFailed
}

// exit applies the exit of a process of an instance.
func (m *model) exit(r *role, f fault, code int, how string) {
	s := m.states[r.name][f.index]
	mayEnd := r.primary || r.oneshot
	if (s.wasReady || mayEnd) && s.restarts < r.restarts {
		s.begin()
		s.restarts++
		return
	}
	s.lost = true
	left := 0
	for _, other := range m.states[r.name] {
		if !other.lost {
			left++
		}
	}
	if left >= r.needs(m.gate) {
		m.endIfFinished()
		return
	}
	m.end = &ending{code: 77, kind: health.ServiceDied, child: r.processName(f.index, f.rank),
		node: s.nodes[f.rank], how: how}
	if r.primary {
		m.end.kind, m.end.code = r.primaryKind(), code
	}
	if f.kind == hangInstance { // no process is the cause
		m.end.kind, m.end.code, m.end.child = health.DeadlinePassed, code, ""
	}
}

// endIfFinished ends the run if all primary roles have ended as they should.
func (m *model) endIfFinished() {
	for _, r := range m.roles {
		if !r.primary {
			continue
		}
		done, lost := 0, 0
		for _, s := range m.states[r.name] {
			switch {
			case s.lost:
				lost++
			case s.isDone():
				done++
			}
		}
		if done+lost < len(r.places) || done < r.needs(true) {
			return
		}
	}
	m.end = &ending{orderly: true}
}

// minCommon is the number of instances from which a failure of all of them has a common cause.
const minCommon = 4

// applyStep applies faults that happen at the same time, in the order in which they are observed.
func (m *model) applyStep(s step) {
	for _, f := range s {
		m.apply(f)
	}
	if m.end != nil && (s[0].kind == loseTwo || s[0].kind == freezeDaemon) {
		for _, f := range s {
			m.end.losses = append(m.end.losses, f.node)
		}
	}
	if m.end != nil || s[0].kind != killAll || len(s) != len(m.states[s[0].role]) || len(s) < minCommon {
		return
	}
	for _, other := range m.states[s[0].role] {
		if other.lost {
			return
		}
	}
	if m.common[s[0].role]++; m.common[s[0].role] < 2 {
		return
	}
	r := m.find(s[0].role)
	m.end = &ending{code: 77, kind: health.ServiceDied, node: -1, how: "have exited again"}
	if r.primary {
		m.end.kind, m.end.code = r.primaryKind(), 137
	}
}

// prediction is what a run must look like.
type prediction struct {
	// models has the state after the start, and after each step. The last one may have ended.
	models []*model
	// others has all states that are possible after the last step, if there are several.
	others []*model
	ends   []ending // one of these is the end; if empty, the run ends when it is told to finish
}

// predict predicts a run. It is a pure function.
func predict(drawn schedule) prediction {
	m := newModel(drawn)
	m.bringUp(drawn.bad)
	if drawn.isStoppedEarly {
		m.end = &ending{orderly: true, stopped: true, early: true, code: 143}
	}
	p := prediction{models: []*model{m}}
	for _, s := range drawn.steps {
		if m.end != nil {
			break
		}
		before := m
		if s[0].kind == loseTwo {
			p.others = before.afterTwoLosses(s)
			for _, other := range p.others {
				if other.end != nil {
					p.ends = append(p.ends, *other.end)
				}
			}
			m = p.others[0]
			p.models = append(p.models, m)
			break
		}
		m = m.clone()
		m.applyStep(s)
		p.models = append(p.models, m)
		if m.end == nil {
			continue
		}
		for _, order := range permutations(s) {
			other := before.clone()
			other.applyStep(order)
			p.ends = append(p.ends, *other.end)
			m.mayStart(other)
		}
	}
	if m.end != nil && len(p.ends) == 0 {
		p.ends = []ending{*m.end}
	}
	return p
}

// orderedDelay is the time between two losses from which they are noticed in their order.
const orderedDelay = 300 * time.Millisecond

// afterTwoLosses returns the states that are possible after the losses of two nodes. They may be
// noticed in any order, unless one comes later, and an instance that both concern may start again
// with each of its new nodes or once with both.
func (m *model) afterTwoLosses(s step) (all []*model) {
	orders := permutations(s)
	if s[1].after >= orderedDelay {
		orders = orders[:1]
	}
	for _, order := range orders {
		after := m.clone()
		after.applyStep(order)
		all = append(all, after)
		once := after.clone()
		for name, states := range once.states {
			for i, s := range states {
				if !s.lost {
					s.generation = min(s.generation, m.states[name][i].generation+1)
				}
			}
		}
		all = append(all, once)
	}
	return all
}

// mayStart records the generations that may have started because faults were observed in another
// order.
func (m *model) mayStart(other *model) {
	for name, states := range m.states {
		for i, s := range states {
			s.generation = max(s.generation, other.states[name][i].generation)
		}
	}
}

// permutations returns all orders of faults.
func permutations(s step) (all []step) {
	if len(s) <= 1 {
		return []step{s}
	}
	for i := range s {
		rest := slices.Delete(slices.Clone(s), i, i+1)
		for _, order := range permutations(rest) {
			all = append(all, append(step{s[i]}, order...))
		}
	}
	return all
}

// endLevel returns the number of the level with which a role is stopped.
func endLevel(roles []*role, r *role) int {
	if r.primary {
		return 0
	}
	level := 1
	for _, other := range roles {
		if !other.primary && slices.Contains(other.after, r.name) {
			level = max(level, 1+endLevel(roles, other))
		}
	}
	return level
}
