package pmix

import (
	"context"
	"encoding/binary"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/bringupd/bringupd/internal/textutil"
	"github.com/bringupd/bringupd/pkg/ranks/pmi"
)

// Limits of requests: the size of an event in bytes, because it is sent to all nodes; the length of
// the message of an abort in bytes; and the number of values that one query may request.
const (
	maxEventSize     = 1 << 20
	maxMessageLength = 1000
	maxQueriedKeys   = 256
)

// answerFunc answers a request: it appends the fields that follow the status to a frame.
type answerFunc func(ctx context.Context, f *frame) error

// decodeRequest decodes a request of a rank and returns the function that answers it. Decoding and
// state changes happen at once, in the order of the requests; the returned function may block.
func (s *Server) decodeRequest(op byte, r *frameReader) (answerFunc, error) {
	switch op {
	case upConnected, upFinalized:
		who := r.readProc()
		s.recordSession(who, op == upFinalized)
		if op == upConnected && s.AwaitLink != nil {
			return func(ctx context.Context, _ *frame) error { return s.AwaitLink(ctx, who) }, nil
		}
		return answerSuccess, nil
	case upAbort:
		by, code, words := r.readProc(), r.readSigned(), r.readText()
		if words == "N/A" { // Open MPI 4 has no message
			words = ""
		}
		s.AbortJob(by, code, textutil.SingleLine(words, maxMessageLength))
		return answerSuccess, nil
	case upFence, upConnect, upDisconnect:
		return s.decodeCollective(op, r), nil
	case upModex:
		of, with := r.readProc(), r.readAttributes()
		return withTimeout(with, func(ctx context.Context, f *frame) error {
			data, err := s.Peers.FetchModex(ctx, of)
			f.addBytes(data)
			return err
		}), nil
	case upPublish, upLookup, upUnpublish:
		return s.decodePublication(op, r), nil
	case upSpawn:
		order, with, err := decodeSpawn(r)
		return s.whileRankLives(order.Requester, withTimeout(with, func(ctx context.Context, f *frame) error {
			job, err := s.Peers.SpawnJob(ctx, order)
			f.addText(job)
			return err
		})), err
	case upNotify:
		e := pmi.Event{
			Code: r.readSigned(), Source: r.readProc(), Range: int(r.readByte()),
			Count: int(r.readNumber()), Info: r.readBytes(),
		}
		if len(e.Info) > maxEventSize {
			return nil, fmt.Errorf("cannot send an event of %d bytes: at most %d are accepted: %w", len(e.Info),
				maxEventSize, pmi.NoSpace)
		}
		return func(ctx context.Context, _ *frame) error { return s.Peers.NotifyNodes(ctx, e) }, nil
	case upGroup:
		return s.decodeGroup(r), nil
	case upQuery:
		return s.decodeQuery(r), nil
	case upLog:
		by, with := r.readProc(), r.readAttributes()
		return func(context.Context, *frame) error { return s.printMessages(by, with) }, nil
	}
	return nil, fmt.Errorf("cannot execute operation %d: %w", op, pmi.NotSupported)
}

func answerSuccess(context.Context, *frame) error { return nil }

func answerError(err error) answerFunc {
	return func(context.Context, *frame) error { return err }
}

