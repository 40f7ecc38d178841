// Package pmix serves PMIx to the ranks of one node, by a libpmix that a child loads: Open MPI comes up by it. The child decides nothing; who the
// ranks are, and what becomes of what they ask, is told by the daemon.
package pmix

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"go.uber.org/zap"

	"github.com/bringupd/bringupd/pkg/pause"
	"github.com/bringupd/bringupd/pkg/pmi"
	"github.com/bringupd/bringupd/pkg/prose"
)

const (
	// ChildCommand is the subcommand that serves, which gets the library's path.
	ChildCommand = "pmix-child"
	// childVariable is set for the child. A program that forgot to have the subcommand must not start itself without end.
	childVariable = "BRINGUPD_PMIX_CHILD"
)

// IsChild tells whether a server has started this process.
func IsChild() bool { return os.Getenv(childVariable) != "" }

// Peers is what the ranks of one node ask of the others: a *pmi.Node.
type Peers interface {
	Gather(ctx context.Context, kind pmi.Meet, of []pmi.Proc, data []byte) ([]byte, error)
	Modex(ctx context.Context, of pmi.Proc) ([]byte, error)
	Publish(ctx context.Context, entries []pmi.Entry) error
	Lookup(ctx context.Context, keys []string, wait bool) ([]pmi.Entry, error)
	Unpublish(ctx context.Context, by pmi.Proc, keys []string) error
}

// Jobs is who makes new jobs, and tells other nodes of events: a *pmi.Node.
type Jobs interface {
	Spawn(ctx context.Context, s pmi.Spawn) (job string, err error)
	Notify(ctx context.Context, event pmi.Event) error
}

// Config is what a server needs.
type Config struct {
	Program string // that has the ChildCommand; empty: the one that runs
	Library Library
	Environ []string // of the child
	Number  int      // that no other node's server has
	Host    string
	Dir     string // of this user alone, where the library keeps its files
	Log     *zap.Logger
}

// Clients is what becomes of what ranks ask.
type Clients struct {
	Node  int // this node's place in the team
	Peers Peers
	Jobs  Jobs
	// Abort is told that a rank wants the job to end, and must not wait.
	Abort func(by pmi.Proc, code int, words string)
	// Said is told what a rank has the server print; isErr: on standard error. It must not wait.
	Said func(by pmi.Proc, text string, isErr bool)
}

// Server is the child, and what is known of its clients. Its methods may be called at the same time.
type Server struct {
	cfg Config
	Clients
	ctx   context.Context // of what clients ask; over when the child is
	stop  context.CancelFunc
	child *exec.Cmd
	in    io.WriteCloser
	said  tail
	tasks sync.WaitGroup
	out   chan frame    // on their way to the child
	done  chan struct{} // closed once the child has ended
	err   error         // set before that

	version string

	mu      sync.Mutex
	last    uint32
	waiting map[uint32]chan outcome
	clients map[pmi.Proc]*client
	jobs    map[string]*pmi.Job
}

// outcome is what came of an order.
type outcome struct {
	status pmi.Status
	data   []byte
}

// client is a rank of this node.
type client struct {
	spoke, finalized bool            // guarded by Server.mu
	life             context.Context // of what it asks, and of what it is asked
	die              context.CancelCauseFunc
}

const (
	// startTime is how long a library may take to start; on a busy machine of two processors it was 0.2 s.
	startTime = 10 * time.Second
	// endTime is how long it may take to end.
	endTime = 2 * time.Second
)

