package daemon

import (
	"fmt"
	"io"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"github.com/bringupd/bringupd/pkg/roles"
)

// newLogger writes for people to standard error and everything to the node's
// own log; the level is that of standard error. The workers say on standard error only what went wrong: sixty-four
// nodes that tell how well they are hide the one that isn't.
func newLogger(cfg Config, id roles.Identity, stderr, journal zapcore.WriteSyncer) (*zap.Logger, zap.AtomicLevel) {
	level := zapcore.InfoLevel
	if id.Rank != 0 || id.Size == 1 {
		level = zapcore.WarnLevel
	}
	if cfg.Verbose {
		level = zapcore.DebugLevel
	}
	loud := zap.NewAtomicLevelAt(level)
	people := zapcore.NewCore(peopleEncoder(cfg.JSONLog), stderr, loud)
	whole := zapcore.NewCore(zapcore.NewJSONEncoder(encoding()), journal, zapcore.DebugLevel)
	return zap.New(zapcore.NewTee(people, whole)).Named(fmt.Sprintf("bringupd[%d %s]", id.Rank, id.Host)), loud
}

func peopleEncoder(asJSON bool) zapcore.Encoder {
	if asJSON {
		return zapcore.NewJSONEncoder(encoding())
	}
	config := encoding()
	config.EncodeTime = zapcore.TimeEncoderOfLayout("15:04:05.000")
	config.ConsoleSeparator = " "
	return zapcore.NewConsoleEncoder(config)
}

// Refuse says why there is no daemon, in the form of what a daemon says. It
// waits for a reader no longer than a daemon does at its end.
func Refuse(to io.Writer, asJSON bool, err error, code int) {
	v := newVoice(to, asJSON)
	defer v.close()
	if !asJSON {
		fmt.Fprintf(v, "bringupd: %v\n", err)
		return
	}
	core := zapcore.NewCore(peopleEncoder(true), v, zapcore.ErrorLevel)
	zap.New(core).Named("bringupd").Error(err.Error(), zap.Int("code", code))
}

func encoding() zapcore.EncoderConfig {
	return zapcore.EncoderConfig{
		TimeKey: "at", LevelKey: "level", NameKey: "daemon", MessageKey: "msg",
		EncodeTime: zapcore.RFC3339NanoTimeEncoder, EncodeLevel: zapcore.LowercaseLevelEncoder,
		EncodeDuration: zapcore.StringDurationEncoder,
	}
}
