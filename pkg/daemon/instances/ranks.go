package instances

import (
	"cmp"
	"context"
	"errors"
	"io"
	"net"
	"runtime"
	"slices"
	"time"

	"go.uber.org/zap"

	"github.com/bringupd/bringupd/internal/envlist"
	"github.com/bringupd/bringupd/pkg/daemon/deps"
	"github.com/bringupd/bringupd/pkg/daemon/lifecycle"
	"github.com/bringupd/bringupd/pkg/daemon/planning"
	"github.com/bringupd/bringupd/pkg/daemon/world"
	"github.com/bringupd/bringupd/pkg/framework"
	"github.com/bringupd/bringupd/pkg/health"
	"github.com/bringupd/bringupd/pkg/process"
	"github.com/bringupd/bringupd/pkg/ranks"
	"github.com/bringupd/bringupd/pkg/ranks/affinity"
	"github.com/bringupd/bringupd/pkg/ranks/rendezvous"
	"github.com/bringupd/bringupd/pkg/roles"
	"github.com/bringupd/bringupd/pkg/roles/launcher"
	"github.com/bringupd/bringupd/pkg/service"
	"github.com/bringupd/bringupd/pkg/signal"
)

// placeRanks returns the plan of the ranks of a generation, which is a world of its own, and the
// places of its nodes.
func placeRanks(facts []roles.NodeFacts, role *roles.RolePlan, instance *roles.Instance,
	generation int) (rec *world.Placement, places []int) {
	rec = &world.Placement{RestartCount: generation, MaxRestarts: role.Restarts.Max}
	places = instance.Places()
	if role.IsFlagWorld() { // ranks can be spawned on nodes without any
		places = role.Nodes
	}
	indexes := make(map[int]int)
	for index, place := range places {
		indexes[place] = index
		rec.Hosts = append(rec.Hosts, facts[place].Host)
	}
	rec.PerNode = make([]int, len(places))
	for _, p := range instance.Processes {
		rec.PerNode[indexes[p.Place]]++
	}
	rec.Slots = rec.PerNode
	first := facts[places[0]]
	rec.MasterAddress, rec.MasterPort = first.Address, planning.RendezvousPort(first, instance, generation)
	return rec, places
}

// PlaceFlagRanks returns the plan of the ranks of flags on the nodes of the team, or nil if the roles are
// others. slots is the number of ranks that each node can have, including spawned ones; 0: as many as
// when the run begins.
func PlaceFlagRanks(plan *roles.Plan, slots int) *world.Placement {
	at := slices.IndexFunc(plan.Roles, func(r roles.RolePlan) bool { return r.IsFlagWorld() && len(r.Instances) > 0 })
	if at < 0 {
		return nil
	}
	role := &plan.Roles[at]
	rec, _ := placeRanks(plan.Nodes, role, &role.Instances[0], 0)
	rec.MasterPort, rec.Slots = plan.Nodes[0].FirstPort, slices.Clone(rec.PerNode)
	for i, node := range plan.Nodes {
		rec.Slots[i] = max(rec.Slots[i], cmp.Or(slots, node.Slots, role.Placement.RanksPerNode))
	}
	return rec
}

// FlagGenerationID returns the identity of the world of a generation of the ranks of flags.
func FlagGenerationID(run *signal.Dir, number, generation int) world.ID {
	if generation == 0 {
		return world.RunID(run.Name(), run.Nonce())
	}
	return world.GenerationID(run.Name(), run.Nonce(), "", number, generation)
}

// generationWorld is this node's part of the world that a generation of an instance is.
type generationWorld struct {
	*supervisor
	node    *world.Node
	local   *ranks.LocalRanks
	layout  affinity.Node
	kinds   affinity.ResourceKinds
	index   int      // index of this node in the world
	hosts   []string // hosts of the nodes of the world
	isAlone bool     // no other process of a role is planned on this node
	stop    func()   // stops to watch the end of the world
	end     func()   // ends the tasks of this part
	// starting limits the ranks of flags that are started at the same time: each start occupies an
	// OS thread.
	starting chan struct{}
	life     context.Context       // ends with the generation
	fail     func(*health.Failure) // ends it
}

