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

// Serve says what becomes of what ranks ask. It is called once, before any Add.
func (s *Server) Serve(clients Clients) { s.Clients = clients }

// Add has a job served, also one without ranks on this node: others may meet it.
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

// Remove forgets a job that is over, once it has told those ranks of others here that want to know.
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

// Fork returns the variables, NAME=VALUE, by which a rank finds its server.
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

// Modex returns what a rank of this node has committed, once it has, or an error once it has died.
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

// while returns a context that ends with either.
func while(ctx, other context.Context) (both context.Context, stop func()) {
	both, cancel := context.WithCancelCause(ctx)
	forget := context.AfterFunc(other, func() { cancel(context.Cause(other)) })
	return both, func() { forget(); cancel(nil) }
}

// Tell tells the ranks here of an event on another node.
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

// rangeSession is PMIX_RANGE_SESSION: all of the allocation.
const rangeSession = 4

// teller tells ranks of an event, here or on other nodes.
type teller func(ctx context.Context, event pmi.Event) error

// happened tells of what became of a process. Only who has asked for just that is to know: MPI's handlers of all else abort.
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

// Died tells the ranks of all nodes that want to know that one of this node has ended before its time, with that status. What it has asked
// for, or was asked, is given up.
func (s *Server) Died(ctx context.Context, rank pmi.Proc, status int) error {
	s.mu.Lock()
	c := s.clients[rank]
	s.mu.Unlock()
	if c != nil {
		c.die(fmt.Errorf("%v has ended: %w", rank, pmi.Unreachable))
	}
	return s.happened(ctx, rank, pmi.Aborted, []info{{"pmix.exit.code", typeInt, status}}, s.Tell, s.Jobs.Notify)
}

// Spoke tells whether a rank has been a client, and whether it has taken its leave.
func (s *Server) Spoke(rank pmi.Proc) (spoke, finalized bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.clients[rank]
	return c != nil && c.spoke, c != nil && c.finalized
}
