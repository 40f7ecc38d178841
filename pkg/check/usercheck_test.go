package check

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/bringupd/bringupd/pkg/process"
)

// ceiling limits waits that end much sooner on any machine.
const ceiling = 60 * time.Second

// activeOf returns active checks with these commands and a Supervisor of the test's own.
func activeOf(t *testing.T, commands ...string) ActiveChecks {
	t.Helper()
	super, err := process.NewSupervisor(nil)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		ctx, cancel := context.WithTimeout(context.Background(), ceiling)
		defer cancel()
		if err := super.Close(ctx); err != nil {
			t.Error(err)
		}
	})
	return ActiveChecks{Config: Config{ActiveCommands: commands, ActiveTimeout: ceiling},
		Starter: super, Env: os.Environ(), Dir: t.TempDir()}
}

func TestActiveExits(t *testing.T) {
	for _, tc := range []struct {
		name, command string
		verdict       Verdict
		observed      string
		class         Class
		lines         string // joined
	}{
		{"well", "echo 400 GB/s", Pass, "400 GB/s", "", ""},
		{"the first line that says something", "echo; echo a; echo b", Pass, "a", "", ""},
		{"what standard error says is no summary", "echo noise >&2; echo a", Pass, "a", "", ""},
		{"a warning", "echo slow; echo more; exit 1", Warn, "slow", ClassEnvironment, "slow|more"},
		{"a failure", "echo 12 GB/s; exit 2", Fail, "12 GB/s", ClassEnvironment, ""},
		{"it can't tell", "echo no GPU; exit 3", Unknown, "no GPU", ClassEnvironment, ""},
		{"another code", "echo err; exit 226", Fail, "exit code 226: err", ClassEnvironment, "err"},
		{"not there", "/nowhere/at/all", Unknown, "exit code 127: the shell cannot execute it",
			ClassEnvironment, "/bin/sh: 1: /nowhere/at/all: not found"},
		{"not executable", "/etc/passwd", Unknown, "exit code 126: the shell cannot execute it",
			ClassEnvironment, "/bin/sh: 1: /etc/passwd: Permission denied"},
		{"control characters", `printf 'a\033[2Jb\n'`, Pass, "a\ufffd[2Jb", "", ""},
		{"the last lines", "seq 1 99; exit 2", Fail, "1", ClassEnvironment, "90|91|92|93|94|95|96|97|98|99"},
		{"the caller's environment and directory", `[ "$GIVEN" = yes ] && touch x && echo "$GIVEN"`,
			Pass, "yes", "", ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			a := activeOf(t, tc.command)
			a.Env = append(a.Env, "GIVEN=yes")
			got := a.Run(t.Context(), true)
			if len(got) != 1 {
				t.Fatalf("got %+v", got)
			}
			f := got[0]
			if f.Verdict != tc.verdict || f.Observed != tc.observed || f.Class != tc.class ||
				strings.Join(f.Lines, "|") != tc.lines {
				t.Errorf("got %+v", f)
			}
		})
	}
}

// TestActiveHangIsKilled verifies that all processes that a command leaves running are ended with
// it, wherever they hide.
func TestActiveHangIsKilled(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes seconds")
	}
	a := activeOf(t, "trap '' TERM; setsid sh -c 'echo $$ >pid; exec sleep 1000' & while :; do sleep 1; done")
	a.ActiveTimeout = 2 * time.Second
	got := a.Run(t.Context(), true)
	if len(got) != 1 || got[0].Verdict != Fail ||
		!strings.Contains(got[0].Observed, "timed out after ") || got[0].Hint == "" {
		t.Errorf("got %+v", got)
	}
	gone(t, a.Dir)
}

// gone waits for the end of the process whose PID is in the directory: a process whose start was
// abandoned is ended a moment later.
func gone(t *testing.T, dir string) {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(dir, "pid"))
	if err != nil {
		t.Fatal(err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(data)))
	if err != nil {
		t.Fatal(err)
	}
	for began := time.Now(); ; time.Sleep(time.Millisecond) {
		// If no process reaps orphans, a zombie is left.
		stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
		if err != nil || strings.Contains(string(stat), ") Z ") {
			return
		}
		if time.Since(began) > ceiling {
			t.Fatalf("process %d is still there: %s", pid, stat)
		}
	}
}

