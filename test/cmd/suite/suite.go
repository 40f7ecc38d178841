package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"
)

// suite is one run of some parts.
type suite struct {
	parts  []part
	setup  string // what comes before a need's have_… and before a part's command
	stdout io.Writer
	strict bool // a part that could not run is a failure

	needs map[string]*need
	mu    sync.Mutex
	ended []outcome // guarded by mu, as is writing to stdout
}

// need is something that is installed where it is missing.
type need struct {
	name    string
	settled chan struct{} // closed by install, once lacking is known
	lacking string        // why it can't be had; empty where it can
}

// outcome is how a part went.
type outcome struct {
	part
	took, used time.Duration // by the clock, and by all processors
	result     result
	why        string // it could not run
}

type result string

const (
	ok     result = "ok"
	failed result = "FAILED"
	absent result = "NOT RUN"
)

// run runs all parts and prints each one's output when it ends, and a table of
// all at the end. Its error names those that have failed.
func (s *suite) run(ctx context.Context) error {
	began := time.Now()
	s.needs = make(map[string]*need)
	var order []*need
	for _, p := range s.parts {
		for _, name := range p.needs {
			if s.needs[name] == nil {
				s.needs[name] = &need{name: name, settled: make(chan struct{})}
				order = append(order, s.needs[name])
			}
		}
	}
	var running sync.WaitGroup
	running.Go(func() { s.install(ctx, order) })
	for _, p := range s.parts {
		if p.lane == alone {
			s.note(s.runPart(ctx, p))
		}
	}
	for l := range lanes {
		running.Go(func() {
			for _, p := range s.parts {
				if p.lane == l {
					s.note(s.runPart(ctx, p))
				}
			}
		})
	}
	running.Wait()
	if err := s.conclude(time.Since(began)); err != nil {
		return err
	}
	return ctx.Err()
}

// install sees to one need after the other: of Debian's packages only one can
// be installed at a time.
func (s *suite) install(ctx context.Context, order []*need) {
	for _, n := range order {
		_, out, err := s.command(ctx, s.setup+"have_"+n.name, false)
		if err != nil {
			n.lacking = strings.TrimPrefix(lastLine(out), "NOT RUN: ")
			if n.lacking == "" {
				n.lacking = fmt.Sprintf("test/setup.sh has no %s: %v", n.name, err)
			}
			s.print("== NOT INSTALLED: " + n.name + "\n" + out)
		}
		close(n.settled)
	}
}

// runPart runs one part, once there is all that it needs.
func (s *suite) runPart(ctx context.Context, p part) (outcome, string) {
	o := outcome{part: p, result: ok}
	for _, name := range p.needs {
		n := s.needs[name]
		<-n.settled
		if n.lacking != "" {
			o.result, o.why = absent, n.lacking
			return o, ""
		}
	}
	if ctx.Err() == nil {
		s.print("-- " + p.name + " begins")
	}
	began := time.Now()
	used, out, err := s.command(ctx, s.setup+p.command, p.lane == computes)
	o.took, o.used = time.Since(began), used
	var exit *exec.ExitError
	switch {
	case ctx.Err() != nil:
		o.result, o.why = absent, "interrupted"
	case errors.As(err, &exit) && exit.ExitCode() == notRun:
		o.result, o.why = absent, strings.TrimPrefix(lastLine(out), "NOT RUN: ")
	case err != nil:
		o.result = failed
		out += fmt.Sprintf("%v\n", err)
	}
	return o, out
}

// grace is what a part has, when all is interrupted, to clean up after itself.
const grace = 20 * time.Second

// command runs a shell command in a process group of its own, and returns what
// it used of the processors and all that it said. An interrupt reaches the whole
// group.
func (s *suite) command(ctx context.Context, line string, humble bool) (time.Duration, string, error) {
	args := []string{"sh", "-c", line}
	if humble {
		args = slices.Concat([]string{"nice", "-n", "10"}, args)
	}
	// A file, not a pipe, which whoever is left behind would keep open.
	said, err := os.CreateTemp("", "bringupd-suite-")
	if err != nil {
		return 0, "", err
	}
	defer os.Remove(said.Name())
	defer said.Close()
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	cmd.Stdout, cmd.Stderr = said, said
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGINT) }
	cmd.WaitDelay = grace
	err = cmd.Run()
	if ctx.Err() != nil && cmd.Process != nil {
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) // who is left of the group, if anybody
	}
	out, readErr := os.ReadFile(said.Name())
	if readErr != nil {
		return 0, "", errors.Join(err, readErr)
	}
	if cmd.ProcessState == nil {
		return 0, string(out), err
	}
	return cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime(), string(out), err
}

// note keeps how a part went, and prints what it has said.
func (s *suite) note(o outcome, out string) {
	text := fmt.Sprintf("== %s: %s", o.name, o.verdict())
	if o.took > 0 {
		text += fmt.Sprintf(" (%.0f s)", o.took.Seconds())
	}
	s.mu.Lock()
	s.ended = append(s.ended, o)
	s.mu.Unlock()
	s.print(text + "\n" + out)
}

func (s *suite) print(text string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	fmt.Fprint(s.stdout, strings.TrimSuffix(text, "\n")+"\n")
}

// conclude prints the table. Its error names the parts that have failed and, where
// that counts, those that could not run.
func (s *suite) conclude(took time.Duration) error {
	slices.SortStableFunc(s.ended, func(a, b outcome) int { return a.result.weight() - b.result.weight() })
	var table strings.Builder
	fmt.Fprintf(&table, "\n%-44s %9s %10s  %s\n", "part", "seconds", "processor", "result")
	var bad []string
	for _, o := range s.ended {
		fmt.Fprintf(&table, "%-44s %9.0f %10.0f  %s\n", o.name, o.took.Seconds(), o.used.Seconds(), o.verdict())
		if o.result == failed || o.result == absent && s.strict && !o.lenient {
			bad = append(bad, o.name)
		}
	}
	fmt.Fprintf(&table, "%-44s %9.0f", "all", took.Seconds())
	s.print(table.String())
	if len(bad) > 0 {
		return fmt.Errorf("failed or could not run: %s (%d of %d parts)", strings.Join(bad, "; "), len(bad), len(s.ended))
	}
	return nil
}

// weight sorts what matters most to the end, where it is seen.
func (r result) weight() int { return slices.Index([]result{ok, absent, failed}, r) }

func (o outcome) verdict() string {
	if o.why != "" {
		return string(o.result) + ": " + o.why
	}
	return string(o.result)
}

func lastLine(out string) string {
	out = strings.TrimSpace(out)
	return out[strings.LastIndexByte(out, '\n')+1:]
}
