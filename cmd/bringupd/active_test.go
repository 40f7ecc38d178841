package main

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/bringupd/bringupd/pkg/check"
	fakecuda "github.com/bringupd/bringupd/test/cuda"
	fakenvml "github.com/bringupd/bringupd/test/nvml"
)

// gpus is a node's driver without one: it returns the library to name, and how to have it answer something in a folder of
// its own.
func gpus(t *testing.T) (library string, saying func(lines ...string) (env string)) {
	t.Helper()
	dir := t.TempDir()
	if _, err := fakecuda.Build(dir); err != nil {
		t.Fatal(err)
	}
	fake, err := fakenvml.Build(dir)
	if err != nil {
		t.Fatal(err)
	}
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	host, _, _ = strings.Cut(host, ".")
	return fake.Library, func(lines ...string) string {
		f := fake.In(t.TempDir())
		if err := f.Answer(host, lines...); err != nil {
			t.Fatal(err)
		}
		return f.Env()
	}
}

// What was measured is in the report, and judged; nobody measures unless he is told to.
func TestCheckPutsToWork(t *testing.T) {
	library, saying := gpus(t)
	env := saying("gpus 3", "gpu 1 slow 2", "gpu 2 wrong 1")
	forget(t)
	check := func(args ...string) (code int, report check.Report, says string) {
		for _, id := range []string{"gpu.*", "cuda.*", "host.*", "net.*"} {
			args = append(args, "--check="+id+"=off")
		}
		// A process of its own: another one keeps the GPUs attached for it until it ends.
		command := program(t, append([]string{"check", "--json", "--nvml=" + library}, args...)...)
		command.Env = append(command.Env, env)
		var said strings.Builder
		command.Stderr = &said
		out, _ := command.Output()
		if err := json.Unmarshal(out, &report); err != nil {
			t.Fatalf("%v in %s%s", err, out, said.String())
		}
		return command.ProcessState.ExitCode(), report, said.String()
	}
	code, report, says := check("--active=short")
	said := sentence(report)
	for _, part := range []string{"active.gpu_math: GPU 2", "it computes wrong", "active.gpu_copy: GPU 1", "12.5 GB/s to it: 50 % of 25, the median of 3 like it"} {
		if !strings.Contains(said, part) {
			t.Errorf("%q is missing in %s", part, said)
		}
	}
	// Of each GPU two copies, one to each of two peers, and the product; but for those to GPU 1, which is slow with both.
	if code != 2 || len(report.Figures) != 3*(2+2+1)-2 || !strings.Contains(says, "its GPUs are put to work, for up to 1m") {
		t.Errorf("code %d, %+v: %s", code, report.Figures, says)
	}
	if code, report, _ = check(); code != 0 || report.Figures != nil || len(report.Findings) > 0 {
		t.Errorf("code %d: %+v", code, report)
	}
}

// sentence tells all that is wrong.
func sentence(report check.Report) (said string) {
	for _, f := range check.Of(report.Findings, check.Warn, check.Fail) {
		said += check.Sentence([]check.Finding{f}) + "\n"
	}
	return said
}

// Nodes with one GPU each have something to compare it with together only.
func TestDoctorPutsToWork(t *testing.T) {
	library, saying := gpus(t)
	t.Chdir(t.TempDir())
	forget(t)
	const size = 3
	var outs, errs [size]strings.Builder
	var ranks [size]*exec.Cmd
	for rank := range size {
		args := []string{
			"doctor", "--active=short", "--nvml=" + library, "--rank=" + strconv.Itoa(rank), "--nnodes=3", "--job-id=x", "--log-dir=" + filepath.Base(t.Name()),
		}
		for _, id := range []string{"gpu.*", "cuda.*", "host.*", "net.*", "node.*", "left.*", "ports.given", "share.*"} {
			args = append(args, "--check="+id+"=off")
		}
		ranks[rank] = program(t, args...)
		ranks[rank].Env = append(ranks[rank].Env, saying("gpus 1", "gpu 0 slow "+strconv.Itoa(1+3*(rank/2))))
		ranks[rank].Stdout, ranks[rank].Stderr = &outs[rank], &errs[rank]
		if err := ranks[rank].Start(); err != nil {
			t.Fatal(err)
		}
	}
	for rank := range size {
		_ = ranks[rank].Wait()
		if code := ranks[rank].ProcessState.ExitCode(); code != 1 {
			t.Errorf("rank %d: code %d: %s%s", rank, code, &outs[rank], &errs[rank])
		}
	}
	for _, part := range []string{
		"WARN     active.gpu_copy", "(rank 2): GPU 0 (0000:1b:00.0): 6.25 GB/s to it: 25 % of 25, the median of 3 like it", "WARN     active.gpu_math",
	} {
		if out := outs[0].String(); !strings.Contains(out, part) {
			t.Errorf("%q is missing in %s%s", part, out, &errs[0])
		}
	}
}