// Start starts the child. What it serves ends with ctx or Stop.
func Start(ctx context.Context, cfg Config) (*Server, error) {
	if IsChild() {
		return nil, fmt.Errorf("cannot start another PMIx server: this program has no subcommand %s", ChildCommand)
	}
	s := &Server{
		cfg: cfg, out: make(chan frame), done: make(chan struct{}), waiting: make(map[uint32]chan outcome), clients: make(map[pmi.Proc]*client), jobs: make(map[string]*pmi.Job),
	}
	s.ctx, s.stop = context.WithCancel(ctx)
	program := cfg.Program
	if program == "" {
		program = "/proc/self/exe"
	}
	s.child = &exec.Cmd{
		Path: program, Args: []string{"bringupd", ChildCommand, "--pmix=" + cfg.Library.Path}, Env: cfg.Library.environ(cfg.Environ),
		Dir: "/", Stderr: &s.said, SysProcAttr: &syscall.SysProcAttr{Setpgid: true},
	}
	in, err := s.child.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := s.child.StdoutPipe()
	if err == nil {
		err = s.child.Start()
	}
	if err != nil {
		return nil, fmt.Errorf("cannot start the PMIx server: %w", err)
	}
	s.in = in
	context.AfterFunc(s.ctx, func() { _ = in.Close() }) // by which the child ends
	s.tasks.Go(func() { s.listen(out) })
	s.tasks.Go(s.talk)
	starting, cancel := context.WithTimeout(ctx, startTime)
	defer cancel()
	version, err := s.order(starting, doInit, func(f *frame) {
		f.infos([]info{
			{"pmix.srv.nspace", typeString, "bringupd-server"}, {"pmix.srv.rank", typeRank, cfg.Number}, {"pmix.hname", typeString, cfg.Host},
			{"pmix.srvr.tmpdir", typeString, cfg.Dir}, {"pmix.sys.tmpdir", typeString, cfg.Dir},
		})
	})
	if err != nil {
		s.Stop()
		return nil, fmt.Errorf("cannot start a PMIx server by %s: %w", cfg.Library.Path, err)
	}
	s.version, _, _ = strings.Cut(string(version), " (")
	s.version, _, _ = strings.Cut(s.version, ",")
	cfg.Log.Debug("PMIx is served", zap.String("library", cfg.Library.Path), zap.ByteString("version", version))
	return s, nil
}

// Done is closed once the child has ended; Err then says how.
func (s *Server) Done() <-chan struct{} { return s.done }

// Err returns how the child has ended, where it should not have; nil before Done.
func (s *Server) Err() error {
	if !pause.Until(s.done, 0) {
		return nil
	}
	return s.err
}

// Version says which library it is, as "OpenPMIx 4.2.2".
func (s *Server) Version() string { return s.version }

// Stop ends the child, within seconds, and waits for all that the server has begun.
func (s *Server) Stop() {
	s.stop()
	if !pause.Until(s.done, endTime) {
		_ = s.child.Process.Kill()
	}
	s.tasks.Wait()
}

// listen takes in what the child says until it ends.
func (s *Server) listen(out io.Reader) {
	var broken error
	for {
		op, id, r, err := readFrame(out)
		if errors.Is(err, errBroken) {
			broken = err
			_ = s.child.Process.Kill()
		}
		if err != nil {
			break
		}
		s.hear(op, id, r)
	}
	ended := s.child.Wait()
	if s.ctx.Err() == nil {
		s.err = fmt.Errorf("the PMIx server died: %v%s", errors.Join(broken, ended), s.said.after(": "))
	}
	s.mu.Lock()
	waiting := s.waiting
	s.waiting = nil
	s.mu.Unlock()
	close(s.done)
	s.stop()
	for _, to := range waiting {
		close(to)
	}
}

// hear takes in one frame. What is asked is done on a goroutine of its own: it may wait for other nodes.
func (s *Server) hear(op byte, id uint32, r *reader) {
	if op == upDone {
		o := outcome{pmi.Status(r.signed()), r.bytes()}
		s.mu.Lock()
		to := s.waiting[id]
		delete(s.waiting, id)
		s.mu.Unlock()
		if to != nil {
			to <- o
		}
		return
	}
	answer, err := s.asked(op, r)
	if r.broken {
		err = errBroken
	}
	if err != nil {
		answer = refuse(err)
	}
	s.tasks.Go(func() { s.answer(op, id, answer) })
}

// answer has a question answered, and tells the child.
func (s *Server) answer(op byte, id uint32, answer func(ctx context.Context, f *frame) error) {
	rest := make(frame, 0)
	err := answer(s.ctx, &rest)
	if op == upNotify { // the child does not wait
		return
	}
	f := newFrame(doAnswer, id)
	f.status(err)
	if err != nil {
		rest = nothing(op)
	}
	if tooLong := len(*f)+len(rest) > longestFrame; tooLong {
		f = newFrame(doAnswer, id)
		f.status(pmi.NoSpace)
		rest = nothing(op)
	}
	*f = append(*f, rest...)
	_ = s.send(s.ctx, *f) // where it fails the child has ended
}

// nothing is what follows the status of an answer that is an error.
func nothing(op byte) (f frame) {
	switch op {
	case upFence, upModex, upSpawn, upLookup, upQuery:
		f.number(0)
	}
	return f
}

