package rendezvous

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zaptest/observer"

	"github.com/bringupd/bringupd/internal/ctxutil"
)

func put(t testing.TB, c *Client, key, value string) {
	t.Helper()
	must(t, c.PutValue(t.Context(), key, []byte(value)))
	must(t, c.CommitValues(t.Context()))
}

func TestPutIsTheCallersUntilCommit(t *testing.T) {
	s := raise(t, 2, 1, false)
	a, b := s.rank(0), s.rank(1)
	must(t, a.PutValue(t.Context(), "k", []byte("v")))
	_, _, err := b.GetValue(t.Context(), "k", "0", 50*time.Millisecond)
	want(t, err, "cannot get k in time: rank 0 on n0 has not put it")
	_, _, err = b.GetValue(t.Context(), "k", "", 50*time.Millisecond)
	want(t, err, "no program has put it; not yet in any fence: rank 0 on n0, rank 1 on n1")
	must(t, a.CommitValues(t.Context()))
	value, _, err := b.GetValue(t.Context(), "k", "0", ceiling)
	if string(value) != "v" || err != nil {
		t.Fatalf("got %q: %v", value, err)
	}
}

func TestFenceMakesVisible(t *testing.T) {
	s := raise(t, 3, 2, true)
	var ranks sync.WaitGroup
	for rank, c := range s.all() {
		ranks.Go(func() {
			put(t, c, "card", fmt.Sprint("of ", rank))
			must(t, c.AwaitFence(t.Context(), "", ceiling))
			for other := range len(s.world.nodeByRank) {
				value, _, err := c.GetValue(t.Context(), "card", fmt.Sprint(other), ceiling)
				if string(value) != fmt.Sprint("of ", other) || err != nil {
					t.Errorf("rank %d got %q of %d: %v", rank, value, other, err)
				}
			}
		})
	}
	ranks.Wait()
	_, _, err := s.rank(0).GetValue(t.Context(), "card", "", ceiling)
	want(t, err, "both rank ", " have put it; name one of them")
}

func TestFenceNamesTheMissing(t *testing.T) {
	s := raise(t, 3, 2, false)
	var ranks sync.WaitGroup
	for _, rank := range []int{0, 1, 4} {
		c := s.rank(rank)
		ranks.Go(func() {
			err := c.AwaitFence(t.Context(), "start", 300*time.Millisecond)
			want(t, err, "cannot pass the fence start in time: missing: ranks 2-3 on n1, rank 5 on n2")
		})
	}
	ranks.Wait()
	for rank, c := range s.all() { // a rank that has stopped waiting enters again and continues
		ranks.Go(func() {
			if err := c.AwaitFence(t.Context(), "start", ceiling); err != nil {
				t.Errorf("rank %d: %v", rank, err)
			}
		})
	}
	ranks.Wait()
}

func TestReportStep(t *testing.T) {
	s := raise(t, 1, 2, false)
	must(t, s.rank(1).ReportStep(t.Context(), 12.5))
	must(t, s.rank(0).ReportStep(t.Context(), 0))
	s.mu.Lock()
	defer s.mu.Unlock()
	if !slices.Equal(s.steps, []string{"1 at 12.5", "0 at 0"}) {
		t.Errorf("the steps are %q", s.steps)
	}
}

// TestOverflow verifies that data that cannot be stored is an error for all clients that wait for
// anything, and for later ones.
func TestOverflow(t *testing.T) {
	s := raise(t, 3, 1, false)
	all := s.all()
	var waiting sync.WaitGroup
	waiting.Go(func() {
		_, _, err := s.rank(0).GetValue(t.Context(), "last", "1", ceiling)
		want(t, err, "cannot get last: cannot store ", "the store already has 100,000 keys")
	})
	for rank, keys := range []int{1, MaxKeys, 1} {
		values := make(map[string][]byte, keys)
		for key := range keys {
			values[fmt.Sprint("k", key)] = nil
		}
		must(t, s.nodes[rank].commitValues(fmt.Sprint(rank), "a test", values))
		waiting.Go(func() {
			want(t, all[rank].AwaitFence(t.Context(), "f", ceiling), "the store already has 100,000 keys, the maximum")
		})
	}
	waiting.Wait()
	_, _, err := all[0].GetValue(t.Context(), "more", "", ceiling)
	want(t, err, "the store already has 100,000 keys")
	want(t, s.nodes[1].commitValues("1", "a test", map[string][]byte{"more": nil}), "cannot put more than 100,000 keys")
}

