package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"syscall"
	"time"

	"github.com/bringupd/bringupd/pkg/process"
)

// maxClientTries is how often a launcher's client program is tried. A launcher that ends a job
// signals all of its processes, including its own client.
const maxClientTries = 3

// runLauncherProgram runs a launcher's client program from an absolute directory of PATH, and
// returns its output: see roles.ProgramRunner.
func runLauncherProgram(ctx context.Context, name string, args ...string) (string, error) {
	var out, errs bytes.Buffer
	path, err := exec.LookPath(name)
	for try := 1; err == nil; try++ {
		out.Reset()
		errs.Reset()
		err = process.Command{Argv: append([]string{path}, args...), Stdout: &out, Stderr: &errs, WaitDelay: time.Second}.Run(ctx)
		switch {
		case err == nil:
			return out.String(), nil
		case ctx.Err() != nil:
			err = context.Cause(ctx)
		case wasSignalled(err) && try < maxClientTries:
			err = nil
		}
	}
	return "", fmt.Errorf("cannot run %s %s: %w%s", name, strings.Join(args, " "), err, outputSuffix(out.String()+errs.String()))
}

func wasSignalled(err error) bool {
	exit, ended := errors.AsType[*exec.ExitError](err)
	return ended && exit.Sys().(syscall.WaitStatus).Signaled()
}

// outputSuffix returns the output of a program as the end of an error message, on one line and
// shortened.
func outputSuffix(text string) string {
	const most = 500
	words := strings.Join(strings.Fields(text), " ")
	switch {
	case words == "":
		return ""
	case len(words) > most:
		words = words[:most] + "…"
	}
	return ": " + words
}
