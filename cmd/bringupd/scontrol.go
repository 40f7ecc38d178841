package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/bringupd/bringupd/pkg/daemon"
	"github.com/bringupd/bringupd/pkg/roles"
)

// scontrol is Slurm's client, for this job.
type scontrol struct{ job string }

var _ daemon.Requeuer = scontrol{}

// requeuerOf is who can have the job started anew; nil where nobody can. That
// an allocation without a batch script can't be, Slurm itself will say.
func requeuerOf(id roles.Identity) daemon.Requeuer {
	if id.Launcher != roles.Slurm || id.Job == "" {
		return nil
	}
	return scontrol{id.Job}
}

// Requeue has Slurm end the job and put it back into the queue.
func (s scontrol) Requeue(ctx context.Context) error {
	_, err := s.run(ctx, "requeue", s.job)
	return err
}

// mostNodes bounds the list of nodes that a job may exclude.
const mostNodes = 1 << 16

// Exclude adds hosts to those that the job excludes already. Slurm takes it
// from jobs that wait in the queue alone.
func (s scontrol) Exclude(ctx context.Context, hosts []string) error {
	shown, err := s.run(ctx, "show", "job", "--oneliner", s.job)
	if err != nil {
		return err
	}
	var excluded []string
	if list := excludedIn(shown); list != "" {
		if excluded, err = roles.ExpandNodeList(list, mostNodes); err != nil {
			return fmt.Errorf("cannot tell which nodes job %s excludes: %v", s.job, err)
		}
	}
	for _, host := range hosts {
		if !slices.Contains(excluded, host) {
			excluded = append(excluded, host)
		}
	}
	_, err = s.run(ctx, "update", "JobId="+s.job, "ExcNodeList="+roles.CompactNodeList(excluded))
	return err
}

// excludedIn finds the nodes that a job excludes in what scontrol shows of it.
func excludedIn(shown string) string {
	for field := range strings.FieldsSeq(shown) {
		if list, ok := strings.CutPrefix(field, "ExcNodeList="); ok && list != "(null)" {
			return list
		}
	}
	return ""
}

// scontrolTries is how often scontrol is run: Slurm signals all processes of a
// job that it ends, this one with them.
const scontrolTries = 3

// run runs scontrol, from an absolute directory of PATH, and returns what it
// printed.
func (s scontrol) run(ctx context.Context, args ...string) (string, error) {
	path, err := exec.LookPath("scontrol")
	if err != nil {
		return "", fmt.Errorf("cannot run scontrol %s: %w", strings.Join(args, " "), err)
	}
	for try := 1; ; try++ {
		var out, errs bytes.Buffer
		cmd := exec.CommandContext(ctx, path, args...)
		cmd.Stdout, cmd.Stderr, cmd.WaitDelay = &out, &errs, time.Second
		err := cmd.Run()
		switch {
		case err == nil:
			return out.String(), nil
		case ctx.Err() != nil:
			err = context.Cause(ctx)
		case wasSignalled(err) && try < scontrolTries:
			continue
		}
		return "", fmt.Errorf("cannot run scontrol %s: %w%s", strings.Join(args, " "), err, asSaid(out.String()+errs.String()))
	}
}

func wasSignalled(err error) bool {
	exit, ok := errors.AsType[*exec.ExitError](err)
	if !ok {
		return false
	}
	status, ok := exit.Sys().(syscall.WaitStatus)
	return ok && status.Signaled()
}

// asSaid is what a program has printed, on one line and not too much of it, as the
// end of an error.
func asSaid(text string) string {
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
