package console

import (
	"fmt"
	"io"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"

	"github.com/bringupd/bringupd/internal/textutil"
	"github.com/bringupd/bringupd/pkg/roles/launcher"
)

// minLevel returns the lowest level that is shown on standard error. Workers show only problems: 64
// nodes that report success would hide the one that fails.
func (c Config) minLevel(id launcher.Identity) zapcore.Level {
	switch {
	case c.Verbose:
		return zapcore.DebugLevel
	case id.NodeIndex != 0 || id.Size == 1:
		return zapcore.WarnLevel
	default:
		return zapcore.InfoLevel
	}
}

func consoleEncoder(asJSON bool) zapcore.Encoder {
	if asJSON {
		return zapcore.NewJSONEncoder(encoderConfig())
	}
	config := encoderConfig()
	config.EncodeTime = zapcore.TimeEncoderOfLayout("15:04:05.000")
	config.ConsoleSeparator = " "
	return zapcore.NewConsoleEncoder(config)
}

// ReportStartError reports why the daemon does not start, in the format of a daemon's log. It does
// not wait longer for the reader of to than a daemon does at its end.
func ReportStartError(to io.Writer, asJSON bool, err error, code int) {
	reportStart(to, asJSON, zapcore.ErrorLevel, err.Error(), zap.Int("code", code))
}

// ReportStartWarning reports in the same way what may be a mistake in a daemon's settings.
func ReportStartWarning(to io.Writer, asJSON bool, message string) {
	reportStart(to, asJSON, zapcore.WarnLevel, message)
}

func reportStart(
	to io.Writer, asJSON bool, level zapcore.Level, message string, fields ...zap.Field,
) {
	v := newConsole(Config{Output: to, JSON: asJSON})
	defer v.Close()
	if !asJSON {
		// the error may quote a record
		_, _ = v.Write(textutil.EscapeControls(fmt.Appendf(nil, "bringupd: %s\n", message)))
		return
	}
	core := zapcore.NewCore(consoleEncoder(true), v, zapcore.WarnLevel)
	zap.New(core).Named("bringupd").Log(level, message, fields...)
}

func encoderConfig() zapcore.EncoderConfig {
	return zapcore.EncoderConfig{
		TimeKey: "at", LevelKey: "level", NameKey: "daemon", MessageKey: "msg",
		EncodeTime: zapcore.RFC3339NanoTimeEncoder, EncodeLevel: zapcore.LowercaseLevelEncoder,
		EncodeDuration: zapcore.StringDurationEncoder,
	}
}
