package local

import (
	"bytes"
	"context"
	"debug/elf"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/bringupd/bringupd/test/jobtest"
)

// compiled limits the duration of commands that may have to compile the program and its
// dependencies.
const compiled = 6 * time.Minute

// begun returns a command that runs in the repository's root with additional environment variables.
// It is ended if it takes too long.
func begun(t *testing.T, env []string, argv ...string) *exec.Cmd {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), compiled)
	t.Cleanup(cancel)
	cmd := exec.CommandContext(ctx, argv[0], argv[1:]...)
	cmd.Dir, cmd.WaitDelay = filepath.Join("..", ".."), time.Second
	cmd.Env = append(os.Environ(), env...)
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	return cmd
}

// TestFirstCommand runs the first command of the README, unchanged.
func TestFirstCommand(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(text), "\n**This machine**")
	_, line, _ := strings.Cut(section, "\n    ")
	line, _, _ = strings.Cut(line, "\n")
	if !strings.HasPrefix(line, "CGO_ENABLED=0 go run ./cmd/bringupd local ") {
		t.Fatalf("the first command is %q", line)
	}
	var errs bytes.Buffer
	cmd := begun(t, []string{"BRINGUPD_LOG_DIR=" + t.TempDir()}, "sh", "-c", line)
	cmd.Stderr = &errs
	out, err := cmd.Output()
	for _, want := range []string{"hello from the driver on ", ", node 0 of 4\n", " 3.joined\n",
		" 3.sandbox\n"} {
		if err != nil || !strings.Contains(strings.ReplaceAll(string(out), " 000", " "), want) {
			t.Fatalf("%s: %v, and no %q in\n%s%s", line, err, want, out, &errs)
		}
	}
}

// TestExecAsShown runs the commands that docs/exec.md shows for a running job, and compares the
// output.
func TestExecAsShown(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile("../../docs/exec.md")
	if err != nil {
		t.Fatal(err)
	}
	_, block, _ := strings.Cut(string(text), "\n    $ ")
	block, _, _ = strings.Cut(block, "\n\n")
	dir := t.TempDir()
	command := func(line string) *exec.Cmd {
		cmd := begun(t, []string{"PATH=" + filepath.Dir(jobtest.Bringupd) + ":" + os.Getenv("PATH")}, "sh", "-c", line)
		cmd.Dir = dir
		return cmd
	}
	shown := strings.Split(block, "\n    $ ")
	line, background := strings.CutSuffix(shown[0], " &")
	if !background || len(shown) < 3 {
		t.Fatalf("docs/exec.md shows %q", shown)
	}
	job := command("exec " + line)
	if err := job.Start(); err != nil {
		t.Fatal(err)
	}
	for up := time.Now().Add(compiled); command("bringupd status logs").Run() != nil; {
		if time.Now().After(up) {
			t.Fatal("the job is not up")
		}
	}
	for _, one := range shown[1:] {
		line, want, _ := strings.Cut(one, "\n")
		out, err := command("exec 2>&1\n" + line).Output()
		lines := func(text string) []string {
			return slices.Sorted(strings.SplitSeq(strings.TrimSuffix(text, "\n"), "\n"))
		}
		said := strings.ReplaceAll(string(out), dir, "/home/me")
		if got, want := lines(said), lines(strings.ReplaceAll(want, "    ", "")); err != nil ||
			!slices.Equal(got, want) {
			t.Errorf("%s: %v, and it said\n%q, not\n%q", line, err, got, want)
		}
	}
	if err := job.Wait(); err != nil {
		t.Errorf("the job: %v", err)
	}
}

// TestStatic checks the build for nodes with another C library.
func TestStatic(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	if out, err := begun(t, nil, "make", "static", "BIN="+dir).CombinedOutput(); err != nil {
		t.Fatalf("make static: %v\n%s", err, out)
	}
	program := filepath.Join(dir, "bringupd")
	file, err := elf.Open(program)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = file.Close() }()
	if libraries, err := file.ImportedLibraries(); len(libraries) > 0 ||
		slices.ContainsFunc(file.Progs, func(p *elf.Prog) bool { return p.Type == elf.PT_INTERP }) {
		t.Errorf("it needs a loader, and %v: %v", libraries, err)
	}
	out, err := begun(t, nil, program, "local", "--nodes=2",
		"--log-dir="+filepath.Join(dir, "logs"), "--", "echo", "driven").Output()
	if err != nil || string(out) != "driven\n" {
		t.Errorf("a job: %v\n%s", err, out)
	}
}