// openWorld opens this node's part of the world of a generation, and starts its MPI servers. fail
// is called when the world cannot go on.
func (s *supervisor) openWorld(ctx context.Context, number int, fail func(*health.Failure)) (*generationWorld, error) {
	if s.role.IsFlagWorld() {
		w := s.openFlagWorld(number)
		return w, w.start(ctx, fail)
	}
	plan := s.known().Plan
	rec, places := placeRanks(plan.Nodes, s.role, s.instance, number)
	id := world.GenerationID(s.cfg.Dir.Name(), s.cfg.Dir.Nonce(), s.instanceName(), s.instance.Number, number)
	w := &generationWorld{supervisor: s, hosts: rec.Hosts,
		index: slices.Index(places, s.known().place), isAlone: s.isAloneOnNode(plan)}
	life, end := context.WithCancel(s.cfg.WorkCtx)
	w.end = end
	cfg := s.cfg.Host.WorldConfig().Within(life)
	w.layout, w.kinds = cfg.Layout, cfg.BindKinds
	own := *cfg.Config
	own.World.GoOn = s.role.Placement.RanksGoOn // otherwise an instance fails as one
	cfg.Config = &own
	if !s.spans {
		head := newWorldHead(s.cfg.Publisher, rec, id, cfg.Background)
		cfg.RendezvousLink = localLink(head, cfg.Background)
	}
	w.node = world.OpenNode(life, world.Config{
		NodeConfig: cfg, ID: id, Placement: rec, NodeIndex: w.index, Output: s.rankWriter,
		ReportStep: s.stepReporter(number),
		PMIx:       world.StartPMIx(s.pmixConfig(&own, rec, w.index, id.Key), cfg.Background, s.cfg.Log),
	})
	w.local = w.node.AddRanks()
	return w, w.start(ctx, fail)
}

// openFlagWorld opens this node's part of the world that a generation of the ranks of flags is.
func (s *supervisor) openFlagWorld(number int) *generationWorld {
	cfg := s.cfg.Host.WorldConfig()
	rec := PlaceFlagRanks(s.known().Plan, cfg.World.MaxPerNode)
	rec.RestartCount, rec.MaxRestarts = s.known().record.RestartCount+number, cfg.After.Restarts
	w := &generationWorld{supervisor: s, index: s.known().place,
		starting: make(chan struct{}, 2*runtime.GOMAXPROCS(0))}
	life, end := context.WithCancel(s.cfg.WorkCtx)
	w.end = func() {
		if s.cfg.RunCtx.Err() == nil { // otherwise its tasks end with those of the run
			end()
		}
	}
	w.node = s.cfg.Host.OpenFlagWorld(life, rec, w.index, s.instance.Number, number)
	w.local = w.node.InitialRanks()
	return w
}

// start starts the MPI servers, and watches the end of the world. It closes the world if it fails.
func (w *generationWorld) start(ctx context.Context, fail func(*health.Failure)) error {
	w.fail = fail
	stopWatch := context.AfterFunc(w.node.Ended(), func() {
		if f, ok := errors.AsType[*health.Failure](context.Cause(w.node.Ended())); ok && w.cfg.RunCtx.Err() == nil {
			fail(f)
		}
	})
	w.stop = func() { stopWatch() }
	err := w.node.StartServers(ctx)
	if err != nil {
		w.close()
	}
	return err
}

// rankOutputTimeout is how long the end of a world waits before it gives up output that is not read.
// The logs of the ranks have it in any case.
const rankOutputTimeout = 10 * time.Second

// close ends this part of the world, after its ranks have ended.
func (w *generationWorld) close() {
	w.stop()
	ctx, cancel := context.WithTimeoutCause(w.cfg.GraceCtx, rankOutputTimeout, health.ErrDeadline)
	defer cancel()
	if err := w.node.Close(ctx); err != nil {
		w.cfg.Log.Warn("not all output of the ranks was passed on: it is in their logs", zap.Error(err))
	}
	w.end()
}

