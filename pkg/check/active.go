package check

import (
	"context"
	"errors"
	"fmt"
	"path"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bringupd/bringupd/pkg/process"
)

// Starter starts the commands of active checks.
type Starter interface {
	Start(ctx context.Context, spec process.Spec) (*process.Child, error)
}

var _ Starter = (*process.Supervisor)(nil)

// Active are the checks that put a node to work: shell commands of the site's own, which end with 0 (all is well), 1 (a
// warning), 2 (it fails) or 3 (they can't tell), as plugins of Nagios do.
type Active struct {
	Starter  Starter
	Commands []string
	Timeout  time.Duration // for each of them
	Env      []string      // their whole environment
	Dir      string        // their working directory; empty: ours
	Policy   Policy        // what is off is not run
}

const (
	activeTail  = 10              // last lines that are kept of a command
	activeStart = 4 << 10         // bytes of its standard output that are looked at for the first line
	mostName    = 40              // bytes of a command's name in its id
	activeGrace = 2 * time.Second // between TERM and KILL for what has taken too long
)

var errActiveTimeout = errors.New("its time is over")

// Run runs one command after the other and returns what each says; where the
// node is not fit for that, none is run and all are told of.
func (a Active) Run(ctx context.Context, fit bool) []Finding {
	var findings []Finding
	for i, id := range activeIDs(a.Commands) {
		switch {
		case a.Policy.Off(id):
		case !fit:
			findings = append(findings, Finding{ID: id, Verdict: Skip, Observed: "not run: the node has failed another check"})
		default:
			findings = append(findings, a.run(ctx, id, a.Commands[i]))
		}
	}
	return findings
}

// activeIDs names the commands by their programs: active.nccl-test, and
// active.nccl-test-2 for a second one of the name.
func activeIDs(commands []string) []string {
	var ids []string
	taken := make(map[string]bool)
	for _, command := range commands {
		name := "active." + programOf(command)
		id := name
		for n := 2; taken[id]; n++ {
			id = fmt.Sprintf("%s-%d", name, n)
		}
		taken[id] = true
		ids = append(ids, id)
	}
	return ids
}

// programOf is the base name of a shell command's first word, behind what it
// sets and the words that only start another program.
func programOf(command string) string {
	for word := range strings.FieldsSeq(command) {
		if name, _, sets := strings.Cut(word, "="); sets && !strings.Contains(name, "/") || word == "exec" || word == "env" {
			continue
		}
		name := strings.Map(func(r rune) rune {
			if unlikeHost(r) {
				return -1
			}
			return r
		}, path.Base(strings.Trim(word, `"';`)))
		if name = strings.Trim(name, "."); name != "" {
			return name[:min(len(name), mostName)]
		}
		break
	}
	return "command"
}

// run runs a command to its end, of which nothing is left afterwards.
func (a Active) run(ctx context.Context, id, command string) Finding {
	began := time.Now()
	limited, cancel := context.WithTimeoutCause(ctx, a.Timeout, errActiveTimeout)
	defer cancel()
	said := &process.Beginning{Most: activeStart}
	child, err := a.Starter.Start(limited, process.Spec{
		Name: id, Argv: []string{"/bin/sh", "-c", command}, Env: a.Env, Dir: a.Dir, Stdout: said, KeepLines: activeTail,
	})
	if err != nil && ctx.Err() != nil { // also where it ran by then: the starter ends it
		return Finding{ID: id, Verdict: Unknown, Observed: unfinished(ctx), Source: "--active-check", Class: Node}
	}
	if err != nil {
		return Finding{ID: id, Verdict: Unknown, Observed: plain(err.Error()), Hint: "see that the node has /bin/sh and lets processes start"}
	}
	inTime := true
	select {
	case <-child.Done():
	case <-limited.Done():
		inTime = false
	}
	exit := a.end(child, inTime)
	f := Finding{ID: id, Expected: "exit code 0", Source: "--active-check", Class: Node, Lines: child.LastLines()}
	switch {
	case inTime:
		f.judgeExit(exit, firstLine(said.String()))
	case ctx.Err() != nil:
		f.Verdict, f.Observed = Unknown, unfinished(ctx)
	default:
		f.Verdict, f.Observed = Fail, fmt.Sprintf("had not ended after %s, and was killed", time.Since(began).Round(time.Second/10))
		f.Hint = "see what it waits for, or give it more by --active-check-timeout"
	}
	if len(f.Lines) == 1 && plain(f.Lines[0]) == f.Observed {
		f.Lines = nil // said already
	}
	if exit.Err != nil {
		f.Observed += "; " + plain(exit.Err.Error())
	}
	return f
}

func unfinished(ctx context.Context) string {
	return fmt.Sprintf("ended before it was done: %v", context.Cause(ctx))
}

// end ends what is left of a command: also of one that is done, which may have left something running.
func (a Active) end(child *process.Child, inTime bool) process.Exit {
	if inTime {
		return child.Stop(context.Background(), 0, unix.SIGKILL)
	}
	return child.Stop(context.Background(), activeGrace, unix.SIGTERM)
}

// judgeExit says what an exit means. Any code that has no meaning is a failure:
// what tests a node and is taken down by it is no reason to go on.
func (f *Finding) judgeExit(exit process.Exit, said string) {
	f.Observed = said
	if said == "" {
		f.Observed = exit.String()
	}
	switch code := exit.Status(); code {
	case 0:
		*f = Finding{ID: f.ID, Verdict: Pass, Observed: f.Observed, Source: f.Source}
	case 1:
		f.Verdict = Warn
	case 2:
		f.Verdict = Fail
	case 3:
		f.Verdict = Unknown
	case 126, 127:
		f.Verdict, f.Class = Unknown, User
		f.Observed = exit.String() + ": the shell can't execute it"
		f.Hint = "see that the command is there on all nodes, and executable: give its whole path"
	default:
		f.Verdict, f.Hint = Fail, "end it with 0 (well), 1 (a warning), 2 (fails) or 3 (can't tell) where that is not meant"
		if said != "" {
			f.Observed = exit.String() + ": " + said
		}
	}
}

// firstLine is the first one that is not blank.
func firstLine(said string) string {
	for line := range strings.Lines(said) {
		if line = plain(line); line != "" {
			return line
		}
	}
	return ""
}
