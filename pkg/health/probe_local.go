package health

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"strings"
	"time"

	"github.com/bringupd/bringupd/pkg/pause"
	"github.com/bringupd/bringupd/pkg/process"
)

const killGrace = 3 * time.Second // for the kernel to end a killed command

// oneAtATime runs looks that may never return, as on a stalled mount or with a process that can't be killed. Such a look
// is left behind in its goroutine. There is never more than one, so that they can't pile up: it has room for one token,
// which it holds while a look is out.
type oneAtATime chan struct{}

// run returns what look returns, or once ctx has ended and grace is over an error that says what hangs.
func (o oneAtATime) run(ctx context.Context, grace time.Duration, what string, look func() error) error {
	select {
	case o <- struct{}{}:
	case <-ctx.Done():
		return fmt.Errorf("%s still hangs since an earlier look", what)
	}
	_, err := pause.Bounded(ctx, grace, func() (struct{}, error) {
		defer func() { <-o }()
		return struct{}{}, look()
	})
	if errors.Is(err, pause.ErrHangs) {
		return fmt.Errorf("%s hangs", what)
	}
	return err
}

// tryFile is ready where a file or a directory is. The file is asked for by its name, which is right for a
// filesystem of this node's own; a share may go on denying a name that it was once asked for too early.
func tryFile(path string) error {
	info, err := os.Stat(path)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return fmt.Errorf("%s is not there", path)
	case err != nil:
		return fmt.Errorf("cannot look at %s: %v", path, err)
	case !info.Mode().IsRegular() && !info.IsDir():
		return fmt.Errorf("%s is neither a file nor a directory (mode %s)", path, info.Mode())
	default:
		return nil
	}
}

// tryExec runs a command in a process group of its own, of which nothing is left when it returns.
func tryExec(ctx context.Context, argv []string) error {
	said := &process.Beginning{Most: excerptBytes}
	err := process.Command{Argv: argv, Stdout: said, Stderr: said}.Run(ctx)
	switch _, ended := errors.AsType[*exec.ExitError](err); {
	case err == nil:
		return nil
	case ctx.Err() != nil && !ended:
		err = errors.New("killed, for it had not ended in time")
	case !ended:
		return fmt.Errorf("cannot run %s: %v", strings.Join(argv, " "), err)
	}
	if text := excerpt([]byte(said.String())); text != "" {
		return fmt.Errorf("%s: %v, after saying: %s", strings.Join(argv, " "), err, text)
	}
	return fmt.Errorf("%s: %v", strings.Join(argv, " "), err)
}
