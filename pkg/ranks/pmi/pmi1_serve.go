package pmi

import (
	"bufio"
	"context"
	"errors"
	"io"
	"strconv"

	"go.uber.org/zap"

	"github.com/bringupd/bringupd/internal/textutil"
)

// SessionState describes how a rank ended its use of PMI. A rank that used PMI and did not finalize
// has died, whatever its exit code is. A rank that never used PMI is not an MPI program, or it is a
// singleton.
type SessionState struct {
	Initialized bool // it has initialised PMI
	Finalized   bool // it has finalized PMI or aborted
}

// HasInitialized reports whether a rank has initialised PMI.
func (s *PMI1Server) HasInitialized(rank int) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.initialized[rank]
}

type rankConn struct {
	*PMI1Server
	rank int
	conn io.ReadWriteCloser
	log  *zap.Logger

	aborted bool // owned by the reading goroutine until that has ended
	state   SessionState
}

// ServeRank handles the requests of a rank until the rank closes the connection or sends a
// malformed request, or until ctx ends. It closes the connection and returns how the rank ended.
func (s *PMI1Server) ServeRank(ctx context.Context, rank int, conn io.ReadWriteCloser) SessionState {
	log := s.cfg.Log.With(zap.String("job", PublicName(s.cfg.Job.Name)), zap.Int("rank", rank))
	v := &rankConn{PMI1Server: s, rank: rank, conn: conn, log: log}
	serveRequests(ctx, conn, v.readRequests, func(ctx context.Context, r pmi1Request) error {
		_, err := io.WriteString(conn, v.handleRequest(ctx, r))
		return err
	})
	v.state.Finalized = v.state.Finalized || v.aborted
	return v.state
}

// pmi1Request is a message; for a spawn, all its blocks.
type pmi1Request struct {
	message
	blocks  []message
	refusal error // reason to reject the request; nil if it is acceptable
}

// readRequests passes the rank's requests to accept. It handles abort requests itself, because another
// thread of the rank may be waiting for the answer to a previous request.
func (v *rankConn) readRequests(accept func(pmi1Request) bool) {
	lines := newLineScanner(v.conn)
	for lines.Scan() {
		r, err := nextRequest(lines)
		if err != nil {
			v.log.Error("cannot serve PMI to this rank any longer", zap.Error(err))
			return
		}
		if r.command == "abort" {
			v.abortJob(r.message)
			continue
		}
		if !accept(r) {
			return
		}
	}
	if err := lines.Err(); errors.Is(err, bufio.ErrTooLong) {
		v.log.Error("cannot serve PMI to this rank any longer: it sent a line that is longer than PMI-1 permits")
	}
}

func nextRequest(lines *bufio.Scanner) (pmi1Request, error) {
	if lines.Text() == spawnStart {
		blocks, err := readSpawn(lines)
		if errors.Is(err, errSpawnTooLong) {
			return pmi1Request{message: message{command: "spawn"}, refusal: err}, nil
		}
		return pmi1Request{message: message{command: "spawn"}, blocks: blocks}, err
	}
	m, err := parseMessage(lines.Text())
	return pmi1Request{message: m}, err
}

// abortJob ends the job on behalf of the rank. The exit code is 1 if the rank gives none.
func (v *rankConn) abortJob(m message) {
	v.aborted = true
	code, err := strconv.Atoi(m.fields["exitcode"])
	if err != nil {
		code = 1
	}
	v.cfg.AbortJob(v.procID(), code, textutil.SingleLine(m.fields["message"]+m.fields["error_msg"], 1000))
}

var commandHandlers = map[string]func(*rankConn, context.Context, message) string{
	"init": (*rankConn).handleInit,
	"get_maxes": func(*rankConn, context.Context, message) string {
		return successResponse("maxes", "kvsname_max", strconv.Itoa(maxPMI1Name), "keylen_max",
			strconv.Itoa(maxPMI1Key),
			"vallen_max", strconv.Itoa(maxPMI1Value))
	},
	"get_appnum": func(v *rankConn, _ context.Context, _ message) string {
		return successResponse("appnum", "appnum", strconv.Itoa(v.cfg.Job.CommandIndex(v.rank)))
	},
	"get_my_kvsname": func(v *rankConn, _ context.Context, _ message) string {
		return successResponse("my_kvsname", "kvsname", v.cfg.Job.Name)
	},
	"get_universe_size": func(v *rankConn, _ context.Context, _ message) string {
		return successResponse("universe_size", "size", strconv.Itoa(max(v.cfg.Job.UniverseSize, len(v.cfg.Job.Nodes))))
	},
	"get_ranks2hosts": func(v *rankConn, _ context.Context, _ message) string { return ranksToHosts(v.cfg.Job) },
	"put":             (*rankConn).handlePut,
	"get":             (*rankConn).handleGet,
	"barrier_in":      (*rankConn).handleBarrier,
	"publish_name":    (*rankConn).handlePublish,
	"lookup_name":     (*rankConn).handleLookup,
	"unpublish_name":  (*rankConn).handleUnpublish,
	"finalize":        (*rankConn).handleFinalize,
}

