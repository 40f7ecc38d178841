package lifecycle

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"strconv"
	"time"

	"go.uber.org/zap"

	"github.com/bringupd/bringupd/internal/ctxutil"
	"github.com/bringupd/bringupd/internal/envlist"
	"github.com/bringupd/bringupd/internal/textutil"
	"github.com/bringupd/bringupd/pkg/config"
	"github.com/bringupd/bringupd/pkg/process"
	"github.com/bringupd/bringupd/pkg/signal/record"
)

const (
	killTimeout = time.Second // how long a killed command may take to end
	maxOutput   = 4 << 10     // the maximum amount of output that is logged, in bytes
)

// RunEndCommand runs a shell command with the result of the run on its standard input, and with the
// variables env. It returns when the command has ended, when ctx ends, or after
// config.EndCommandTimeout. A failure of the command is logged, and has no other effect.
func RunEndCommand(ctx context.Context, command string, env []string, result *record.Result, log *zap.Logger) {
	input, err := json.MarshalIndent(result, "", "  ")
	if err != nil {
		log.Warn("the command of --on-end was not run: the result has no JSON form", zap.Error(err))
		return
	}
	ctx, cancel := context.WithTimeoutCause(ctx, config.EndCommandTimeout,
		fmt.Errorf("it took longer than %s", config.EndCommandTimeout))
	defer cancel()
	output := &process.HeadBuffer{MaxBytes: maxOutput}
	began := time.Now()
	_, err = ctxutil.CallBounded(ctx, killTimeout, func() (struct{}, error) {
		return struct{}{}, process.Command{
			Argv: []string{"/bin/sh", "-c", command}, Env: envlist.With(env, resultVariables(result)),
			Stdin: bytes.NewReader(append(input, '\n')), Stdout: output, Stderr: output,
		}.Run(ctx)
	})
	fields := []zap.Field{zap.String("took", textutil.RoundedDuration(time.Since(began), time.Minute)),
		zap.String("output", textutil.SingleLine(output.String(), maxOutput))}
	if err != nil {
		log.Warn("the command of --on-end has failed", append(fields, zap.Error(err))...)
		return
	}
	log.Debug("the command of --on-end has ended", fields...)
}

// resultVariables returns the facts of a result that a shell script needs most.
func resultVariables(result *record.Result) map[string]string {
	const maxReason = 1000
	return map[string]string{
		"BRINGUPD_EXIT_CODE": strconv.Itoa(result.Code),
		"BRINGUPD_VERDICT":   result.Outcome,
		"BRINGUPD_REASON":    textutil.SingleLine(result.Reason, maxReason),
		"BRINGUPD_ERROR":     textutil.SingleLine(result.ErrorLine, maxReason),
	}
}
