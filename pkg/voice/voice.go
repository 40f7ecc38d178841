// Package voice writes a daemon's log messages to standard error, for the user, and to the daemon's
// own log.
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

// lastTime is the total time for which a daemon that ends waits for the reader of its standard
// error.
const lastTime = 2 * time.Second

// Config configures the messages on standard error.
type Config struct {
	To      io.Writer
	JSON    bool // write every line as a record, including the final message
	Verbose bool
}

// Voice writes messages to standard error. Standard error may be a pipe that no process reads, and
// it cannot be made non-blocking because the driver shares it. So messages are queued, and the
// goroutine that logs a message does not wait until it is read. Only a daemon that ends waits, for
// a short time.
type Voice struct {
	// Log writes messages from a configured level on to standard error, and all messages to the
	// daemon's own log.
	Log *zap.Logger

	*journal.Journal
	cfg      Config
	loud     zap.AtomicLevel // lowest level of messages for standard error
	lost     atomic.Int64    // lines that could not be written
	patience time.Duration   // remainder of lastTime; used only by the goroutine that ends the daemon
}

// New returns the [Voice] of a daemon, which must be closed. own receives the daemon's own log.
func New(cfg Config, id roles.Identity, own zapcore.WriteSyncer) *Voice {
	v := open(cfg)
	v.loud = zap.NewAtomicLevelAt(cfg.level(id))
	people := zapcore.NewCore(peopleEncoder(cfg.JSON), v, v.loud)
	whole := zapcore.NewCore(zapcore.NewJSONEncoder(encoding()), own, zapcore.DebugLevel)
	v.Log = zap.New(zapcore.NewTee(people, whole)).Named(fmt.Sprintf("bringupd[%d %s]", id.Rank, id.Host))
	return v
}

// open returns a [Voice] without Log.
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

// LastWords writes the final message to standard error, in one piece, and to the daemon's own log,
// with the message why and the fields. Later messages go to that log only.
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

// Hush stops messages to standard error.
func (v *Voice) Hush() { v.loud.SetLevel(zapcore.FatalLevel) }

// Postscript lets warnings through to standard error again, after the final message, until
// [Voice.Hush].
func (v *Voice) Postscript() { v.loud.SetLevel(zapcore.WarnLevel) }

// Wait waits for a limited time until the queued messages have been written.
func (v *Voice) Wait() { v.spend(v.Flush) }

// Close closes the [Voice], and returns the number of lines that could not be written.
func (v *Voice) Close() int {
	v.spend(v.Journal.Close)
	return v.Left() + int(v.lost.Load())
}

// spend calls wait with a context that ends when [Voice.patience] is used up.
func (v *Voice) spend(wait func(ctx context.Context) error) {
	began := time.Now()
	ctx, cancel := context.WithTimeoutCause(context.Background(), v.patience, errUnread)
	defer cancel()
	_ = wait(ctx)
	v.patience -= min(v.patience, time.Since(began))
}

// errUnread is the cause of that context's end.
var errUnread = errors.New("nobody has read standard error")

// mouth is the file that a [Voice] writes to. Its Write never fails: if the reader has gone, later
// writes would fail too, so the lines are only counted.
type mouth struct{ of *Voice }

// Write implements io.Writer.
func (m mouth) Write(lines []byte) (int, error) {
	if err := process.PassOn(m.of.cfg.To, lines); err != nil {
		m.of.lost.Add(int64(bytes.Count(lines, []byte{'\n'})))
	}
	return len(lines), nil
}

func (mouth) Close() error { return nil }
