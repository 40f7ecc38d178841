// Package voice is what a daemon says to people, on standard error, and to its own
// log.
package voice

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"sync/atomic"
	"time"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"github.com/bringupd/bringupd/pkg/journal"
	"github.com/bringupd/bringupd/pkg/process"
	"github.com/bringupd/bringupd/pkg/roles"
)

// lastTime is for how long, in all, a daemon that ends waits for a reader.
const lastTime = 2 * time.Second

// Config is how a daemon speaks.
type Config struct {
	To      io.Writer
	JSON    bool // every line is a record; the last words, too
	Verbose bool
}

// Voice is what is said on standard error. That may be a pipe which nobody
// empties, and the driver has it, too, so that it can't be made one that never
// blocks: who says something does not wait until it is taken. The daemon's end
// alone does, for a moment.
type Voice struct {
	// Log speaks to people, at the level that is set, and tells everything to the
	// daemon's own log.
	Log *zap.Logger

	*journal.Journal
	cfg      Config
	loud     zap.AtomicLevel // of what Log tells people
	lost     atomic.Int64    // lines that were refused for good
	patience time.Duration   // what is left of lastTime; owned by who ends the daemon
}

// New returns the voice of a daemon, which must be closed, and whose own log is own.
func New(cfg Config, id roles.Identity, own zapcore.WriteSyncer) *Voice {
	v := open(cfg)
	v.loud = zap.NewAtomicLevelAt(cfg.level(id))
	people := zapcore.NewCore(peopleEncoder(cfg.JSON), v, v.loud)
	whole := zapcore.NewCore(zapcore.NewJSONEncoder(encoding()), own, zapcore.DebugLevel)
	v.Log = zap.New(zapcore.NewTee(people, whole)).Named(fmt.Sprintf("bringupd[%d %s]", id.Rank, id.Host))
	return v
}

// open returns a voice without a log.
func open(cfg Config) *Voice {
	v := &Voice{Journal: journal.New(), cfg: cfg, patience: lastTime}
	v.Eager = true
	if !cfg.JSON {
		v.Dropped = func(lines int) string {
			return fmt.Sprintf("bringupd: nobody read, so %d lines are missing here: they are in the daemon's log", lines)
		}
	}
	v.Open(mouth{v})
	return v
}

// LastWords gives the last words to standard error, in one piece, and to the
// daemon's own log, under why and with the fields. What comes after them goes to
// that log alone.
func (v *Voice) LastWords(words []string, level zapcore.Level, why string, fields ...zap.Field) {
	defer v.Hush()
	if len(words) == 0 {
		return
	}
	if !v.cfg.JSON {
		v.Hush()
		_, _ = io.WriteString(v, strings.Join(words, "\n")+"\n")
	}
	v.Log.Log(level, why, append(fields, zap.Strings("last_words", words))...)
}

// Hush has people be told nothing more.
func (v *Voice) Hush() { v.loud.SetLevel(zapcore.FatalLevel) }

// Postscript has people be told of warnings again, after the last words, until
// Hush.
func (v *Voice) Postscript() { v.loud.SetLevel(zapcore.WarnLevel) }

// Wait gives a reader the time to take what was said.
func (v *Voice) Wait() { v.spend(v.Flush) }

// Close ends the voice, and returns how many lines nobody has taken.
func (v *Voice) Close() int {
	v.spend(v.Journal.Close)
	return v.Left() + int(v.lost.Load())
}

// spend has something wait, for no longer than there is patience.
func (v *Voice) spend(wait func(ctx context.Context) error) {
	began := time.Now()
	ctx, cancel := context.WithTimeoutCause(context.Background(), v.patience, errUnread)
	defer cancel()
	_ = wait(ctx)
	v.patience -= min(v.patience, time.Since(began))
}

var errUnread = errors.New("nobody has read standard error")

// mouth is the file behind a voice. It never refuses: who has gone away does not
// come back for what he has missed.
type mouth struct{ of *Voice }

func (m mouth) Write(lines []byte) (int, error) {
	if err := process.PassOn(m.of.cfg.To, lines); err != nil {
		m.of.lost.Add(int64(bytes.Count(lines, []byte{'\n'})))
	}
	return len(lines), nil
}

func (mouth) Close() error { return nil }
