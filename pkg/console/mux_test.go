package console

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"
)

func TestPassedOn(t *testing.T) {
	for name, test := range map[string]struct {
		mode     Mode
		tag      bool
		ranks    int
		out, err string
	}{
		"all":    {mode: AllRanks, ranks: 2, out: "zero\none\x00\ntail0\n", err: "e1\n"},
		"node 0": {mode: RankZero, ranks: 2, out: "zero\ntail0", err: "e1\n"},
		"none":   {mode: NoRanks, ranks: 2},
		"tags": {mode: AllRanks, tag: true, ranks: 2,
			out: "[0 n3] zero\n[1 n3] one\x00\n[0 n3] tail0\n", err: "[1 n3] e1\n"},
		"one alone": {mode: AllRanks, ranks: 1, out: "zero\ntail0one\x00\n", err: "e1\n"},
	} {
		t.Run(name, func(t *testing.T) {
			var out, err bytes.Buffer
			c := NewMux(MuxConfig{Out: &out, Err: &err, Mode: test.mode, TagLines: test.tag,
				Host: "n3", Ranks: test.ranks})
			zero := c.RankWriter(0, false)
			one := zero // the world of one rank
			if test.ranks > 1 {
				one = c.RankWriter(1, false)
			}
			fmt.Fprint(zero, "ze")
			fmt.Fprint(zero, "ro\ntail0")
			fmt.Fprint(one, "one\x00\n")
			fmt.Fprint(c.RankWriter(1, true), "e1")
			if test.ranks == 1 {
				test.err = "e1"
			}
			c.EndRank(0)
			c.EndRank(1)
			if problem := c.Close(t.Context()); problem != nil {
				t.Fatal(problem)
			}
			if out.String() != test.out || err.String() != test.err {
				t.Errorf("out %q, want %q; err %q, want %q", out.String(), test.out, err.String(), test.err)
			}
		})
	}
}

// TestProgressBar checks that a line of rank 0 that overwrites itself is passed on as it comes, that
// the lines of others begin on lines of their own, and that nothing is passed on twice.
func TestProgressBar(t *testing.T) {
	type write struct {
		rank int
		text string
	}
	for name, test := range map[string]struct {
		tag    bool
		writes []write
		begun  string // before the end
		end    string // what follows
	}{
		"a bar": {writes: []write{{0, "load\n\r 10%"}, {0, "\r 20%"}},
			begun: "load\n\r 10%\r 20%", end: "\n"},
		"in pieces": {writes: []write{{0, "a"}, {0, "b\rc"}, {0, "d"}},
			begun: "ab\rcd", end: "\n"},
		"that ends": {writes: []write{{0, "\r 10%"}, {0, "\r100%\ndone"}},
			begun: "\r 10%\r100%\n", end: "done\n"},
		"of DOS": {writes: []write{{0, "a\r"}, {0, "\nb\r\n"}},
			begun: "a\r\nb\r\n"},
		"of another rank": {writes: []write{{1, "\r 10%"}, {1, "\r 20%"}}, end: "\r 10%\r 20%\n"},
		"between other lines": {writes: []write{{0, "\r 10%"}, {1, "note\n"}, {0, "\r 20%"}},
			begun: "\r 10%\nnote\n\r 20%", end: "\n"},
		"with tags": {tag: true, writes: []write{{0, "\r 10%"}, {0, "\r 20%"}}, end: "[0 n3] \r 10%\r 20%\n"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var out, errs bytes.Buffer
				c := NewMux(MuxConfig{Out: &out, Err: &errs, Mode: AllRanks, TagLines: test.tag, Host: "n3", Ranks: 2})
				streams := []io.Writer{c.RankWriter(0, true), c.RankWriter(1, true)}
				for _, w := range test.writes {
					fmt.Fprint(streams[w.rank], w.text)
				}
				synctest.Wait()
				if errs.String() != test.begun {
					t.Errorf("before the end there is %q, want %q", errs.String(), test.begun)
				}
				if err := c.Close(t.Context()); err != nil || errs.String() != test.begun+test.end || out.Len() > 0 {
					t.Errorf("at the end there is %q, want %q: %v", errs.String(), test.begun+test.end, err)
				}
			})
		})
	}
}