// talk passes frames on to the child: nobody else waits where that does not read.
func (s *Server) talk() {
	for {
		select {
		case f := <-s.out:
			length := binary.BigEndian.AppendUint32(nil, uint32(len(f)))
			_, err := s.in.Write(length)
			if err == nil {
				_, err = s.in.Write(f)
			}
			if err != nil {
				return // the child has ended, or will be
			}
		case <-s.ctx.Done():
			return
		}
	}
}

func (s *Server) send(ctx context.Context, f frame) error {
	if len(f) > longestFrame {
		return fmt.Errorf("cannot have the PMIx server do with %d bytes at once: %w", len(f), pmi.NoSpace)
	}
	select {
	case s.out <- f:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("cannot wait for the PMIx server any longer: %w", context.Cause(ctx))
	case <-s.ctx.Done():
		return s.gone()
	}
}

// order has the child do something and waits for what comes of it until ctx ends.
func (s *Server) order(ctx context.Context, op byte, fields func(*frame)) ([]byte, error) {
	to := make(chan outcome, 1)
	s.mu.Lock()
	if s.waiting == nil {
		s.mu.Unlock()
		return nil, s.gone()
	}
	s.last++
	id := s.last
	s.waiting[id] = to
	s.mu.Unlock()
	defer s.forget(id)
	f := newFrame(op, id)
	fields(f)
	if err := s.send(ctx, *f); err != nil {
		return nil, err
	}
	select {
	case o, ok := <-to:
		switch {
		case !ok:
			return nil, s.gone()
		case o.status != 0:
			return nil, o.status
		}
		return o.data, nil
	case <-ctx.Done():
		return nil, fmt.Errorf("cannot wait for the PMIx server any longer: %w", context.Cause(ctx))
	}
}

func (s *Server) forget(id uint32) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.waiting, id)
}

func (s *Server) gone() error {
	if err := s.Err(); err != nil {
		return err
	}
	return errors.New("the PMIx server has ended")
}

// Serve says what becomes of what ranks ask. It is called once, before any Add.
func (s *Server) Serve(clients Clients) { s.Clients = clients }

