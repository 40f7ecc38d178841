package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/bringupd/bringupd/internal/version"
	"github.com/bringupd/bringupd/pkg/check"
	"github.com/bringupd/bringupd/pkg/config"
	"github.com/bringupd/bringupd/pkg/gpu"
	"github.com/bringupd/bringupd/pkg/preflight"
)

// nothingElse disables all checks that depend on the machine that runs the test.
var nothingElse = []string{"check", "--gpu-check=off", "--check=host.*=off", "--check=net.*=off"}

func checkArgs(args ...string) []string { return append(append([]string{}, nothingElse...), args...) }

func TestCheckTells(t *testing.T) {
	for _, tc := range []struct {
		name   string
		args   []string
		code   int
		first  string   // line of the report, up to the time
		says   []string // elsewhere in it
		silent []string
	}{
		{"all is well", nil, 0, "PASS n7: 0 passed (", nil, []string{"scontrol"}},
		{"an active check passes", []string{"--active-check=echo fine"}, 0, "PASS n7: 1 passed (",
			nil, []string{"active.echo"}},
		{"verbose", []string{"--active-check=echo fine", "--verbose"}, 0, "PASS n7: 1 passed (",
			[]string{"  PASS     active.echo  fine\n"}, nil},
		{"it warns", []string{"--active-check=exit 1"}, 1,
			"WARN n7: none of 1 checks failed, 1 warning (", []string{"WARN     active.exit"}, []string{"scontrol"}},
		{"it fails", []string{"--active-check=echo 12 GB/s; exit 2", "--active-check=true"}, 2,
			"FAIL n7: 1 of 2 checks failed (",
			[]string{"FAIL     active.echo  12 GB/s\n", "  1 passed\n"}, []string{"\x1b", "scontrol"}},
		{"it can't tell", []string{"--active-check=exit 3"}, 3,
			"UNKNOWN n7: none of 1 checks failed, 1 unknown (", nil, []string{"scontrol"}},
		{"a failure is only told of", []string{"--active-check=exit 2", "--check=active.*=warn"}, 1,
			"WARN n7: ", []string{"by: active.*=warn"}, []string{"scontrol"}},
		{"it is off", []string{"--active-check=touch ran", "--check=active.touch=off"}, 0,
			"PASS n7: 0 passed (", nil, nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Chdir(t.TempDir())
			got := call(t, []string{"SLURMD_NODENAME=n7"}, checkArgs(tc.args...)...)
			if got.code != tc.code || !strings.HasPrefix(got.out, tc.first) {
				t.Errorf("code %d, want %d\n%s%s", got.code, tc.code, got.out, got.err)
			}
			for _, part := range tc.says {
				if !strings.Contains(got.out, part) {
					t.Errorf("%q is missing in\n%s", part, got.out)
				}
			}
			for _, part := range tc.silent {
				if strings.Contains(got.out, part) {
					t.Errorf("%q is in\n%s", part, got.out)
				}
			}
			untouched(t)
		})
	}
}

func TestCheckAsJSON(t *testing.T) {
	got := call(t, []string{"SLURMD_NODENAME=n7"}, checkArgs("--json", "--active-check=echo slow; exit 1")...)
	var report check.Report
	decoder := json.NewDecoder(strings.NewReader(got.out))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&report); err != nil {
		t.Fatalf("%v in:\n%s", err, got.out)
	}
	if got.code != 1 || report.Version != check.ReportVersion || report.Host != "n7" ||
		report.NodeIndex != -1 || report.Verdict != check.Warn ||
		len(report.Findings) != 1 || report.Findings[0].ID != "active.echo" || report.Findings[0].Observed != "slow" {
		t.Errorf("code %d, %+v", got.code, report)
	}
	if got = call(t, nil, checkArgs("--json")...); got.code != 0 ||
		!strings.Contains(got.out, `"findings": []`) || got.err != "" {
		t.Errorf("code %d: %s%s", got.code, got.out, got.err)
	}
}