func TestColorsEndWithTheLine(t *testing.T) {
	for line, on := range map[string]bool{"plain": false, "\x1b[31mred": true,
		"\x1b[31mred\x1b[0m": false, "\x1b[1mbold\x1b[m.": false} {
		if leavesColors([]byte(line)) != on {
			t.Errorf("colored(%q) is %v", line, !on)
		}
	}
}

// TestNothingIsMixedOrLost lets all ranks print at once into a pipe that is read without a pause.
// The clock of the bubble stands still meanwhile, so the reader does not count as slow on a busy
// machine.
func TestNothingIsMixedOrLost(t *testing.T) {
	synctest.Test(t, testNothingIsMixedOrLost)
}

func testNothingIsMixedOrLost(t *testing.T) {
	read, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	got := make(chan []byte, 1)
	go func() { all, _ := io.ReadAll(read); got <- all }()
	c := NewMux(MuxConfig{Out: write, Err: write, Mode: AllRanks, Ranks: 64}) // 2>&1
	var ranks sync.WaitGroup
	for rank := range 64 {
		for i, size := range []int{80, 4096} {
			to := c.RankWriter(rank, i == 1)
			ranks.Go(func() {
				line := append(bytes.Repeat([]byte{byte('0' + rank)}, size), '\n')
				for range 40 << 10 / size {
					_, _ = to.Write(line[:size/2])
					_, _ = to.Write(line[size/2:])
				}
			})
		}
	}
	long := bytes.Repeat([]byte{'~'}, 10_000_000)
	_, _ = c.RankWriter(64, false).Write(long)
	ranks.Wait()
	if err := c.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	write.Close()
	lines := bytes.Split(bytes.TrimSuffix(<-got, []byte("\n")), []byte("\n"))
	read.Close()
	if want := 64*(40<<10/80+40<<10/4096) + 1; len(lines) != want {
		t.Errorf("%d lines, want %d", len(lines), want)
	}
	for _, line := range lines {
		if n := len(line); n != 80 && n != 4096 && n != len(long) || bytes.Count(line, line[:1]) != n {
			t.Fatalf("a line is mixed: %d bytes, %.100q", n, line)
		}
	}
}

// gated is a writer that blocks until it is opened.
type gated struct {
	open chan struct{}
	bytes.Buffer
}

func (g *gated) Write(data []byte) (int, error) {
	<-g.open
	return g.Buffer.Write(data)
}

func TestNobodyReads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		to := &gated{open: make(chan struct{})}
		c := NewMux(MuxConfig{Out: to, Err: io.Discard, Mode: AllRanks, Ranks: 8})
		line := []byte(strings.Repeat("x", 1<<20-1) + "\n")
		began := time.Now()
		for rank := range 4 {
			for range 4 {
				if _, err := c.RankWriter(rank, false).Write(line); err != nil {
					t.Fatal(err)
				}
			}
		}
		if held := time.Since(began); held > readerTimeout {
			t.Errorf("ranks were held up for %v", held)
		}
		ctx, cancel := context.WithTimeoutCause(t.Context(), time.Second, errors.New("enough"))
		defer cancel()
		if err := c.Close(ctx); err == nil || !strings.Contains(err.Error(), "last 8388608 bytes") {
			t.Errorf("closed with %v", err)
		}
		close(to.open)
		if err := c.Close(t.Context()); err != nil {
			t.Error(err)
		}
		if tail := to.Bytes()[8<<20:]; !strings.Contains(string(tail),
			"8,388,608 bytes of ranks 2-3 are missing here") {
			t.Errorf("told %.200q", tail)
		}
	})
}

func TestReaderOfRanksGone(t *testing.T) {
	read, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	read.Close()
	defer write.Close()
	c := NewMux(MuxConfig{Out: write, Err: io.Discard, Mode: AllRanks, Ranks: 2})
	to := c.RankWriter(1, false)
	fmt.Fprintln(to, "gone")
	if err := c.Close(t.Context()); !errors.Is(err, unix.EPIPE) {
		t.Errorf("closed with %v", err)
	}
	if _, err := fmt.Fprintln(to, "more"); !errors.Is(err, unix.EPIPE) {
		t.Errorf("wrote with %v", err)
	}
}