func withTimeout(with requestAttributes, answer answerFunc) answerFunc {
	text, _ := with.lookupKey("pmix.timeout")
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

func (s *Server) recordSession(who pmi.ProcID, finalized bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if c := s.clients[who]; c != nil {
		c.connected, c.finalized = true, finalized
	}
}

// whileRankLives limits the context of a request to the life of the rank that sent it.
func (s *Server) whileRankLives(who pmi.ProcID, answer answerFunc) answerFunc {
	s.mu.Lock()
	c := s.clients[who]
	s.mu.Unlock()
	if c == nil {
		return answer
	}
	return func(ctx context.Context, f *frame) error {
		ctx, stop := withEither(ctx, c.lifeCtx)
		defer stop()
		return answer(ctx, f)
	}
}

// decodeCollective returns the function that answers a fence, connect or disconnect request. Only
// fences carry data.
func (s *Server) decodeCollective(op byte, r *frameReader) answerFunc {
	of, with := r.readProcs(), r.readAttributes()
	kind := map[byte]pmi.CollectiveKind{upFence: pmi.Fence, upConnect: pmi.Connect, upDisconnect: pmi.Disconnect}[op]
	var data []byte
	if op == upFence {
		data = r.readBytes()
	}
	// The attribute is set if a rank of this node ended before it entered.
	if text, _ := with.lookupKey("pmix.loc.col.st"); text != "" && text != "0" {
		status, _ := strconv.Atoi(text)
		return answerError(fmt.Errorf("cannot complete a collective operation: %w", pmi.Status(status)))
	}
	return withTimeout(with, func(ctx context.Context, f *frame) error {
		all, err := s.Peers.GatherProcs(ctx, kind, of, data)
		if op == upFence {
			f.addBytes(all)
		}
		return err
	})
}

func (s *Server) decodePublication(op byte, r *frameReader) answerFunc {
	switch op {
	case upPublish:
		by, with := r.readProc(), r.readAttributes()
		var entries []pmi.Entry
		persistence, _ := with.lookupKey("pmix.persist")
		for _, i := range with {
			// A key of PMIx itself is a directive, and not an entry to publish.
			if value := r.readBytes(); !strings.HasPrefix(i.key, "pmix.") {
				entries = append(entries, pmi.Entry{Key: i.key, Publisher: by, Value: value,
					RemoveOnLookup: persistence == persistFirstRead})
			}
		}
		return func(ctx context.Context, _ *frame) error { return s.Peers.PublishEntries(ctx, entries) }
	case upLookup:
		by, with, keys := r.readProc(), r.readAttributes(), r.readTexts()
		_, wait := with.lookupKey("pmix.wait")
		return s.whileRankLives(by, withTimeout(with, func(ctx context.Context, f *frame) error {
			entries, err := s.Peers.LookupEntries(ctx, keys, wait)
			f.addNumber(len(entries))
			for _, e := range entries {
				f.addProc(e.Publisher)
				f.addText(e.Key)
				f.addBytes(e.Value)
			}
			return err
		}))
	}
	by, keys := r.readProc(), r.readTexts()
	return func(ctx context.Context, _ *frame) error { return s.Peers.UnpublishEntries(ctx, by, keys) }
}

// printMessages prints the messages that a rank asks the server to log. Only the channels stdout
// and stderr are supported.
func (s *Server) printMessages(by pmi.ProcID, with requestAttributes) error {
	printed := false
	for _, i := range with {
		if i.key == "pmix.log.stdout" || i.key == "pmix.log.stderr" {
			s.PrintOutput(by, i.value, i.key == "pmix.log.stderr")
			printed = true
		}
	}
	if !printed {
		return fmt.Errorf("cannot log: %w", pmi.NotSupported)
	}
	return nil
}

// persistFirstRead is PMIX_PERSIST_FIRST_READ: an entry is removed by its first lookup.
const persistFirstRead = "1"

// supportedAttributes are the attributes of a spawn that are supported: they are passed on or have
// no effect here.
var supportedAttributes = []string{"pmix.timeout", "pmix.host", "pmix.wdir", "pmix.spawned", "pmix.parent",
	"pmix.requestor"}

// decodeSpawn decodes a spawn request, and returns it with the attributes that apply to all its
// commands. The error is NotSupported if a required attribute is not supported.
func decodeSpawn(r *frameReader) (s pmi.SpawnRequest, all requestAttributes, err error) {
	if len(r.rest) > pmi.MaxSpawnSize {
		return s, nil, fmt.Errorf("cannot read a spawn request of %d bytes: at most %d are accepted: %w",
			len(r.rest), pmi.MaxSpawnSize, pmi.NoSpace)
	}
	// Attributes of the whole spawn apply to each command.
	s.Requester, all = r.readProc(), r.readAttributes()
	shared := make(map[string]string)
	err = collectAttributes(all, shared)
	for range r.readCount(pmi.MaxCommands) {
		program := r.readText()
		c := pmi.Command{Argv: r.readTexts(), Env: r.readTexts(), Dir: r.readText(), Ranks: r.readSigned(),
			Info: maps.Clone(shared)}
		if len(c.Argv) == 0 {
			c.Argv = []string{program}
		}
		c.Argv[0] = program
		if refused := collectAttributes(r.readAttributes(), c.Info); refused != nil {
			err = refused
		}
		if dir := c.Info["wdir"]; dir != "" {
			c.Dir = dir
		}
		s.Commands = append(s.Commands, c)
	}
	return s, all, err
}

func collectAttributes(infos requestAttributes, into map[string]string) (err error) {
	for _, i := range infos {
		if slices.Contains(supportedAttributes, i.key) {
			into[strings.TrimPrefix(i.key, "pmix.")] = i.value
		} else if i.required {
			err = fmt.Errorf("cannot apply %s in a spawn: %w", textutil.SingleLine(i.key, 80), pmi.NotSupported)
		}
	}
	return err
}

func (s *Server) decodeQuery(r *frameReader) answerFunc {
	by := r.readProc()
	var found []attribute
	unknown, asked := "", 0
	for range r.readCount(maxQueriedKeys) {
		keys, with := r.readTexts(), r.readAttributes()
		if asked += len(keys); asked > maxQueriedKeys {
			return answerError(fmt.Errorf("cannot answer a query for %d keys: at most %d are accepted: %w",
				asked, maxQueriedKeys, pmi.NoSpace))
		}
		for _, key := range keys {
			if i, known := s.queryValue(key, by, with); known {
				found = append(found, i)
			} else {
				unknown = key
			}
		}
	}
	return func(_ context.Context, f *frame) error {
		if len(found) == 0 {
			return fmt.Errorf("cannot answer a query for %s: %w", textutil.SingleLine(unknown, 80), pmi.NotSupported)
		}
		f.addAttributes(found)
		return nil
	}
}

// queryValue returns the value of one key. It returns false if the key or the job is unknown.
func (s *Server) queryValue(key string, by pmi.ProcID, with requestAttributes) (attribute, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch key {
	case "pmix.qry.ns":
		return attribute{key, typeString, strings.Join(slices.Sorted(maps.Keys(s.jobs)), ",")}, true
	case "pmix.qry.psetnum": // process sets exist only inside MPI's sessions
		return attribute{key, typeUint32, 0}, true
	case "pmix.qry.psets":
		return attribute{key, typeString, ""}, true
	}
	name := by.Job
	if other, isNamed := with.lookupKey("pmix.nspace"); isNamed {
		name = other
	}
	job := s.jobs[name]
	if job == nil {
		return attribute{}, false
	}
	switch key {
	case "pmix.job.size":
		return attribute{key, typeUint32, len(job.Nodes)}, true
	case "pmix.univ.size", "pmix.max.size":
		return attribute{key, typeUint32, job.UniverseSize}, true
	case "pmix.num.nodes":
		return attribute{key, typeUint32, job.NodeCount()}, true
	}
	return attribute{}, false
}

var groupOpNames = []string{"making", "ending"}

// decodeGroup returns the function that answers a request to create or to end a group. Open MPI's
// sessions create their communicators from groups. Members meet in a collective operation; each
// receives the endpoint data of all nodes and a number that no other group has.
func (s *Server) decodeGroup(r *frameReader) answerFunc {
	op, name, of, with := int(r.readByte()), r.readText(), r.readProcs(), r.readAttributes()
	if op >= len(groupOpNames) {
		return answerError(pmi.NotSupported)
	}
	if len(name) > maxKeyLength {
		return answerError(fmt.Errorf("cannot use a group name of %d bytes: at most %d are accepted: %w",
			len(name), maxKeyLength, pmi.BadParam))
	}
	endpoints, _ := with.lookupKey("pmix.grp.endpt")
	own := binary.BigEndian.AppendUint64(nil, rand.Uint64())
	own = binary.BigEndian.AppendUint32(own, uint32(len(endpoints)))
	own = append(own, endpoints...)
	return withTimeout(with, func(ctx context.Context, f *frame) error {
		all, err := s.Peers.GatherProcs(ctx, pmi.CollectiveKind("MPI "+groupOpNames[op]+" the group "+name), of, own)
		if err != nil {
			return err
		}
		number, together := combineContributions(all)
		infos := []attribute{{"pmix.grp.ctxid", typeSize, number}, {"pmix.grp.mbrs", typeProcs, of}}
		if len(together) > 0 {
			infos = append(infos, attribute{"pmix.grp.endpt", typeBytes, together})
		}
		f.addAttributes(infos)
		return nil
	})
}

// combineContributions combines what the nodes contributed to a group: the XOR of their random
// numbers, which does not depend on their order, and their concatenated data.
func combineContributions(all []byte) (number uint64, data []byte) {
	r := &frameReader{rest: all}
	for len(r.rest) > 0 {
		high, low := r.readNumber(), r.readNumber()
		number ^= uint64(high)<<32 | uint64(low)
		data = append(data, r.readBytes()...)
	}
	return number, data
}