// localLink returns the link to the head's side of a world that has only this node.
func localLink(head *world.Head, background func(task func(ctx context.Context))) world.RendezvousLink {
	return world.RendezvousLink{
		Dial: func(context.Context, string) (io.ReadWriteCloser, error) {
			near, far := net.Pipe()
			background(func(ctx context.Context) { head.Rendezvous.ServeNode(ctx, 0, far) })
			return near, nil
		},
		Await: func(context.Context) error { return nil },
	}
}

// pmixConfig returns the configuration of the PMIx server of a world with a key.
func (s *supervisor) pmixConfig(cfg *deps.Config, rec *world.Placement, index int, key string) world.PMIxConfig {
	return world.PMIxConfig{
		Config: cfg, Argv: s.rankProgram(), Environ: s.programEnviron(cfg), Host: world.NodeNames(rec.Hosts)[index],
		ServerNumber: s.instance.Number*s.cfg.Size + s.ownNode(), DirName: "pmix" + key,
		PrivateDir: s.cfg.Host.PrivateDir,
	}
}

// rankProgram returns the program of the ranks, by which it is determined whether they may use MPI:
// the words of the command, or the shell that runs it if it is more than one program.
func (s *supervisor) rankProgram() []string {
	if words := s.role.Program.SimpleCommand(); words != nil {
		return words
	}
	return service.RunInShell(s.role.Program.Shell, s.role.Program.Command)
}

// programEnviron returns the environment in which the program of the ranks is searched for.
func (s *supervisor) programEnviron(cfg *deps.Config) []string {
	return envlist.With(cfg.Environ, s.role.Program.Env)
}

// isAloneOnNode reports whether no other instance has processes on this node.
func (s *supervisor) isAloneOnNode(plan *roles.Plan) bool {
	for _, role := range plan.Roles {
		for _, instance := range role.Instances {
			others := instance.Number != s.instance.Number
			if others && slices.ContainsFunc(instance.Processes,
				func(p roles.Process) bool { return p.Place == s.known().place }) {
				return false
			}
		}
	}
	return true
}

// affinityOf returns the binding of a rank: to its GPUs and what is near them. Ranks without GPUs
// share the node if no other role runs there, and are not bound otherwise.
func (w *generationWorld) affinityOf(p roles.Process) affinity.Affinity {
	switch {
	case len(p.GPUs) > 0:
		return w.layout.BindGPUs(p.GPUs, w.kinds)
	case !w.isAlone:
		return affinity.Affinity{}
	}
	layout := w.layout
	layout.GPUs = nil
	return layout.AssignRanks(len(w.processes), w.kinds)[p.Local]
}

// startRank starts the process of a rank, and returns a function that explains its exit: see
// [ranks.LocalRanks.AwaitExit].
func (w *generationWorld) startRank(ctx context.Context, p roles.Process,
	start processStart) (child process.Handle, explain func(context.Context) error, err error) {
	rank := ranks.Rank{Rank: p.Rank, Node: w.index, Local: p.Local}
	base := envlist.With(start.spec.Env, w.node.SocketEnviron())
	// An MPI that reads the launcher's variables must not see the nodes of other worlds.
	base = envlist.With(base, launcher.SubsetVariables(launcher.EnvironmentOf(base), w.hosts, w.index))
	fit, err := w.node.BuildSpec(ctx, rank, ranks.RankProgram{
		Name: start.spec.Name, Argv: start.spec.Argv, BaseEnv: base, Affinity: w.affinityOf(p), UserEnv: start.userEnv,
	})
	if err != nil {
		return nil, nil, err
	}
	w.cfg.Children.SetSocket(start.spec.Name, w.node.SocketPath())
	child, err = w.local.StartRank(ctx, rank, fit)
	return child, func(ctx context.Context) error { return w.local.AwaitExit(ctx, rank, child, fit) }, err
}

