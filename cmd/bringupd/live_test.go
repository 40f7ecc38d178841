package main

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bringupd/bringupd/pkg/config"
	"github.com/bringupd/bringupd/pkg/signal"
	"github.com/bringupd/bringupd/pkg/signal/record"
)

// TestShellCommand verifies that the status of an active run has the launcher's command for a shell,
// in which the host and the job of a record are quoted and contain no terminal control sequences.
func TestShellCommand(t *testing.T) {
	for by, want := range map[string]string{
		"slurm": `srun --overlap --mem=0 --jobid=$'$(touch x)\x1b[2J' --nodelist=node0000 --nodes=1 --ntasks=1`,
		"hosts": "ssh -- node0000", "local": "",
	} {
		dir := runDir(t, 2, -1)
		put(t, dir, signal.ControlDir, signal.NameJob, &record.Job{
			Header: record.Header{Version: record.FormatVersion, Nonce: "n0",
				WrittenAt: time.Now()}, Run: "4711.0", Size: 2,
			Launch: record.Launch{Launcher: by, LaunchID: "$(touch x)\x1b[2J"},
		})
		got := call(t, nil, "status", dir)
		if strings.Contains(got.out, "  shell: ") != (want != "") || !strings.Contains(got.out, want) {
			t.Errorf("%s: it prints %+v", by, got)
		}
	}
}

// terminal returns both ends of a new terminal: text written to the slave can be read from the
// master.
func terminal(t *testing.T) (master, slave *os.File) {
	t.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = master.Close() })
	if err := unix.IoctlSetPointerInt(int(master.Fd()), unix.TIOCSPTLCK, 0); err != nil {
		t.Fatal(err)
	}
	number, err := unix.IoctlGetInt(int(master.Fd()), unix.TIOCGPTN)
	if err != nil {
		t.Fatal(err)
	}
	slave, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|unix.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	return master, slave
}

// TestLogsRaw shows a log with cursor movements on a terminal: escaped by default, and unchanged
// with the option.
func TestLogsRaw(t *testing.T) {
	dir := endedRun(t, "4711.0")
	writeFile(t, filepath.Join(dir, signal.LogsDir, "driver.log"), "\x1b[2Jgone\a\n")
	for _, tc := range []struct {
		flags []string
		raw   bool
	}{{nil, false}, {[]string{"--raw"}, true}} {
		t.Run(fmt.Sprint(tc.flags), func(t *testing.T) {
			forget(t)
			master, slave := terminal(t)
			args := append([]string{"bringupd", "logs", "driver", dir}, tc.flags...)
			code := runMain(args, make(chan os.Signal), config.Streams{In: os.Stdin, Out: slave, Err: os.Stderr})
			if err := slave.Close(); err != nil {
				t.Fatal(err)
			}
			shown, _ := io.ReadAll(master) // ends with an error, because the other end is closed
			if code != 0 || !strings.Contains(string(shown), "gone") ||
				strings.Contains(string(shown), "\x1b[2J") != tc.raw ||
				strings.Contains(string(shown), "\a") != tc.raw {
				t.Errorf("with %v it ended with %d, and shows %q", tc.flags, code, shown)
			}
		})
	}
}

// TestLogsOfSilentDriver verifies that the log of a driver that printed nothing, and therefore has
// no file, is shown as empty, and that the log of a program that the run does not have is an error.
func TestLogsOfSilentDriver(t *testing.T) {
	for _, tc := range []struct {
		name, word string
		plan       *record.Plan
		code       int
		says       string
	}{
		{"a driver", "driver", &record.Plan{Driver: "train.py"}, 0, "the driver of run 17.0 printed nothing"},
		{"ranks", "ranks", &record.Plan{Driver: "train.py", HasRanks: true}, 0,
			"the ranks of run 17.0 printed nothing"},
		{"no driver", "driver", &record.Plan{}, 1, "cannot print the log of driver"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			place := signal.Location{LogDir: t.TempDir(), Run: "17.0", Key: "k", Size: 1, Host: "n0"}
			dir, err := signal.CreateRun(t.Context(), place, record.Job{Plan: tc.plan})
			if err != nil {
				t.Fatal(err)
			}
			got := call(t, nil, "logs", tc.word, dir.Path())
			if got.code != tc.code || got.out != "" || !strings.Contains(got.err, tc.says) {
				t.Errorf("it ended with %d, printed %q and said %q; want %d and %q", got.code,
					got.out, got.err, tc.code, tc.says)
			}
		})
	}
}

