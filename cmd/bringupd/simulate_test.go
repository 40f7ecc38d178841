package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/bringupd/bringupd/pkg/simulate"
)

func TestSimulateRefuses(t *testing.T) {
	for _, tc := range []struct {
		name string
		args []string
		code int
		says []string
	}{
		{"no nodes", []string{"--dir=."}, 64, []string{"cannot simulate without nodes: give their number, for example --nodes=1024"}},
		{"no directory", []string{"--nodes=4"}, 64, []string{"cannot simulate without a directory: give one on the shared file system", "for example --dir="}},
		{"no number", []string{"--nodes=4,many", "--dir=."}, 64, []string{"cannot use --nodes=4,many: give whole numbers from 1 to 16384"}},
		{"too many nodes", []string{"--nodes=16385", "--dir=."}, 64, []string{"cannot use --nodes=16385: give whole numbers from 1 to 16384"}},
		{"no nodes between commas", []string{"--nodes=4,,5", "--dir=."}, 64, []string{"cannot use --nodes=4,,5"}},
		{"a time without a unit", []string{"--nodes=4", "--dir=.", "--op-latency=1"}, 64, []string{"cannot use --op-latency=1: the unit is missing"}},
		{"a time that is over", []string{"--nodes=4", "--dir=.", "--op-latency=-1ms"}, 64, []string{"cannot use --op-latency=-1ms: give a time of 0s to 1s"}},
		{"a peer timeout that no job may have", []string{"--nodes=4", "--dir=.", "--peer-timeout=1ms"}, 64, []string{"cannot use --peer-timeout=1ms: give at least 1s"}},
		{"a death of nobody's", []string{"--nodes=4", "--dir=.", "--death=heads"}, 64, []string{"cannot use --death=heads: give one of worker, head"}},
		{"a death that nobody notices", []string{"--nodes=1", "--dir=.", "--death=head"}, 64, []string{"cannot simulate a death with one node"}},
		{"a directory that does not exist", []string{"--nodes=4", "--dir=nowhere"}, 64, []string{"cannot use --dir=", "nowhere: no such file or directory: give an existing directory"}},
		{"a device", []string{"--nodes=4", "--dir=/dev/null"}, 64, []string{"cannot use --dir=/dev/null: it is not a directory"}},
		{"a directory that nobody can write to", []string{"--nodes=4", "--dir=/proc"}, 66, []string{"cannot use the directory /proc on ", "give a --dir that you can write to"}},
		{"JSON into nowhere", []string{"--nodes=4", "--dir=.", "--json=no/where"}, 64, []string{"cannot write --json=no/where: give a file in an existing directory"}},
		{"a failure without roles", []string{"--nodes=4", "--fail=node:1"}, 64, []string{"cannot show what follows from a failure: give one number of --nodes and a --config with roles"}},
		{"a file that does not exist", []string{"--nodes=4", "--dir=.", "--config=job.yaml"}, 64, []string{"cannot read the configuration", "job.yaml"}},
		{"an argument", []string{"--nodes=4", "--dir=.", "x"}, 64, []string{`cannot use "x": bringupd simulate has no arguments`}},
		{"a driver", []string{"--nodes=4", "--dir=.", "--", "x"}, 64, []string{"cannot use a driver: bringupd simulate starts none"}},
		{"a mistyped flag", []string{"--node=4", "--dir=."}, 64, []string{"cannot use --node: there is no such flag; did you mean --nodes?"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Chdir(t.TempDir())
			refused(t, call(t, nil, append([]string{"simulate"}, tc.args...)...), tc.code, tc.says...)
			untouched(t)
		})
	}
}

// figures parses the output of --json.
func figures(t *testing.T, text string) (report simulate.Report) {
	t.Helper()
	decoder := json.NewDecoder(strings.NewReader(text))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&report); err != nil {
		t.Fatalf("%v in:\n%s", err, text)
	}
	return report
}