// startFlagRank starts the process of a rank of flags. Its command, name and environment are those of
// the world. A start in progress when ctx ends goes on for a moment: the rank may run already.
func (w *generationWorld) startFlagRank(ctx context.Context, p roles.Process,
	number int) ([]startedProcess, *health.Failure) {
	rank := w.local.Ranks[p.Local]
	if name := service.RankName(rank.Rank); number > 0 {
		w.cfg.Children.SetLogName(name, signal.RankLogName(rank.Rank, number))
	}
	var child process.Handle
	var fit ranks.RankSpec
	var startErr error
	begin := func(ctx context.Context) (process.Handle, error) {
		select {
		case w.starting <- struct{}{}:
			defer func() { <-w.starting }()
		case <-ctx.Done():
			return nil, context.Cause(ctx)
		}
		starting, started := w.cfg.ExtendForStart(ctx)
		defer started()
		child, fit, startErr = w.local.Start(starting, rank)
		return child, startErr
	}
	exited := make(chan error, 1)
	one := startedProcess{process: p}
	one.explain = func(ctx context.Context) error {
		select {
		case err := <-exited:
			return err
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	svc := framework.NewService(service.RankName(rank.Rank), nil, nil, nil)
	started, failure := w.startProgram(ctx, one, svc, begin)
	switch {
	case failure == nil:
		w.cfg.Background(func(context.Context) { exited <- w.awaitRankExit(rank, child, fit) })
	case startErr != nil && ctx.Err() == nil:
		failure = health.AsFailure(startErr)
	}
	return started, failure
}

// awaitRankExit waits for the end of a rank of flags, or of the generation. A failure ends that at once,
// while other ranks may still be started.
func (w *generationWorld) awaitRankExit(rank ranks.Rank, child process.Handle, fit ranks.RankSpec) error {
	err := w.local.AwaitExit(w.life, rank, child, fit)
	if f := w.rankFailure(err); f != nil && !w.role.EndsWithAnyCode() {
		w.fail(f)
	}
	return err
}

// rankWriter returns the writer of a rank's standard output or standard error. A process completes its
// last line.
func (s *supervisor) rankWriter(rank int, isErr bool) io.Writer {
	out, err := s.writers(roles.Process{Rank: rank})
	if isErr {
		return err
	}
	return out
}

// newWorldHead returns the head's side of the world of a generation.
func newWorldHead(p *lifecycle.Publisher, rec *world.Placement, id world.ID,
	background func(task func(ctx context.Context))) *world.Head {
	return world.NewHead(world.HeadConfig{
		Placement: rec, JobName: id.JobName, Trail: p.Events, Log: p.Log, Background: background,
	})
}

// findWorld returns the world with a key of an instance that spans several nodes, when one of these
// connects. Worlds of earlier generations of the instance are removed.
func (h *Head) findWorld(key string) (found rendezvous.World, ok bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	number, generation, ok := world.ParseGenerationKey(key)
	if !ok || number < 0 || number >= len(h.instances) {
		return found, false
	}
	state := h.instances[number]
	role, instance := state.Role, state.Instance
	switch {
	case state.Generation != generation || !role.Placement.HasRanks:
		return found, false
	case state.worldKey == key:
		return state.world, true
	}
	var head *world.Head
	rec, places := placeRanks(h.plan.Offers, role, instance, generation)
	if role.IsFlagWorld() {
		head = h.cfg.FlagRanks.NewWorld(FlagGenerationID(h.cfg.Dir, number, generation).JobName)
	} else {
		id := world.GenerationID(h.cfg.Dir.Name(), h.cfg.Dir.Nonce(), instanceName(role, instance), number, generation)
		head = newWorldHead(h.cfg.Publisher, rec, id, h.cfg.Background)
	}
	var nodes []int // the daemons that connect
	for _, place := range places {
		nodes = append(nodes, h.memberOf(h.plan.Offers[place].NodeIndex, role))
	}
	found = rendezvous.World{Head: head.Rendezvous, Nodes: func() []int { return nodes }}
	h.cfg.Worlds.Remove(state.worldKey)
	h.cfg.Worlds.Add(key, found)
	state.worldKey, state.world = key, found
	return found, true
}
