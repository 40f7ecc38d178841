// Package console writes a daemon's log messages to standard error, for the user, and to the
// daemon's own log. It also merges the output of the ranks of a node.
package console

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

	"github.com/bringupd/bringupd/internal/files"
	"github.com/bringupd/bringupd/pkg/process"
	"github.com/bringupd/bringupd/pkg/roles/launcher"
	"github.com/bringupd/bringupd/pkg/signal/record"
)

const closeTimeout = 2 * time.Second

// Config configures the messages on standard error.
type Config struct {
	Output  io.Writer
	JSON    bool // write every line as a record, including the final message
	Verbose bool
}

// Console writes messages to standard error. Standard error may be a pipe that no process reads,
// and it cannot be made non-blocking because the driver shares it. So messages are queued, and the
// goroutine that logs a message does not wait until it is read. Only a daemon that ends waits, for
// a short time.
type Console struct {
	// Log writes messages from a configured level on to standard error, and all messages to the
	// daemon's own log.
	Log *zap.Logger

	*files.Journal
	cfg          Config
	consoleLevel zap.AtomicLevel // lowest level of messages for standard error
	lostLines    atomic.Int64    // lines that could not be written
	// remainder of closeTimeout; used only by the goroutine that ends the daemon
	remainingTime time.Duration
}

// New returns the [Console] of a daemon, which must be closed. own receives the daemon's own log.
func New(cfg Config, id launcher.Identity, own zapcore.WriteSyncer) *Console {
	v := newConsole(cfg)
	v.consoleLevel = zap.NewAtomicLevelAt(cfg.minLevel(id))
	people := zapcore.NewCore(consoleEncoder(cfg.JSON), v, v.consoleLevel)
	whole := zapcore.NewCore(zapcore.NewJSONEncoder(encoderConfig()), own, zapcore.DebugLevel)
	name := fmt.Sprintf("bringupd[%d %s]", record.NodeOfMember(id.NodeIndex, id.Size),
		strings.TrimSpace(id.Host+" "+id.StepNameOf(id.NodeIndex)))
	v.Log = zap.New(zapcore.NewTee(people, whole)).Named(name)
	return v
}

func newConsole(cfg Config) *Console {
	v := &Console{Journal: files.NewJournal(), cfg: cfg, remainingTime: closeTimeout}
	v.WriteImmediately = true
	if !cfg.JSON {
		v.DroppedLine = func(lines int) string {
			return fmt.Sprintf("bringupd: standard error was not read, so %d lines are missing here: they are "+
				"in the daemon's log", lines)
		}
	}
	v.Open(stderrWriter{v})
	return v
}

// FinalMessage writes the final message to standard error, in one piece, and to the daemon's own
// log, with the message why and the fields. Later messages go to that log only, and so does this
// one after [Console.Mute].
func (v *Console) FinalMessage(words []string, level zapcore.Level, why string, fields ...zap.Field) {
	defer v.Mute()
	if len(words) == 0 {
		return
	}
	if !v.cfg.JSON && v.consoleLevel.Level() != zapcore.FatalLevel {
		v.Mute()
		_, _ = io.WriteString(v, strings.Join(words, "\n")+"\n")
	}
	v.Log.Log(level, why, append(fields, zap.Strings("last_words", words))...)
}

// Mute stops messages to standard error.
func (v *Console) Mute() { v.consoleLevel.SetLevel(zapcore.FatalLevel) }

// UnmuteWarnings lets warnings through to standard error again, after the final message, until
// [Console.Mute].
func (v *Console) UnmuteWarnings() { v.consoleLevel.SetLevel(zapcore.WarnLevel) }

// AwaitWritten waits for a limited time until the queued messages have been written.
func (v *Console) AwaitWritten() { v.waitBounded(v.Flush) }

// Close closes the [Console], and returns the number of lines that could not be written.
func (v *Console) Close() int {
	v.waitBounded(v.Journal.Close)
	return v.UnwrittenLines() + int(v.lostLines.Load())
}

// waitBounded calls wait with a context that ends when [Console.remainingTime] is used up.
func (v *Console) waitBounded(wait func(ctx context.Context) error) {
	began := time.Now()
	ctx, cancel := context.WithTimeoutCause(context.Background(), v.remainingTime, errNotRead)
	defer cancel()
	_ = wait(ctx)
	v.remainingTime -= min(v.remainingTime, time.Since(began))
}

var errNotRead = errors.New("standard error was not read")

// stderrWriter is the file that a [Console] writes to. Its Write never fails: if the reader has
// gone, later writes would fail too, so the lines are only counted.
type stderrWriter struct{ console *Console }

// Write implements io.Writer.
func (m stderrWriter) Write(lines []byte) (int, error) {
	if err := process.WriteRetrying(m.console.cfg.Output, lines); err != nil {
		m.console.lostLines.Add(int64(bytes.Count(lines, []byte{'\n'})))
	}
	return len(lines), nil
}

func (stderrWriter) Close() error { return nil }
