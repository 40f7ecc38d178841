package local

import (
	"bytes"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/bringupd/bringupd/pkg/signal"
)

const (
	ceiling = 40 * time.Second      // bounds every wait: far above what any takes
	step    = 10 * time.Millisecond // between two looks
)

// story is one script under way: what it has started.
type story struct {
	mark    string // in the environment of all that the script starts
	running map[string]*started
}

type storyKey struct{}

// started is a program in the background.
type started struct {
	cmd            *exec.Cmd
	stdout, stderr bytes.Buffer
	ended          chan struct{}
}

func newStory(env *testscript.Env) *story {
	s := &story{mark: "WORK=" + env.WorkDir, running: make(map[string]*started)}
	env.Defer(func() {
		for _, p := range s.running {
			_ = p.cmd.Process.Kill()
			<-p.ended
		}
		if left := s.left(); len(left) > 0 {
			env.T().Fatal("still running: " + strings.Join(left, "; "))
		}
	})
	return s
}

func of(ts *testscript.TestScript) *story { return ts.Value(storyKey{}).(*story) }

// left waits until nothing of the script runs any more, and names what does.
func (s *story) left() (left []string) {
	for deadline := time.Now().Add(ceiling / 2); time.Now().Before(deadline); time.Sleep(step) {
		if left = s.processes(); len(left) == 0 {
			return nil
		}
	}
	return left
}

// processes are those that have the mark in their environment.
func (s *story) processes() (found []string) {
	paths, _ := filepath.Glob("/proc/[0-9]*/environ")
	for _, path := range paths {
		environ, err := os.ReadFile(path)
		if err != nil || !slices.Contains(strings.Split(string(environ), "\x00"), s.mark) {
			continue
		}
		line, _ := os.ReadFile(filepath.Join(filepath.Dir(path), "cmdline"))
		found = append(found, filepath.Base(filepath.Dir(path))+": "+strings.ReplaceAll(string(line), "\x00", " "))
	}
	return found
}

// commands are what the scripts can do beside testscript's own commands.
func commands() map[string]func(*testscript.TestScript, bool, []string) {
	return map[string]func(*testscript.TestScript, bool, []string){
		"code":   plain(cmdCode),
		"start":  plain(cmdStart),
		"ends":   plain(cmdEnds),
		"send":   plain(cmdSend),
		"await":  plain(cmdAwait),
		"gone":   plain(cmdGone),
		"json":   plain(cmdJSON),
		"listen": plain(cmdListen),
	}
}

func plain(cmd func(*testscript.TestScript, []string)) func(*testscript.TestScript, bool, []string) {
	return func(ts *testscript.TestScript, neg bool, args []string) {
		if neg {
			ts.Fatalf("this command can't be negated")
		}
		cmd(ts, args)
	}
}

// arguments checks their number.
func arguments(ts *testscript.TestScript, args []string, least int, form string) {
	if len(args) < least {
		ts.Fatalf("usage: %s", form)
	}
}

// begin starts a program as the script's exec would.
func begin(ts *testscript.TestScript, name string, args []string) *started {
	p := &started{ended: make(chan struct{})}
	path := args[0]
	if path == "bringupd" {
		path = filepath.Join(bin, path)
	}
	p.cmd = exec.Command(path, args[1:]...)
	p.cmd.Dir, p.cmd.Env = ts.MkAbs("."), environ(ts)
	p.cmd.Stdout, p.cmd.Stderr = &p.stdout, &p.stderr
	p.cmd.WaitDelay = ceiling / 4 // for who holds its output when it has ended
	ts.Check(p.cmd.Start())
	go func() {
		_ = p.cmd.Wait()
		close(p.ended)
	}()
	of(ts).running[name] = p
	return p
}

// environ is the script's environment: of the variables that it may set, those
// that it has.
func environ(ts *testscript.TestScript) []string {
	names := []string{"PATH", "HOME", "TMPDIR", "WORK", "GORACE"}
	env := make([]string, 0, len(names))
	for _, name := range names {
		env = append(env, name+"="+ts.Getenv(name))
	}
	return append(env, "PWD="+ts.MkAbs("."))
}

// finish waits for a program's end and checks its code; stdout and stderr are
// its output from then on.
func finish(ts *testscript.TestScript, name, code string, within time.Duration) {
	p := of(ts).running[name]
	if p == nil {
		ts.Fatalf("nothing was started as %s", name)
	}
	select {
	case <-p.ended:
	case <-time.After(within):
		running := strings.Join(of(ts).processes(), "\n")
		ts.Fatalf("%s has not ended within %s; running:\n%s%s", name, within, running, of(ts).outputs())
	}
	delete(of(ts).running, name)
	_, _ = ts.Stdout().Write(p.stdout.Bytes())
	_, _ = ts.Stderr().Write(p.stderr.Bytes())
	if got := exitCode(p.cmd.ProcessState); got != code {
		ts.Fatalf("%s ended with %s, want %s; stdout:\n%s\nstderr:\n%s", name, got, code, &p.stdout, &p.stderr)
	}
}

