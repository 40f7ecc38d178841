package roleruns

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/bringupd/bringupd/pkg/roles"
	"github.com/bringupd/bringupd/pkg/signal"
	"github.com/bringupd/bringupd/pkg/signal/record"
)

const (
	ceiling = time.Minute          // limits every wait; far longer than any wait takes
	pause   = 5 * time.Millisecond // between two checks
)

// job is a run of the roles of a schedule.
type job struct {
	t       testing.TB
	s       schedule
	runName string // the name of the run directory
	dir     string // of dirVariable
	logs    string
	cmd     *exec.Cmd
	said    bytes.Buffer // its standard output and error
	ended   chan struct{}
	told    time.Time // when the primary processes were told to end with 0
	wrong   []string  // what is wrong before the end of the run
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
	j := &job{t: t, s: s, runName: fmt.Sprintf("run%d", s.seed), ended: make(chan struct{})}
	j.makeDirs()
	for _, r := range s.roles {
		if r.behaviour.stubborn {
			j.write(filepath.Join(stubbornDir, r.name), "")
		}
	}
	for _, f := range s.bad {
		j.write(filepath.Join(badStartsDir, nameOf(f, 0)), fmt.Sprint(f.code))
	}
	flags := []string{fmt.Sprintf("--nodes=%d", s.size())}
	if s.has(freezeDaemon) {
		flags = append(flags, fmt.Sprintf("--peer-timeout=%s", peerTimeout))
	}
	j.start(formatFile(s, j.dir), []string{programVariable + "=" + program}, flags...)
	if s.has(fillShare) {
		j.openShare()
	}
	return j
}

// makeDirs makes the directories of the run.
func (j *job) makeDirs() {
	j.t.Helper()
	j.dir = j.t.TempDir()
	j.logs = filepath.Join(j.dir, "logs")
	for _, dir := range []string{locksDir, startsDir, upDir, ordersDir, badStartsDir, stubbornDir} {
		if err := os.Mkdir(filepath.Join(j.dir, dir), 0o700); err != nil {
			j.t.Fatal(err)
		}
	}
}

// start starts bringupd with a file of roles, and with variables and flags.
func (j *job) start(file string, env []string, flags ...string) {
	j.t.Helper()
	// The private TMPDIR is left behind by daemons that are killed. It contains sockets, so its path
	// must be short.
	temp, err := os.MkdirTemp("", "rr-")
	if err != nil {
		j.t.Fatal(err)
	}
	j.t.Cleanup(func() { _ = os.RemoveAll(temp) })
	j.write("job.yaml", file)
	words := append([]string{bringupd, "local", "--job-id=" + j.runName, "--log-dir=" + j.logs,
		"--config=" + filepath.Join(j.dir, "job.yaml")}, flags...)
	if j.s.has(fillShare) {
		words = j.withShare(words)
	}
	j.cmd = exec.Command(words[0], words[1:]...)
	j.cmd.Env = append(append(os.Environ(), j.mark(), "TMPDIR="+temp, "GORACE=exitcode=199 atexit_sleep_ms=0"), env...)
	j.cmd.Stdout, j.cmd.Stderr = &j.said, &j.said
	j.cmd.WaitDelay = ceiling / 4
	j.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL} // if the tests time out
	if err := j.cmd.Start(); err != nil {
		j.t.Fatal(err)
	}
	go func() {
		_ = j.cmd.Wait()
		close(j.ended)
	}()
	j.t.Cleanup(func() {
		_ = j.cmd.Process.Kill()
		<-j.ended
		if left := j.left(); len(left) > 0 {
			j.t.Errorf("still running: %s", strings.Join(left, "; "))
			j.killLeft()
		}
	})
}

// write writes a file of the run.
func (j *job) write(name, text string) {
	j.t.Helper()
	if err := os.WriteFile(filepath.Join(j.dir, name), []byte(text), 0o600); err != nil {
		j.t.Fatal(err)
	}
}