func TestActiveIsInterrupted(t *testing.T) {
	a := activeOf(t, "echo $$ >pid; touch ready; exec sleep 1000")
	ctx, cancel := context.WithCancelCause(t.Context())
	got := make(chan []Finding)
	go func() { got <- a.Run(ctx, true) }()
	for began := time.Now(); ; time.Sleep(time.Millisecond) {
		if _, err := os.Stat(filepath.Join(a.Dir, "ready")); err == nil {
			break
		}
		if time.Since(began) > ceiling {
			t.Fatal("the command never ran")
		}
	}
	cancel(errors.New("the job is over"))
	if f := <-got; len(f) != 1 || f[0].Verdict != Unknown ||
		f[0].Observed != "interrupted before it finished: the job is over" {
		t.Errorf("got %+v", f)
	}
	gone(t, a.Dir)
}

func TestActiveNotRun(t *testing.T) {
	a := activeOf(t, "touch one", "touch two")
	a.Policy = Policy{Rules: []Rule{{"active.touch-2", EffectOff}}}
	got := a.Run(t.Context(), false)
	if len(got) != 1 || got[0].ID != "active.touch" || got[0].Verdict != Skip ||
		!strings.HasPrefix(got[0].Observed, "not run: ") {
		t.Errorf("got %+v", got)
	}
	if names, _ := filepath.Glob(filepath.Join(a.Dir, "*")); len(names) > 0 {
		t.Errorf("there is %v", names)
	}
	got = a.Run(t.Context(), true)
	if names, _ := filepath.Glob(filepath.Join(a.Dir, "*")); len(got) != 1 ||
		got[0].Verdict != Pass || len(names) != 1 || filepath.Base(names[0]) != "one" {
		t.Errorf("got %+v, and there is %v", got, names)
	}
}

func TestActiveCannotStart(t *testing.T) {
	a := activeOf(t, "x", "y")
	if err := a.Starter.EndAll(t.Context()); err != nil {
		t.Fatal(err)
	}
	got := a.Run(t.Context(), true)
	if len(got) != 2 || got[0].Verdict != Unknown || !strings.HasPrefix(got[0].Observed, "cannot start active.x: ") ||
		got[1].ID != "active.y" {
		t.Errorf("got %+v", got)
	}
}

func TestActiveIDs(t *testing.T) {
	got := activeIDs([]string{
		"/opt/site/nccl-test.sh --min=400", "dcgmi diag -r 1", "dcgmi diag -r 2",
		"NCCL_DEBUG=info exec /opt/x/all_reduce_perf -b 8", "env A=b python3 x.py",
		"'/opt/my tools/x'", "./a=b", "(cd /; ls)", "$TOOL", "true;", "", "exec", "/", "..",
		"ümlaut", "dcgmi-2", strings.Repeat("x", 100),
	})
	want := []string{
		"active.nccl-test.sh", "active.dcgmi", "active.dcgmi-2", "active.all_reduce_perf", "active.python3",
		"active.my", "active.ab", "active.cd", "active.TOOL", "active.true", "active.command",
		"active.command-2", "active.command-3", "active.command-4",
		"active.mlaut", "active.dcgmi-2-2", "active." + strings.Repeat("x", 40),
	}
	if !slices.Equal(got, want) {
		t.Errorf("got  %q\nwant %q", got, want)
	}
	for _, id := range got {
		if _, err := ParseRule(id + "=off"); err != nil {
			t.Errorf("no rule can be given for %s: %v", id, err)
		}
	}
}

