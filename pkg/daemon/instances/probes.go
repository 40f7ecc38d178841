package instances

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/bringupd/bringupd/pkg/health"
	"github.com/bringupd/bringupd/pkg/roles"
	"github.com/bringupd/bringupd/pkg/service"
	"github.com/bringupd/bringupd/pkg/signal"
	"github.com/bringupd/bringupd/pkg/signal/record"
)

// probeInterval is the pause between two tries of a probe of a ready process.
const probeInterval = 5 * time.Second

// watchProbes repeats the probes of a ready process until ctx ends: it publishes changes of the node's
// readiness after the gate, and calls hangs with the last error when the alive probe has failed. The
// processes of a node take turns.
func (s *supervisor) watchProbes(ctx context.Context, hangs func(err error), one startedProcess,
	generation int, all *service.Readiness) {
	if one.alive == nil && one.ready == nil {
		return
	}
	p := one.process
	defer all.Forget(p.Rank)
	watch := func(probe *health.Probe, limits roles.ProbeLimits, t health.Tolerance,
		judge func(err error, hasFailed bool)) {
		if probe == nil {
			return
		}
		t.Try, t.Misses = limits.Try, limits.Misses
		pause := min(probeInterval, limits.Try)
		probe.Watch(ctx, t, roles.Turn(s.instance.Number+p.Rank, pause), pause, judge)
	}
	var watches sync.WaitGroup
	defer watches.Wait()
	watches.Go(func() {
		watch(one.alive, s.role.Alive.ProbeLimits, health.Tolerance{After: s.role.Alive.After},
			func(err error, hasFailed bool) {
				if hasFailed {
					hangs(err)
				}
			})
	})
	if !s.awaitControl(ctx, func(l signal.Listing) bool { return l.HasName(signal.NameGateOpen) }) {
		return
	}
	isReady, hasWarned := true, false
	watch(one.ready, s.role.Ready.ProbeLimits, health.Tolerance{FailsIfRefused: true},
		func(err error, hasFailed bool) {
			if hasFailed && !hasWarned {
				hasWarned = true
				s.cfg.Log.Warn(fmt.Sprintf("%s of %s is not ready any more, and is not listed until it is: %v",
					s.instanceName(), s.cfg.Name, err))
			}
			if isReady = err == nil || isReady && !hasFailed; ctx.Err() == nil {
				s.publishReadiness(generation, all.Update(p.Rank, isReady))
			}
		})
}

// publishReadiness publishes a change of the readiness of a generation, which may be none.
func (s *supervisor) publishReadiness(generation, change int) {
	if change == 0 {
		return
	}
	state := record.InstanceReady
	if change%2 == 1 {
		state = record.InstanceUnready
	}
	s.mark(generation, state, change)
	if old := change - 2; old > 0 && s.role.Ready.Probe != "" { // the state of that time is known by the changes since
		s.cfg.RemoveOldNames(signal.NodesDir, []string{s.markName(s.instance.Number, generation, state, old)})
	}
}

// watchPorts looks at the listeners on the ports of a generation until ctx ends. Without a probe, it
// publishes when the processes listen there.
func (s *supervisor) watchPorts(ctx context.Context, started []startedProcess, generation int) {
	watch := service.PortWatch{
		Name: s.instanceName() + " of " + s.cfg.Name, Log: s.cfg.Log, MayBeElsewhere: s.role.IsUnprobed(),
		OnListening: func() {
			s.setServing(s.instance.Number, true)
			s.mark(generation, record.InstanceReady, 1)
		},
	}
	for _, one := range started {
		for at, request := range s.role.Program.Ports {
			for i := range max(1, request.Count) {
				watch.Ports = append(watch.Ports, one.process.Ports[at]+i)
			}
		}
		if s.role.ListsListeners() && !one.isService && (one.process.Rank == 0 || s.role.Program.AllEndpoints) {
			watch.Endpoints = append(watch.Endpoints,
				service.ListeningProcess{Port: one.process.Ports[0], OwnsProcess: one.OwnsProcess})
		}
	}
	if len(watch.Endpoints) == 0 || s.cfg.Ports == nil {
		s.setServing(s.instance.Number, true)
	}
	if s.cfg.Ports != nil && len(watch.Ports) > 0 {
		watch.Run(ctx)
	}
}

// hasStranger reports whether another user listens on one of the ports from low to high.
func (s *supervisor) hasStranger(low, high int) bool {
	if s.cfg.Ports == nil {
		return false
	}
	found, _ := health.FindListeners(low, high)
	return slices.ContainsFunc(found, health.ListeningSocket.IsStrangers)
}
