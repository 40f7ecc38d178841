// Package output brings together what the ranks of one node print, on the daemon's
// standard output and error: whole lines, and no rank is held up by who reads slowly.
package output

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"sync"

	"github.com/bringupd/bringupd/pkg/process"
	"github.com/bringupd/bringupd/pkg/prose"
)

// longestLine is how much of a line is kept until it ends, in bytes: a longer one is
// passed on in pieces, each a line.
const longestLine = 16 << 20

// goesOn ends each piece of such a line but the last.
const goesOn = " [bringupd: the line goes on]"

// Mode says whose output is passed on.
type Mode string

// The modes. Standard error is that of all ranks where there is any.
const (
	Rank0 Mode = "rank0" // the standard output of rank 0 alone
	All   Mode = "all"
	None  Mode = "none"
)

// Modes are what a user may ask for.
var Modes = []string{string(All), string(Rank0), string(None)}

// Config is what is passed on, and how.
type Config struct {
	Out, Err io.Writer
	Mode     Mode
	Tag      bool   // each line begins with its rank and Host
	Host     string // this node's
	Ranks    int    // of the world
	Nodes    bool   // the writers are not those of ranks, but of so many nodes
	// Merge has lines that several ranks print alike shown once: each begins with those
	// whose it is, and waits a little for others.
	Merge bool
}

// Chorus is what the ranks of one node print. It is safe for concurrent use.
type Chorus struct {
	cfg      Config
	out, err *sink             // one, where both are the same file
	merge    map[*sink]*merger // empty where lines are not merged

	mu     sync.Mutex
	voices map[int][]*voice // of each rank; guarded by mu
}

// New returns a chorus, which must be closed.
func New(cfg Config) *Chorus {
	of := "rank"
	if cfg.Nodes {
		of = "node"
	}
	c := &Chorus{cfg: cfg, out: newSink(cfg.Out, of), voices: make(map[int][]*voice)}
	c.err = c.out
	if !same(cfg.Out, cfg.Err) {
		c.err = newSink(cfg.Err, of)
	}
	c.merge = make(map[*sink]*merger)
	if host := cfg.Host; cfg.Merge {
		if !cfg.Tag {
			host = ""
		}
		c.merge[c.out] = newMerger(c.out, host)
		if c.err != c.out {
			c.merge[c.err] = newMerger(c.err, host)
		}
	}
	return c
}

// same tells whether two writers end in one file, where lines of both could mix.
func same(a, b io.Writer) bool {
	one, isOne := a.(*os.File)
	other, isOther := b.(*os.File)
	if !isOne || !isOther {
		return a == b
	}
	first, err := one.Stat()
	second, otherErr := other.Stat()
	return err == nil && otherErr == nil && os.SameFile(first, second)
}

// Writer returns what takes a rank's standard output or error. A Write waits for a
// reader a second at most. Its error says that nobody reads any more, and wraps the
// cause, as EPIPE.
func (c *Chorus) Writer(rank int, isErr bool) io.Writer {
	if c.cfg.Mode == None || c.cfg.Mode == Rank0 && rank != 0 && !isErr {
		return io.Discard
	}
	v := &voice{rank: rank, to: c.out, lines: process.Lines{Longest: longestLine}}
	if isErr {
		v.to = c.err
	}
	v.merge = c.merge[v.to]
	if c.cfg.Tag && v.merge == nil {
		v.tag = fmt.Sprintf("[%d %s] ", rank, c.cfg.Host)
	}
	v.raw = !c.cfg.Tag && (c.cfg.Ranks == 1 || c.cfg.Mode == Rank0 && !isErr)
	c.mu.Lock()
	defer c.mu.Unlock()
	c.voices[rank] = append(c.voices[rank], v)
	return v
}

// End passes on what a rank has begun as a line and not ended. It is called when all
// that the rank printed was written.
func (c *Chorus) End(rank int) {
	c.mu.Lock()
	voices := c.voices[rank]
	delete(c.voices, rank)
	c.mu.Unlock()
	for _, v := range voices {
		v.end()
	}
}

// Close passes on what is left, until ctx ends. Its error says what nobody has taken.
func (c *Chorus) Close(ctx context.Context) error {
	c.mu.Lock()
	ranks := slices.Sorted(maps.Keys(c.voices))
	c.mu.Unlock()
	for _, rank := range ranks {
		c.End(rank)
	}
	for _, m := range c.merge {
		m.close()
	}
	c.out.stop()
	c.err.stop()
	err := c.out.await(ctx, "standard output")
	if c.err != c.out {
		err = errors.Join(err, c.err.await(ctx, "standard error"))
	}
	return err
}

// voice is one of a rank's two streams.
type voice struct {
	rank  int
	to    *sink
	tag   string
	merge *merger // nil where lines are not merged
	raw   bool    // no other can be mixed with it: it is passed on as it comes

	mu    sync.Mutex
	lines process.Lines // guarded by mu
	whole []byte        // what is given to the sink: its memory is used again; guarded by mu
}

// Write passes on the lines that data ends.
func (v *voice) Write(data []byte) (int, error) {
	if v.raw {
		return len(data), v.to.add(v.rank, data)
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	var err error
	v.lines.Add(data, func(line []byte, more bool) {
		if err == nil {
			err = v.pass(line, more)
		}
	})
	return len(data), err
}

func (v *voice) end() {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.lines.End(func(line []byte, more bool) { _ = v.pass(line, more) }) // the sink tells at its end
}

// pass needs mu.
func (v *voice) pass(line []byte, more bool) error {
	v.whole = append(append(v.whole[:0], v.tag...), line...)
	if (v.tag != "" || v.merge != nil) && colored(line) {
		v.whole = append(v.whole, "\x1b[0m"...)
	}
	if more {
		v.whole = append(v.whole, goesOn...)
	}
	v.whole = append(v.whole, '\n')
	err := v.give(v.whole)
	if cap(v.whole) > keptRoom {
		v.whole = nil // a long line is rare, and ranks are many
	}
	return err
}

func (v *voice) give(line []byte) error {
	if v.merge != nil {
		return v.merge.add(v.rank, line)
	}
	return v.to.add(v.rank, line)
}

// keptRoom is how much memory a voice keeps for its next line.
const keptRoom = 64 << 10

// colored tells whether a line leaves a terminal's colors on.
func colored(line []byte) bool {
	last := bytes.LastIndex(line, []byte("\x1b["))
	if last < 0 {
		return false
	}
	set := line[last+2:]
	return !bytes.HasPrefix(set, []byte("m")) && !bytes.HasPrefix(set, []byte("0m"))
}

// missing is the line that tells what was left out, of ranks or of nodes.
func missing(lost map[int]int, of string) string {
	bytes := 0
	for _, n := range lost {
		bytes += n
	}
	return fmt.Sprintf("bringupd: who reads was too slow, so %s bytes of %s %s are missing here: all is in the ranks' logs\n",
		prose.Grouped(bytes), prose.Noun(len(lost), of), prose.Ranges(slices.Sorted(maps.Keys(lost))))
}