// TestCheckRecords verifies that a recording contains everything that a person who was not there
// needs, and nothing else.
func TestCheckRecords(t *testing.T) {
	t.Chdir(t.TempDir())
	forget(t)
	// This runs in a separate process: the process that queries GPUs is released only by the end of
	// the program.
	command := program(t, "check", "--check=host.*=off", "--check=net.*=off",
		"--active-check=echo hunter2; exit 1", "--record=r.json")
	command.Env = append(command.Env, "SLURMD_NODENAME=n7", "CUDA_PROFILE=hunter2")
	var said strings.Builder
	command.Stderr = &said
	out, err := command.Output()
	if command.ProcessState == nil {
		t.Fatal(err)
	}
	data := content(t, "r.json")
	var recorded preflight.Recording
	decoder := json.NewDecoder(strings.NewReader(data))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&recorded); err != nil {
		t.Fatalf("%v in:\n%s%s", err, data, said.String())
	}
	if recorded.Facts == nil || recorded.Facts.Init == gpu.Success ||
		recorded.Expected.Count != -1 || recorded.Expected.Mode != check.ModeAuto ||
		recorded.Version != preflight.RecordingVersion || recorded.Bringupd != version.Program() ||
		recorded.Report.Host != "node" ||
		command.ProcessState.ExitCode() != check.NagiosExitCode(recorded.Report.Verdict) ||
		!strings.HasPrefix(string(out), "WARN n7: ") {
		t.Errorf("%v, %v:\n%s%s", command.ProcessState, err, data, out)
	}
	info, err := os.Stat("r.json")
	if err != nil || info.Mode().Perm() != 0o600 || strings.Contains(data, "hunter2") || strings.Contains(data, "n7") {
		t.Errorf("%v, %v:\n%s", info.Mode(), err, data)
	}
	if !strings.HasSuffix(said.String(), "is in r.json: read it before you send it\n") {
		t.Errorf("it says %s", said.String())
	}
	got := call(t, nil, checkArgs("--record=other.json")...)
	if data = content(t, "other.json"); got.code != 0 || strings.Contains(data, `"facts"`) ||
		strings.Contains(data, `"expected"`) {
		t.Errorf("without GPUs: code %d, %s%s", got.code, got.err, data)
	}
}

// TestCheckReadsTheFileOfAJob verifies that check accepts the configuration file of a job.
func TestCheckReadsTheFileOfAJob(t *testing.T) {
	config := file(t, "job.yaml", "framework: ray\nframework-port: 0\nlog-dir: x\nactive-check: "+
		"[exit 2, exit 1]\ncheck: [active.exit=warn]\ndriver: [a]\n")
	got := call(t, nil, checkArgs("--config="+config)...)
	// Flags take precedence over the list of the file.
	if got.code != 2 || !strings.Contains(got.out, "active.exit-2") {
		t.Errorf("code %d: %s%s", got.code, got.out, got.err)
	}
	got = call(t, nil, "check", "--gpu-check=off",
		"--config="+file(t, "job.yaml", "active-check: [exit 2, exit 1]\ncheck: ['host.*=off', "+
			"'net.*=off', 'active.exit=warn']\n"))
	if got.code != 1 || !strings.Contains(got.out, "2 warnings") {
		t.Errorf("code %d: %s%s", got.code, got.out, got.err)
	}
}

func TestCheckIsInterrupted(t *testing.T) {
	for name, tc := range map[string]struct {
		signal os.Signal
		code   int
		says   string
	}{
		"by Ctrl-C": {syscall.SIGINT, 130, "bringupd: ended by SIGINT\n"},
		"by TERM":   {syscall.SIGTERM, 143, "bringupd: ended by SIGTERM\n"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Chdir(t.TempDir())
			forget(t)
			dir := t.TempDir()
			files := config.Streams{In: open(t, os.DevNull),
				Out: open(t, filepath.Join(dir, "out")), Err: open(t, filepath.Join(dir, "err"))}
			signals, code := make(chan os.Signal), make(chan int)
			go func() {
				code <- runMain(append([]string{"bringupd"},
					checkArgs("--active-check=touch ran; exec sleep 1000")...), signals, files)
			}()
			for began := time.Now(); ; time.Sleep(time.Millisecond) {
				if _, err := os.Stat("ran"); err == nil {
					break
				}
				if time.Since(began) > time.Minute {
					t.Fatal("the check never ran")
				}
			}
			signals <- tc.signal
			got, said := <-code, content(t, files.Err.Name())
			if got != tc.code || !strings.HasSuffix(said, tc.says) || content(t, files.Out.Name()) != "" {
				t.Errorf("code %d: %s", got, said)
			}
		})
	}
}

