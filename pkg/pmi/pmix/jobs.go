package pmix

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/bringupd/bringupd/pkg/pmi"
	"github.com/bringupd/bringupd/pkg/prose"
)

// Serve sets the handlers of the ranks' requests. It must be called once, before any call of
// [Server.Add].
func (s *Server) Serve(clients Clients) { s.Clients = clients }

// Add registers a job. A job without ranks on this node must be registered too, because ranks of
// other jobs may communicate with it.
func (s *Server) Add(ctx context.Context, job *pmi.Job) error {
	if job.Name == "" || len(job.Name) > longestName {
		return fmt.Errorf("cannot serve PMIx to a job %q: its name should have 1 to %d bytes: %w",
			prose.Line(pmi.Shown(job.Name), 80), longestName, pmi.BadParam)
	}
	local := job.Local(s.Node)
	s.know(job, local)
	_, err := s.order(ctx, doAddJob, func(f *frame) {
		f.text(job.Name)
		f.number(len(local))
		f.infos(describe(job, s.Node, s.cfg.Dir))
	})
	for _, rank := range local {
		if err == nil {
			_, err = s.order(ctx, doAddClient, func(f *frame) { f.proc(pmi.Proc{Job: job.Name, Rank: rank}) })
		}
	}
	if err != nil {
		return fmt.Errorf("cannot serve PMIx to %s: %w", pmi.Shown(job.Name), err)
	}
	return nil
}

// know adds a job and its local ranks to the server's state.
func (s *Server) know(job *pmi.Job, local []int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.jobs[job.Name] = job
	for _, rank := range local {
		c := &client{}
		c.life, c.die = context.WithCancelCause(s.ctx)
		s.clients[pmi.Proc{Job: job.Name, Rank: rank}] = c
	}
}

// Remove removes a job that has ended, and notifies the ranks of other jobs on this node that
// registered for this event.
func (s *Server) Remove(ctx context.Context, job string) error {
	s.mu.Lock()
	delete(s.jobs, job)
	for p, c := range s.clients {
		if p.Job == job {
			c.die(pmi.Ended)
			delete(s.clients, p)
		}
	}
	s.mu.Unlock()
	told := s.happened(ctx, pmi.Proc{Job: job, Rank: pmi.All}, pmi.Ended, nil, s.Tell)
	if _, err := s.order(ctx, doRemoveJob, func(f *frame) { f.text(job) }); err != nil {
		return err
	}
	return errors.Join(told, os.RemoveAll(filepath.Join(s.cfg.Dir, job)))
}

// Fork returns the environment variables, as NAME=VALUE, with which a rank connects to its server.
func (s *Server) Fork(ctx context.Context, rank pmi.Proc) ([]string, error) {
	list, err := s.order(ctx, doEnvironment, func(f *frame) { f.proc(rank) })
	if err != nil {
		return nil, err
	}
	r := &reader{left: list}
	env := r.texts()
	if r.broken {
		return nil, errBroken
	}
	return env, nil
}

// Modex waits until a rank of this node has committed its data, and returns the data. It returns an
// error if the rank has ended.
func (s *Server) Modex(ctx context.Context, of pmi.Proc) ([]byte, error) {
	s.mu.Lock()
	c := s.clients[of]
	s.mu.Unlock()
	if c == nil {
		return nil, fmt.Errorf("cannot tell what %v has committed: it does not run on %s: %w", of, s.cfg.Host, pmi.NotFound)
	}
	ctx, stop := while(ctx, c.life)
	defer stop()
	return s.order(ctx, doModex, func(f *frame) { f.proc(of) })
}

// while returns a context that ends when either of two contexts ends.
func while(ctx, other context.Context) (both context.Context, stop func()) {
	both, cancel := context.WithCancelCause(ctx)
	forget := context.AfterFunc(other, func() { cancel(context.Cause(other)) })
	return both, func() { forget(); cancel(nil) }
}

// Tell notifies the ranks of this node of an event on another node.
func (s *Server) Tell(ctx context.Context, e pmi.Event) error {
	_, err := s.order(ctx, doEvent, func(f *frame) {
		f.number(e.Code)
		f.proc(e.Source)
		f.byte(byte(e.Range))
		f.number(e.Count)
		f.bytes(e.Info)
	})
	return err
}

// rangeSession is PMIX_RANGE_SESSION: all processes of the allocation.
const rangeSession = 4

// teller sends an event to ranks of this node or of other nodes.
type teller func(ctx context.Context, event pmi.Event) error

// happened sends an event about the end of a process or job. Only ranks that registered for exactly
// this event receive it, because MPI's default event handlers abort.
func (s *Server) happened(ctx context.Context, to pmi.Proc, what pmi.Status, more []info, tell ...teller) error {
	about := append([]info{{"pmix.evproc", typeProc, to}, {"pmix.evnondef", typeBool, true}}, more...)
	packed, err := s.order(ctx, doPack, func(f *frame) { f.infos(about) })
	if err != nil {
		return fmt.Errorf("cannot tell what became of %v: %w", to, err)
	}
	e := pmi.Event{Code: int(what), Source: to, Range: rangeSession, Count: len(about), Info: packed}
	for _, tell := range tell {
		err = errors.Join(err, tell(ctx, e))
	}
	return err
}

// Died notifies the ranks of all nodes that registered for it that a rank of this node has ended
// prematurely, with an exit status. It cancels the rank's own requests and the requests for its
// data.
func (s *Server) Died(ctx context.Context, rank pmi.Proc, status int) error {
	s.mu.Lock()
	c := s.clients[rank]
	s.mu.Unlock()
	if c != nil {
		c.die(fmt.Errorf("%v has ended: %w", rank, pmi.Unreachable))
	}
	return s.happened(ctx, rank, pmi.Aborted, []info{{"pmix.exit.code", typeInt, status}}, s.Tell, s.Jobs.Notify)
}

// Spoke reports whether a rank has connected to the server, and whether it has finalized.
func (s *Server) Spoke(rank pmi.Proc) (spoke, finalized bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.clients[rank]
	return c != nil && c.spoke, c != nil && c.finalized
}
