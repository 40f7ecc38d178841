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

// starter starts the commands of active checks.
type starter interface {
	Start(ctx context.Context, spec process.Spec) (*process.Child, error)
}

var _ starter = (*process.Supervisor)(nil)

// Active are the checks that put a node to work: shell commands of the site's own, which end with 0 (all is well), 1 (a
// warning), 2 (it fails) or 3 (they can't tell), as plugins of Nagios do.
type Active struct {
	Config  // what is off by its policy is not run
	Starter starter
	Env     []string // their whole environment
	Dir     string   // their working directory; empty: ours
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
	var s Sheet
	for i, id := range activeIDs(a.Active) {
		s.Each = Finding{ID: id}
		switch {
		case a.Policy.Off(id):
		case !fit:
			s.Skip("not run: the node has failed another check")
		default:
			a.run(ctx, &s, a.Active[i])
		}
	}
	return s.Found
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
func (a Active) run(ctx context.Context, s *Sheet, command string) {
	began := time.Now()
	limited, cancel := context.WithTimeoutCause(ctx, a.ActiveTimeout, errActiveTimeout)
	defer cancel()
	said := &process.Beginning{Most: activeStart}
	child, err := a.Starter.Start(limited, process.Spec{
		Name: s.Each.ID, Argv: []string{"/bin/sh", "-c", command}, Env: a.Env, Dir: a.Dir, Stdout: said, KeepLines: activeTail,
	})
	if err != nil && ctx.Err() == nil {
		s.Say(Unknown, "", plain(err.Error()), "", "see that the node has /bin/sh and lets processes start")
		return
	}
	s.Each.Source = "--active-check"
	if err != nil { // also where it ran by then: the starter ends it
		s.Say(Unknown, Environment, unfinished(ctx), "", "")
		return
	}
	inTime, grace, first := true, time.Duration(0), unix.SIGKILL // one that is done may have left something running
	select {
	case <-child.Done():
	case <-limited.Done():
		inTime, grace, first = false, activeGrace, unix.SIGTERM
	}
	exit := child.Stop(context.Background(), grace, first)
	var f *Finding
	switch {
	case inTime:
		f = s.judgeExit(exit, firstLine(said.String()))
	case ctx.Err() != nil:
		f = s.Say(Unknown, Environment, unfinished(ctx), exitWell, "")
	default:
		f = s.Fail(Environment, fmt.Sprintf("had not ended after %s, and was killed", time.Since(began).Round(time.Second/10)), exitWell,
			"see what it waits for, or give it more by --active-check-timeout")
	}
	if lines := child.LastLines(); f.Verdict != Pass && (len(lines) != 1 || plain(lines[0]) != f.Observed) { // not said already
		f.Lines = lines
	}
	if exit.Err != nil {
		f.Observed += "; " + plain(exit.Err.Error())
	}
}

func unfinished(ctx context.Context) string {
	return fmt.Sprintf("ended before it was done: %v", context.Cause(ctx))
}

const exitWell = "exit code 0"

// judgeExit says what an exit means. Any code that has no meaning is a failure:
// what tests a node and is taken down by it is no reason to go on.
func (s *Sheet) judgeExit(exit process.Exit, said string) *Finding {
	observed := cmp.Or(said, exit.String())
	switch code := exit.Status(); code {
	case 0:
		return s.Say(Pass, "", observed, "", "")
	case 1, 2, 3:
		return s.Say([]Verdict{1: Warn, 2: Fail, 3: Unknown}[code], Environment, observed, exitWell, "")
	case 126, 127:
		return s.Say(Unknown, Environment, exit.String()+": the shell can't execute it", exitWell,
			"see that the command is there on all nodes, and executable: give its whole path")
	}
	if said != "" {
		observed = exit.String() + ": " + said
	}
	return s.Fail(Environment, observed, exitWell, "end it with 0 (well), 1 (a warning), 2 (fails) or 3 (can't tell) where that is not meant")
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
