// Package pmix serves PMIx to the ranks of one node, by a libpmix that a child loads: Open MPI comes up by it. The child decides nothing;
// who the ranks are, and what becomes of what they ask, is told by the daemon.
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
	"strings"
	"sync"
	"syscall"
	"time"

	"go.uber.org/zap"

	"github.com/bringupd/bringupd/pkg/meeting"
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
	// Linked waits until it is known whether this node can reach the others, or ctx ends. Its error
	// is why a rank cannot be served; nil: it always can.
	Linked func(ctx context.Context, by pmi.Proc) error
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
	open    meeting.Load // questions that were not answered yet
	refused meeting.Load // of these, those that are refused

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
		cfg: cfg, out: make(chan frame), done: make(chan struct{}), waiting: make(map[uint32]chan outcome),
		clients: make(map[pmi.Proc]*client), jobs: make(map[string]*pmi.Job),
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
		if broken = s.hear(op, id, r); broken != nil {
			_ = s.child.Process.Kill()
			break
		}
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

// hear takes in one frame. What is asked is done on a goroutine of its own: it may wait for other nodes. Its error ends the server.
func (s *Server) hear(op byte, id uint32, r *reader) error {
	if op == upDone {
		o := outcome{pmi.Status(r.signed()), r.bytes()}
		s.mu.Lock()
		to := s.waiting[id]
		delete(s.waiting, id)
		s.mu.Unlock()
		if to != nil {
			to <- o
		}
		return nil
	}
	size, load := len(r.left), &s.open
	var answer func(context.Context, *frame) error
	var err error
	if load.Take(size, mostQuestions, mostAsked) {
		answer, err = s.asked(op, r)
	} else if size, load = 0, &s.refused; load.Take(size, mostQuestions, 0) {
		err = fmt.Errorf("cannot take in more than %d questions of %d GiB at once: %w", mostQuestions, mostAsked>>30, pmi.NoSpace)
	} else {
		return errFlood
	}
	if r.broken {
		err = errBroken
	}
	if err != nil {
		answer = refuse(err)
	}
	s.tasks.Go(func() {
		s.answer(op, id, answer)
		load.Give(1, size)
	})
	return nil
}

// What ranks of a node may have asked at a time. More is refused.
const (
	mostQuestions = 1 << 16
	mostAsked     = 1 << 30 // bytes
)

// errFlood is that the child does not even take in the refusals.
var errFlood = fmt.Errorf("cannot serve ranks that ask for %d things at once", 2*mostQuestions)

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
	case upFence, upModex, upSpawn, upLookup, upQuery, upGroup:
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

// gone returns why the child does nothing any more: how it died, or why its context ended.
func (s *Server) gone() error {
	if err := s.Err(); err != nil {
		return err
	}
	return fmt.Errorf("cannot use the PMIx server any longer: %w", context.Cause(s.ctx))
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
