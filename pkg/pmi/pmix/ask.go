package pmix

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/bringupd/bringupd/pkg/pmi"
	"github.com/bringupd/bringupd/pkg/prose"
)

// Limits of requests: the size of an event in bytes, because it is sent to all nodes; the length of
// the message of an abort in bytes; and the number of values that one query may request.
const (
	longestEvent = 1 << 20
	longestWords = 1000
	mostQueried  = 256
)

// asked decodes a request of a rank and returns the function that answers it. Decoding and state
// changes happen at once, in the order of the requests; the returned function may block.
func (s *Server) asked(op byte, r *reader) (func(ctx context.Context, f *frame) error, error) {
	switch op {
	case upConnected, upFinalized:
		who := r.proc()
		s.note(who, op == upFinalized)
		if op == upConnected && s.Linked != nil {
			return func(ctx context.Context, _ *frame) error { return s.Linked(ctx, who) }, nil
		}
		return agree, nil
	case upAbort:
		by, code, words := r.proc(), r.signed(), r.text()
		s.Abort(by, code, prose.Line(words, longestWords))
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
		if len(e.Info) > longestEvent {
			return nil, fmt.Errorf("cannot tell of an event by %d bytes: at most %d are accepted: %w", len(e.Info), longestEvent, pmi.NoSpace)
		}
		return func(ctx context.Context, _ *frame) error { return s.Jobs.Notify(ctx, e) }, nil
	case upGroup:
		return s.group(r), nil
	case upQuery:
		return s.query(r), nil
	case upLog:
		by, with := r.proc(), r.infos()
		return func(context.Context, *frame) error { return s.print(by, with) }, nil
	}
	return nil, fmt.Errorf("cannot do %d: %w", op, pmi.NotSupported)
}

// agree answers a request with success and no data.
func agree(context.Context, *frame) error { return nil }

// refuse answers a request with an error.
func refuse(err error) func(context.Context, *frame) error {
	return func(context.Context, *frame) error { return err }
}

// bounded applies the timeout that a request specifies, if it does.
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

// note records that a rank has connected or finalized.
func (s *Server) note(who pmi.Proc, finalized bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c := s.clients[who]; c != nil {
		c.spoke, c.finalized = true, finalized
	}
}

// of limits the context of a request to the life of the rank that sent it.
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

// meet returns the function that answers a fence, connect or disconnect request. Only fences carry
// data.
func (s *Server) meet(op byte, r *reader) func(context.Context, *frame) error {
	of, with := r.procs(), r.infos()
	kind := map[byte]pmi.Meet{upFence: pmi.Fence, upConnect: pmi.Connect, upDisconnect: pmi.Disconnect}[op]
	var data []byte
	if op == upFence {
		data = r.bytes()
	}
	// The attribute is set if a rank of this node ended before it entered.
	if text, _ := with.of("pmix.loc.col.st"); text != "" && text != "0" {
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

// board returns the function that answers a publish, lookup or unpublish request.
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

// print prints the messages that a rank asks the server to log. Only the channels stdout and stderr
// are supported.
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

// firstRead is PMIX_PERSIST_FIRST_READ: an entry is removed by its first lookup.
const firstRead = "1"

// isOwn reports whether a key belongs to PMIx itself. Such a key is a directive and not an entry to
// publish.
func isOwn(key string) bool { return strings.HasPrefix(key, "pmix.") }

// heeded are the attributes of a spawn that are supported: they are passed on or have no effect
// here.
var heeded = []string{"pmix.timeout", "pmix.host", "pmix.wdir", "pmix.spawned", "pmix.parent", "pmix.requestor"}

// readSpawn decodes a spawn request, and returns it with the attributes that apply to all its
// commands. The error is NotSupported if a required attribute is not supported.
func readSpawn(r *reader) (s pmi.Spawn, all told, err error) {
	if len(r.left) > pmi.LongestSpawn {
		return s, nil, fmt.Errorf("cannot spawn by %d bytes: at most %d are accepted: %w", len(r.left), pmi.LongestSpawn, pmi.NoSpace)
	}
	// Attributes of the whole spawn apply to each command.
	s.By, all = r.proc(), r.infos()
	shared := make(map[string]string)
	err = heed(all, shared)
	for range r.count(pmi.MostCommands) {
		program := r.text()
		c := pmi.Command{Argv: r.texts(), Env: r.texts(), Dir: r.text(), Ranks: r.signed(), Info: maps.Clone(shared)}
		if len(c.Argv) == 0 {
			c.Argv = []string{program}
		}
		c.Argv[0] = program
		if refused := heed(r.infos(), c.Info); refused != nil {
			err = refused
		}
		if dir := c.Info["wdir"]; dir != "" {
			c.Dir = dir
		}
		s.Commands = append(s.Commands, c)
	}
	return s, all, err
}

// heed adds the supported attributes to a map. It returns an error if an attribute is required and
// not supported.
func heed(infos told, into map[string]string) (err error) {
	for _, i := range infos {
		if slices.Contains(heeded, i.key) {
			into[strings.TrimPrefix(i.key, "pmix.")] = i.value
		} else if i.required {
			err = fmt.Errorf("cannot heed %s in a spawn: %w", prose.Line(i.key, 80), pmi.NotSupported)
		}
	}
	return err
}

// query returns the function that answers a query for information about jobs.
func (s *Server) query(r *reader) func(context.Context, *frame) error {
	by := r.proc()
	var found []info
	unknown, asked := "", 0
	for range r.count(mostQueried) {
		keys, with := r.texts(), r.infos()
		if asked += len(keys); asked > mostQueried {
			return refuse(fmt.Errorf("cannot tell %d things: at most %d are accepted: %w", asked, mostQueried, pmi.NoSpace))
		}
		for _, key := range keys {
			if i, known := s.lookAt(key, by, with); known {
				found = append(found, i)
			} else {
				unknown = key
			}
		}
	}
	return func(_ context.Context, f *frame) error {
		if len(found) == 0 {
			return fmt.Errorf("cannot tell %s: %w", prose.Line(unknown, 80), pmi.NotSupported)
		}
		f.infos(found)
		return nil
	}
}

// lookAt returns the value of one key. It returns false if the key or the job is unknown.
func (s *Server) lookAt(key string, by pmi.Proc, with told) (info, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch key {
	case "pmix.qry.ns":
		return info{key, typeString, strings.Join(slices.Sorted(maps.Keys(s.jobs)), ",")}, true
	case "pmix.qry.psetnum": // process sets exist only inside MPI's sessions
		return info{key, typeUint32, 0}, true
	case "pmix.qry.psets":
		return info{key, typeString, ""}, true
	}
	name := by.Job
	if other, told := with.of("pmix.nspace"); told {
		name = other
	}
	job := s.jobs[name]
	if job == nil {
		return info{}, false
	}
	switch key {
	case "pmix.job.size":
		return info{key, typeUint32, len(job.Nodes)}, true
	case "pmix.univ.size", "pmix.max.size":
		return info{key, typeUint32, job.Universe}, true
	case "pmix.num.nodes":
		return info{key, typeUint32, job.Spread()}, true
	}
	return info{}, false
}