// nameOf returns the name of a generation of the process of a fault.
func nameOf(f fault, generation int) string {
	return fmt.Sprintf("%s.%d.%d.g%d", f.role, f.index, f.rank, generation)
}

// mark returns a variable that identifies all processes of the run.
func (j *job) mark() string { return dirVariable + "=" + j.dir }

// processes returns the running processes that have the mark in their environment.
func (j *job) processes() (found []string) {
	paths, _ := filepath.Glob("/proc/[0-9]*")
	for _, path := range paths {
		pid, _ := strconv.Atoi(filepath.Base(path))
		if !j.isOurs(pid) {
			continue
		}
		line, _ := os.ReadFile(filepath.Join(path, "cmdline"))
		found = append(found, fmt.Sprintf("%d: %s", pid, strings.ReplaceAll(string(line), "\x00", " ")))
	}
	return found
}

// isOurs reports whether a process has the mark.
func (j *job) isOurs(pid int) bool {
	environ, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid))
	return err == nil && slices.Contains(strings.Split(string(environ), "\x00"), j.mark())
}

// left waits until no process of the run is there, and returns those that remain.
func (j *job) left() (left []string) {
	for deadline := time.Now().Add(ceiling / 4); time.Now().Before(deadline); time.Sleep(pause) {
		if left = j.processes(); len(left) == 0 {
			return nil
		}
	}
	return left
}

// killLeft kills all processes of the run.
func (j *job) killLeft() {
	for _, process := range j.processes() {
		number, _, _ := strings.Cut(process, ":")
		if pid, err := strconv.Atoi(number); err == nil {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
	}
}

// hasEnded reports whether bringupd has ended.
func (j *job) hasEnded() bool {
	select {
	case <-j.ended:
		return true
	default:
		return false
	}
}

// until waits for a condition, and reports whether it holds before the run ends or the time is up.
func (j *job) until(holds func() bool) bool {
	for deadline := time.Now().Add(ceiling); time.Now().Before(deadline); time.Sleep(pause) {
		if holds() {
			return true
		}
		if j.hasEnded() {
			return holds()
		}
	}
	return false
}

// bad notes that something is wrong.
func (j *job) bad(format string, args ...any) {
	j.wrong = append(j.wrong, fmt.Sprintf(format, args...))
}

// facts returns what a generation of a process has published, or nil.
func (j *job) facts(name string) *startFacts {
	text, err := os.ReadFile(filepath.Join(j.dir, startsDir, name))
	facts := new(startFacts)
	if err != nil || json.Unmarshal(text, facts) != nil {
		return nil
	}
	return facts
}

// list returns the names in a directory of the run directory.
func (j *job) list(dir string) (names []string) {
	entries, _ := os.ReadDir(filepath.Join(j.logs, j.runName, dir))
	for _, entry := range entries {
		names = append(names, entry.Name())
	}
	return names
}

// read reads a record of the run directory.
func (j *job) read(rec any, names ...string) bool {
	data, err := os.ReadFile(filepath.Join(append([]string{j.logs, j.runName}, names...)...))
	return err == nil && json.Unmarshal(data, rec) == nil
}

// daemon returns the process of a node's daemon.
func (j *job) daemon(node int) int {
	if node == 0 {
		var head record.Job
		j.read(&head, signal.ControlDir, signal.NameJob)
		return head.PID
	}
	var rec record.Joined
	j.read(&rec, signal.NodesDir, signal.NodeName(node, j.s.size(), record.StateJoined))
	return rec.PID
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
	ok := j.until(func() bool {
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
	case !ok && mayEnd && j.hasEnded():
		return nil
	case !ok:
		ready, lost := models[0].expected()
		j.bad("the run did not reach the state of ready %v and lost %v: the last list has ready %v, lost %v; missing: %s", ready, lost, live.Ready, live.Lost, missing)
		return nil
	}
	j.checkLost(found)
	j.checkEndpoints(found)
	return found
}

// newestLive returns the newest list of the instances that are ready and lost.
func (j *job) newestLive() (live record.LiveInstances) {
	newest := -1
	for _, name := range j.list(signal.ControlDir) {
		var number int
		if _, err := fmt.Sscanf(name, "live.%d", &number); err == nil {
			newest = max(newest, number)
		}
	}
	j.read(&live, signal.ControlDir, signal.LiveName(newest))
	return live
}

// missingMark returns the name of a process that has not started yet, or of a record of the state of
// an instance that is not there yet.
func (j *job) missingMark(m *model) string {
	there := j.list(signal.NodesDir)
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
	mark := record.InstanceMark{Node: s.nodes[rank], Instance: r.firstNumber + index, Generation: s.generation, State: record.InstanceReady}
	if s.done[rank] {
		if !s.isDoneOn(mark.Node) {
			return ""
		}
		mark.State = record.InstanceDone
	} else if slices.Contains(s.unready, true) {
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
					path := filepath.Join(j.dir, locksDir, process)
					if s.lost && !j.until(func() bool { held, _ := isHeld(path); return !held }) {
						j.bad("%s is lost and runs", filepath.Base(path))
					}
				}
			}
		}
	}
}