func (v *rankConn) handleRequest(ctx context.Context, r pmi1Request) string {
	if r.command == "spawn" {
		return v.handleSpawn(ctx, r)
	}
	if answer := commandHandlers[r.command]; answer != nil {
		return answer(v, ctx, r.message)
	}
	v.log.Warn("unknown PMI command from an MPI rank", zap.String("command", textutil.SingleLine(r.command, 80)))
	return failureResponse(joinWords(r.command)+"_result", "unknown command")
}

func failureResponse(command, why string) string {
	return formatLine(command, "rc", "-1", "msg", joinWords(textutil.SingleLine(why, 200)))
}

func successResponse(command string, pairs ...string) string {
	return formatLine(command, append([]string{"rc", "0"}, pairs...)...)
}

func (v *rankConn) handleInit(ctx context.Context, m message) string {
	// version 1.2 reportedly adds barriers of groups and of several threads
	const version, subversion = "1", "1"
	refusal := formatLine("response_to_init",
		"rc", "-1", "pmi_version", version, "pmi_subversion", subversion)
	if asked := m.fields["pmi_version"]; asked != version {
		v.log.Error("cannot serve this rank: only PMI version 1 is supported; check that "+
			"MPIR_CVAR_PMI_VERSION=1 is in its environment", zap.String("asked", textutil.SingleLine(asked, 80)))
		return refusal
	}
	if v.cfg.AwaitLink != nil && v.cfg.AwaitLink(ctx, v.procID()) != nil { // the daemon logs the reason
		return refusal
	}
	v.state = SessionState{Initialized: true}
	v.mu.Lock()
	v.initialized[v.rank] = true
	v.mu.Unlock()
	return formatLine("response_to_init", "pmi_version", version, "pmi_subversion", subversion, "rc", "0")
}

// isOwnSpace reports whether a message refers to the key-value space of the rank's own job. No
// client is known that uses another one.
func (v *rankConn) isOwnSpace(m message) bool {
	name, named := m.fields["kvsname"]
	return !named || name == v.cfg.Job.Name
}

func (v *rankConn) handlePut(_ context.Context, m message) string {
	key, value := m.fields["key"], m.fields["value"]
	switch {
	case !v.isOwnSpace(m):
		return failureResponse("put_result", "the key-value space is not "+PublicName(v.cfg.Job.Name))
	case key == "" || len(key) > maxPMI1Key:
		return failureResponse("put_result", "a key must have 1 to "+strconv.Itoa(maxPMI1Key)+" bytes")
	case len(value) > maxPMI1Value:
		return failureResponse("put_result", "a value must have at most "+strconv.Itoa(maxPMI1Value)+" bytes")
	}
	if !v.putValue(key, value) {
		return failureResponse("put_result", "the ranks of a node can put at most "+strconv.Itoa(maxPutSize>>20)+" MiB")
	}
	return successResponse("put_result", "msg", "success")
}

func (v *rankConn) handleGet(_ context.Context, m message) string {
	value, found := v.getValue(m.fields["key"])
	if !found || !v.isOwnSpace(m) {
		return formatLine("get_result", "rc", "-1", "msg", "key_not_found", "value", "unknown")
	}
	return successResponse("get_result", "msg", "success", "value", value)
}

func (v *rankConn) handleBarrier(ctx context.Context, _ message) string {
	if err := v.enterBarrier(ctx, v.rank); err != nil {
		return failureResponse("barrier_out", err.Error())
	}
	return successResponse("barrier_out")
}

func (v *rankConn) handlePublish(ctx context.Context, m message) string {
	err := v.cfg.Peers.PublishEntries(ctx, []Entry{{Key: m.fields["service"], Publisher: v.procID(),
		Value: []byte(m.fields["port"])}})
	return resultResponse("publish_result", err)
}

func (v *rankConn) handleUnpublish(ctx context.Context, m message) string {
	return resultResponse("unpublish_result", v.cfg.Peers.UnpublishEntries(ctx, v.procID(),
		[]string{m.fields["service"]}))
}

func (v *rankConn) handleLookup(ctx context.Context, m message) string {
	entries, err := v.cfg.Peers.LookupEntries(ctx, []string{m.fields["service"]}, false)
	if err == nil && len(entries) == 0 {
		err = NotFound
	}
	if err != nil {
		return failureResponse("lookup_result", err.Error())
	}
	return successResponse("lookup_result", "info", "ok", "port", string(entries[0].Value))
}

func resultResponse(command string, err error) string {
	if err != nil {
		return failureResponse(command, err.Error())
	}
	return successResponse(command, "info", "ok")
}

func (v *rankConn) handleFinalize(context.Context, message) string {
	v.state.Finalized = true
	return successResponse("finalize_ack")
}

func (v *rankConn) procID() ProcID { return ProcID{Job: v.cfg.Job.Name, Rank: v.rank} }