// TestSimulateTells verifies that the text, the table and the JSON of a run agree.
func TestSimulateTells(t *testing.T) {
	for _, tc := range []struct {
		name  string
		args  []string
		nodes []int
		text  func(simulate.Report) string // nil: JSON only
	}{
		{"text", []string{"--nodes=3", "--json=out.json"}, []int{3}, simulate.Report.Text},
		{"a table of one", []string{"--nodes=2", "--table", "--json=out.json"}, []int{2}, simulate.Report.Table},
		{"a table of several", []string{"--nodes=1,2,2", "--op-latency=1ms", "--json=out.json"}, []int{1, 2, 2}, simulate.Report.Table},
		{"JSON alone", []string{"--nodes=2", "--json=-"}, []int{2}, nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Chdir(t.TempDir())
			dir := t.TempDir()
			got := call(t, nil, append([]string{"simulate", "--dir=" + dir}, tc.args...)...)
			if got.code != 0 {
				t.Fatalf("it ended with %d:\n%s", got.code, got.err)
			}
			var report simulate.Report
			if tc.text == nil {
				report = figures(t, got.out)
			} else {
				report = figures(t, content(t, "out.json"))
				if want := tc.text(report); got.out != want {
					t.Errorf("the JSON says\n%s\nand the screen\n%s", want, got.out)
				}
			}
			if len(report.Runs) != len(tc.nodes) || report.Dir != dir || report.Program == "" || report.Host == "" || report.Cores < 1 {
				t.Errorf("got %+v", report)
			}
			for i, run := range report.Runs {
				if run.Nodes != tc.nodes[i] || run.Failure != nil || run.Gate <= 0 || run.Steady != nil {
					t.Errorf("run %d is %+v", i, run)
				}
			}
			if left, _ := filepath.Glob(dir + "/*"); len(left) > 0 {
				t.Errorf("left behind: %v", left)
			}
		})
	}
}

// TestSimulateWithRoles verifies that the file may also have settings of a job.
func TestSimulateWithRoles(t *testing.T) {
	t.Chdir(t.TempDir())
	const text = "spares: 1\nlog-dir: /nowhere\npeer-timeout: 20s\nroles: [{name: a, nodes: 2, per-node: 2, command: c}]\n"
	if err := os.WriteFile("job.yaml", []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	got := call(t, nil, "simulate", "--dir=.", "--nodes=3", "--config=job.yaml", "--json=-")
	if got.code != 0 || got.err == "" {
		t.Fatalf("it ended with %d:\n%s", got.code, got.err)
	}
	if report := figures(t, got.out); report.RoleFile != "job.yaml" || report.Peer != 20*time.Second || report.Runs[0].Roles.Instances != 4 {
		t.Errorf("got %+v", report)
	}
	got = call(t, nil, "simulate", "--nodes=3", "--config=job.yaml", "--fail=a.3")
	if want := "a.3 on n1: a process fails.\nIt is lost: role a has 3 of 4 instances left, and needs 4.\nThe run ends with the code 77.\n"; got.code != 0 || got.out != want {
		t.Errorf("it ended with %d:\n%s%s", got.code, got.out, got.err)
	}
}

func TestSimulateByVariables(t *testing.T) {
	t.Chdir(t.TempDir())
	got := call(t, []string{"BRINGUPD_NODES=2", "BRINGUPD_STEADY=10ms"}, "simulate", "--dir=.", "--json=-")
	if got.code != 0 || len(figures(t, got.out).Runs) != 1 || figures(t, got.out).Runs[0].Steady == nil {
		t.Errorf("it ended with %d:\n%s%s", got.code, got.out, got.err)
	}
	untouched(t)
}

func TestSimulateKeeps(t *testing.T) {
	t.Chdir(t.TempDir())
	if got := call(t, nil, "simulate", "--dir=.", "--nodes=2", "--keep"); got.code != 0 {
		t.Fatalf("it ended with %d:\n%s", got.code, got.err)
	}
	results, err := filepath.Glob("bringupd-simulate-*/nodes-2.1/result.json")
	if err != nil || len(results) != 1 {
		entries, _ := os.ReadDir(".")
		t.Errorf("the run is not there: %v, %v; there are %v", results, err, entries)
	}
}

// TestSimulateFails verifies that a failed job has its code, its cause and the results until then.
func TestSimulateFails(t *testing.T) {
	if testing.Short() {
		t.Skip("it takes seconds")
	}
	t.Chdir(t.TempDir())
	got := call(t, nil, "simulate", "--dir=.", "--nodes=2,3", "--op-latency=1s", "--join-timeout=1s", "--json=out.json")
	report := figures(t, content(t, "out.json"))
	if got.code != 66 || len(report.Runs) != 1 || report.Runs[0].Failure == nil || report.Runs[0].Failure.Word != "share" {
		t.Errorf("it ended with %d, and says %+v", got.code, report)
	}
	if want := report.Table(); got.out != want || !strings.Contains(want, "the shared file system has not responded") {
		t.Errorf("the JSON says\n%s\nand the screen\n%s", want, got.out)
	}
	if left, _ := filepath.Glob("bringupd-*"); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}