// TestLogsOfRanks verifies that the logs of a world's ranks are distinguished from those of nodes
// with the same numbers.
func TestLogsOfRanks(t *testing.T) {
	dir := endedRun(t, "4711.0")
	// A world has no driver log.
	if err := os.Remove(filepath.Join(dir, signal.LogsDir, "driver.log")); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"rank-0000.log", "rank-0001.log", "worker-0001.log", "daemon-0000.log"} {
		writeFile(t, filepath.Join(dir, signal.LogsDir, name), name+"\n")
	}
	for _, tc := range []struct {
		args string
		want []string
		code int
	}{
		{"", []string{"rank-0000.log", "rank-0001.log"}, 0},
		{"ranks", []string{"rank-0000.log", "rank-0001.log"}, 0},
		{"rank-1", []string{"rank-0001.log"}, 0},
		{"rank-x", nil, 64},
		{"1", []string{"worker-0001.log"}, 0},
		{"head", []string{"daemon-0000.log"}, 0},
	} {
		t.Run(tc.args, func(t *testing.T) {
			got := call(t, nil, slices.Concat([]string{"logs"}, strings.Fields(tc.args), []string{dir})...)
			var shown []string
			for line := range strings.Lines(got.out) {
				if line = strings.TrimSpace(line); strings.HasSuffix(line, ".log") {
					shown = append(shown, line)
				}
			}
			if !slices.Equal(shown, tc.want) || got.code != tc.code {
				t.Errorf("code %d, shown %q; want %d, %q\n%s", got.code, shown, tc.code, tc.want, got.err)
			}
		})
	}
}

// TestWatchList verifies that a terminal shows the list until a signal, which gives the exit code.
func TestWatchList(t *testing.T) {
	dir := filepath.Dir(endedRun(t, "4711.0"))
	forget(t)
	master, slave := terminal(t)
	signals := make(chan os.Signal, 1)
	ended := make(chan int)
	go func() {
		ended <- runMain([]string{"bringupd", "list", "-w", dir}, signals,
			config.Streams{In: os.Stdin, Out: slave, Err: os.Stderr})
	}()
	shown, piece := "", make([]byte, 4096)
	for !strings.Contains(shown, "4711.0") || !strings.Contains(shown, "\x1b[J") {
		n, err := master.Read(piece)
		if err != nil {
			t.Fatal(err)
		}
		shown += string(piece[:n])
	}
	signals <- os.Interrupt
	if code := <-ended; code != 130 || !strings.HasPrefix(shown, "RUN ") {
		t.Errorf("code %d after %q", code, shown)
	}
	if err := slave.Close(); err != nil {
		t.Fatal(err)
	}
}

// TestLogsPart prints the last lines of a log, and one that has changed since a time.
func TestLogsPart(t *testing.T) {
	dir := endedRun(t, "4711.0")
	log := filepath.Join(dir, signal.LogsDir, "driver.log")
	writeFile(t, log, "a\nb\nc\n")
	before := time.Now().Add(-time.Hour)
	if err := os.Chtimes(log, before, before); err != nil {
		t.Fatal(err)
	}
	for args, want := range map[string]string{
		"--tail=2": "b\nc\n", "-n 0": "", "-f -n 1": "c\n", "--since=2h": "a\nb\nc\n", "--since=59m": "",
	} {
		words := append([]string{"logs"}, strings.Fields(args)...)
		if got := call(t, nil, append(words, dir)...); got.code != 0 || got.out != want {
			t.Errorf("%s: %+v, want %q", args, got, want)
		}
	}
	refused(t, call(t, nil, "logs", "--tail=-1", dir), 64, "cannot use --tail=-1: give a whole number")
	refused(t, call(t, nil, "logs", "--since=yesterday", dir), 64, "cannot use --since=yesterday: give a duration")
}
