package service

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/zap"

	"github.com/bringupd/bringupd/internal/ctxutil"
	"github.com/bringupd/bringupd/internal/envlist"
	"github.com/bringupd/bringupd/pkg/eventlog"
	"github.com/bringupd/bringupd/pkg/framework"
	"github.com/bringupd/bringupd/pkg/health"
	"github.com/bringupd/bringupd/pkg/process"
	"github.com/bringupd/bringupd/pkg/process/stackdump"
	"github.com/bringupd/bringupd/pkg/signal"
	"github.com/bringupd/bringupd/pkg/signal/record"
	"github.com/bringupd/bringupd/test/fakechild"
)

// children returns the children of a node with a run directory of its own. Their tasks end with the test.
func children(t *testing.T) *Children {
	t.Helper()
	super, err := process.NewSupervisor(nil)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var tasks sync.WaitGroup
	t.Cleanup(func() {
		cancel()
		tasks.Wait()
		_ = super.Close(context.Background())
	})
	c := NewChildren(
		Config{Starter: super, EventLog: eventlog.New(), Log: zap.NewNop(), OnWriteError: func(error) {}},
		Contexts{Run: ctx, Teardown: ctx, Grace: context.Background(),
			Background: func(task func(context.Context)) { tasks.Go(func() { task(ctx) }) }})
	c.OpenLogs(runDir(t), 0, 1, "n0")
	return c
}

// runDir returns the directory of a run of one node.
func runDir(t *testing.T) *signal.Dir {
	t.Helper()
	place := signal.Location{LogDir: t.TempDir(), Run: "17.0", Key: "k", Size: 1, Host: "n0"}
	dir, err := signal.CreateRun(t.Context(), place, record.Job{})
	if err != nil {
		t.Fatal(err)
	}
	return dir
}

// startShell starts a child that runs a line of shell code, until the test ends.
func startShell(t *testing.T, c *Children, name, script string) process.Handle {
	t.Helper()
	child, err := c.StartWithLog(t.Context(), process.Spec{Name: name, Argv: ShellCommand(script), Env: os.Environ()})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { child.Stop(context.Background(), 0, syscall.SIGKILL) })
	return child
}

// endAll ends all children.
func endAll(c *Children) { c.StopSelected(0, func(string) bool { return true }) }

// TestSignalsReachAllRanks verifies that each rank receives a signal once, also a rank that is
// being started while others run.
func TestSignalsReachAllRanks(t *testing.T) {
	t.Parallel()
	c, marks := children(t), t.TempDir()
	begin := func(node int) (process.Handle, string) {
		t.Helper()
		name, heard := RankName(node), filepath.Join(marks, strconv.Itoa(node))
		c.noteStarting(name)
		script := "trap 'echo heard >>" + heard + "' USR1; touch " + heard + "; while :; do sleep 0.02; done"
		spec := process.Spec{Name: name, Argv: ShellCommand(script), Env: os.Environ()}
		child, err := c.cfg.Starter.Start(t.Context(), spec)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { child.Stop(context.Background(), 0, syscall.SIGKILL) })
		untilThere(t, heard)
		return child, heard
	}
	first, firstHeard := begin(0)
	second, secondHeard := begin(11)
	c.addStarted(first.Name(), first)
	c.ForwardSignal(syscall.SIGUSR1) // the second one's start has not returned yet
	c.addStarted(second.Name(), second)
	for _, heard := range []string{firstHeard, secondHeard} {
		untilHolds(t, heard, "heard\n")
	}
}

// sharedStep is a supervisor in a step whose launcher signals all processes, or only the daemon.
type sharedStep struct {
	process.Starter
	all bool
}

// SignalReachedGuard implements process.Starter.
func (s sharedStep) SignalReachedGuard(context.Context, syscall.Signal) bool { return s.all }

