package pmi1

import (
	"bufio"
	"context"
	"errors"
	"io"
	"strconv"
	"sync"

	"go.uber.org/zap"

	"github.com/bringupd/bringupd/pkg/pmi"
	"github.com/bringupd/bringupd/pkg/prose"
)

// Parting describes how a rank ended its use of PMI. A rank that used PMI and did not finalize has
// died, whatever its exit code is. A rank that never used PMI is not an MPI program, or it is a
// singleton.
type Parting struct {
	Spoke     bool // it has initialised PMI
	Finalized bool // it has finalized PMI or aborted
}

// Spoke reports whether a rank has initialised PMI.
func (s *Space) Spoke(rank int) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.spoken[rank]
}

// visit is the connection of one rank.
type visit struct {
	*Space
	rank int
	conn io.ReadWriteCloser
	log  *zap.Logger

	aborted bool // owned by the reading goroutine until that has ended
	parting Parting
}

// Serve handles the requests of a rank until the rank closes the connection or sends a malformed
// request, or until ctx ends. It closes the connection and returns how the rank ended.
func (s *Space) Serve(ctx context.Context, rank int, conn io.ReadWriteCloser) Parting {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
	s.arrive()
	defer s.leave()
	v := &visit{Space: s, rank: rank, conn: conn, log: s.cfg.Log.With(zap.String("job", pmi.Shown(s.cfg.Job.Name)), zap.Int("rank", rank))}
	// Read on a separate goroutine, so that an abort and the end of the connection are noticed while a
	// request waits.
	requests := make(chan request)
	var reading sync.WaitGroup
	reading.Go(func() {
		defer cancel() // the rank is gone; end the request that waits
		defer close(requests)
		v.read(ctx, requests)
	})
	for r := range requests {
		if _, err := io.WriteString(conn, v.answer(ctx, r)); err != nil {
			break
		}
	}
	cancel()
	_ = conn.Close()
	reading.Wait()
	v.parting.Finalized = v.parting.Finalized || v.aborted
	return v.parting
}

// request is a message; for a spawn, all its blocks.
type request struct {
	message
	blocks  []message
	refusal error // reason to reject the request; nil if it is acceptable
}

// read passes the rank's requests to a channel. It handles abort requests itself, because another
// thread of the rank may be waiting for the answer to a previous request.
func (v *visit) read(ctx context.Context, requests chan<- request) {
	lines := scanner(v.conn)
	for lines.Scan() {
		r, err := next(lines)
		if err != nil {
			v.log.Error("cannot serve this rank any more", zap.Error(err))
			return
		}
		if r.command == "abort" {
			v.abort(r.message)
			continue
		}
		select {
		case requests <- r:
		case <-ctx.Done():
			return
		}
	}
	if err := lines.Err(); errors.Is(err, bufio.ErrTooLong) {
		v.log.Error("cannot serve this rank any more: it has sent a line that is longer than any of PMI-1 may be")
	}
}

// next reads a request whose first line has been scanned.
func next(lines *bufio.Scanner) (request, error) {
	if lines.Text() == spawnBegins {
		blocks, err := readSpawn(lines)
		if errors.Is(err, errLongSpawn) {
			return request{message: message{command: "spawn"}, refusal: err}, nil
		}
		return request{message: message{command: "spawn"}, blocks: blocks}, err
	}
	m, err := parse(lines.Text())
	return request{message: m}, err
}

// abort ends the job on behalf of the rank. The exit code is 1 if the rank gives none.
func (v *visit) abort(m message) {
	v.aborted = true
	code, err := strconv.Atoi(m.fields["exitcode"])
	if err != nil {
		code = 1
	}
	v.cfg.Abort(v.rank, code, prose.Line(m.fields["message"]+m.fields["error_msg"], 1000))
}

// answers are the handlers of the commands: those of PMI-1.1, and those that Intel MPI uses in
// addition.
var answers = map[string]func(*visit, context.Context, message) string{
	"init":              (*visit).init,
	"get_maxes":         (*visit).maxes,
	"get_appnum":        (*visit).appnum,
	"get_my_kvsname":    (*visit).name,
	"get_universe_size": (*visit).universe,
	"get_ranks2hosts":   (*visit).hosts,
	"put":               (*visit).keep,
	"get":               (*visit).find,
	"barrier_in":        (*visit).wait,
	"publish_name":      (*visit).publish,
	"lookup_name":       (*visit).lookup,
	"unpublish_name":    (*visit).unpublish,
	"finalize":          (*visit).finalize,
}

// answer executes a request and returns the response.
func (v *visit) answer(ctx context.Context, r request) string {
	if r.command == "spawn" {
		return v.spawn(ctx, r)
	}
	if answer := answers[r.command]; answer != nil {
		return answer(v, ctx, r.message)
	}
	v.log.Warn("an MPI rank asks its PMI server for what that does not know", zap.String("command", prose.Line(r.command, 80)))
	return refuse(word(r.command)+"_result", "it is not known")
}