// Add has a job served, also one without ranks on this node: others may meet it.
func (s *Server) Add(ctx context.Context, job *pmi.Job) error {
	if job.Name == "" || len(job.Name) > longestName {
		return fmt.Errorf("cannot serve PMIx to a job %q: its name should have 1 to %d bytes: %w", prose.Line(job.Name, 80), longestName, pmi.BadParam)
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
		return fmt.Errorf("cannot serve PMIx to %s: %w", job.Name, err)
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

// happened tells of what became of a process. Only who has asked for just that is to know: MPI's handlers of all else abort.
func (s *Server) happened(ctx context.Context, to pmi.Proc, what pmi.Status, more []info, tell ...func(context.Context, pmi.Event) error) error {
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

// asked returns how a question is to be answered. It is read at once, in the order of the questions.
func (s *Server) asked(op byte, r *reader) (func(ctx context.Context, f *frame) error, error) {
	switch op {
	case upConnected, upFinalized:
		s.note(r.proc(), op == upFinalized)
		return agree, nil
	case upAbort:
		by, code, words := r.proc(), r.signed(), r.text()
		s.Abort(by, code, words)
		return agree, nil
	case upFence, upConnect, upDisconnect:
		return s.meet(op, r), nil
	case upModex:
		of, with := r.proc(), r.infos()
		return bounded(with, func(ctx context.Context, f *frame) error {
			data, err := s.Peers.Modex(ctx, of)
			f.bytes(data)
			return err
		}), nil
	case upPublish, upLookup, upUnpublish:
		return s.board(op, r), nil
	case upSpawn:
		order, with, err := readSpawn(r)
		return s.of(order.By, bounded(with, func(ctx context.Context, f *frame) error {
			job, err := s.Jobs.Spawn(ctx, order)
			f.text(job)
			return err
		})), err
	case upNotify:
		e := pmi.Event{Code: r.signed(), Source: r.proc(), Range: int(r.byte()), Count: int(r.number()), Info: r.bytes()}
		return func(ctx context.Context, _ *frame) error { return s.Jobs.Notify(ctx, e) }, nil
	case upQuery:
		return s.query(r), nil
	case upLog:
		by, with := r.proc(), r.infos()
		return func(context.Context, *frame) error { return s.print(by, with) }, nil
	}
	return nil, fmt.Errorf("cannot do %d: %w", op, pmi.NotSupported)
}

func agree(context.Context, *frame) error { return nil }

func refuse(err error) func(context.Context, *frame) error {
	return func(context.Context, *frame) error { return err }
}

// bounded has a question answered within the time that comes with it.
func bounded(with told, answer func(ctx context.Context, f *frame) error) func(context.Context, *frame) error {
	text, _ := with.of("pmix.timeout")
	seconds, err := strconv.Atoi(text)
	if err != nil || seconds <= 0 {
		return answer
	}
	return func(ctx context.Context, f *frame) error {
		ctx, cancel := context.WithTimeout(ctx, time.Duration(seconds)*time.Second)
		defer cancel()
		return answer(ctx, f)
	}
}

func (s *Server) note(who pmi.Proc, finalized bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c := s.clients[who]; c != nil {
		c.spoke, c.finalized = true, finalized
	}
}

// of has a question answered while who asks lives.
func (s *Server) of(who pmi.Proc, answer func(ctx context.Context, f *frame) error) func(context.Context, *frame) error {
	s.mu.Lock()
	c := s.clients[who]
	s.mu.Unlock()
	if c == nil {
		return answer
	}
	return func(ctx context.Context, f *frame) error {
		ctx, stop := while(ctx, c.life)
		defer stop()
		return answer(ctx, f)
	}
}

// meet is a fence, or one that connects or disconnects jobs: those bring nothing.
func (s *Server) meet(op byte, r *reader) func(context.Context, *frame) error {
	of, with := r.procs(), r.infos()
	kind := map[byte]pmi.Meet{upFence: pmi.Fence, upConnect: pmi.Connect, upDisconnect: pmi.Disconnect}[op]
	var data []byte
	if op == upFence {
		data = r.bytes()
	}
	if text, _ := with.of("pmix.loc.col.st"); text != "" && text != "0" { // a rank of this node has gone amidst it
		status, _ := strconv.Atoi(text)
		return refuse(fmt.Errorf("cannot meet: %w", pmi.Status(status)))
	}
	return bounded(with, func(ctx context.Context, f *frame) error {
		all, err := s.Peers.Gather(ctx, kind, of, data)
		if op == upFence {
			f.bytes(all)
		}
		return err
	})
}

// board is what is published.
func (s *Server) board(op byte, r *reader) func(context.Context, *frame) error {
	switch op {
	case upPublish:
		by, with := r.proc(), r.infos()
		var entries []pmi.Entry
		persistence, _ := with.of("pmix.persist")
		for _, i := range with {
			if value := r.bytes(); !isOwn(i.key) {
				entries = append(entries, pmi.Entry{Key: i.key, By: by, Value: value, Once: persistence == firstRead})
			}
		}
		return func(ctx context.Context, _ *frame) error { return s.Peers.Publish(ctx, entries) }
	case upLookup:
		by, with, keys := r.proc(), r.infos(), r.texts()
		_, wait := with.of("pmix.wait")
		return s.of(by, bounded(with, func(ctx context.Context, f *frame) error {
			entries, err := s.Peers.Lookup(ctx, keys, wait)
			f.number(len(entries))
			for _, e := range entries {
				f.proc(e.By)
				f.text(e.Key)
				f.bytes(e.Value)
			}
			return err
		}))
	}
	by, keys := r.proc(), r.texts()
	return func(ctx context.Context, _ *frame) error { return s.Peers.Unpublish(ctx, by, keys) }
}

// print passes on what a rank wants logged; anywhere but where it would print itself is not supported.
func (s *Server) print(by pmi.Proc, with told) error {
	printed := false
	for _, i := range with {
		if i.key == "pmix.log.stdout" || i.key == "pmix.log.stderr" {
			s.Said(by, i.value, i.key == "pmix.log.stderr")
			printed = true
		}
	}
	if !printed {
		return fmt.Errorf("cannot log: %w", pmi.NotSupported)
	}
	return nil
}

// tail keeps the end of what is written to it.
type tail struct {
	mu   sync.Mutex
	kept []byte
}

const longestTail = 2048

func (t *tail) Write(p []byte) (int, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.kept = append(t.kept, p...)
	t.kept = t.kept[max(0, len(t.kept)-longestTail):]
	return len(p), nil
}

// after returns what was kept, on a line, after a word; nothing where there is nothing.
func (t *tail) after(word string) string {
	t.mu.Lock()
	defer t.mu.Unlock()
	if text := bytes.TrimSpace(t.kept); len(text) > 0 {
		return word + prose.Line(string(text), longestTail)
	}
	return ""
}