// TestSignalsOfALauncher verifies that a child receives a signal once, whether the launcher has
// sent it to all processes or only to the daemon (J12).
func TestSignalsOfALauncher(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		sig  syscall.Signal
		all  bool // the launcher signals all processes
		want string
	}{
		"to all":           {syscall.SIGUSR1, true, "USR2\n"},
		"to the daemon":    {syscall.SIGUSR1, false, "USR1\nUSR2\n"},
		"CONT is repeated": {syscall.SIGCONT, true, "CONT\nUSR2\n"},
	} {
		t.Run(name, func(t *testing.T) {
			c, heard := children(t), filepath.Join(t.TempDir(), "heard")
			c.cfg.Starter, c.cfg.SharedSignals = sharedStep{c.cfg.Starter, tc.all}, true
			startShell(t, c, DriverName, "for s in USR1 USR2 CONT; do trap \"echo $s >>"+heard+"\" $s; done; touch "+
				heard+"; while :; do sleep 0.02; done")
			untilThere(t, heard)
			c.ForwardSignal(tc.sig)
			if tc.want != "USR2\n" {
				untilHolds(t, heard, strings.TrimSuffix(tc.want, "USR2\n"))
			}
			c.cfg.SharedSignals = false
			c.ForwardSignal(syscall.SIGUSR2) // by then, forwarded signals have arrived
			untilHolds(t, heard, tc.want)
		})
	}
}

// TestLogHasAllOfARank verifies that all output that a rank prints at full speed is in its log.
func TestLogHasAllOfARank(t *testing.T) {
	t.Parallel()
	const row = "0123456789012345678901234567890123456789"
	for name, tc := range map[string]struct {
		script, row string
		rows        int
	}{
		"100 MB of lines": {"yes " + row + " | head -n 2500000", row + "\n", 2_500_000},
		"a line of 10 MB": {"yes " + row + " | head -n 250000 | tr -d '\\n'; echo", row, 250_000},
	} {
		t.Run(name, func(t *testing.T) {
			c, written := children(t), make(chan error, 1)
			c.cfg.OnWriteError = func(err error) { written <- err }
			spec := process.Spec{Name: RankName(3), Argv: ShellCommand(tc.script), Env: os.Environ()}
			if _, err := c.Start(t.Context(), spec); err != nil {
				t.Fatal(err)
			}
			if err := <-written; err != nil {
				t.Error(err)
			}
			got, err := os.ReadFile(c.dir.NewLogFile(signal.LogsDir, c.LogName(RankName(3))).Path())
			if err != nil {
				t.Fatal(err)
			}
			got = bytes.ReplaceAll(got, []byte(" [bringupd: the line continues]\n"), nil)
			for range tc.rows {
				rest, whole := bytes.CutPrefix(got, []byte(tc.row))
				if !whole {
					t.Fatalf("%d bytes before the end there is %.60q", len(got), got)
				}
				got = rest
			}
			if len(bytes.TrimSpace(got)) > 0 {
				t.Errorf("more is in the log: %.60q", got)
			}
		})
	}
}

// TestServiceWithoutProgram verifies that the failure of a service whose program is missing has the
// code of a shell, so that the advice can name the reason.
func TestServiceWithoutProgram(t *testing.T) {
	dir := t.TempDir()
	plain := filepath.Join(dir, "plain")
	if err := os.WriteFile(plain, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for program, code := range map[string]int{"ray": 127, plain: 126} {
		c := children(t)
		service := &framework.Service{Name: "ray head", Argv: []string{program, "start"}, Env: []string{"PATH=" + dir}}
		err := c.startService(t.Context(), service, time.Minute, func(*health.Failure) {})
		f := health.AsFailure(err)
		if f.Code != code || f.Child != "" || !strings.Contains(f.Message, program) {
			t.Errorf("without %s the failure is %+v, want code %d", program, f.Failure, code)
		}
	}
}

// TestSetup verifies the end of a setup command. One that a signal to the whole step has ended is no
// failure of its own, because the daemon receives the signal, too.
func TestSetup(t *testing.T) {
	asked := errors.New("the run is asked to end")
	for _, tc := range []struct {
		name  string
		takes time.Duration
		code  int
		asked time.Duration // when the run is asked to end
		says  string        // of the failure; empty: there is none
		err   error
	}{
		{name: "it succeeds", takes: time.Second},
		{name: "it fails", takes: time.Second, code: 3, says: "the setup command of n0 failed: exit code 3"},
		{name: "it takes too long", takes: time.Hour, says: "the setup command of n0 had not ended after 1m0s"},
		{name: "the run ends meanwhile", takes: time.Hour, asked: time.Second, err: asked},
		{name: "a signal ends it", takes: time.Second, code: 143, asked: 1500 * time.Millisecond, err: asked},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				shell := func(ctx context.Context, _ *fakechild.Process) int {
					fakechild.Sleep(ctx, tc.takes)
					return tc.code
				}
				c := children(t)
				c.cfg.Starter = fakechild.New(map[string]fakechild.Program{"sh": shell})
				ctx, cancel := context.WithCancelCause(t.Context())
				c.contexts.Run = ctx
				if tc.asked > 0 {
					time.AfterFunc(tc.asked, func() { cancel(asked) })
				}
				err := c.RunSetup(ctx, "prepare", nil, time.Minute)
				f, failed := errors.AsType[*health.Failure](err)
				switch {
				case tc.says == "" && !errors.Is(err, tc.err):
					t.Errorf("the error is %v, want %v", err, tc.err)
				case tc.says != "" && (!failed || f.Kind != health.SetupFailed || f.Message != tc.says):
					t.Errorf("the error is %+v, want %q", err, tc.says)
				}
				_ = c.Close(t.Context())
				cancel(nil)
			})
		})
	}
}

