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
	setup  string // shell text that precedes each have_… call and each part's command
	before string // printed before the first part: what runs, and how long it takes
	stdout io.Writer
	strict bool // count a part that could not run as a failure

	needs    map[string]*need
	mu       sync.Mutex
	outcomes []outcome // guarded by mu, like writing to stdout
}

// need is a requirement of a part, which is installed if it is missing.
type need struct {
	name    string
	settled chan struct{} // closed by installNeeds when lacking is known
	lacking string        // the reason why it is not available; empty if it is
}

// outcome is the result of a part.
type outcome struct {
	part
	took, used time.Duration // wall-clock time and processor time
	result     result
	reason     string // why the part could not run
}

type result string

const (
	passed result = "ok"
	failed result = "FAILED"
	absent result = "NOT RUN"
)

// run runs all parts, prints the output of each part when it ends, and prints a table at the end.
// Its error names the failed parts.
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
	s.announce(ctx, order)
	var running sync.WaitGroup
	running.Go(func() { s.installNeeds(ctx, order) })
	s.runLane(ctx, alone)
	for l := range lanes {
		running.Go(func() { s.runLane(ctx, l) })
	}
	running.Wait()
	if err := s.printTable(time.Since(began)); err != nil {
		return err
	}
	return ctx.Err()
}

// runLane runs the parts of a lane one after the other.
func (s *suite) runLane(ctx context.Context, l lane) {
	for _, p := range s.parts {
		if p.lane == l {
			s.addOutcome(s.runPart(ctx, p))
		}
	}
}

// announce prints what installNeeds will install, with the sizes on disk, and how long the parts take.
func (s *suite) announce(ctx context.Context, order []*need) {
	calls := []string{"export ANNOUNCE=1; " + s.setup + ":"}
	for _, n := range order {
		calls = append(calls, "have_"+n.name)
	}
	_, out, _ := s.runCommand(ctx, strings.Join(calls, "\n"), false) // installNeeds reports errors
	var lines []string
	sum := 0
	for line := range strings.Lines(out) {
		var size int
		if _, err := fmt.Sscanf(line, "%d MB: ", &size); err == nil && !slices.Contains(lines, line) {
			lines, sum = append(lines, line), sum+size
		}
	}
	if len(lines) > 0 {
		s.print(fmt.Sprintf("This machine lacks the following, which is installed now: %d MB on disk.\n%s",
			sum, strings.Join(lines, "")))
	}
	s.print(s.before)
}

