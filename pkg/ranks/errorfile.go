package ranks

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
	"syscall"
	"time"

	"github.com/bringupd/bringupd/internal/envlist"
	"github.com/bringupd/bringupd/pkg/health"
	"github.com/bringupd/bringupd/pkg/service"
)

// errorFileVariable is the variable by which torch's decorator record finds the file to which it
// writes the exception that has left the decorated function.
const errorFileVariable = "TORCHELASTIC_ERROR_FILE"

// ErrorFileName returns the name of the error file of a rank of the world with a key.
func ErrorFileName(key string, rank int) string {
	return fmt.Sprintf("torch-error%s-%d.json", key, rank)
}

// UseErrorFile sets the file to which the rank writes its exception, unless the user has set another
// one, or none by an empty value.
func (s *RankSpec) UseErrorFile(path string, program RankProgram) {
	_, isOwn := program.UserEnv[errorFileVariable]
	if _, isSet := envlist.Lookup(program.BaseEnv, errorFileVariable); isSet || isOwn {
		return
	}
	s.errorFile, s.Env = path, envlist.With(s.Env, map[string]string{errorFileVariable: path})
}

const (
	maxErrorFile         = 1 << 20 // its maximum size in bytes
	errorFileReadTimeout = time.Second
)

// readErrorFile returns the lines of the traceback in the error file of a rank that has ended; nil if
// there is none.
func (s *RankSpec) readErrorFile(ctx context.Context) []string {
	if s.errorFile == "" {
		return nil
	}
	ctx, cancel := context.WithTimeoutCause(ctx, errorFileReadTimeout, health.ErrDeadline)
	defer cancel()
	lines, _ := service.CallBounded(ctx, func() ([]string, error) {
		file, err := os.OpenFile(s.errorFile, os.O_RDONLY|syscall.O_NONBLOCK, 0)
		if err != nil {
			return nil, err
		}
		defer file.Close()
		data, err := io.ReadAll(io.LimitReader(file, maxErrorFile))
		return parseErrorFile(data), err
	})
	return lines
}

// parseErrorFile returns the lines of the traceback in the content of an error file.
func parseErrorFile(data []byte) []string {
	var content struct {
		Message struct {
			ExtraInfo struct {
				Traceback string `json:"py_callstack"`
			} `json:"extraInfo"`
		} `json:"message"`
	}
	if json.Unmarshal(data, &content) != nil || content.Message.ExtraInfo.Traceback == "" {
		return nil
	}
	return strings.Split(strings.TrimRight(content.Message.ExtraInfo.Traceback, "\n"), "\n")
}
