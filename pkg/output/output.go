// Package output merges the output of the ranks of one node into the daemon's standard output and
// standard error. It writes whole lines, and a slow reader does not block the ranks.
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

// longestLine is the maximum length of a line in bytes. Longer lines are passed on in pieces, each
// as a line.
const longestLine = 16 << 20

// goesOn is appended to each piece of such a line except the last.
const goesOn = " [bringupd: the line goes on]"

// Mode selects the output that is passed on.
type Mode string

// Modes. Except with [None], the standard error of all ranks is passed on.
const (
	Rank0 Mode = "rank0" // standard output of rank 0 only
	All   Mode = "all"
	None  Mode = "none"
)

// Modes lists the values that a user can choose.
var Modes = []string{string(All), string(Rank0), string(None)}

// Config selects the output that is passed on, and its format.
type Config struct {
	Out, Err io.Writer
	Mode     Mode
	Tag      bool   // begin each line with its rank and Host
	Host     string // name of this host
	Ranks    int    // number of ranks in the world
	Nodes    bool   // the writers belong to nodes instead of ranks
	// Merge combines identical lines of several ranks into one, which begins with the numbers of these
	// ranks. For this purpose each line is delayed a little.
	Merge bool
}

// Chorus passes on the output of the ranks of one node. It is safe for concurrent use.
type Chorus struct {
	cfg      Config
	out, err *sink             // the same sink if both are the same file
	merge    map[*sink]*merger // empty if lines are not merged

	mu     sync.Mutex
	voices map[int][]*voice // open streams of each rank; guarded by mu
}

// New returns a [Chorus]. The caller must close it.
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

// same reports whether two writers write to the same file, in which their lines could be mixed.
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

// Writer returns the writer for a rank's standard output or, if isErr is set, standard error. A
// Write waits for a slow reader for at most one second. It fails if the reader has gone; the error
// wraps the cause, such as EPIPE.
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

// End passes on the incomplete last lines of a rank. It must be called after all output of the rank
// has been written.
func (c *Chorus) End(rank int) {
	c.mu.Lock()
	voices := c.voices[rank]
	delete(c.voices, rank)
	c.mu.Unlock()
	for _, v := range voices {
		v.end()
	}
}

// Close passes on the remaining output until ctx ends. Its error describes output that could not be
// passed on.
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

// voice is one of the two output streams of a rank.
type voice struct {
	rank  int
	to    *sink
	tag   string
	merge *merger // nil if lines are not merged
	raw   bool    // pass data on unchanged, because no other stream is mixed with it

	mu    sync.Mutex
	lines process.Lines // guarded by mu
	whole []byte        // buffer for a complete line, reused; guarded by mu
}

// Write passes on the lines that are completed by data.
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

// end passes on an incomplete line.
func (v *voice) end() {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.lines.End(func(line []byte, more bool) { _ = v.pass(line, more) }) // errors of the sink are reported when it is closed
}

// pass formats one line, or a piece of a line if more is set, and passes it on. The caller holds
// mu.
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
		v.whole = nil // long lines are rare, and there are many ranks
	}
	return err
}

// give passes a formatted line on to the merger or the sink.
func (v *voice) give(line []byte) error {
	if v.merge != nil {
		return v.merge.add(v.rank, line)
	}
	return v.to.add(v.rank, line)
}

// keptRoom is the size of the buffer that a stream keeps for its next line, in bytes.
const keptRoom = 64 << 10

// colored reports whether a line ends with terminal colours still active.
func colored(line []byte) bool {
	last := bytes.LastIndex(line, []byte("\x1b["))
	if last < 0 {
		return false
	}
	set := line[last+2:]
	return !bytes.HasPrefix(set, []byte("m")) && !bytes.HasPrefix(set, []byte("0m"))
}

// missing returns the line that reports omitted output of ranks or nodes.
func missing(lost map[int]int, of string) string {
	bytes := 0
	for _, n := range lost {
		bytes += n
	}
	return fmt.Sprintf("bringupd: who reads was too slow, so %s bytes of %s %s are missing here: all is in the ranks' logs\n",
		prose.Grouped(bytes), prose.Noun(len(lost), of), prose.Ranges(slices.Sorted(maps.Keys(lost))))
}