// exitCode is the code as a shell has it.
func exitCode(state *os.ProcessState) string {
	if status := state.Sys().(syscall.WaitStatus); status.Signaled() {
		return strconv.Itoa(128 + int(status.Signal()))
	}
	return strconv.Itoa(state.ExitCode())
}

// code CODE PROGRAM [ARGUMENT...] runs a program, which must end so.
func cmdCode(ts *testscript.TestScript, args []string) {
	arguments(ts, args, 2, "code CODE PROGRAM [ARGUMENT...]")
	begin(ts, "code", args[1:])
	finish(ts, "code", args[0], ceiling)
}

// start NAME PROGRAM [ARGUMENT...] starts one in the background.
func cmdStart(ts *testscript.TestScript, args []string) {
	arguments(ts, args, 2, "start NAME PROGRAM [ARGUMENT...]")
	begin(ts, args[0], args[1:])
}

// ends NAME CODE [WITHIN] waits for its end.
func cmdEnds(ts *testscript.TestScript, args []string) {
	arguments(ts, args, 2, "ends NAME CODE [WITHIN]")
	within := ceiling
	if len(args) > 2 {
		var err error
		within, err = time.ParseDuration(args[2])
		ts.Check(err)
	}
	finish(ts, args[0], args[1], within)
}

var signals = map[string]syscall.Signal{"INT": syscall.SIGINT, "TERM": syscall.SIGTERM, "KILL": syscall.SIGKILL, "USR1": syscall.SIGUSR1,
	"STOP": syscall.SIGSTOP, "CONT": syscall.SIGCONT}

// send SIGNAL NAME|FILE|FILE:PATH signals what was started, or a pid that a file
// or a record has.
func cmdSend(ts *testscript.TestScript, args []string) {
	arguments(ts, args, 2, "send SIGNAL NAME|FILE|FILE:PATH")
	pid := 0
	if p := of(ts).running[args[1]]; p != nil {
		pid = p.cmd.Process.Pid
	} else {
		pid = pidIn(ts, args[1])
	}
	ts.Check(syscall.Kill(pid, signals[args[0]]))
}

func pidIn(ts *testscript.TestScript, where string) int {
	file, path, record := strings.Cut(where, ":")
	said := strings.TrimSpace(ts.ReadFile(file))
	if record {
		said = fmt.Sprint(valueAt(ts, file, path))
	}
	pid, err := strconv.Atoi(said)
	if err != nil || pid <= 1 {
		ts.Fatalf("%s has no pid: %q", where, said)
	}
	return pid
}

// await FILE... waits until each is there and, unless it is a record, which
// appears whole and may be empty, has something in it.
func cmdAwait(ts *testscript.TestScript, args []string) {
	for _, name := range args {
		deadline := time.Now().Add(ceiling)
		for {
			if info, err := os.Stat(ts.MkAbs(name)); err == nil && (info.Size() > 0 || isRecord(name)) {
				break
			}
			if time.Now().After(deadline) || of(ts).idle() {
				ts.Fatalf("%s is not there, after %s at most; there are %v%s", name, ceiling, below(ts.MkAbs(".")), of(ts).outputs())
			}
			time.Sleep(step)
		}
	}
}

func isRecord(name string) bool {
	sub := filepath.Base(filepath.Dir(name))
	return sub == signal.ControlDir || sub == signal.NodesDir
}

// idle tells whether all that was started has ended.
func (s *story) idle() bool {
	for _, p := range s.running {
		select {
		case <-p.ended:
		default:
			return false
		}
	}
	return true
}

// outputs is what the programs in the background have said, which ends them.
func (s *story) outputs() string {
	var b strings.Builder
	for name, p := range s.running {
		_ = p.cmd.Process.Kill()
		<-p.ended
		fmt.Fprintf(&b, "\n%s: %s%s", name, &p.stdout, &p.stderr)
	}
	return b.String()
}

func below(dir string) (names []string) {
	_ = filepath.WalkDir(dir, func(path string, entry os.DirEntry, err error) error {
		if err == nil && !entry.IsDir() {
			names = append(names, strings.TrimPrefix(path, dir+"/"))
		}
		return nil
	})
	return names
}

// gone FILE|FILE:PATH... waits until no process of that pid lives.
func cmdGone(ts *testscript.TestScript, args []string) {
	for _, where := range args {
		pid := pidIn(ts, where)
		for deadline := time.Now().Add(ceiling / 2); alive(pid); time.Sleep(step) {
			if time.Now().After(deadline) {
				ts.Fatalf("the process of %s, %d, still runs", where, pid)
			}
		}
	}
}

func alive(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return false
	}
	_, rest, _ := strings.Cut(string(stat), ") ")
	return !strings.HasPrefix(rest, "Z")
}

// listen takes a port, as a stranger, and sets PORT and PID.
func cmdListen(ts *testscript.TestScript, _ []string) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	ts.Check(err)
	ts.Defer(func() { _ = listener.Close() })
	ts.Setenv("PORT", strconv.Itoa(listener.Addr().(*net.TCPAddr).Port))
	ts.Setenv("PID", strconv.Itoa(os.Getpid()))
}