// installNeeds installs the needs one after the other, because apt cannot run twice at the same
// time.
func (s *suite) installNeeds(ctx context.Context, order []*need) {
	for _, n := range order {
		_, out, err := s.runCommand(ctx, s.setup+"have_"+n.name, false)
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

// runPart waits for the needs of a part, runs it, and returns its outcome and output.
func (s *suite) runPart(ctx context.Context, p part) (outcome, string) {
	o := outcome{part: p, result: passed}
	for _, name := range p.needs {
		n := s.needs[name]
		<-n.settled
		if n.lacking != "" {
			o.result, o.reason = absent, n.lacking
			return o, ""
		}
	}
	if ctx.Err() == nil {
		s.print("-- " + p.name + " begins")
	}
	began := time.Now()
	used, out, err := s.runCommand(ctx, s.setup+p.command, p.lane == computes)
	o.took, o.used = time.Since(began), used
	var exit *exec.ExitError
	switch {
	case ctx.Err() != nil:
		o.result, o.reason = absent, "interrupted"
	case errors.As(err, &exit) && exit.ExitCode() == notRun:
		o.result, o.reason = absent, strings.TrimPrefix(lastLine(out), "NOT RUN: ")
	case err != nil:
		o.result = failed
		out += fmt.Sprintf("%v\n", err)
	}
	return o, out
}

// cleanupGrace is the time that a part has to clean up after an interrupt.
const cleanupGrace = 20 * time.Second

// runCommand runs a shell command in its own process group, and returns its processor time and its
// output. An interrupt reaches the whole group. If nice is set, the command runs with a lower
// priority.
func (s *suite) runCommand(ctx context.Context, line string, nice bool) (time.Duration,
	string, error) {
	args := []string{"sh", "-c", line}
	if nice {
		args = slices.Concat([]string{"nice", "-n", "10"}, args)
	}
	// Use a file instead of a pipe, which a process left behind would keep open.
	output, err := os.CreateTemp("", "bringupd-suite-")
	if err != nil {
		return 0, "", err
	}
	defer os.Remove(output.Name())
	defer output.Close()
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	cmd.Env = append(os.Environ(), raceOptions())
	cmd.Stdout, cmd.Stderr = output, output
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	cmd.Cancel = func() error { return syscall.Kill(-cmd.Process.Pid, syscall.SIGINT) }
	cmd.WaitDelay = cleanupGrace
	err = cmd.Run()
	if ctx.Err() != nil && cmd.Process != nil {
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL) // kill the rest of the group, if any
	}
	out, readErr := os.ReadFile(output.Name())
	if readErr != nil {
		return 0, "", errors.Join(err, readErr)
	}
	if cmd.ProcessState == nil {
		return 0, string(out), err
	}
	return cmd.ProcessState.UserTime() + cmd.ProcessState.SystemTime(), string(out), err
}

// raceOptions returns the environment variable that keeps programs under the race detector from
// sleeping for a second before they exit. The caller's own options stay in effect.
func raceOptions() string {
	return "GORACE=" + strings.TrimSpace("atexit_sleep_ms=0 "+os.Getenv("GORACE"))
}

// addOutcome stores the outcome of a part and prints its output.
func (s *suite) addOutcome(o outcome, out string) {
	text := fmt.Sprintf("== %s: %s", o.name, o.verdict())
	if o.took > 0 {
		text += fmt.Sprintf(" (%.0f s)", o.took.Seconds())
	}
	s.mu.Lock()
	s.outcomes = append(s.outcomes, o)
	s.mu.Unlock()
	s.print(text + "\n" + out)
}

func (s *suite) print(text string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	fmt.Fprint(s.stdout, strings.TrimSuffix(text, "\n")+"\n")
}

// printTable prints the table of all parts. Its error names the parts that failed and, in strict
// mode, those that could not run.
func (s *suite) printTable(took time.Duration) error {
	slices.SortStableFunc(s.outcomes, func(a, b outcome) int {
		return a.result.weight() - b.result.weight()
	})
	var table strings.Builder
	fmt.Fprintf(&table, "\n%-60s %9s %10s  %s\n", "part", "seconds", "processor", "result")
	var bad []string
	for _, o := range s.outcomes {
		fmt.Fprintf(&table, "%-60s %9.0f %10.0f  %s\n", o.name, o.took.Seconds(),
			o.used.Seconds(), o.verdict())
		if o.result == failed || o.result == absent && s.strict && !o.lenient {
			bad = append(bad, o.name)
		}
	}
	fmt.Fprintf(&table, "%-60s %9.0f", "all", took.Seconds())
	s.print(table.String())
	if len(bad) > 0 {
		return fmt.Errorf("failed or could not run: %s (%d of %d parts)",
			strings.Join(bad, "; "), len(bad), len(s.outcomes))
	}
	return nil
}

// weight returns the sort key of a result: the most important results come last in the table, where
// they are most visible.
func (r result) weight() int { return slices.Index([]result{passed, absent, failed}, r) }

func (o outcome) verdict() string {
	if o.reason != "" {
		return string(o.result) + ": " + o.reason
	}
	return string(o.result)
}

func lastLine(out string) string {
	out = strings.TrimSpace(out)
	return out[strings.LastIndexByte(out, '\n')+1:]
}
