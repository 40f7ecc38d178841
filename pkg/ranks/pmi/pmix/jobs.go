package pmix

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/bringupd/bringupd/internal/textutil"
	"github.com/bringupd/bringupd/pkg/ranks/pmi"
)

// SetHandlers sets the handlers of the ranks' requests. It must be called once, before any call of
// [Server.AddJob].
func (s *Server) SetHandlers(clients Handlers) { s.Handlers = clients }

// AddJob registers a job. A job without ranks on this node must be registered too, because ranks of
// other jobs may communicate with it.
func (s *Server) AddJob(ctx context.Context, job *pmi.Job) error {
	if job.Name == "" || len(job.Name) > maxNamespaceLength {
		return fmt.Errorf("cannot serve PMIx to a job %q: its name must have 1 to %d bytes: %w",
			textutil.SingleLine(pmi.PublicName(job.Name), 80), maxNamespaceLength, pmi.BadParam)
	}
	local := job.LocalRanks(s.Node)
	s.registerJob(job, local)
	_, err := s.requestChild(ctx, doAddJob, func(f *frame) {
		f.addText(job.Name)
		f.addNumber(len(local))
		f.addAttributes(jobAttributes(job, s.Node, s.cfg.Dir.Path()))
	})
	for _, rank := range local {
		if err == nil {
			who := pmi.ProcID{Job: job.Name, Rank: rank}
			_, err = s.requestChild(ctx, doAddClient, func(f *frame) { f.addProc(who) })
		}
	}
	if err != nil {
		return fmt.Errorf("cannot serve PMIx to %s: %w", pmi.PublicName(job.Name), err)
	}
	return nil
}

func (s *Server) registerJob(job *pmi.Job, local []int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.jobs[job.Name] = job
	for _, rank := range local {
		c := &clientState{}
		c.lifeCtx, c.endLife = context.WithCancelCause(s.ctx)
		s.clients[pmi.ProcID{Job: job.Name, Rank: rank}] = c
	}
}

// RemoveJob removes a job that has ended, and notifies the ranks of other jobs on this node that
// registered for this event.
func (s *Server) RemoveJob(ctx context.Context, job string) error {
	s.mu.Lock()
	delete(s.jobs, job)
	for p, c := range s.clients {
		if p.Job == job {
			c.endLife(pmi.Ended)
			delete(s.clients, p)
		}
	}
	s.mu.Unlock()
	err := s.notifyEnd(ctx, pmi.ProcID{Job: job, Rank: pmi.AllRanks}, pmi.Ended, nil, s.NotifyRanks)
	if _, failed := s.requestChild(ctx, doRemoveJob, func(f *frame) { f.addText(job) }); failed != nil {
		return failed
	}
	return errors.Join(err, s.cfg.Dir.Root().RemoveAll(job))
}

// RankEnviron returns the environment variables, as NAME=VALUE, with which a rank connects to its
// server.
func (s *Server) RankEnviron(ctx context.Context, rank pmi.ProcID) ([]string, error) {
	list, err := s.requestChild(ctx, doEnvironment, func(f *frame) { f.addProc(rank) })
	if err != nil {
		return nil, err
	}
	r := &frameReader{rest: list}
	env := r.readTexts()
	if r.malformed {
		return nil, errMalformed
	}
	return env, nil
}

// FetchModex waits until a rank of this node has committed its data, and returns the data. It
// returns an error if the rank has ended.
func (s *Server) FetchModex(ctx context.Context, of pmi.ProcID) ([]byte, error) {
	s.mu.Lock()
	c := s.clients[of]
	s.mu.Unlock()
	if c == nil {
		return nil, fmt.Errorf("cannot get the data that %v has committed: it does not run on %s: %w", of,
			s.cfg.Host, pmi.NotFound)
	}
	ctx, stop := withEither(ctx, c.lifeCtx)
	defer stop()
	return s.requestChild(ctx, doModex, func(f *frame) { f.addProc(of) })
}

// withEither returns a context that ends when either of two contexts ends.
func withEither(ctx, other context.Context) (both context.Context, stop func()) {
	both, cancel := context.WithCancelCause(ctx)
	forget := context.AfterFunc(other, func() { cancel(context.Cause(other)) })
	return both, func() { forget(); cancel(nil) }
}

// NotifyRanks notifies the ranks of this node of an event on another node.
func (s *Server) NotifyRanks(ctx context.Context, e pmi.Event) error {
	_, err := s.requestChild(ctx, doEvent, func(f *frame) {
		f.addNumber(e.Code)
		f.addProc(e.Source)
		f.addByte(byte(e.Range))
		f.addNumber(e.Count)
		f.addBytes(e.Info)
	})
	return err
}

// rangeSession is PMIX_RANGE_SESSION: all processes of the allocation.
const rangeSession = 4

