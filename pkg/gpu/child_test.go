package gpu

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bringupd/bringupd/pkg/process"
)

func init() {
	helpers["answer"] = func() int { return printFacts(Facts{Version: FactsVersion, Init: DriverNotLoaded}) }
	helpers["older"] = func() int { return printFacts(Facts{Version: FactsVersion + 1, Init: Success}) }
	helpers["nothing"] = func() int { return 0 }
	helpers["garbage"] = func() int { fmt.Println("NVRM: \x1b[31mthis is no JSON"); return 0 }
	helpers["half"] = func() int { fmt.Print(`{"v":2,"facts":{"version":1,"init":"SUCC`); return 0 }
	helpers["null"] = func() int { fmt.Print(`null`); return 0 }
	helpers["much"] = printMuch
	helpers["loader"] = func() int {
		fmt.Fprintln(os.Stderr, "bringupd: symbol lookup error: bringupd: undefined symbol: nvmlFoo")
		return 127
	}
	helpers["chatter"] = func() int {
		for n := range 20_000 {
			fmt.Fprintf(os.Stderr, "line %d of what nobody asked for\n", n)
		}
		return printFacts(Facts{Version: FactsVersion, Init: DriverNotLoaded})
	}
	helpers["panic"] = func() int { panic("as a bug would") }
	helpers["segv"] = func() int { return kill9(unix.SIGSEGV) }
	helpers["killed"] = func() int { return kill9(unix.SIGKILL) }
	helpers["hang"] = hang
	helpers["answer, then hang"] = func() int {
		printFacts(Facts{Version: FactsVersion, Init: DriverNotLoaded})
		return hang()
	}
	helpers["closed, then hang"] = func() int {
		os.Stdout.Close()
		os.Stderr.Close()
		return hang()
	}
	helpers["descriptors"] = tellDescriptors
	helpers["CUDA"] = func() int {
		_, _ = os.Stdout.Write(message{CUDA: &CUDAFacts{Init: "SYSTEM_NOT_READY"}}.encodeLine())
		return 0
	}
	helpers["slow driver"] = func() int {
		code := serveRequests(slowDriver{}, os.Stdin, os.Stdout)
		_ = os.WriteFile(os.Getenv(watchPID)+".bye", nil, 0o600)
		return code
	}
	helpers["driver that gets stuck"] = func() int { return serveRequests(stuckDriver{}, os.Stdin, os.Stdout) }
	helpers["counting driver"] = func() int { return serveRequests(&countingDriver{}, os.Stdin, os.Stdout) }
}

func printFacts(facts Facts) int {
	_, _ = os.Stdout.Write(message{Facts: &facts}.encodeLine())
	return 0
}

// printMuch prints 100 MiB of valid JSON, unless it is stopped.
func printMuch() int {
	fmt.Print(`{"v":2,"facts":{"version":1,"init":"SUCCESS","detail":"`)
	text := bytes.Repeat([]byte("x"), 1<<20)
	for range 100 {
		if _, err := os.Stdout.Write(text); err != nil {
			return 1
		}
	}
	fmt.Print(`"}}`)
	return 0
}

func kill9(sig syscall.Signal) int {
	signal.Reset()
	_ = unix.Kill(os.Getpid(), sig)
	select {}
}

// hang ignores all signals that can be ignored, and reports the call that it waits for.
func hang() int {
	signal.Ignore(unix.SIGTERM, unix.SIGINT, unix.SIGHUP, unix.SIGPIPE)
	fmt.Fprintln(os.Stderr, "waiting for nvmlDeviceGetRemappedRows of GPU 3")
	for {
		time.Sleep(time.Hour)
	}
}

func helperChild(name string) Child {
	return Child{Env: helperEnv(name), Timeout: ceiling}
}