// TestDriverEnd verifies what is recorded about a driver that has ended.
func TestDriverEnd(t *testing.T) {
	for _, tc := range []struct {
		script, exit string
		lines        []string
	}{
		{"exit 3", "exit code 3", nil},
		{"echo done", "exit code 0", []string{"done"}},
	} {
		c := children(t)
		if end, lines := c.DriverEnd(); end != (record.ChildExit{}) || lines != nil {
			t.Errorf("without a driver it is %+v, %q", end, lines)
		}
		<-startShell(t, c, DriverName, tc.script).Done()
		end, lines := c.DriverEnd()
		if end.ExitText != tc.exit || !slices.Equal(lines, tc.lines) || (lines == nil) != (tc.lines == nil) {
			t.Errorf("%s ends with %q, lines %q; want %q, %q", tc.script, end.ExitText, lines, tc.exit, tc.lines)
		}
	}
}

func TestLogNames(t *testing.T) {
	c := children(t)
	c.OpenLogs(nil, 3, 8, "n3")
	for child, want := range map[string]string{
		DriverName: "driver.log", "ray head": "ray-head.log", "worker": "worker-0003.log",
		RankName(7): "rank-0007.log", RankName(12345): "rank-12345.log",
	} {
		if got := c.LogName(child); got != want {
			t.Errorf("%s logs into %s, not %s", child, got, want)
		}
	}
}

// TestDescribeChildren checks which children a stack dump shows after their end: programs of the user,
// for which others may wait in vain.
func TestDescribeChildren(t *testing.T) {
	c := children(t)
	c.SetUserProgram("trainer.0.1")
	c.SetSocket("trainer.0.1", "/tmp/socket")
	for _, name := range []string{RankName(3), "trainer.0.1", "judge.0"} {
		<-startShell(t, c, name, "exit 3").Done()
	}
	value, _ := envlist.Lookup(c.DescribeChildren(), stackdump.ChildrenVariable)
	all, err := stackdump.ParseChildren(value)
	if err != nil || len(all) != 2 {
		t.Fatalf("they are %+v, %v", all, err)
	}
	rank, trainer := all[0], all[1]
	if rank.Name != "rank 3" || rank.Ended == "" || rank.Socket != "" || trainer.Name != "trainer.0.1" ||
		trainer.Ended == "" || trainer.Socket != "/tmp/socket" || trainer.RankInWorld() != 1 {
		t.Errorf("they are %+v", all)
	}
}

// untilHolds waits until a file contains a text.
func untilHolds(t *testing.T, path, text string) {
	t.Helper()
	for deadline := time.Now().Add(ceiling); ; time.Sleep(5 * time.Millisecond) {
		got, _ := os.ReadFile(path)
		if string(got) == text {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("%s holds %q after %s, not %q", path, got, ceiling, text)
		}
	}
}

// ceiling limits waits that end much sooner on any machine.
const ceiling = 60 * time.Second

func untilThere(t *testing.T, path string) {
	t.Helper()
	for deadline := time.Now().Add(ceiling); ; time.Sleep(5 * time.Millisecond) {
		if _, err := os.Stat(path); err == nil {
			return
		}
		if time.Now().After(deadline) {
			t.Fatalf("there is no %s after %s", path, ceiling)
		}
	}
}