// notifyEnd sends an event about the end of a process or job. Only ranks that registered for
// exactly this event receive it, because MPI's default event handlers abort.
func (s *Server) notifyEnd(
	ctx context.Context, to pmi.ProcID, what pmi.Status, more []attribute,
	send ...func(context.Context, pmi.Event) error,
) error {
	about := append([]attribute{{"pmix.evproc", typeProc, to}, {"pmix.evnondef", typeBool, true}}, more...)
	packed, err := s.requestChild(ctx, doPack, func(f *frame) { f.addAttributes(about) })
	if err != nil {
		return fmt.Errorf("cannot report the end of %v: %w", to, err)
	}
	e := pmi.Event{Code: int(what), Source: to, Range: rangeSession, Count: len(about), Info: packed}
	for _, one := range send {
		err = errors.Join(err, one(ctx, e))
	}
	return err
}

// ReportDeath notifies the ranks of all nodes that registered for it that a rank of this node has
// ended prematurely, with an exit status. It cancels the rank's own requests and the requests for
// its data.
func (s *Server) ReportDeath(ctx context.Context, rank pmi.ProcID, status int) error {
	s.mu.Lock()
	c := s.clients[rank]
	s.mu.Unlock()
	if c != nil {
		c.endLife(fmt.Errorf("%v has ended: %w", rank, pmi.Unreachable))
	}
	return s.notifyEnd(ctx, rank, pmi.Aborted, []attribute{{"pmix.exit.code", typeInt, status}}, s.NotifyRanks,
		s.Peers.NotifyNodes)
}

// ClientState reports whether a rank has connected to the server, and whether it has finalized.
func (s *Server) ClientState(rank pmi.ProcID) (spoke, finalized bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	c := s.clients[rank]
	return c != nil && c.connected, c != nil && c.finalized
}

// jobAttributes returns the attributes with which a job is registered at the library of a node. MPI
// libraries cannot start without the maps and the rank, local rank and node rank of each process,
// and Intel MPI also requires the universe's size; the rest is used later. A library derives from
// pmix.nodeid which ranks share a node, so this number refers to the nodes of pmix.nmap, which
// contains only nodes with ranks of the job.
func jobAttributes(job *pmi.Job, node int, dir string) []attribute {
	var hosts, byNode []string
	nodeID := make(map[int]int) // index in the node map of each node with ranks of the job
	for place, host := range job.Hosts {
		if local := job.LocalRanks(place); len(local) > 0 {
			nodeID[place] = len(hosts)
			hosts, byNode = append(hosts, host), append(byNode, formatNumbers(local))
		}
	}
	apps := 1
	if job.Apps != nil {
		apps = slices.Max(job.Apps) + 1
	}
	infos := []attribute{
		{"pmix.nmap", typeNodeMap, strings.Join(hosts, ",")}, {"pmix.pmap", typeRankMap, strings.Join(byNode, ";")},
		{"pmix.job.size", typeUint32, len(job.Nodes)}, {"pmix.univ.size", typeUint32, job.UniverseSize},
		{"pmix.max.size", typeUint32, job.UniverseSize},
		{"pmix.job.napps", typeUint32, apps}, {"pmix.num.nodes", typeUint32, len(hosts)},
		{"pmix.jobid", typeString, job.Name},
		{"pmix.spawned", typeBool, job.Parent != nil}, {"pmix.tmpdir", typeString, dir},
		{"pmix.nsdir", typeString, filepath.Join(dir, job.Name)},
	}
	if job.Parent != nil {
		infos = append(infos, attribute{"pmix.parent", typeProc, *job.Parent})
	}
	// Add the attributes of this node.
	if local := job.LocalRanks(node); len(local) > 0 {
		infos = append(infos, attribute{"pmix.local.size", typeUint32, len(local)},
			attribute{"pmix.node.size", typeUint32, len(local)},
			attribute{"pmix.lpeers", typeString, formatNumbers(local)},
			attribute{"pmix.lldr", typeRank, local[0]}, attribute{"pmix.nodeid", typeUint32, nodeID[node]})
	}
	return append(infos, rankAttributes(job, nodeID)...)
}

func rankAttributes(job *pmi.Job, nodeID map[int]int) (infos []attribute) {
	local, inApp, leader := make(map[int]int), make(map[int]int), make(map[int]int)
	for rank, node := range job.Nodes {
		app := job.CommandIndex(rank)
		if inApp[app] == 0 {
			leader[app] = rank
		}
		infos = append(infos, attribute{"pmix.pdata", typeArray, []attribute{
			{"pmix.rank", typeRank, rank}, {"pmix.appnum", typeUint32, app}, {"pmix.apprank", typeRank, inApp[app]},
			{"pmix.aldr", typeRank, leader[app]},
			{"pmix.grank", typeRank, rank}, {"pmix.lrank", typeUint16, local[node]},
			{"pmix.nrank", typeUint16, local[node]},
			{"pmix.nodeid", typeUint32, nodeID[node]}, {"pmix.hname", typeString, job.Hosts[node]},
		}})
		local[node]++
		inApp[app]++
	}
	return infos
}

func formatNumbers(list []int) string {
	words := make([]string, len(list))
	for i, n := range list {
		words[i] = strconv.Itoa(n)
	}
	return strings.Join(words, ",")
}
