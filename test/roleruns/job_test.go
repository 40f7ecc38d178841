package roleruns

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/bringupd/bringupd/pkg/roles"
	"github.com/bringupd/bringupd/pkg/signal"
	"github.com/bringupd/bringupd/pkg/signal/record"
	"github.com/bringupd/bringupd/test/jobtest"
)

// job is a run of the roles of a schedule.
type job struct {
	*jobtest.Job
	s     schedule
	told  time.Time // when the primary processes were told to end with 0
	wrong []string  // what is wrong before the end of the run
}

// newJob returns a run with its directories.
func newJob(t testing.TB, s schedule, name string) *job {
	t.Helper()
	dir := t.TempDir()
	j := &job{s: s, Job: &jobtest.Job{T: t, Dir: dir, Logs: filepath.Join(dir, "logs"), Name: name,
		Size: s.size(), Mark: jobtest.Mark(dirVariable + "=" + dir)}}
	for _, sub := range []string{locksDir, startsDir, upDir, ordersDir, badStartsDir, stubbornDir} {
		if err := os.Mkdir(filepath.Join(dir, sub), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	return j
}

// peerTimeout is the time after which a daemon that is stopped is lost.
const peerTimeout = 6 * time.Second

// maxOrderlyEnd is the longest time from the end of the primary processes to that of the run. None
// of the processes needs a second.
const maxOrderlyEnd = 15 * time.Second

// begin starts the run of a schedule.
func begin(t *testing.T, s schedule) *job {
	t.Helper()
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	j := newJob(t, s, fmt.Sprintf("run%d", s.seed))
	for _, r := range s.roles {
		if r.behaviour.stubborn {
			j.Write(filepath.Join(stubbornDir, r.name), "")
		}
	}
	for _, f := range s.bad {
		j.Write(filepath.Join(badStartsDir, nameOf(f, 0)), fmt.Sprint(f.code))
	}
	flags := []string{fmt.Sprintf("--nodes=%d", s.size())}
	if s.has(freezeDaemon) {
		flags = append(flags, fmt.Sprintf("--peer-timeout=%s", peerTimeout))
	}
	j.start(formatFile(s, j.Dir), []string{programVariable + "=" + program}, flags...)
	if s.has(fillShare) {
		j.openShare()
	}
	return j
}

// start starts bringupd with a file of roles, and with variables and flags.
func (j *job) start(file string, env []string, flags ...string) {
	j.T.Helper()
	j.Write("job.yaml", file)
	words := append([]string{jobtest.Bringupd, "local", "--job-id=" + j.Name, "--log-dir=" + j.Logs,
		"--config=" + filepath.Join(j.Dir, "job.yaml")}, flags...)
	if j.s.has(fillShare) {
		words = j.withShare(words)
	}
	j.Start(env, words...)
}

// nameOf returns the name of a generation of the process of a fault.
func nameOf(f fault, generation int) string {
	return fmt.Sprintf("%s.%d.%d.g%d", f.role, f.index, f.rank, generation)
}

// bad notes that something is wrong.
func (j *job) bad(format string, args ...any) {
	j.wrong = append(j.wrong, fmt.Sprintf(format, args...))
}

// facts returns what a generation of a process has published, or nil.
func (j *job) facts(name string) *startFacts {
	text, err := os.ReadFile(filepath.Join(j.Dir, startsDir, name))
	facts := new(startFacts)
	if err != nil || json.Unmarshal(text, facts) != nil {
		return nil
	}
	return facts
}

// expected returns the numbers of the instances that are ready and lost in a state of the model.
func (m *model) expected() (ready, lost []int) {
	for _, r := range m.roles {
		for i, s := range m.states[r.name] {
			switch {
			case s.lost:
				lost = append(lost, r.firstNumber+i)
			case s.isListed(r):
				ready = append(ready, r.firstNumber+i)
			}
		}
	}
	return ready, lost
}

// settle waits until the run is in the state of one of the models, or ends. It returns that model,
// or nil. If the run may end by itself, that is no mistake.
func (j *job) settle(mayEnd bool, models ...*model) *model {
	var live record.LiveInstances
	var missing string
	var found *model
	ok := j.Until(func() bool {
		live = j.newestLive()
		for _, m := range models {
			ready, lost := m.expected()
			missing = j.missingMark(m)
			if missing == "" && slices.Equal(live.Ready, ready) && slices.Equal(live.Lost, lost) {
				found = m
				return true
			}
		}
		return false
	})
	switch {
	case !ok && mayEnd && j.HasEnded():
		return nil
	case !ok:
		ready, lost := models[0].expected()
		j.bad("the run did not reach the state of ready %v and lost %v: the last list has ready "+
			"%v, lost %v; missing: %s", ready, lost, live.Ready, live.Lost, missing)
		return nil
	}
	j.checkLost(found)
	j.checkEndpoints(found)
	return found
}

// newestLive returns the newest list of the instances that are ready and lost.
func (j *job) newestLive() (live record.LiveInstances) {
	newest := -1
	for _, name := range j.List(signal.ControlDir) {
		var number int
		if _, err := fmt.Sscanf(name, "live.%d", &number); err == nil {
			newest = max(newest, number)
		}
	}
	j.Read(&live, signal.ControlDir, signal.SeriesLive.Name(newest))
	return live
}

// missingMark returns the name of a process that has not started yet, or of a record of the state of
// an instance that is not there yet.
func (j *job) missingMark(m *model) string {
	there := j.List(signal.NodesDir)
	for _, r := range m.roles {
		for i, s := range m.states[r.name] {
			for rank := range r.places[i] {
				if s.lost {
					continue
				}
				process := nameOf(fault{role: r.name, index: i, rank: rank}, s.generation)
				if !s.done[rank] && j.facts(process) == nil {
					return process
				}
				name := j.markOf(r, i, s, rank)
				isThere := func(other string) bool { // a later change of readiness has a number
					return other == name || strings.HasPrefix(other, name+".")
				}
				if name != "" && !slices.ContainsFunc(there, isThere) {
					return name
				}
			}
		}
	}
	return ""
}

// markOf returns the record of an instance that must be there because of a process; empty if there
// may be none.
func (j *job) markOf(r *role, index int, s *state, rank int) string {
	mark := record.InstanceMark{Node: s.nodes[rank], Instance: r.firstNumber + index,
		Generation: s.generation, State: record.InstanceReady}
	if s.done[rank] {
		if !s.isDoneOn(mark.Node) {
			return ""
		}
		mark.State = record.InstanceDone
	} else if slices.Contains(s.unready, true) ||
		s.generation == 0 && r.primary && r.probe == "" { // it may be ready when the gate opens
		return ""
	}
	return signal.InstanceName(mark, j.s.size())
}

// isDoneOn reports whether all processes of the instance on a node are done.
func (s *state) isDoneOn(node int) bool {
	for rank, other := range s.nodes {
		if other == node && !s.done[rank] {
			return false
		}
	}
	return true
}

// checkLost checks that no process of a lost instance runs.
func (j *job) checkLost(m *model) {
	for _, r := range m.roles {
		for i, s := range m.states[r.name] {
			for rank := range s.done {
				for generation := range s.generation + 1 {
					process := nameOf(fault{role: r.name, index: i, rank: rank}, generation)
					path := filepath.Join(j.Dir, locksDir, process)
					if s.lost && !j.Until(func() bool { held, _ := isHeld(path); return !held }) {
						j.bad("%s is lost and runs", filepath.Base(path))
					}
				}
			}
		}
	}
}

// planSpread is the maximum time between the starts of two processes of which the earlier one knows
// a newer plan: two spares can take their places one right after the other.
const planSpread = time.Second

// checkEndpoints checks the files of endpoints on all nodes whose daemons live. The endpoints are those
// of the newest plan, which one of the processes that have started last knows.
func (j *job) checkEndpoints(m *model) {
	starts, _ := os.ReadDir(filepath.Join(j.Dir, startsDir))
	var all []*startFacts
	daemons := make(map[*startFacts]int) // member indices of those that have started them
	for _, start := range starts {
		r, _, _ := parseName(j.s, start.Name()) // nil for what a killed process has not renamed
		if facts := j.facts(start.Name()); facts != nil && r != nil {
			all = append(all, facts)
			daemons[facts] = record.MemberIndex(facts.Node, 1+slices.Index(jobSteps(m.roles), r.jobStep), m.size)
		}
	}
	newest := slices.MaxFunc(all, func(a, b *startFacts) int { return a.At.Compare(b.At) })
	files := make(map[string][]string) // the contents that each file may have
	for _, facts := range all {
		for _, r := range m.roles {
			variable := roles.VariableName(r.name)
			for _, other := range all {
				if !m.dead[daemons[facts]] && newest.At.Sub(other.At) <= planSpread {
					file := facts.Files[variable]
					files[file] = append(files[file], expectedEndpoints(r, m.states[r.name],
						strings.Split(other.Planned[variable], ",")))
				}
			}
		}
	}
	for file, want := range files {
		var got []byte
		ok := j.Until(func() bool {
			got, _ = os.ReadFile(file)
			return slices.Contains(want, string(got))
		})
		if !ok {
			j.bad("the endpoints in %s are %q, want %q", file, got, want)
		}
	}
}

// expectedEndpoints returns the content of the file of a role's endpoints.
func expectedEndpoints(r *role, states []*state, planned []string) string {
	var text strings.Builder
	at := 0
	for i, s := range states {
		count := 1
		if r.allEndpoints {
			count = len(r.places[i])
		}
		for range count {
			if at < len(planned) && s.isListed(r) {
				text.WriteString(planned[at] + "\n")
			}
			at++
		}
	}
	return text.String()
}

// strike injects the faults of a step in a state of the model, and returns when.
func (j *job) strike(m *model, s step) time.Time {
	j.T.Helper()
	switch f := s[0]; f.kind {
	case flap:
		return j.flap(m, f)
	case fillShare:
		free := j.fill(f.code%2 == 0)
		defer free()
		defer time.Sleep(f.after)
	case loseTwo:
		at := time.Now()
		for _, one := range s {
			time.Sleep(time.Until(at.Add(one.after)))
			if pid := j.Daemon(one.node); j.Mark.Has(pid) { // the first loss may end the run
				_ = syscall.Kill(pid, syscall.SIGKILL)
			}
		}
		return at
	case freezeDaemon:
		return j.freeze(f)
	case stopRun:
		return j.stop()
	}
	var pids []int
	sig := syscall.SIGKILL
	for _, f := range s {
		if f.isDaemon() {
			pids = append(pids, j.Daemon(f.node))
			continue
		}
		generation := m.states[f.role][f.index].generation
		var facts *startFacts
		if !j.Until(func() bool { facts = j.facts(nameOf(f, generation)); return facts != nil }) {
			j.T.Fatalf("%s has not started", nameOf(f, generation))
		}
		pid := facts.PID
		switch f.kind {
		case killShell:
			pid = facts.Parent
		case hang:
			sig = syscall.SIGSTOP
		case hangInstance:
			sig = syscall.SIGSTOP
			pids = append(pids, j.otherProcesses(m, f)...)
		case exitZero, exitCode, finishProcess:
			sig = syscall.SIGUSR1
			j.Write(filepath.Join(ordersDir, nameOf(f, generation)), fmt.Sprint(f.code))
		case badRestart:
			j.Write(filepath.Join(badStartsDir, nameOf(f, generation+1)), fmt.Sprint(f.code))
		}
		pids = append(pids, pid)
	}
	at := time.Now()
	for _, pid := range pids {
		j.Signal(pid, sig)
	}
	return at
}

// otherProcesses returns the other processes of the instance of a fault that run.
func (j *job) otherProcesses(m *model, f fault) (pids []int) {
	s := m.states[f.role][f.index]
	for rank, done := range s.done {
		if facts := j.facts(nameOf(fault{role: f.role, index: f.index, rank: rank},
			s.generation)); facts != nil && !done && rank != f.rank {
			pids = append(pids, facts.PID)
		}
	}
	return pids
}

// finish tells all primary processes to end with 0.
func (j *job) finish(m *model) {
	var all step
	for _, r := range m.roles {
		for i, s := range m.states[r.name] {
			for rank, done := range s.done {
				if r.primary && !s.lost && !done {
					all = append(all, fault{kind: finishProcess, role: r.name, index: i, rank: rank})
				}
			}
		}
	}
	j.strike(m, all)
	j.told = time.Now()
}

// awaitEnd waits for the end of the run, and reports whether it has ended.
func (j *job) awaitEnd() bool {
	within := jobtest.Ceiling
	if j.s.has(freezeDaemon) {
		within *= 2 // bringupd local gives a frozen daemon its time after the end of the head
	}
	if j.AwaitEnd(within) < 0 {
		return false
	}
	took, isTimed := time.Since(j.told), !j.told.IsZero() && !j.s.has(freezeDaemon)
	if isTimed && took > maxOrderlyEnd {
		j.bad("the orderly end has taken %s", took)
	}
	return true
}
