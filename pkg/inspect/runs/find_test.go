package runs

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/bringupd/bringupd/pkg/signal"
	"github.com/bringupd/bringupd/pkg/signal/record"
)

var noon = time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)

// logs creates a log directory with these runs, the oldest first.
func logs(t *testing.T, runs ...string) string {
	t.Helper()
	dir := t.TempDir()
	for i, name := range runs {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Join(path, signal.ControlDir), 0o700); err != nil {
			t.Fatal(err)
		}
		at := noon.Add(time.Duration(i) * time.Minute)
		if err := os.Chtimes(path, at, at); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func link(t *testing.T, to, path string) {
	t.Helper()
	if err := os.Symlink(to, path); err != nil {
		t.Fatal(err)
	}
}

func TestFind(t *testing.T) {
	dir := logs(t, "1.0", "2.0", "3.0")
	linked := logs(t, "1.0", "2.0", "3.0")
	link(t, "2.0", filepath.Join(linked, signal.LatestLink))
	astray := logs(t, "1.0", "2.0")
	elsewhere, err := filepath.Rel(astray, filepath.Join(dir, "1.0"))
	if err != nil {
		t.Fatal(err)
	}
	link(t, elsewhere, filepath.Join(astray, signal.LatestLink))
	through := logs(t, "1.0", "2.0")
	link(t, "1.0/../"+elsewhere, filepath.Join(through, signal.LatestLink))
	hidden := logs(t, ".9.0", "1.0", "2.0")
	link(t, ".9.0", filepath.Join(hidden, signal.LatestLink))
	dangling := logs(t, "1.0", "2.0")
	link(t, "9.0", filepath.Join(dangling, signal.LatestLink))
	if err := os.Mkdir(filepath.Join(dir, "bad-nodes"), 0o700); err != nil { // the newest entry, which is not a run
		t.Fatal(err)
	}
	for _, test := range []struct{ name, arg, logDir, want string }{
		{"nothing: the newest of the default", "", dir, dir + "/3.0"},
		{"a run directory", dir + "/1.0", "/nowhere", dir + "/1.0"},
		{"a log directory", dir, "/nowhere", dir + "/3.0"},
		{"a log directory with a link", linked, "/nowhere", linked + "/2.0"},
		{"the link itself", linked + "/latest", "/nowhere", linked + "/2.0"},
		{"a link that leads astray, to a run", astray, "/nowhere", astray + "/2.0"},
		{"a link that leads there through a run", through, "/nowhere", through + "/2.0"},
		{"a link to a run that is not whole yet", hidden, "/nowhere", hidden + "/2.0"},
		{"a link to nothing", dangling + "/latest", "/nowhere", dangling + "/2.0"},
		{"the name of a run", "2.0", dir, dir + "/2.0"},
	} {
		t.Run(test.name, func(t *testing.T) {
			if got, err := Find(t.Context(), test.arg, test.logDir); got != test.want {
				t.Errorf("it is %q, want %q: %v", got, test.want, err)
			}
		})
	}
}

// TestFindJob verifies that the launcher's name of a job is its newest run.
func TestFindJob(t *testing.T) {
	dir := logs(t, strings.Fields(
		"53.10 53.9 16 19.eval 18.train 54.0 54.0-r1 54.1 60.0 60.1 17-4 17-4-a1 17-5 530.0 55.0 55.0-doctor "+
			"train train-a2 fA-fB fA-fC fD fL7wjnw")...)
	if err := os.Mkdir(filepath.Join(dir, "53.11"), 0o700); err != nil { // not a run
		t.Fatal(err)
	}
	describe(t, dir, "60.0", record.Launch{LaunchID: "60", LaunchAliases: []string{"61"}})
	describe(t, dir, "53.9", record.Launch{LaunchID: "53", LaunchAliases: []string{"50_1"}})
	describe(t, dir, "54.1", record.Launch{LaunchID: "54", LaunchAliases: []string{"50_2"}})
	// the last element of array 70, which has its number
	describe(t, dir, "70.0", record.Launch{LaunchID: "70", LaunchAliases: []string{"70_2"}})
	describe(t, dir, "71.0", record.Launch{LaunchID: "71", LaunchAliases: []string{"70_1"}})
	describe(t, dir, "53.10", record.Launch{LaunchID: "53"})
	describe(t, dir, "18.train", record.Launch{LaunchID: "18", LaunchAliases: []string{"18.pbs01.example"}})
	t.Chdir(t.TempDir())
	if err := os.Mkdir("53", 0o700); err != nil { // not a log directory
		t.Fatal(err)
	}
	for arg, want := range map[string]string{
		"53": "53.10", "54": "54.0-r1", "54.0": "54.0", "54.1": "54.1", "55": "55.0", "17[4].server": "17-4-a1",
		"16.pbs01": "16", "19.pbs01": "19.eval", "18.pbs01.e*": "18.train", "18.pbs01": "18.train",
		"17": "17-5", "17[].server": "17-5", "53.batch": "53.10", "54;cluster": "54.0-r1", "50_[3-9]": "54.0-r1",
		"ƒA": "fA-fC", "fB": "fA-fB", "ƒL7wjnw": "fL7wjnw", "12549357568": "fL7wjnw",
		"17-4": "17-4", "train": "train", "50_1": "53.10", "50_1.9": "53.9", "50_2": "54.0-r1", "50": "54.0-r1",
		"70_1": "71.0", "70_2": "70.0", "70": "71.0",
		"60+1": "60.1", "60+1.0": "60.0", "61": "60.1", dir + "/53": "53.10", dir + "/50_1": "53.10",
	} {
		if got, err := Find(t.Context(), arg, dir); got != filepath.Join(dir, want) {
			t.Errorf("%s is %q, want %s: %v", arg, got, want, err)
		}
	}
	for _, arg := range []string{"5", "50_3", "50_1.8", "3", "60+1.7", "0", "rain",
		"53.11", "53.9-a1", "18.eval", "18.pbs02", "1.pbs01", "53.eval", "train.x"} {
		if got, err := Find(t.Context(), arg, dir); err == nil {
			t.Errorf("%s is %s", arg, got)
		}
	}
}

// describe writes the job record of a run.
func describe(t *testing.T, dir, run string, launch record.Launch) {
	t.Helper()
	publish(t, filepath.Join(dir, run), signal.ControlDir, signal.NameJob, &record.Job{Run: run, Launch: launch}, noon)
}

// TestNoRun verifies what is said if there is no such run.
func TestNoRun(t *testing.T) {
	dir, empty := logs(t, "1.0", "2.0", "3.0", "4.0", "5.0", "6.0"), t.TempDir()
	here := t.TempDir()
	t.Chdir(here)
	if err := os.Mkdir("empty", 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile("7.0", nil, 0o600); err != nil { // as Slurm's own output may be named
		t.Fatal(err)
	}
	const (
		newest  = "the newest runs there are 6.0, 5.0, 4.0, 3.0, 2.0"
		noRun   = "it contains no run"
		missing = "it does not exist"
	)
	for _, tc := range []struct{ name, arg, logDir, wanted, in, found string }{
		{"a run", "7.0", dir, "run 7.0", dir, newest},
		{"a job", "7", dir, "run 7", dir, newest},
		{"a run by its directory", dir + "/7.0", "/nowhere", "run 7.0", dir, newest},
		{"an empty log directory", empty, "/nowhere", "a run", empty, noRun},
		{"an empty directory by name", "empty", dir, "a run", here + "/empty", noRun},
		{"an empty default", "", empty, "a run", empty, noRun},
		{"an empty default, by name", "7.0", empty, "run 7.0", empty, noRun},
		{"no log directory", "", "/nowhere", "a run", "/nowhere", missing},
		{"no log directory, by name", "7.0", "/nowhere", "run 7.0", "/nowhere", missing},
		{"no log directory, by the run's directory", "/nowhere/7.0", dir, "run 7.0", "/nowhere", missing},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got, err := Find(t.Context(), tc.arg, tc.logDir)
			want := fmt.Sprintf("cannot find %s in %s: %s: give ", tc.wanted, tc.in, tc.found)
			if none, is := errors.AsType[*NoRunError](err); !is || !strings.HasPrefix(none.Error(), want) {
				t.Errorf("it is %q: %v, want %s", got, err, want)
			}
		})
	}
}