// runShipped runs a script of deploy/checks that calls the given program, in whose place another one
// prints a text and ends with a code. It returns the finding, and the arguments that the program got.
// The program does not exist if the code is negative.
func runShipped(t *testing.T, script, program, text string, code int, env ...string) (f Finding, asked string) {
	t.Helper()
	t.Parallel()
	path, err := filepath.Abs("../../deploy/checks")
	if err != nil {
		t.Fatal(err)
	}
	a := activeOf(t, path+"/"+script)
	a.Env = append(env, "PATH="+a.Dir+":/usr/bin:/bin")
	if code >= 0 {
		text = fmt.Sprintf("#!/bin/sh\necho \"$*\" >asked\n"+
			"[ \"${NCCL_RAS_ENABLE-0}\" = 0 ] || exit 99\ncat <<'END'\n%sEND\nexit %d\n", text, code)
		if err := os.WriteFile(filepath.Join(a.Dir, program), []byte(text), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	found := a.Run(t.Context(), true)
	if len(found) != 1 {
		t.Fatalf("found %+v", found)
	}
	arguments, _ := os.ReadFile(filepath.Join(a.Dir, "asked"))
	return found[0], strings.TrimSpace(string(arguments))
}

// diagnosed returns the output of dcgmi diag for tests with these results.
func diagnosed(results ...string) string {
	text := "Successfully ran diagnostic for group.\n" +
		"| Diagnostic                | Result                                         |\n" +
		"| DCGM Version              | 4.2.3                                          |\n" +
		"|-----  Deployment  --------+------------------------------------------------|\n"
	for _, one := range results {
		name, result, _ := strings.Cut(one, "=")
		text += fmt.Sprintf("| %-25s | %-46s |\n|                           | GPU0: %-40s |\n",
			name, result, result)
	}
	return text
}

// TestDCGM verifies that the shipped script converts dcgmi's exit codes to those of an active
// check.
func TestDCGM(t *testing.T) {
	for _, tc := range []struct {
		name, args string
		said       string // by dcgmi
		code       int    // of dcgmi
		asked      string // arguments of dcgmi
		verdict    Verdict
		observed   string
	}{
		{"all pass", "", diagnosed("NVML Library=Pass", "software=Pass - All", "PCIe=Skip"), 0,
			"diag -r 1", Pass, "passed: NVML Library, software"},
		{"one fails", "", diagnosed("NVML Library=Pass", "Inforom=Fail - GPU: 3", "memory=Fail"), 226,
			"diag -r 1", Fail, "failed: Inforom, memory"},
		{"a GPU is to be isolated", "", "Error: row remapping failed\n", 205,
			"diag -r 1", Fail, "failed: dcgmi requests that the GPU be isolated"},
		{"one warns", "", diagnosed("Persistence Mode=Warn", "memory=Pass"), 0,
			"diag -r 1", Warn, "warned: Persistence Mode"},
		{"all are skipped", "", diagnosed("memory=Skip"), 0,
			"diag -r 1", Unknown, "unknown: no test has passed"},
		{"no host engine", "", "Error: unable to establish a connection\n", 235,
			"diag -r 1", Unknown, "cannot test the GPUs: dcgmi has ended with exit code 235"},
		{"dcgmi does not exist", "", "", -1,
			"", Unknown, "cannot find dcgmi in PATH: install DCGM (datacenter-gpu-manager)"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			f, asked := runShipped(t, "dcgm.sh"+tc.args, "dcgmi", tc.said, tc.code)
			if f.ID != "active.dcgm.sh" || f.Verdict != tc.verdict || f.Observed != tc.observed || asked != tc.asked {
				t.Errorf("found %+v; dcgmi was asked for %q", f, asked)
			}
		})
	}
}

// TestNCCL verifies that the shipped script converts the results of all_reduce_perf to the exit codes
// of an active check.
func TestNCCL(t *testing.T) {
	measured := func(wrong, bandwidth string) string {
		return "# nThread 1 nGpus 8 minBytes 1073741824 maxBytes 1073741824\n" +
			"  1073741824     268435456     float     sum      -1   4027.3  266.61  466.57      " +
			"0   4029.1  266.50  466.37      0\n" +
			"# Out of bounds values : " + wrong + "\n# Avg bus bandwidth    : " + bandwidth + " \n#\n"
	}
	for _, tc := range []struct {
		name, args, gpus string
		said             string // by all_reduce_perf
		code             int    // of all_reduce_perf; -1: it does not exist
		asked            string // arguments of all_reduce_perf
		verdict          Verdict
		observed         string
	}{
		{"enough", " 300", "0,1,2,3", measured("0 OK", "448.212"), 0, "-b 1G -e 1G -g 4", Pass, "448.212 GB/s"},
		{"too slow", " 300", "0,1", measured("0 OK", "47.4509"), 0, "-b 1G -e 1G -g 2", Fail,
			"failed: 47.4509 GB/s, and not 300"},
		{"wrong results", " 300", "0,1", measured("12 FAILED", "448.2"), 1, "-b 1G -e 1G -g 2",
			Fail, "failed: 12 wrong results"},
		{"NCCL fails", "", "0,1", "n3: Test NCCL failure common.cu:958 'unhandled system error'\n",
			3, "-b 1G -e 1G -g 2", Fail,
			"failed: n3: Test NCCL failure common.cu:958 'unhandled system error'"},
		{"one GPU", " 300", "3", "", 0, "", Pass, "there is only one GPU: no all-reduce"},
		{"it does not exist", "", "0,1", "", -1, "", Unknown,
			"cannot find all_reduce_perf: build nccl-tests or rccl-tests, and add it to PATH or set ALL_REDUCE_PERF"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			f, asked := runShipped(t, "nccl.sh"+tc.args, "all_reduce_perf", tc.said, tc.code,
				"CUDA_VISIBLE_DEVICES="+tc.gpus)
			if f.ID != "active.nccl.sh" || f.Verdict != tc.verdict || f.Observed != tc.observed || asked != tc.asked {
				t.Errorf("found %+v; all_reduce_perf was asked for %q", f, asked)
			}
		})
	}
}