func TestCheckProgress(t *testing.T) {
	dir := t.TempDir()
	streams := config.Streams{Err: open(t, filepath.Join(dir, "err"))}
	c := checkCmd{nodeCheckCmd: &nodeCheckCmd{invocation: &invocation{streams: streams}}}
	wait := func(ids ...string) (report check.Report) {
		for _, id := range ids {
			report.Findings = append(report.Findings,
				check.Finding{ID: id, Verdict: check.Wait, Observed: "in progress"})
		}
		report.Findings = append(report.Findings, check.Finding{ID: "x", Verdict: check.Warn})
		return report
	}
	progress := c.waitReporter(90 * time.Second)
	for _, report := range []check.Report{wait("a"), wait("a"), wait("a", "b", "c", "d", "e"), wait("a")} {
		progress(report)
	}
	const begin = "bringupd: waiting for up to 1m30s: "
	const want = begin + "a: in progress\n" + begin +
		"a: in progress; b: in progress; c: in progress; and 2 more\n" + begin + "a: in progress\n"
	if got := content(t, c.streams.Err.Name()); got != want {
		t.Errorf("it said\n%s", got)
	}
}

func TestCheckPlace(t *testing.T) {
	step := []string{
		"SLURM_JOB_ID=7", "SLURM_STEP_ID=0", "SLURM_NTASKS=2", "SLURM_NNODES=2", "SLURM_PROCID=1",
		"SLURM_STEP_NODELIST=n[1-2]",
		"SLURMD_NODENAME=n2", "SLURM_TASKS_PER_NODE=1(x2)", "SLURM_LOCALID=0", "SLURM_GPUS_ON_NODE=4",
	}
	for _, tc := range []struct {
		name string
		env  []string
		gpus int
		// source has given gpus.
		source config.Source
		want   preflight.NodeConfig
	}{
		{"in a prolog", []string{"SLURMD_NODENAME=n2", "SLURM_JOB_ID=7"}, -1, 0,
			preflight.NodeConfig{Host: "n2", NodeIndex: -1, GrantedGPUs: -1}},
		{"in a batch shell", []string{"SLURMD_NODENAME=n2", "SLURM_JOB_ID=7",
			"SLURM_GPUS_ON_NODE=8"}, -1, 0, preflight.NodeConfig{Host: "n2", NodeIndex: -1, GrantedGPUs: 8,
			GrantedBy: "SLURM_GPUS_ON_NODE"}},
		{"in a step", step, -1, 0, preflight.NodeConfig{Host: "n2", NodeIndex: 1, GrantedGPUs: 4,
			GrantedBy: "SLURM_GPUS_ON_NODE"}},
		{"told by a flag", step, 3, config.SourceFlag, preflight.NodeConfig{Host: "n2", NodeIndex: 1, GrantedGPUs: 3,
			GrantedBy: "--gpus-per-node"}},
		{"told by the variable", step, 3, config.SourceVariable, preflight.NodeConfig{Host: "n2",
			NodeIndex: 1, GrantedGPUs: 3, GrantedBy: "BRINGUPD_GPUS_PER_NODE"}},
		{"told by a file", step, 3, config.SourceFile, preflight.NodeConfig{Host: "n2",
			NodeIndex: 1, GrantedGPUs: 3, GrantedBy: "gpus-per-node in job.yaml:4"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			forget(t)
			for _, entry := range tc.env {
				name, value, _ := strings.Cut(entry, "=")
				t.Setenv(name, value)
			}
			opts := newOptions()
			opts.daemonSettings().FindSetting("gpus-per-node").OfferValues(tc.source, "job.yaml:4", "3")
			opts.gpus, opts.cfg.TempDir = tc.gpus, "/x"
			tc.want.TempDir = "/x"
			if got, err := opts.readinessConfig(); err != nil || !reflect.DeepEqual(got, tc.want) {
				t.Errorf("got %+v, %v", got, err)
			}
		})
	}
}