func TestWhatBecomesOfAChild(t *testing.T) {
	for _, test := range []struct {
		helper string
		init   NVMLReturn
		detail []string
	}{
		{"answer", DriverNotLoaded, nil},
		{"chatter", DriverNotLoaded, nil},
		{"older", ProbeDied, []string{"version 2", "expected 1"}},
		{"nothing", ProbeDied, []string{"no response"}},
		{"garbage", ProbeDied, []string{"no response", "this is no JSON"}},
		{"half", ProbeDied, []string{"no response", `"init":"SUCC`}},
		{"null", ProbeDied, []string{"no response", "null"}},
		{"much", ProbeDied, []string{"no response"}},
		{"loader", ProbeDied, []string{"exit code 127", "undefined symbol: nvmlFoo"}},
		{"panic", ProbeDied, []string{"exit code 2", "panic: as a bug would"}},
		{"segv", ProbeDied, []string{"exit code 2", "SIGSEGV"}},
		{"killed", ProbeDied, []string{"signal SIGKILL"}},
	} {
		t.Run(test.helper, func(t *testing.T) {
			facts, err := helperChild(test.helper).Probe(t.Context())
			if err != nil || facts.Init != test.init || facts.Version != FactsVersion {
				t.Fatalf("got %+v, %v; want %s", facts, err, test.init)
			}
			for _, part := range test.detail {
				if !strings.Contains(facts.Detail, part) {
					t.Errorf("the detail %q lacks %q", facts.Detail, part)
				}
			}
			if (facts.Detail != "") != (test.detail != nil) ||
				strings.ContainsAny(facts.Detail, "\n\x1b") || len(facts.Detail) > 4<<10 {
				t.Errorf("detail %q", facts.Detail)
			}
			noneLeft(t)
		})
	}
}

func TestCUDA(t *testing.T) {
	for _, tc := range []struct {
		helper string
		limit  time.Duration
		init   NVMLReturn
		detail string
	}{
		{"CUDA", ceiling, "SYSTEM_NOT_READY", ""},
		{"answer", ceiling, ProbeDied, "an unexpected response"},
		{"hang", 700 * time.Millisecond, DriverUnresponsive, "within 700ms"},
	} {
		child := helperChild(tc.helper)
		child.Timeout = tc.limit
		facts, err := child.ProbeCUDA(t.Context())
		if err != nil || facts.Init != tc.init || !strings.Contains(facts.Detail, tc.detail) {
			t.Errorf("%s: got %+v, %v", tc.helper, facts, err)
		}
		noneLeft(t)
	}
	if facts, err := (Child{Program: "/nonexistent"}).ProbeCUDA(t.Context()); err != nil ||
		facts.Init != ProbeDied || !strings.Contains(facts.Detail, "/nonexistent") {
		t.Errorf("that can't start: %+v, %v", facts, err)
	}
	over := errors.New("the job is over")
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(over)
	if _, err := helperChild("hang").ProbeCUDA(ctx); !errors.Is(err, over) {
		t.Errorf("it ends with %v", err)
	}
}

func TestChildThatHangs(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes seconds")
	}
	t.Run("once it has answered", func(t *testing.T) {
		facts, err := helperChild("answer, then hang").Probe(t.Context())
		if err != nil || facts.Init != DriverNotLoaded {
			t.Errorf("got %+v, %v", facts, err)
		}
		noneLeft(t)
	})
	for _, helper := range []string{"hang", "closed, then hang"} {
		t.Run(helper, func(t *testing.T) {
			child := helperChild(helper)
			child.Timeout = 700 * time.Millisecond // long enough for its first message
			facts, err := child.Probe(t.Context())
			if err != nil || facts.Init != DriverUnresponsive || !strings.Contains(facts.Detail, "700ms") {
				t.Fatalf("got %+v, %v", facts, err)
			}
			if len(facts.GPUs) != 0 {
				t.Error("there are GPUs")
			}
			noneLeft(t)
		})
	}
	t.Run("says where", func(t *testing.T) {
		session := helperChild("hang").NewSession()
		session.child.Timeout = 10 * time.Millisecond
		d, err := session.ensureChild(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		until(t, "message of the child", func() bool { return d.outputAfter(":") != "" })
		facts, _ := session.Probe(t.Context(), nil)
		if !strings.Contains(facts.Detail, "waiting for nvmlDeviceGetRemappedRows of GPU 3") {
			t.Errorf("the detail is %q", facts.Detail)
		}
	})
}

// noneLeft verifies that no child stays, dead or alive. On a slow machine a child may remain for a
// moment until it is reaped.
func noneLeft(t *testing.T) {
	t.Helper()
	until(t, "end of what was left", func() bool {
		return errors.Is(unix.Waitid(unix.P_ALL, 0, nil, unix.WEXITED|unix.WNOHANG|unix.WNOWAIT, nil), unix.ECHILD)
	})
}