// TestJoinWithoutASocket verifies that a node whose socket cannot be created runs its ranks
// nevertheless, and that the others are informed when these end.
func TestJoinWithoutASocket(t *testing.T) {
	for name, private := range map[string]func() (string, error){
		"its path is too long": func() (string, error) { return t.TempDir() + strings.Repeat("/long", 30), nil },
		"there is no room":     func() (string, error) { return "", syscall.ENOSPC },
	} {
		t.Run(name, func(t *testing.T) {
			s := raise(t, 2, 1, false)
			ctx, cancel := context.WithCancel(context.Background())
			var tasks sync.WaitGroup
			defer tasks.Wait()
			defer cancel()
			background := func(task func(context.Context)) { tasks.Go(func() { task(ctx) }) }
			said, logs := observer.New(zap.WarnLevel)
			hall := new(Worlds)
			hall.Add("ours", World{s.head, nodesOf(2)})
			n, path := StartNode(Config{
				Self: *s.world.nodeAt(1), Layout: func() Layout { return s.world },
				Log: zap.New(said), Dial: hall.LocalDialer("ours", 1, background),
			}, private, "meet", background)
			if path != "" || logs.Len() != 1 || !strings.Contains(logs.All()[0].Message, "can't use bringupd kv: ") {
				t.Errorf("the path is %q, and the log says %v", path, logs.All())
			}
			n.ReportRankEnd(1, "exit code 0")
			want(t, s.rank(0).AwaitFence(t.Context(), "f", ceiling), "rank 1 on n1 will not arrive: exit code 0")
		})
	}
}

// TestValuesOfAnySize verifies that values of any size arrive after others of any size, although
// both sides of a connection replace their codecs after a large message.
func TestValuesOfAnySize(t *testing.T) {
	s := raise(t, 2, 1, true)
	writer, reader, ctx := s.rank(0), s.rank(1), t.Context()
	for at, size := range []int{1, MaxValueSize, 0, 64 << 10, 64<<10 + 1, 3} {
		key, value := fmt.Sprint("k", at), bytes.Repeat([]byte{byte(at)}, size)
		must(t, writer.PutValue(ctx, key, value))
		must(t, writer.CommitValues(ctx))
		got, _, err := reader.GetValue(ctx, key, "", ceiling)
		if err != nil || !bytes.Equal(got, value) {
			t.Fatalf("%d of %d bytes arrive: %v", len(got), size, err)
		}
	}
}

