package process

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"syscall"
	"time"

	"github.com/bringupd/bringupd/internal/textutil"
)

// maxClientTries is how often a launcher's client program is tried. A launcher that ends a job
// signals all of its processes, including its own client.
const maxClientTries = 3

// maxPrinted is the number of characters of a client's output that are a part of an error.
const maxPrinted = 500

// RunClient runs a launcher's client program from an absolute directory of PATH, and returns its
// output: see launcher.ProgramRunner.
func RunClient(ctx context.Context, name string, args ...string) (string, error) {
	var out, errs bytes.Buffer
	path, err := exec.LookPath(name)
	for try := 1; err == nil; try++ {
		out.Reset()
		errs.Reset()
		argv := append([]string{path}, args...)
		err = Command{Argv: argv, Stdout: &out, Stderr: &errs, WaitDelay: time.Second}.Run(ctx)
		switch {
		case err == nil:
			return out.String(), nil
		case ctx.Err() != nil:
			err = context.Cause(ctx)
		case wasSignalled(err) && try < maxClientTries:
			err = nil
		}
	}
	if printed := textutil.SingleLine(out.String()+errs.String(), maxPrinted); printed != "" {
		err = fmt.Errorf("%w: %s", err, printed)
	}
	return "", fmt.Errorf("cannot run %s %s: %w", name, strings.Join(args, " "), err)
}

func wasSignalled(err error) bool {
	exit, ended := errors.AsType[*exec.ExitError](err)
	return ended && exit.Sys().(syscall.WaitStatus).Signaled()
}