// TestGivenUpChildGoesOn verifies that a child whose answer is no longer awaited continues: the
// NVIDIA driver may be attaching a GPU in it, which SIGKILL would leave in need of a reset.
func TestGivenUpChildGoesOn(t *testing.T) {
	file := filepath.Join(t.TempDir(), "pid")
	child := Child{Env: helperEnv("slow driver", watchPID+"="+file), Timeout: ceiling}
	gone := errors.New("the daemon is told to end")
	ctx, cancel := context.WithCancelCause(t.Context())
	session := child.NewSession()
	facts, err := session.Probe(ctx, func(Progress) { cancel(gone) })
	if !errors.Is(err, gone) || facts.Init != "" {
		t.Errorf("got %+v, %v", facts, err)
	}
	_ = session.Close(ctx)
	if _, err := os.Stat(file + ".bye"); err == nil {
		t.Error("it did not last: the test is too slow to say")
	}
	noneLeft(t)
	if _, err := os.Stat(file + ".bye"); err != nil {
		t.Errorf("the child was not let end by itself: %v", err)
	}
	if _, err := session.Probe(ctx, nil); !errors.Is(err, gone) {
		t.Errorf("the second: %v", err)
	}
	if facts, err := session.Probe(t.Context(), nil); err != nil || facts.Init != ProbeDied {
		t.Errorf("after its end: %+v, %v", facts, err)
	}
}

// slowDriver attaches GPUs for some seconds and reports its progress.
type slowDriver struct{ deviceLibrary }

func (slowDriver) inspectGPUs(tell func(message)) Facts {
	for came := range 10 {
		tell(message{Progress: &Progress{Initialised: came, Total: 10,
			SlowCalls: "nvmlDeviceGetHandleByIndex_v2 of GPU 9"}})
		time.Sleep(400 * time.Millisecond)
	}
	return Facts{Version: FactsVersion, Init: Success}
}

// TestDeadlineGrows verifies that the deadline is extended while further GPUs are attached, and
// that it expires soon after the last one.
func TestDeadlineGrows(t *testing.T) {
	// Less than the total time of the slow driver, and far more than the time between two of its
	// messages.
	const limit = 3 * time.Second
	for _, tc := range []struct {
		helper string
		init   NVMLReturn
		came   int
	}{{"slow driver", Success, 9}, {"driver that gets stuck", DriverUnresponsive, 4}} {
		child := helperChild(tc.helper)
		child.Timeout = limit
		session := child.NewSession()
		// The machine may need long to start the child, which is not the subject of this test.
		_, _ = session.ensureChild(t.Context())
		last := Progress{}
		facts, err := session.Probe(t.Context(), func(p Progress) { last = p })
		if err != nil || facts.Init != tc.init || last.Initialised != tc.came || last.Total != 10 ||
			last.SlowCalls == "" {
			t.Errorf("%s: got %+v, %v after %+v", tc.helper, facts, err, last)
		}
		_ = session.Close(t.Context())
		noneLeft(t)
	}
}

// stuckDriver attaches four GPUs and then repeats the same progress for ever.
type stuckDriver struct{ deviceLibrary }

func (stuckDriver) inspectGPUs(tell func(message)) Facts {
	for came := 1; ; came = min(came+1, 4) {
		tell(message{Progress: &Progress{Initialised: came, Total: 10,
			SlowCalls: "nvmlDeviceGetHandleByIndex_v2 of GPU 4"}})
		time.Sleep(50 * time.Millisecond)
	}
}

// TestSessionKeepsItsChild verifies that a session starts one child for all requests, and another
// one if that has died.
func TestSessionKeepsItsChild(t *testing.T) {
	session := helperChild("counting driver").NewSession()
	defer func() { _ = session.Close(t.Context()) }()
	for _, want := range []string{"1", "2", "3"} {
		if facts, err := session.Probe(t.Context(), nil); err != nil || facts.Detail != want {
			t.Errorf("got %+v, %v, want %s", facts, err, want)
		}
	}
	session.running.Kill()
	<-session.running.Ended
	if facts, err := session.Probe(t.Context(), nil); err != nil || facts.Detail != "1" {
		t.Errorf("after a death: %+v, %v", facts, err)
	}
}

// TestCloseDoesNotAwaitAStart verifies that a session can be closed while a start of its child
// hangs, and that a child that is started by then is ended.
func TestCloseDoesNotAwaitAStart(t *testing.T) {
	session := helperChild("counting driver").NewSession()
	session.starting.Lock()
	_ = session.Close(t.Context())
	session.starting.Unlock()
	if _, err := session.ensureChild(t.Context()); !errors.Is(err, errSessionClosed) {
		t.Errorf("got %v", err)
	}
	noneLeft(t)
}

// countingDriver reports how often it was called.
type countingDriver struct {
	deviceLibrary
	asked int
}

func (c *countingDriver) inspectGPUs(func(message)) Facts {
	c.asked++
	return Facts{Version: FactsVersion, Init: Success, Detail: strconv.Itoa(c.asked)}
}