// refuse returns a response that reports a failure with its reason.
func refuse(command, why string) string {
	return lineOf(command, "rc", "-1", "msg", word(prose.Line(why, 200)))
}

// agree returns a response that reports success, with further fields.
func agree(command string, pairs ...string) string {
	return lineOf(command, append([]string{"rc", "0"}, pairs...)...)
}

func (v *visit) init(ctx context.Context, m message) string {
	const version, subversion = "1", "1" // version 1.2 reportedly adds barriers of groups and of several threads
	refusal := lineOf("response_to_init",
		"rc", "-1", "pmi_version", version, "pmi_subversion", subversion)
	if asked := m.fields["pmi_version"]; asked != version {
		v.log.Error("cannot speak another PMI than 1 to this rank; has it lost MPIR_CVAR_PMI_VERSION=1?", zap.String("asked", prose.Line(asked, 80)))
		return refusal
	}
	if v.cfg.Linked != nil && v.cfg.Linked(ctx, v.rank) != nil { // the daemon logs the reason
		return refusal
	}
	v.parting = Parting{Spoke: true}
	v.mu.Lock()
	v.spoken[v.rank] = true
	v.mu.Unlock()
	return lineOf("response_to_init", "pmi_version", version, "pmi_subversion", subversion, "rc", "0")
}

func (v *visit) maxes(context.Context, message) string {
	return agree("maxes", "kvsname_max", strconv.Itoa(longestName), "keylen_max", strconv.Itoa(longestKey),
		"vallen_max", strconv.Itoa(longestValue))
}

func (v *visit) appnum(context.Context, message) string {
	return agree("appnum", "appnum", strconv.Itoa(v.cfg.Job.App(v.rank)))
}

func (v *visit) name(context.Context, message) string {
	return agree("my_kvsname", "kvsname", v.cfg.Job.Name)
}

func (v *visit) universe(context.Context, message) string {
	return agree("universe_size", "size", strconv.Itoa(max(v.cfg.Job.Universe, len(v.cfg.Job.Nodes))))
}

func (v *visit) hosts(context.Context, message) string { return ranksToHosts(v.cfg.Job) }

// ours reports whether a message refers to the key-value space of the rank's own job. No client is
// known that uses another one.
func (v *visit) ours(m message) bool {
	name, named := m.fields["kvsname"]
	return !named || name == v.cfg.Job.Name
}

func (v *visit) keep(_ context.Context, m message) string {
	key, value := m.fields["key"], m.fields["value"]
	switch {
	case !v.ours(m):
		return refuse("put_result", "this is not "+pmi.Shown(v.cfg.Job.Name))
	case key == "" || len(key) > longestKey:
		return refuse("put_result", "a key must have 1 to "+strconv.Itoa(longestKey)+" bytes")
	case len(value) > longestValue:
		return refuse("put_result", "a value must have at most "+strconv.Itoa(longestValue)+" bytes")
	}
	if !v.put(key, value) {
		return refuse("put_result", "the ranks of a node can put at most "+strconv.Itoa(mostPut>>20)+" MiB")
	}
	return agree("put_result", "msg", "success")
}

func (v *visit) find(_ context.Context, m message) string {
	value, found := v.get(m.fields["key"])
	if !found || !v.ours(m) {
		return lineOf("get_result", "rc", "-1", "msg", "key_not_found", "value", "unknown")
	}
	return agree("get_result", "msg", "success", "value", value)
}

func (v *visit) wait(ctx context.Context, _ message) string {
	if err := v.enter(ctx, v.rank); err != nil {
		return refuse("barrier_out", err.Error())
	}
	return agree("barrier_out")
}

func (v *visit) publish(ctx context.Context, m message) string {
	err := v.cfg.Peers.Publish(ctx, []pmi.Entry{{Key: m.fields["service"], By: v.proc(), Value: []byte(m.fields["port"])}})
	return result("publish_result", err)
}

func (v *visit) unpublish(ctx context.Context, m message) string {
	return result("unpublish_result", v.cfg.Peers.Unpublish(ctx, v.proc(), []string{m.fields["service"]}))
}

func (v *visit) lookup(ctx context.Context, m message) string {
	entries, err := v.cfg.Peers.Lookup(ctx, []string{m.fields["service"]}, false)
	if err == nil && len(entries) == 0 {
		err = pmi.NotFound
	}
	if err != nil {
		return refuse("lookup_result", err.Error())
	}
	return agree("lookup_result", "info", "ok", "port", string(entries[0].Value))
}

// result returns the response of an operation without a result value.
func result(command string, err error) string {
	if err != nil {
		return refuse(command, err.Error())
	}
	return agree(command, "info", "ok")
}

func (v *visit) finalize(context.Context, message) string {
	v.parting.Finalized = true
	return agree("finalize_ack")
}

// proc returns the rank's process identifier.
func (v *visit) proc() pmi.Proc { return pmi.Proc{Job: v.cfg.Job.Name, Rank: v.rank} }