// checkEndpoints checks the files of endpoints on all nodes whose daemons live. The endpoints are those
// of the newest plan, which the process that has started last knows.
func (j *job) checkEndpoints(m *model) {
	starts, _ := os.ReadDir(filepath.Join(j.dir, startsDir))
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
	files := make(map[string]string) // the content that each file must have
	for _, facts := range all {
		for _, r := range m.roles {
			variable := roles.VariableName(r.name)
			if !m.dead[daemons[facts]] {
				files[facts.Files[variable]] = expectedEndpoints(r, m.states[r.name], strings.Split(newest.Planned[variable], ","))
			}
		}
	}
	for file, want := range files {
		var got []byte
		ok := j.until(func() bool {
			got, _ = os.ReadFile(file)
			return string(got) == want
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
	j.t.Helper()
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
			if pid := j.daemon(one.node); j.isOurs(pid) { // the first loss may end the run
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
			pids = append(pids, j.daemon(f.node))
			continue
		}
		generation := m.states[f.role][f.index].generation
		var facts *startFacts
		if !j.until(func() bool { facts = j.facts(nameOf(f, generation)); return facts != nil }) {
			j.t.Fatalf("%s has not started", nameOf(f, generation))
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
			j.write(filepath.Join(ordersDir, nameOf(f, generation)), fmt.Sprint(f.code))
		case badRestart:
			j.write(filepath.Join(badStartsDir, nameOf(f, generation+1)), fmt.Sprint(f.code))
		}
		pids = append(pids, pid)
	}
	at := time.Now()
	for _, pid := range pids {
		j.signal(pid, sig)
	}
	return at
}

// signal sends a signal to a process.
func (j *job) signal(pid int, sig syscall.Signal) {
	j.t.Helper()
	if pid <= 1 {
		j.t.Fatalf("cannot send %v: there is no such process", sig)
	}
	if err := syscall.Kill(pid, sig); err != nil {
		j.t.Fatalf("cannot send %v to %s: %v", sig, strconv.Itoa(pid), err)
	}
}

// otherProcesses returns the other processes of the instance of a fault that run.
func (j *job) otherProcesses(m *model, f fault) (pids []int) {
	s := m.states[f.role][f.index]
	for rank, done := range s.done {
		if facts := j.facts(nameOf(fault{role: f.role, index: f.index, rank: rank}, s.generation)); facts != nil && !done && rank != f.rank {
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

// awaitEnd waits for the end of the run.
func (j *job) awaitEnd() bool {
	within := ceiling
	if j.s.has(freezeDaemon) {
		within *= 2 // bringupd local gives a frozen daemon its time after the end of the head
	}
	select {
	case <-j.ended:
		took, isTimed := time.Since(j.told), !j.told.IsZero() && !j.s.has(freezeDaemon)
		if isTimed && took > maxOrderlyEnd {
			j.bad("the orderly end has taken %s", took)
		}
		return true
	case <-time.After(within):
		j.bad("the run has not ended after %s; running: %v", within, j.processes())
		return false
	}
}