func TestRefusals(t *testing.T) {
	s := raise(t, 1, 2, false)
	c, program := s.rank(0), s.dial(0, nil)
	ctx := t.Context()
	want(t, c.PutValue(ctx, "a b", nil), `cannot use the key "a b": byte 1 is not printable ASCII`)
	want(t, c.PutValue(ctx, "", nil), "cannot use a key of 0 bytes: 1 to 255 are accepted")
	want(t, c.PutValue(ctx, strings.Repeat("k", 256), nil), "cannot use a key of 256 bytes")
	want(t, c.PutValue(ctx, "k", make([]byte, MaxValueSize+1)), "has 1048577 bytes, and at most 1048576 are accepted")
	must(t, c.PutValue(ctx, "k", make([]byte, MaxValueSize)))
	must(t, c.CommitValues(ctx))
	must(t, c.PutValue(ctx, "k", []byte("again")))
	want(t, c.CommitValues(ctx), "it has two writers, rank 0 on n0 (process ", "and rank 0 on n0 (process ")
	want(t, program.AwaitFence(ctx, "f", 0), "only ranks can enter a fence, and BRINGUPD_RANK is not set here")
	want(t, c.AbortJob(ctx, 0, ""), "cannot abort with code 0: 1 to 255 are accepted")
	want(t, c.ReportStep(ctx, -1), "cannot report step -1: give a number from 0 to 1e+15")
	want(t, program.ReportStep(ctx, 3), "only a rank can, and BRINGUPD_RANK does not name one")
	_, _, err := c.GetValue(ctx, "k", "17", 0)
	want(t, err, `cannot get k of "17"`)
	wrong := 5
	_, err = DialAsRank(ctx, s.paths[0], &wrong)
	want(t, err, "cannot connect as rank 5: it is not a rank of n0")

	waiting := s.rank(1)
	var fence sync.WaitGroup
	fence.Go(func() { must(t, waiting.AwaitFence(ctx, "twice", ceiling)) })
	until(t, "a rank in the fence", func() (bool, any) { w := s.nodes[0].PendingWaits(); return len(w) > 0, w })
	waits, err := c.PendingWaits(ctx)
	if err != nil || len(waits) != 1 || waits[0].WaitedSeconds <= 0 {
		t.Fatalf("waiting: %+v, %v", waits, err)
	}
	if waits[0].WaitedSeconds = 0; !reflect.DeepEqual(waits[0],
		Wait{Rank: 1, Kind: "fence", Name: "twice", Missing: []int{0}}) {
		t.Errorf("waiting: %+v", waits[0])
	}
	want(t, s.rank(1).AwaitFence(ctx, "twice", ceiling),
		"cannot enter the fence twice twice: rank 1 on n0 is already waiting in it")
	must(t, c.AwaitFence(ctx, "twice", ceiling))
	fence.Wait()

	bare := raise(t, 1, 0, false)
	want(t, bare.dial(0, nil).AwaitFence(ctx, "f", 0), "cannot fence: this run has no ranks")
}

// TestRefused verifies that a node without a peer link refuses requests that need the other nodes,
// and serves the rest.
func TestRefused(t *testing.T) {
	s := raise(t, 1, 2, false)
	var mu sync.Mutex
	var askers []int
	s.nodes[0].cfg.AwaitLink = func(_ context.Context, rank int) error {
		mu.Lock()
		defer mu.Unlock()
		askers = append(askers, rank)
		return errors.New("no link: open the port")
	}
	c, other := s.rank(1), s.dial(0, nil)
	_, _, err := c.GetValue(t.Context(), "key", "", 0)
	for what, err := range map[string]error{
		"put":            c.PutValue(t.Context(), "key", nil),
		"commit":         c.CommitValues(t.Context()),
		"get":            err,
		"fence":          c.AwaitFence(t.Context(), "", 0),
		"put of no rank": other.PutValue(t.Context(), "key", nil),
	} {
		if !errors.Is(err, ErrNoPeerLink) || err.Error() != "no link: open the port" {
			t.Errorf("%s: %v", what, err)
		}
	}
	if slices.Sort(askers); !slices.Equal(askers, []int{-1, 1, 1, 1, 1}) {
		t.Errorf("asked for ranks %d", askers)
	}
	if waits, err := c.PendingWaits(t.Context()); err != nil || len(waits) > 0 {
		t.Errorf("waits are %v, %v", waits, err)
	}
	must(t, c.AbortJob(t.Context(), 3, "over"))
	if !slices.Equal(s.aborted, []string{"1 3 over"}) {
		t.Errorf("aborts are %q", s.aborted)
	}
}

// TestUsed verifies that use of the rendezvous by programs is distinguished from messages that
// nodes send by themselves.
func TestUsed(t *testing.T) {
	s := raise(t, 2, 1, false)
	c := s.rank(1)
	put(t, c, "key", "value")
	s.nodes[0].ReportRankEnd(0, "exit code 0")
	until(t, "the rank's end at the head", func() (bool, any) {
		s.head.mu.Lock()
		defer s.head.mu.Unlock()
		return len(s.head.endedRanks) == 1, s.head.endedRanks
	})
	if ctxutil.AwaitDoneFor(s.head.FirstUse(), 0) {
		t.Error("an end is taken for a use")
	}
	_ = c.AwaitFence(t.Context(), "", ceiling)
	if !ctxutil.AwaitDoneFor(s.head.FirstUse(), 0) {
		t.Error("a fence is not taken for a use")
	}
}
