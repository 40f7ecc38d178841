package main

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"

	"github.com/bringupd/bringupd/pkg/gpu"
	"github.com/bringupd/bringupd/pkg/ranks"
	"github.com/bringupd/bringupd/pkg/ranks/affinity"
)

// inRank returns the variables of a rank with that place.
func inRank(place string) []string {
	return []string{"SLURMD_NODENAME=n7", "BRINGUPD_RANK=5", "BRINGUPD_LOCAL_RANK=1", "BRINGUPD_LOCAL_RANKS=4", "BRINGUPD_BINDING=" + place}
}

func TestCheckBinding(t *testing.T) {
	for _, tc := range []struct {
		name, place string
		env         string
		code        int
		says        []string
	}{
		{"it is where it should be", `{"cpus":"0-8191"}`, "", 0, []string{"PASS rank 5 (1 of 4 on n7): CPUs 0-8191\n"}},
		{"nothing is bound", `{"note":"no CPUs of its own"}`, "", 0, []string{"PASS rank 5 (1 of 4 on n7): not bound\n  note: no CPUs of its own\n"}},
		{"other CPUs", `{"cpus":"8000"}`, "", 75, []string{"FAIL rank 5 ", "\n  it may also run on CPUs ", "; its own CPUs are 8000\n"}},
		{"another GPU", `{"gpus":["1"]}`, "CUDA_VISIBLE_DEVICES=0", 75, []string{"\n  CUDA_VISIBLE_DEVICES is 0; its own GPUs are 1\n"}},
		{"its GPU", `{"gpus":["1"]}`, "CUDA_VISIBLE_DEVICES=1", 0, []string{"PASS"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			env := inRank(tc.place)
			if tc.env != "" {
				env = append(env, tc.env)
			}
			got := call(t, env, "check", "--bind")
			if got.code != tc.code || got.err != "" {
				t.Errorf("it ends with %+v", got)
			}
			for _, part := range tc.says {
				if !strings.Contains(got.out, part) {
					t.Errorf("%q is missing in %s", part, got.out)
				}
			}
		})
	}
}

func TestCheckBindingAsJSON(t *testing.T) {
	got := call(t, inRank(`{"cpus":"8000","gpus":["1"]}`), "check", "--bind", "--json")
	var b ranks.ActualBinding
	if err := json.Unmarshal([]byte(got.out), &b); err != nil || got.code != 75 {
		t.Fatalf("%+v: %v", got, err)
	}
	if b.Version != 1 || b.Host != "n7" || b.Rank != 5 || b.LocalRank != 1 || b.LocalRanks != 4 || len(b.Differences) != 2 || b.Place.CPUs.String() != "8000" {
		t.Errorf("it is %s", got.out)
	}
}

func TestCheckBindingRefuses(t *testing.T) {
	for part, env := range map[string][]string{
		"BRINGUPD_RANK is not set; run it inside a rank, for example: srun bringupd": nil,
		"BRINGUPD_BINDING is not set":                        inRank(""),
		"cannot read BRINGUPD_BINDING=x":                     inRank("x"),
		"cannot read BRINGUPD_RANK=x: it should be a number": append(inRank("{}"), "BRINGUPD_RANK=x"),
	} {
		refused(t, call(t, env, "check", "--bind"), 64, part)
	}
}

// TestCheckBindingOfRealRanks lets every rank of a real world with one rank per core start "check
// --bind" from a thread that was bound for it, and verifies that the check passes.
func TestCheckBindingOfRealRanks(t *testing.T) {
	node, err := affinity.DiscoverNode("/", gpu.Topology{}, func(string) (string, bool) { return "", false })
	if err != nil {
		t.Fatal(err)
	}
	cores := node.CountSlots(affinity.PerCore)
	for i, place := range node.AssignRanks(cores, affinity.ResourceKinds{CPU: true}) {
		check := program(t, "check", "--bind")
		check.Env = append(check.Env, fmt.Sprintf("BRINGUPD_RANK=%d", i), fmt.Sprintf("BRINGUPD_LOCAL_RANK=%d", i), fmt.Sprintf("BRINGUPD_LOCAL_RANKS=%d", cores))
		check.Env = append(check.Env, place.Environ(func(name string) bool { return os.Getenv(name) != "" })...)
		out, err := startedOn(t, place, check)
		if want := fmt.Sprintf("PASS rank %d ", i); err != nil || !strings.HasPrefix(out, want) {
			t.Errorf("%v: %s", err, out)
		}
	}
}

// startedOn returns the output of a command that is started by a thread bound to place.
func startedOn(t *testing.T, place affinity.Affinity, command *exec.Cmd) (said string, err error) {
	t.Helper()
	done := make(chan struct{})
	go func() {
		defer close(done)
		runtime.LockOSThread() // never unlocked: the thread ends with the goroutine
		restore, failed := place.BindThread()
		if failed != nil {
			t.Errorf("it can't be bound: %v", failed)
			return
		}
		var out []byte
		out, err = command.CombinedOutput()
		said = string(out)
		if err := restore(); err != nil {
			t.Error(err)
		}
	}()
	<-done
	return said, err
}
