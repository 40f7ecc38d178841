package voice

import (
	"fmt"
	"io"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"github.com/bringupd/bringupd/pkg/prose"
	"github.com/bringupd/bringupd/pkg/roles"
)

// level is of what people are told. The workers say on standard error only what
// went wrong: sixty-four nodes that tell how well they are hide the one that isn't.
func (c Config) level(id roles.Identity) zapcore.Level {
	switch {
	case c.Verbose:
		return zapcore.DebugLevel
	case id.Rank != 0 || id.Size == 1:
		return zapcore.WarnLevel
	default:
		return zapcore.InfoLevel
	}
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
	v := open(Config{To: to, JSON: asJSON})
	defer v.Close()
	if !asJSON {
		_, _ = v.Write(prose.Escaped(fmt.Appendf(nil, "bringupd: %v\n", err))) // it may quote a record
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
