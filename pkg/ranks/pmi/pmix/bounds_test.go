package pmix

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/bringupd/bringupd/pkg/ranks/pmi"
)

// refusal returns the error of a request that a child forwards.
func refusal(t *testing.T, op byte, fields func(*frame)) error {
	t.Helper()
	f := make(frame, 0)
	fields(&f)
	s := &Server{registry: registry{clients: make(map[pmi.ProcID]*clientState),
		jobs: map[string]*pmi.Job{"w": {Name: "w", Hosts: []string{"n0"}, Nodes: []int{0}}}}}
	r := &frameReader{rest: f}
	began := time.Now()
	answer, err := s.decodeRequest(op, r)
	if r.malformed {
		err = errMalformed
	}
	if err == nil {
		err = answer(t.Context(), new(frame))
	}
	if took := time.Since(began); took > 10*time.Second {
		t.Errorf("that took %s", took)
	}
	return err
}

// TestQuestionsAreBounded verifies that all data of ranks is bounded, and that more is refused with
// the error code of the PMIx standard.
func TestQuestionsAreBounded(t *testing.T) {
	who := pmi.ProcID{Job: "w"}
	manyInfos := func(f *frame) {
		f.addNumber(maxItems + 1)
		for range maxItems + 1 {
			f.addText("")
			f.addByte(0)
			f.addText("")
		}
	}
	for name, tc := range map[string]struct {
		op     byte
		fields func(f *frame)
		want   pmi.Status
	}{
		"infos": {upPublish, func(f *frame) { f.addProc(who); manyInfos(f) }, pmi.BadParam},
		"keys": {upUnpublish, func(f *frame) {
			f.addProc(who)
			f.addNumber(maxItems + 1)
			for range maxItems + 1 {
				f.addText("k")
			}
		}, pmi.BadParam},
		"processes": {upFence, func(f *frame) {
			f.addNumber(pmi.MaxRanks + 1)
			for range pmi.MaxRanks + 1 {
				f.addProc(pmi.ProcID{})
			}
			f.addNumber(0)
			f.addNumber(0)
		}, pmi.BadParam},
		"more than there is": {upFence, func(f *frame) { f.addNumber(1 << 20); f.addNumber(0) }, pmi.BadParam},
		"commands": {upSpawn, func(f *frame) {
			f.addProc(who)
			f.addNumber(0)
			f.addNumber(pmi.MaxCommands + 1)
			for range pmi.MaxCommands + 1 {
				for range 6 {
					f.addNumber(0)
				}
			}
		}, pmi.BadParam},
		"arguments": {upSpawn, func(f *frame) {
			f.addProc(who)
			f.addNumber(0)
			f.addNumber(1)
			f.addText("a")
			f.addNumber(1)
			f.addText(strings.Repeat("a", pmi.MaxSpawnSize))
		}, pmi.NoSpace},
		"queries": {upQuery, func(f *frame) {
			f.addProc(who)
			f.addNumber(1)
			f.addNumber(maxQueriedKeys + 1)
			for range maxQueriedKeys + 1 {
				f.addText("pmix.num.nodes")
			}
			f.addNumber(0)
		}, pmi.NoSpace},
		"an event": {upNotify, func(f *frame) {
			f.addNumber(-1)
			f.addProc(who)
			f.addByte(4)
			f.addNumber(1)
			f.addBytes(make([]byte, maxEventSize+1))
		}, pmi.NoSpace},
		"a group's name": {upGroup, func(f *frame) {
			f.addByte(0)
			f.addText(strings.Repeat("g", maxKeyLength+1))
			f.addNumber(0)
			f.addNumber(0)
		}, pmi.BadParam},
	} {
		t.Run(name, func(t *testing.T) {
			if err := refusal(t, tc.op, tc.fields); pmi.StatusOf(err) != tc.want {
				t.Errorf("it ends with %v (%d), want %d", err, pmi.StatusOf(err), tc.want)
			}
		})
	}
}

// TestSpawnWithManyInfos verifies that infos that apply to all commands of a spawn are processed
// once, not for each command: 65,536 for 4,096 commands would take a node minutes.
func TestSpawnWithManyInfos(t *testing.T) {
	var f frame
	f.addProc(pmi.ProcID{Job: "w"})
	f.addNumber(maxItems)
	for range maxItems {
		f.addText("some-key")
		f.addByte(0)
		f.addText("v")
	}
	f.addNumber(pmi.MaxCommands)
	for range pmi.MaxCommands {
		f.addText("a")
		for range 5 { // arguments, environment, directory, ranks and infos
			f.addNumber(0)
		}
	}
	s, _, err := decodeSpawn(&frameReader{rest: f})
	if err != nil || len(s.Commands) != pmi.MaxCommands || len(s.Commands[7].Info) != 0 {
		t.Errorf("%d commands, %v", len(s.Commands), err)
	}
}

// TestLastWordsAreBounded verifies that the message of an abort is truncated to the limit of a log.
func TestLastWordsAreBounded(t *testing.T) {
	var heard string
	s := &Server{}
	s.AbortJob = func(_ pmi.ProcID, _ int, words string) { heard = words }
	abort := func(words string) error {
		var f frame
		f.addProc(pmi.ProcID{Job: "w"})
		f.addNumber(7)
		f.addText(words)
		_, err := s.decodeRequest(upAbort, &frameReader{rest: f})
		return err
	}
	if err := abort(strings.Repeat("no ", 1<<20)); err != nil || len(heard) == 0 ||
		len(heard) > maxMessageLength+8 {
		t.Errorf("%d bytes, %v", len(heard), err)
	}
	if err := abort("N/A"); err != nil || heard != "" {
		t.Errorf("without a message: %q, %v", heard, err)
	}
}

// TestQuestionsThatWaitAreBounded verifies that further requests are refused once too many have no
// answer, and that a child that reads no answers is ended.
func TestQuestionsThatWaitAreBounded(t *testing.T) {
	s := &Server{frames: make(chan frame), registry: registry{clients: make(map[pmi.ProcID]*clientState)}}
	s.ctx, s.stop = context.WithCancel(t.Context())
	lookup := func() *frameReader {
		var f frame
		f.addProc(pmi.ProcID{Job: "w"})
		f.addNumber(0)
		f.addNumber(0)
		return &frameReader{rest: f}
	}
	s.Peers = silent{}
	// Most of the requests and of the refusals that fit are sent in advance, without their goroutines.
	const room = 100
	for range maxRequests - room {
		if !s.requestQuota.Reserve(0, maxRequests, 0) || !s.refusalQuota.Reserve(0, maxRequests, 0) {
			t.Fatal("there is no room")
		}
	}
	var err error
	asked := 0
	for ; err == nil && asked < 3*room; asked++ {
		err = s.handleFrame(upLookup, uint32(asked), lookup())
	}
	if !errors.Is(err, errTooManyRequests) || asked != 2*room+1 {
		t.Errorf("after %d questions: %v", asked, err)
	}
	s.stop()
	s.tasks.Wait()
	s.requestQuota.Release(maxRequests-room, 0)
	if !s.requestQuota.Reserve(maxRequestBytes, 1, maxRequestBytes) {
		t.Error("what was answered is not given back")
	}
}

// silent is a Peers that never answers.
type silent struct{ pmi.Peers }

func (silent) LookupEntries(ctx context.Context, _ []string, _ bool) ([]pmi.Entry, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}