func TestChildThatCannotStart(t *testing.T) {
	empty := filepath.Join(t.TempDir(), "empty")
	if err := os.WriteFile(empty, nil, 0o755); err != nil {
		t.Fatal(err)
	}
	for _, program := range []string{"/nonexistent/bringupd", empty, t.TempDir()} {
		facts, err := Child{Program: program}.Probe(t.Context())
		if err != nil || facts.Init != ProbeDied || !strings.Contains(facts.Detail, program) {
			t.Errorf("%s: got %+v, %v", program, facts, err)
		}
	}
	noneLeft(t)
}

func TestProbeStartsNoProbe(t *testing.T) {
	t.Setenv(childEnvVariable, "1")
	facts, err := helperChild("answer").Probe(t.Context())
	if err != nil || facts.Init != ProbeDied {
		t.Errorf("got %+v, %v", facts, err)
	}
}

func TestChildCommandLine(t *testing.T) {
	child := Child{Program: "/opt/bringupd", Env: []string{"LD_BIND_NOW=1", "A=b"}}
	if got := child.childEnv(); slices.Contains(got, "LD_BIND_NOW=1") || !slices.Contains(got, "A=b") {
		t.Errorf("got %q", got)
	}
	for want, child := range map[string]Child{"/opt/bringupd": child, process.OwnBinary: {}} {
		path, args := child.commandLine()
		if path != want || len(args) != 2 || args[1] != "gpu-child" {
			t.Errorf("got %s %q, expected %s", path, args, want)
		}
	}
}

// tellDescriptors reports in its detail which files it has open, besides its streams, after the
// request.
func tellDescriptors() int {
	ChildMain(strings.NewReader(""), io.Discard)
	entries, _ := os.ReadDir("/proc/self/fd")
	var found []string
	for _, entry := range entries {
		target, _ := os.Readlink("/proc/self/fd/" + entry.Name())
		if strings.Contains(target, "inherited") {
			found = append(found, target)
		}
	}
	return printFacts(Facts{Version: FactsVersion, Init: Success, Detail: strings.Join(found, " ") + "."})
}

func TestChildHoldsNoFileOfOurs(t *testing.T) {
	file, err := os.Create(filepath.Join(t.TempDir(), "inherited"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	fd, err := unix.FcntlInt(file.Fd(), unix.F_DUPFD, 20) // without close-on-exec, as from a launcher
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	facts, err := helperChild("descriptors").Probe(t.Context())
	if err != nil || facts.Detail != "." {
		t.Errorf("got %+v, %v", facts, err)
	}
}

func until(t *testing.T, what string, condition func() bool) {
	t.Helper()
	for deadline := time.Now().Add(ceiling); !condition(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("no %s within %v", what, ceiling)
		}
	}
}

func TestLastLines(t *testing.T) {
	for _, test := range []struct{ name, text, want string }{
		{"none", "", ""},
		{"one", "abc", "abc"},
		{"the last three", "a\nb\n\nc\nd\n", "b; c; d"},
		{"nothing that a terminal obeys", "\x1b[31mred\x07\n", "red"},
		{"no text", "\xff\xfe\n", "\ufffd\ufffd"},
		{"a crash", "a\nb\nSIGSEGV: segmentation violation\nPC=0x1\n[signal]\n\nr1 0\nr2 0\n",
			"SIGSEGV: segmentation violation; PC=0x1; [signal]"},
		{"long", strings.Repeat("x", 100_000) + "\nend\n", strings.Repeat("x", maxKeptLineLength-1) + "…; end"},
	} {
		var l outputTail
		for line := range strings.SplitSeq(test.text, "\n") {
			l.addLine([]byte(line))
		}
		if got := l.textAfter(""); got != test.want {
			t.Errorf("%s: got %q, want %q", test.name, got, test.want)
		}
	}
}

// TestProbeEndsWithoutItsFork verifies that a fork that hangs, because its program's file system
// does, does not prevent the daemon's end. The lock that all forks take simulates the file system.
func TestProbeEndsWithoutItsFork(t *testing.T) {
	syscall.ForkLock.Lock()
	ctx, cancel := context.WithCancelCause(t.Context())
	over := errors.New("the job is over")
	ended := make(chan error, 1)
	go func() {
		_, err := Child{Program: process.OwnBinary, Env: helperEnv("hang")}.Probe(ctx)
		ended <- err
	}()
	time.AfterFunc(20*time.Millisecond, func() { cancel(over) })
	select {
	case err := <-ended:
		if !errors.Is(err, over) {
			t.Errorf("got %v, want %v", err, over)
		}
	case <-time.After(DefaultProbeTimeout / 2):
		t.Error("the probe waits for its fork, and its context has ended")
	}
	syscall.ForkLock.Unlock()
	noneLeft(t)
}
