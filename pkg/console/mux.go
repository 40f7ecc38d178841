package console

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

	"github.com/bringupd/bringupd/internal/textutil"
	"github.com/bringupd/bringupd/pkg/process"
)

// maxLineLength is the maximum length of a line in bytes. Longer lines are passed on in pieces,
// each as a line.
const maxLineLength = 16 << 20

// continuedMark is appended to each piece of such a line except the last.
const continuedMark = " [bringupd: the line continues]"

// Mode selects the output that is passed on.
type Mode string

// Modes. Except with [NoRanks], the standard error of all ranks is passed on.
const (
	RankZero Mode = "rank0" // standard output of rank 0 only
	AllRanks Mode = "all"
	NoRanks  Mode = "none"
)

// Modes lists the values that a user can choose.
var Modes = []string{string(AllRanks), string(RankZero), string(NoRanks)}

// MuxConfig selects the output that is passed on, and its format.
type MuxConfig struct {
	Out, Err  io.Writer
	Mode      Mode
	TagLines  bool   // begin each line with its rank and Host
	Host      string // name of this host
	Ranks     int    // number of ranks in the world
	FromNodes bool   // the writers belong to nodes instead of ranks
}

// Mux merges the output of the ranks of one node into the daemon's standard output and standard error.
// It writes whole lines, except progress bars of rank 0, and a slow reader does not block the ranks.
// It is safe for concurrent use.
type Mux struct {
	cfg      MuxConfig
	out, err *fileSink // the same sink if both are the same file

	mu      sync.Mutex
	streams map[int][]*rankStream // open streams of each rank; guarded by mu
}

// NewMux returns a [Mux]. The caller must close it.
func NewMux(cfg MuxConfig) *Mux {
	of := "rank"
	if cfg.FromNodes {
		of = "node"
	}
	c := &Mux{cfg: cfg, out: newFileSink(cfg.Out, of), streams: make(map[int][]*rankStream)}
	c.err = c.out
	if !isSameFile(cfg.Out, cfg.Err) {
		c.err = newFileSink(cfg.Err, of)
	}
	return c
}

func isSameFile(a, b io.Writer) bool {
	one, isOne := a.(*os.File)
	other, isOther := b.(*os.File)
	if !isOne || !isOther {
		return a == b
	}
	first, err := one.Stat()
	second, otherErr := other.Stat()
	return err == nil && otherErr == nil && os.SameFile(first, second)
}

// RankWriter returns the writer for a rank's standard output or, if isErr is set, standard error. A
// Write waits for a slow reader for at most one second. It fails if the reader has gone; the error
// wraps the cause, such as EPIPE.
func (c *Mux) RankWriter(rank int, isErr bool) io.Writer {
	if c.cfg.Mode == NoRanks || c.cfg.Mode == RankZero && rank != 0 && !isErr {
		return io.Discard
	}
	v := &rankStream{rank: rank, sink: c.out, lines: process.LineSplitter{MaxLength: maxLineLength}}
	if isErr {
		v.sink = c.err
	}
	if c.cfg.TagLines {
		v.tag = fmt.Sprintf("[%d %s] ", rank, c.cfg.Host)
	}
	v.raw = !c.cfg.TagLines && (c.cfg.Ranks == 1 || c.cfg.Mode == RankZero && !isErr)
	v.showsProgress = !c.cfg.TagLines && rank == 0
	c.mu.Lock()
	defer c.mu.Unlock()
	c.streams[rank] = append(c.streams[rank], v)
	return v
}

// EndRank passes on the incomplete last lines of a rank. It must be called after all output of the
// rank has been written.
func (c *Mux) EndRank(rank int) {
	c.mu.Lock()
	streams := c.streams[rank]
	delete(c.streams, rank)
	c.mu.Unlock()
	for _, v := range streams {
		v.mu.Lock()
		// errors of the sink are reported when it is closed
		v.lines.Flush(func(line []byte, more bool) { _ = v.passLine(line, more) })
		v.mu.Unlock()
	}
}

// Close passes on the remaining output until ctx ends. Its error describes output that could not be
// passed on.
func (c *Mux) Close(ctx context.Context) error {
	c.mu.Lock()
	ranks := slices.Sorted(maps.Keys(c.streams))
	c.mu.Unlock()
	for _, rank := range ranks {
		c.EndRank(rank)
	}
	c.out.requestStop()
	c.err.requestStop()
	err := c.out.awaitEnd(ctx, "standard output")
	if c.err != c.out {
		err = errors.Join(err, c.err.awaitEnd(ctx, "standard error"))
	}
	return err
}

type rankStream struct {
	rank int
	sink *fileSink
	tag  string
	raw  bool // pass data on unchanged, because no other stream is mixed with it
	// showsProgress lets a line that overwrites itself, as progress bars do, be passed on as it comes.
	showsProgress bool

	mu     sync.Mutex
	lines  process.LineSplitter // guarded by mu
	buffer []byte               // buffer for a complete line, reused; guarded by mu
	passed int                  // bytes of the incomplete line that were passed on; guarded by mu
}

// Write passes on the lines that are completed by data.
func (v *rankStream) Write(data []byte) (int, error) {
	if v.raw {
		return len(data), v.sink.addOutput(v.rank, data)
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	var err error
	v.lines.Add(data, func(line []byte, more bool) {
		if err == nil {
			err = v.passLine(line, more)
		}
	})
	if begun := v.lines.Partial(); err == nil && v.showsProgress && bytes.IndexByte(begun, '\r') >= 0 {
		err = v.sink.addOutput(v.rank, begun[v.passed:])
		v.passed = len(begun)
	}
	return len(data), err
}

// passLine formats one line, or a piece of a line if more is set, and passes it on. The caller
// holds mu.
func (v *rankStream) passLine(line []byte, more bool) error {
	v.buffer = append(append(v.buffer[:0], v.tag...), line[v.passed:]...)
	v.passed = 0
	if v.tag != "" && leavesColors(line) {
		v.buffer = append(v.buffer, "\x1b[0m"...)
	}
	if more {
		v.buffer = append(v.buffer, continuedMark...)
	}
	v.buffer = append(v.buffer, '\n')
	formatted := v.buffer
	if cap(v.buffer) > maxKeptBuffer {
		v.buffer = nil // long lines are rare, and there are many ranks
	}
	return v.sink.addOutput(v.rank, formatted)
}

// maxKeptBuffer is the size of the buffer that a stream keeps for its next line, in bytes.
const maxKeptBuffer = 64 << 10

// leavesColors reports whether a line ends with terminal colours still active.
func leavesColors(line []byte) bool {
	last := bytes.LastIndex(line, []byte("\x1b["))
	if last < 0 {
		return false
	}
	set := line[last+2:]
	return !bytes.HasPrefix(set, []byte("m")) && !bytes.HasPrefix(set, []byte("0m"))
}

// droppedMessage returns the line that reports omitted output of ranks or nodes.
func droppedMessage(lost map[int]int, of string) string {
	bytes := 0
	for _, n := range lost {
		bytes += n
	}
	return fmt.Sprintf("bringupd: the reader was too slow, so %s bytes of %s %s are missing here: the ranks' "+
		"logs have all output\n",
		textutil.GroupThousands(bytes), textutil.PluralForm(len(lost), of),
		textutil.FormatRanges(slices.Sorted(maps.Keys(lost))))
}