// TestVital verifies that a service counts as dead when one of its vital processes ends, even if
// its main process continues.
func TestVital(t *testing.T) {
	t.Parallel()
	c, at := children(t), t.TempDir()
	dead := make(chan *health.Failure, 2)
	vital := func() (pid int, err error) {
		text, err := os.ReadFile(filepath.Join(at, "pid"))
		if err == nil {
			pid, err = strconv.Atoi(strings.TrimSpace(string(text)))
		}
		if err != nil {
			return 0, err
		}
		// It has the shell's name until it runs its own program.
		name, err := os.ReadFile(fmt.Sprintf("/proc/%d/comm", pid))
		if err == nil && string(name) != "vital\n" {
			err = fmt.Errorf("process %d is %q", pid, name)
		}
		return pid, err
	}
	script := "cd " + at + "; ln -s /bin/sleep vital; ./vital 1000 & echo $! >pid; echo serving; " +
		"while :; do sleep 0.1; done"
	service := &framework.Service{
		Name: "worker", Argv: ShellCommand(script), Env: os.Environ(),
		CheckReady: func(context.Context) error { _, err := vital(); return err },
		ExitDetection: framework.ExitDetection{VitalProcesses: []string{"vital"},
			ExplainExit: func() []string { return []string{"it slept too long"} }},
	}
	onDeath := func(f *health.Failure) { dead <- f }
	if err := c.startService(t.Context(), service, ceiling, onDeath); err != nil {
		t.Fatal(err)
	}
	pid, err := vital()
	if err != nil {
		t.Fatal(err)
	}
	if err := syscall.Kill(pid, syscall.SIGKILL); err != nil {
		t.Fatal(err)
	}
	select {
	case f := <-dead:
		if f.Message != "the worker of n0 died: its vital has ended (it slept too long)" ||
			!slices.Contains(f.Lines, "serving") || f.Child != "worker" {
			t.Errorf("it is told %+v", f)
		}
	case <-time.After(ceiling):
		t.Error("its death is not known")
	}
	endAll(c)
}

// nonEmpty returns nil if a file has content.
func nonEmpty(path string) error {
	info, err := os.Stat(path)
	if err == nil && info.Size() == 0 {
		return fmt.Errorf("%s is empty", path)
	}
	return err
}

// TestOmitNoise verifies that noise hides no other line, and that something is left.
func TestOmitNoise(t *testing.T) {
	t.Parallel()
	isNoise := func(line string) bool { return strings.HasPrefix(line, "[dump]") }
	for _, tc := range []struct{ lines, want []string }{
		{[]string{"[dump] 1", "killed", "[dump] 2"}, []string{"killed"}},
		{[]string{"[dump] 1"}, []string{"[dump] 1"}},
		{nil, nil},
	} {
		if got := omitNoise(tc.lines, isNoise); !slices.Equal(got, tc.want) {
			t.Errorf("omitNoise(%q) = %q, want %q", tc.lines, got, tc.want)
		}
	}
	if got := omitNoise([]string{"a"}, nil); !slices.Equal(got, []string{"a"}) {
		t.Errorf("without a filter it is %q", got)
	}
}

// slowStarter is a starter on a busy node: the driver runs for a while before its start returns.
type slowStarter struct{ process.Starter }

// Start implements process.Starter.
func (s slowStarter) Start(ctx context.Context, spec process.Spec) (process.Handle, error) {
	child, err := s.Starter.Start(ctx, spec)
	if spec.Name == DriverName {
		time.Sleep(300 * time.Millisecond)
	}
	return child, err
}

