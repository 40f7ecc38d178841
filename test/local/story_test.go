package local

import (
	"bytes"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/bringupd/bringupd/pkg/signal"
	"github.com/bringupd/bringupd/test/jobtest"
)

const (
	ceiling = 40 * time.Second      // limits every wait; far longer than any wait takes
	step    = 10 * time.Millisecond // pause between two checks
)

// story is the state of a running script.
type story struct {
	mark    jobtest.Mark // in the environment of all processes that the script starts
	running map[string]*started
}

type storyKey struct{}

// started is a background program.
type started struct {
	cmd            *exec.Cmd
	stdout, stderr bytes.Buffer
	ended          chan struct{}
}

func newStory(env *testscript.Env) *story {
	s := &story{mark: jobtest.Mark("WORK=" + env.WorkDir), running: make(map[string]*started)}
	env.Defer(func() {
		for _, p := range s.running {
			_ = p.cmd.Process.Kill()
			<-p.ended
		}
		if left := s.mark.Left(ceiling / 2); len(left) > 0 {
			env.T().Fatal(fmt.Sprint("still running: ", left))
		}
	})
	return s
}

func of(ts *testscript.TestScript) *story { return ts.Value(storyKey{}).(*story) }

// commands returns the commands of the scripts, in addition to testscript's own commands.
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

func plain(cmd func(*testscript.TestScript, []string)) func(*testscript.TestScript,
	bool, []string) {
	return func(ts *testscript.TestScript, neg bool, args []string) {
		if neg {
			ts.Fatalf("this command can't be negated")
		}
		cmd(ts, args)
	}
}

// arguments checks the number of arguments.
func arguments(ts *testscript.TestScript, args []string, least int, form string) {
	if len(args) < least {
		ts.Fatalf("usage: %s", form)
	}
}

// begin starts a program like the script's exec command.
func begin(ts *testscript.TestScript, name string, args []string) *started {
	p := &started{ended: make(chan struct{})}
	path := args[0]
	if path == "bringupd" {
		path = jobtest.Bringupd
	}
	p.cmd = exec.Command(path, args[1:]...)
	p.cmd.Dir, p.cmd.Env = ts.MkAbs("."), environ(ts)
	p.cmd.Stdout, p.cmd.Stderr = &p.stdout, &p.stderr
	p.cmd.WaitDelay = ceiling / 4 // for processes that hold its output after it has ended
	ts.Check(p.cmd.Start())
	go func() {
		_ = p.cmd.Wait()
		close(p.ended)
	}()
	of(ts).running[name] = p
	return p
}

// environ returns the script's environment: those of the variables that a script may set which it
// has set.
func environ(ts *testscript.TestScript) []string {
	names := []string{"PATH", "HOME", "TMPDIR", "WORK", "GORACE", "EXAMPLES"}
	env := make([]string, 0, len(names))
	for _, name := range names {
		env = append(env, name+"="+ts.Getenv(name))
	}
	return append(env, "PWD="+ts.MkAbs("."))
}

// finish waits for a program's end and checks its exit code. From then on, stdout and stderr are
// its output.
func finish(ts *testscript.TestScript, name, code string, within time.Duration) {
	p := of(ts).running[name]
	if p == nil {
		ts.Fatalf("nothing was started as %s", name)
	}
	select {
	case <-p.ended:
	case <-time.After(within):
		ts.Fatalf("%s has not ended within %s; running:\n%v%s", name, within,
			of(ts).mark.Processes(), of(ts).outputs())
	}
	delete(of(ts).running, name)
	_, _ = ts.Stdout().Write(p.stdout.Bytes())
	_, _ = ts.Stderr().Write(p.stderr.Bytes())
	if got := strconv.Itoa(jobtest.ExitCode(p.cmd.ProcessState)); got != code {
		ts.Fatalf("%s ended with %s, want %s; stdout:\n%s\nstderr:\n%s", name, got, code,
			&p.stdout, &p.stderr)
	}
}

// cmdCode implements code CODE PROGRAM [ARGUMENT...], which runs a program that must exit with that
// code.
func cmdCode(ts *testscript.TestScript, args []string) {
	arguments(ts, args, 2, "code CODE PROGRAM [ARGUMENT...]")
	begin(ts, "code", args[1:])
	finish(ts, "code", args[0], ceiling)
}

// cmdStart implements start NAME PROGRAM [ARGUMENT...], which starts a program in the background.
func cmdStart(ts *testscript.TestScript, args []string) {
	arguments(ts, args, 2, "start NAME PROGRAM [ARGUMENT...]")
	begin(ts, args[0], args[1:])
}

// cmdEnds implements ends NAME CODE [WITHIN], which waits for the end of a background program.
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

var signals = map[string]syscall.Signal{"INT": syscall.SIGINT, "TERM": syscall.SIGTERM,
	"KILL": syscall.SIGKILL, "USR1": syscall.SIGUSR1,
	"STOP": syscall.SIGSTOP, "CONT": syscall.SIGCONT, "ALRM": syscall.SIGALRM}

// cmdSend implements send SIGNAL NAME|FILE|FILE:PATH, which sends a signal to a background program,
// or to a pid in a file or in a record.
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

// cmdAwait implements await FILE..., which waits until each file exists. The file must also have
// content, except for a record, which appears completely and may be empty.
func cmdAwait(ts *testscript.TestScript, args []string) {
	for _, name := range args {
		deadline := time.Now().Add(ceiling)
		for {
			if info, err := os.Stat(ts.MkAbs(name)); err == nil &&
				(info.Size() > 0 || isRecord(name)) {
				break
			}
			if time.Now().After(deadline) || of(ts).idle() {
				ts.Fatalf("%s is not there, after %s at most; there are %v%s", name, ceiling,
					below(ts.MkAbs(".")), of(ts).outputs())
			}
			time.Sleep(step)
		}
	}
}

func isRecord(name string) bool {
	sub := filepath.Base(filepath.Dir(name))
	return sub == signal.ControlDir || sub == signal.NodesDir
}

// idle reports whether all background programs have ended.
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

// outputs ends the background programs and returns their output.
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

// cmdGone implements gone FILE|FILE:PATH..., which waits until no process with that pid is running.
func cmdGone(ts *testscript.TestScript, args []string) {
	for _, where := range args {
		pid := pidIn(ts, where)
		for deadline := time.Now().Add(ceiling / 2); jobtest.IsAlive(pid); time.Sleep(step) {
			if time.Now().After(deadline) {
				ts.Fatalf("the process of %s, %d, still runs", where, pid)
			}
		}
	}
}

// cmdListen implements listen, which occupies a port, like an unrelated program, and sets PORT and
// PID.
func cmdListen(ts *testscript.TestScript, _ []string) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	ts.Check(err)
	ts.Defer(func() { _ = listener.Close() })
	ts.Setenv("PORT", strconv.Itoa(listener.Addr().(*net.TCPAddr).Port))
	ts.Setenv("PID", strconv.Itoa(os.Getpid()))
}
