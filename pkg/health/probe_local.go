package health

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"time"

	"github.com/bringupd/bringupd/internal/ctxutil"
	"github.com/bringupd/bringupd/pkg/process"
)

const killGrace = 3 * time.Second // for the kernel to end a killed command

// singleCall runs calls that may never return, for example on an unresponsive mount or with a
// process that cannot be killed. Such a call is abandoned in its goroutine. At most one is running,
// so that they cannot accumulate: the channel has room for one token, which is in it while a call
// is running.
type singleCall chan struct{}

// runBounded returns what look returns or, if ctx has ended and grace is over, an error that names
// what hangs.
func (o singleCall) runBounded(ctx context.Context, grace time.Duration, what string, look func() error) error {
	select {
	case o <- struct{}{}:
	case <-ctx.Done():
		return fmt.Errorf("%s still hangs since an earlier probe", what)
	}
	_, err := ctxutil.CallBounded(ctx, grace, func() (struct{}, error) {
		defer func() { <-o }()
		return struct{}{}, look()
	})
	if errors.Is(err, ctxutil.ErrAbandoned) {
		return fmt.Errorf("%s hangs", what)
	}
	return err
}

// tryFile succeeds if a file or a directory exists. The file is queried by its name, which is
// correct for a local file system; a shared one may cache that a name was missing.
func tryFile(path string) error {
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("%s does not exist", path)
	case err != nil:
		return fmt.Errorf("cannot look at %s: %v", path, err)
	case !info.Mode().IsRegular() && !info.IsDir():
		return fmt.Errorf("%s is neither a file nor a directory (mode %s)", path, info.Mode())
	default:
		return nil
	}
}

// probeCommand is the command of an exec probe, a line of shell code.
type probeCommand struct {
	line string
	once singleCall
}

// withEnv returns a function that runs the command with an environment; nil: that of the daemon.
func (c *probeCommand) withEnv(env []string) func(ctx context.Context) error {
	return func(ctx context.Context) error {
		return c.once.runBounded(ctx, killGrace, "the command "+c.line,
			func() error { return tryExec(ctx, c.line, env) })
	}
}

// tryExec runs a line of shell code in a process group of its own, of which no process is left when
// it returns.
func tryExec(ctx context.Context, line string, env []string) error {
	output := &process.HeadBuffer{MaxBytes: maxExcerptBytes}
	command := process.Command{Argv: []string{"/bin/sh", "-c", line}, Env: env, Stdout: output, Stderr: output}
	err := command.Run(ctx)
	if err == nil {
		return nil
	}
	if _, ended := errors.AsType[*exec.ExitError](err); ctx.Err() != nil && !ended {
		err = errors.New("killed: it did not end in time")
	}
	if text := printableExcerpt([]byte(output.String())); text != "" {
		return fmt.Errorf("%s: %v, after saying: %s", line, err, text)
	}
	return fmt.Errorf("%s: %v", line, err)
}
