package main

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// A rank is the process that the launcher has started, and no other.
func TestRank(t *testing.T) {
	forget(t)
	command := program(t, "rank", "--env=A=1", "--env=B=2", "--", "sh", "-c", `echo $$ "$PPID" "$BRINGUPD_RANK/$BRINGUPD_RANKS" "$RANK" "$LOCAL_RANK" "$MASTER_ADDR" "$PMIX_RANK" "$A$B"; exit 3`)
	command.Env = append(command.Env, "SLURM_JOB_ID=17", "SLURM_STEP_ID=0", "SLURM_PROCID=5", "SLURM_NTASKS=6", "SLURM_LOCALID=1", "SLURM_NODEID=2",
		"SLURM_STEP_NODELIST=n[1-3]", "SLURM_STEP_TASKS_PER_NODE=2(x3)", "PMIX_RANK=5", "A=0")
	out, _ := command.Output()
	want := strings.Join([]string{strconv.Itoa(command.Process.Pid), strconv.Itoa(os.Getpid()), "5/6", "5", "1", "n1", "5", "12"}, " ") + "\n"
	if code := command.ProcessState.ExitCode(); string(out) != want || code != 3 {
		t.Errorf("got %q and code %d, want %q and 3", out, code, want)
	}
}

func TestRankRefused(t *testing.T) {
	plain := filepath.Join(t.TempDir(), "plain")
	if err := os.WriteFile(plain, []byte("text\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	task := []string{"RANK=1", "WORLD_SIZE=2"}
	for _, tc := range []struct {
		name string
		env  []string
		args []string
		code int
		part string
	}{
		{"without a launcher", nil, []string{"rank", "--", "true"}, 65, "srun --ntasks-per-node=4 bringupd rank -- ./app"},
		{"a rank that can't be", []string{"RANK=2", "WORLD_SIZE=2"}, []string{"rank", "--", "true"}, 65, "the rank is 2 of 2"},
		{"without an app", task, []string{"rank"}, 64, "behind --"},
		{"an app that is not behind --", task, []string{"rank", "true"}, 64, "has no arguments"},
		{"an app that is not there", task, []string{"rank", "--", "no-such-app"}, 127, "cannot start rank 1"},
		{"an app that is none", task, []string{"rank", "--", plain}, 126, "not executable"},
		{"a variable without a value", task, []string{"rank", "--env=A", "--", "true"}, 64, "NAME=VALUE"},
		{"a variable of bringupd's own", task, []string{"rank", "--env=BRINGUPD_RANK=0", "--", "true"}, 64, "bringupd's own"},
	} {
		t.Run(tc.name, func(t *testing.T) { refused(t, call(t, tc.env, tc.args...), tc.code, tc.part) })
	}
}