// TestStoppedByDriver verifies that a service that the driver itself has ended is not a failure if
// the driver succeeds soon after, and is one, with the driver's command in its message, if the
// driver does not. The driver ends the service while its own start is in progress.
func TestStoppedByDriver(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name, ending string // what the driver does after it has ended the service
		says         string // empty: no failure is reported
	}{
		{"and ends well", "exit 0", ""},
		{"and fails", "exit 3", `the worker of n0 has ended: the driver has run "sh -c `},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			c, pid := children(t), filepath.Join(t.TempDir(), "pid")
			c.cfg.Starter = slowStarter{c.cfg.Starter}
			var tasks sync.WaitGroup
			c.contexts.Background = func(task func(context.Context)) { tasks.Go(func() { task(c.contexts.Run) }) }
			dead := make(chan *health.Failure, 2)
			service := &framework.Service{
				Name: "worker", Argv: ShellCommand("echo $$ >" + pid + "; exec sleep 1000"), Env: os.Environ(),
				CheckReady: func(context.Context) error { return nonEmpty(pid) },
			}
			service.ExitDetection.IsStopCommand = func(argv []string) bool { return slices.Contains(argv, "stop-it") }
			onDeath := func(f *health.Failure) { dead <- f }
			if err := c.startService(t.Context(), service, ceiling, onDeath); err != nil {
				t.Fatal(err)
			}
			script := "sh -c 'kill -9 $(cat " + pid + "); sleep 3' stop-it; " + tc.ending
			driver, err := c.Start(t.Context(), process.Spec{
				Name: DriverName, Argv: ShellCommand(script), Env: os.Environ(),
			})
			if err != nil {
				t.Fatal(err)
			}
			if !ctxutil.AwaitDoneFor(driver.Ended(), ceiling) {
				t.Fatal("the driver does not end")
			}
			tasks.Wait() // the service's end has been classified then
			var told *health.Failure
			select {
			case told = <-dead:
			default:
			}
			if (told == nil) != (tc.says == "") || told != nil && !strings.Contains(told.Message, tc.says) {
				t.Errorf("it is told %+v, want %q", told, tc.says)
			}
			endAll(c)
		})
	}
}

// TestTakenPorts verifies that the holder of a service's port is named, also if it was faster than
// the service, and that another port is used if the framework chooses one.
func TestTakenPorts(t *testing.T) {
	for _, tc := range []struct {
		name    string
		later   bool // the port is taken after the start
		choices bool // each description has another port
		starts  int
		ready   bool
	}{
		{"taken, and fixed", false, false, 0, false},
		{"taken, and chosen", false, true, 1, true},
		{"taken later, and fixed", true, false, 1, false},
		{"taken later, and chosen", true, true, 2, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			c := children(t)
			ports, err := process.FindFreePorts(2)
			if err != nil {
				t.Fatal(err)
			}
			take := func() {
				holder, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", ports[0]))
				if err != nil {
					t.Error(err)
					return
				}
				t.Cleanup(func() { _ = holder.Close() })
			}
			if !tc.later {
				take()
			}
			at := t.TempDir()
			taken, described := filepath.Join(at, "taken"), 0
			taking := sync.OnceFunc(func() {
				take()
				_ = os.WriteFile(taken, nil, 0o600)
			})
			starts := func() int {
				text, _ := os.ReadFile(filepath.Join(at, "starts"))
				return strings.Count(string(text), "\n")
			}
			var port int
			isReady := func(context.Context) error {
				if port != ports[0] && starts() == tc.starts {
					return nil
				}
				if port == ports[0] {
					taking()
				}
				return errors.New("not yet")
			}
			describe := func() (*framework.Service, error) {
				port = ports[0]
				if tc.choices {
					port = ports[min(described, 1)]
				}
				described++
				script := fmt.Sprintf("echo >>%s/starts; [ %d = %d ] || exec sleep 1000; "+
					"until [ -e %s ]; do sleep 0.01; done; exit 1", at, port, ports[0], taken)
				return &framework.Service{
					Name: "ray head", MaxStarts: 3, Ports: []framework.Port{{Name: "its port", Number: port}},
					Env: os.Environ(), Argv: ShellCommand(script), CheckReady: isReady,
				}, nil
			}
			program := Program{Kind: health.ServiceDied, Within: ceiling, Describe: describe}
			err = c.serve(t.Context(), program, func(*health.Failure) {})
			endAll(c)
			if got := starts(); got != tc.starts {
				t.Errorf("started %d times, want %d", got, tc.starts)
			}
			if tc.ready {
				if err != nil || port != ports[1] {
					t.Errorf("the port is %d (%v), want %d", port, err, ports[1])
				}
				return
			}
			want := fmt.Sprintf("cannot start the ray head of n0: port %d (its port) is taken: "+
				"port %[1]d of 127.0.0.1 is held by pid %d (", ports[0], os.Getpid())
			if f := health.AsFailure(err); err == nil || !strings.HasPrefix(f.Message, want) {
				t.Errorf("%v, want %q", err, want)
			}
		})
	}
}
