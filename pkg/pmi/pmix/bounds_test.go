package pmix

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/bringupd/bringupd/pkg/pmi"
)

// refusal is what becomes of a question that a child passes on.
func refusal(t *testing.T, op byte, fields func(*frame)) error {
	t.Helper()
	f := make(frame, 0)
	fields(&f)
	s := &Server{clients: make(map[pmi.Proc]*client), jobs: map[string]*pmi.Job{"w": {Name: "w", Hosts: []string{"n0"}, Nodes: []int{0}}}}
	r := &reader{left: f}
	began := time.Now()
	answer, err := s.asked(op, r)
	if r.broken {
		err = errBroken
	}
	if err == nil {
		err = answer(t.Context(), new(frame))
	}
	if took := time.Since(began); took > 10*time.Second {
		t.Errorf("that took %s", took)
	}
	return err
}

// All that ranks send has bounds, and what has more is refused by the error of PMIx's standard.
func TestQuestionsAreBounded(t *testing.T) {
	who := pmi.Proc{Job: "w"}
	manyInfos := func(f *frame) {
		f.number(mostItems + 1)
		for range mostItems + 1 {
			f.text("")
			f.byte(0)
			f.text("")
		}
	}
	for name, tc := range map[string]struct {
		op     byte
		fields func(f *frame)
		want   pmi.Status
	}{
		"infos": {upPublish, func(f *frame) { f.proc(who); manyInfos(f) }, pmi.BadParam},
		"keys": {upUnpublish, func(f *frame) {
			f.proc(who)
			f.number(mostItems + 1)
			for range mostItems + 1 {
				f.text("k")
			}
		}, pmi.BadParam},
		"processes": {upFence, func(f *frame) {
			f.number(pmi.MostRanks + 1)
			for range pmi.MostRanks + 1 {
				f.proc(pmi.Proc{})
			}
			f.number(0)
			f.number(0)
		}, pmi.BadParam},
		"more than there is": {upFence, func(f *frame) { f.number(1 << 20); f.number(0) }, pmi.BadParam},
		"commands": {upSpawn, func(f *frame) {
			f.proc(who)
			f.number(0)
			f.number(pmi.MostCommands + 1)
			for range pmi.MostCommands + 1 {
				for range 6 {
					f.number(0)
				}
			}
		}, pmi.BadParam},
		"arguments": {upSpawn, func(f *frame) {
			f.proc(who)
			f.number(0)
			f.number(1)
			f.text("a")
			f.number(1)
			f.text(strings.Repeat("a", pmi.LongestSpawn))
		}, pmi.NoSpace},
		"queries": {upQuery, func(f *frame) {
			f.proc(who)
			f.number(1)
			f.number(mostQueried + 1)
			for range mostQueried + 1 {
				f.text("pmix.num.nodes")
			}
			f.number(0)
		}, pmi.NoSpace},
		"an event": {upNotify, func(f *frame) {
			f.number(-1)
			f.proc(who)
			f.byte(4)
			f.number(1)
			f.bytes(make([]byte, longestEvent+1))
		}, pmi.NoSpace},
		"a group's name": {upGroup, func(f *frame) {
			f.byte(0)
			f.text(strings.Repeat("g", longestKey+1))
			f.number(0)
			f.number(0)
		}, pmi.BadParam},
	} {
		t.Run(name, func(t *testing.T) {
			if err := refusal(t, tc.op, tc.fields); pmi.StatusOf(err) != tc.want {
				t.Errorf("it ends with %v (%d), want %d", err, pmi.StatusOf(err), tc.want)
			}
		})
	}
}

// Infos that count for all commands of a spawn are looked at once, not for each of them: 65,536 for 4,096 commands
// would take a node minutes.
func TestSpawnWithManyInfos(t *testing.T) {
	var f frame
	f.proc(pmi.Proc{Job: "w"})
	f.number(mostItems)
	for range mostItems {
		f.text("some-key")
		f.byte(0)
		f.text("v")
	}
	f.number(pmi.MostCommands)
	for range pmi.MostCommands {
		f.text("a")
		for range 5 { // arguments, environment, directory, ranks and infos
			f.number(0)
		}
	}
	s, _, err := readSpawn(&reader{left: f})
	if err != nil || len(s.Commands) != pmi.MostCommands || len(s.Commands[7].Info) != 0 {
		t.Errorf("%d commands, %v", len(s.Commands), err)
	}
}

// An abort's words are cut to what a log has room for.
func TestLastWordsAreBounded(t *testing.T) {
	var heard string
	s := &Server{Clients: Clients{Abort: func(_ pmi.Proc, _ int, words string) { heard = words }}}
	var f frame
	f.proc(pmi.Proc{Job: "w"})
	f.number(7)
	f.text(strings.Repeat("no ", 1<<20))
	if _, err := s.asked(upAbort, &reader{left: f}); err != nil || len(heard) == 0 || len(heard) > longestWords+8 {
		t.Errorf("%d bytes, %v", len(heard), err)
	}
}

// Questions that nobody answers are refused once there are too many, and a child that takes in no
// answer ends.
func TestQuestionsThatWaitAreBounded(t *testing.T) {
	s := &Server{out: make(chan frame), clients: make(map[pmi.Proc]*client)}
	s.ctx, s.stop = context.WithCancel(t.Context())
	lookup := func() *reader {
		var f frame
		f.proc(pmi.Proc{Job: "w"})
		f.number(0)
		f.number(0)
		return &reader{left: f}
	}
	s.Peers = silent{}
	// Most of the questions and of the refusals that fit are there before, without their goroutines.
	const room = 100
	for range mostQuestions - room {
		if !s.open.Take(0, mostQuestions, 0) || !s.refused.Take(0, mostQuestions, 0) {
			t.Fatal("there is no room")
		}
	}
	var err error
	asked := 0
	for ; err == nil && asked < 3*room; asked++ {
		err = s.hear(upLookup, uint32(asked), lookup())
	}
	if !errors.Is(err, errFlood) || asked != 2*room+1 {
		t.Errorf("after %d questions: %v", asked, err)
	}
	s.stop()
	s.tasks.Wait()
	s.open.Give(mostQuestions-room, 0)
	if !s.open.Take(mostAsked, 1, mostAsked) {
		t.Error("what was answered is not given back")
	}
}

// silent are peers that never answer.
type silent struct{ Peers }

func (silent) Lookup(ctx context.Context, _ []string, _ bool) ([]pmi.Entry, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}
