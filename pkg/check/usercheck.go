package check

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"path"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bringupd/bringupd/pkg/process"
)

// ActiveChecks runs the checks that put a node to work. They are the site's own shell commands,
// which exit with 0 (pass), 1 (warning), 2 (failure) or 3 (unknown), like Nagios plugins.
type ActiveChecks struct {
	Config  // checks that the policy turns off are not run
	Starter *process.Supervisor
	Env     []string // complete environment of the commands
	Dir     string   // working directory of the commands; empty: the current directory
}

const (
	activeTailLines   = 10              // number of last output lines kept per command
	maxActiveOutput   = 4 << 10         // bytes of standard output searched for the first line
	maxProgramName    = 40              // maximum bytes of a command's name in its check id
	activeGracePeriod = 2 * time.Second // between SIGTERM and SIGKILL, after a timeout
)

var errActiveTimeout = errors.New("timed out")

// Run runs the commands one after the other and returns one finding for each of them. If the node
// is not fit, because it has failed another check, Run starts no command and reports each of them
// as skipped. Checks that the policy turns off are left out.
func (a ActiveChecks) Run(ctx context.Context, fit bool) []Finding {
	var s FindingBuilder
	for i, id := range activeIDs(a.ActiveCommands) {
		s.Template = Finding{ID: id}
		switch {
		case a.Policy.IsOff(id):
		case !fit:
			s.AddSkip("not run: the node failed another check")
		default:
			a.runCommand(ctx, &s, a.ActiveCommands[i])
		}
	}
	return s.Findings
}

// activeIDs returns the check ids of the commands, which are derived from the names of their
// programs: active.nccl-test, and active.nccl-test-2 for a second command with the same name.
func activeIDs(commands []string) []string {
	var ids []string
	taken := make(map[string]bool)
	for _, command := range commands {
		name := "active." + programName(command)
		id := name
		for n := 2; taken[id]; n++ {
			id = fmt.Sprintf("%s-%d", name, n)
		}
		taken[id] = true
		ids = append(ids, id)
	}
	return ids
}

// programName returns the base name of the program that a shell command runs. It skips leading
// variable assignments, "exec" and "env", removes characters that are unusual in names, and returns
// "command" if nothing is left.
func programName(command string) string {
	for word := range strings.FieldsSeq(command) {
		variable, _, sets := strings.Cut(word, "=")
		if sets && !strings.Contains(variable, "/") || word == "exec" || word == "env" {
			continue
		}
		name := strings.Map(func(r rune) rune {
			if isInvalidHostRune(r) {
				return -1
			}
			return r
		}, path.Base(strings.Trim(word, `"';`)))
		if name = strings.Trim(name, "."); name != "" {
			return name[:min(len(name), maxProgramName)]
		}
		break
	}
	return "command"
}

// runCommand runs one command, adds its finding to s, and kills all processes that the command has
// left running.
func (a ActiveChecks) runCommand(ctx context.Context, s *FindingBuilder, command string) {
	began := time.Now()
	limited, cancel := context.WithTimeoutCause(ctx, a.ActiveTimeout, errActiveTimeout)
	defer cancel()
	output := &process.HeadBuffer{MaxBytes: maxActiveOutput}
	child, err := a.Starter.Start(limited, process.Spec{
		Name: s.Template.ID, Argv: []string{"/bin/sh", "-c", command}, Env: a.Env, Dir: a.Dir,
		Stdout: output, KeepLines: activeTailLines,
	})
	if err != nil && ctx.Err() == nil {
		s.AddFinding(Unknown, "", sanitizeLine(err.Error()), "",
			"check that /bin/sh exists on the node and that new processes can start there")
		return
	}
	s.Template.Source = "--active-check"
	if err != nil { // the supervisor kills the command if it was running already
		s.AddFinding(Unknown, ClassEnvironment, interruptedText(ctx), "", "")
		return
	}
	// A finished command may have left processes running, which are killed at once.
	inTime, grace, first := true, time.Duration(0), unix.SIGKILL
	select {
	case <-child.Done():
	case <-limited.Done():
		inTime, grace, first = false, activeGracePeriod, unix.SIGTERM
	}
	exit := child.Stop(context.Background(), grace, first)
	var f *Finding
	switch {
	case inTime:
		f = s.addExitFinding(exit, firstLine(output.String()))
	case ctx.Err() != nil:
		f = s.AddFinding(Unknown, ClassEnvironment, interruptedText(ctx), exitSuccess, "")
	default:
		took := time.Since(began).Round(time.Second / 10)
		f = s.AddFailure(ClassEnvironment, fmt.Sprintf("timed out after %s and was killed", took),
			exitSuccess, "find out what it waits for, or raise --start-timeout")
	}
	// Keep the output lines unless the finding already contains them.
	lines := child.LastLines()
	if f.Verdict != Pass && (len(lines) != 1 || sanitizeLine(lines[0]) != f.Observed) {
		f.Lines = lines
	}
	if exit.Err != nil {
		f.Observed += "; " + sanitizeLine(exit.Err.Error())
	}
}

func interruptedText(ctx context.Context) string {
	return fmt.Sprintf("interrupted before it finished: %v", context.Cause(ctx))
}

const exitSuccess = "exit code 0"

// addExitFinding adds a finding for the exit of a command. line is the first line of the command's
// output, or empty. The shell exits with 126 or 127 if it cannot execute the command. All other
// codes without a defined meaning are failures, because a command that tests a node and crashes is
// no reason to continue.
func (s *FindingBuilder) addExitFinding(exit process.Exit, line string) *Finding {
	observed := cmp.Or(line, exit.String())
	switch code := exit.ShellStatus(); code {
	case 0:
		return s.AddFinding(Pass, "", observed, "", "")
	case 1, 2, 3:
		verdict := []Verdict{1: Warn, 2: Fail, 3: Unknown}[code]
		return s.AddFinding(verdict, ClassEnvironment, observed, exitSuccess, "")
	case 126, 127:
		return s.AddFinding(Unknown, ClassEnvironment, exit.String()+": the shell cannot execute it",
			exitSuccess, "check that the command exists on all nodes and is executable; give its full path")
	}
	if line != "" {
		observed = exit.String() + ": " + line
	}
	return s.AddFailure(ClassEnvironment, observed, exitSuccess, "if this is not a failure, "+
		"let the command exit with 0 (pass), 1 (warning), 2 (failure) or 3 (unknown)")
}

func firstLine(output string) string {
	for line := range strings.Lines(output) {
		if line = sanitizeLine(line); line != "" {
			return line
		}
	}
	return ""
}
