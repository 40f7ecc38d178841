package launcher

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// fromMap returns an environment with these variables only.
func fromMap(vars map[string]string) Environment {
	return func(name string) (string, bool) {
		value, set := vars[name]
		return value, set
	}
}

// recorded reads an environment that a real srun, sbatch or salloc has made.
func recorded(t *testing.T, name string) map[string]string {
	t.Helper()
	return environmentOf(t, "slurm-22.05/"+name)
}

// environmentOf reads the environment that a launcher passes to a process: see testdata/README.md
// for its source.
func environmentOf(t *testing.T, name string) map[string]string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", name+".env"))
	if err != nil {
		t.Fatal(err)
	}
	vars := map[string]string{}
	for line := range strings.Lines(string(text)) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), "=")
		vars[name] = value
	}
	return vars
}

// change returns a copy of vars with "NAME=value" set and "NAME" unset.
func change(vars map[string]string, changes ...string) map[string]string {
	vars = maps.Clone(vars)
	for _, c := range changes {
		if name, value, set := strings.Cut(c, "="); set {
			vars[name] = value
		} else {
			delete(vars, name)
		}
	}
	return vars
}

func TestIdentifyRecorded(t *testing.T) {
	for _, tc := range []struct {
		file  string
		rank  int
		size  int
		host  string
		hosts []string
		run   string
		gpus  int
		cpus  int
	}{
		{file: "step-rank0", rank: 0, size: 3, host: "n1", hosts: []string{"n1", "n2", "n3"}, run: "1.0", gpus: -1, cpus: 1},
		{file: "step-rank2", rank: 2, size: 3, host: "n3", hosts: []string{"n1", "n2", "n3"}, run: "1.0", gpus: -1, cpus: 1},
		{file: "requeued-rank1", rank: 1, size: 2, host: "n2", hosts: []string{"n1", "n2"}, run: "14.0-r1", gpus: -1, cpus: 1},
		{file: "nested-rank1", rank: 1, size: 2, host: "n2", hosts: []string{"n1", "n2"}, run: "1.4", gpus: -1, cpus: 1},
		{file: "arbitrary-rank0", rank: 0, size: 3, host: "n3", run: "1.0", gpus: -1, cpus: 1},
		{file: "arbitrary-rank1", rank: 1, size: 3, host: "n1", run: "1.0", gpus: -1, cpus: 1},
		{file: "het-step-rank0", rank: 0, size: 3, host: "n1", hosts: []string{"n1", "n2", "n3"}, run: "12.0", gpus: -1, cpus: 1},
		{file: "het-step-rank1", rank: 1, size: 3, host: "n2", hosts: []string{"n1", "n2", "n3"}, run: "12.0", gpus: -1, cpus: 1},
		{file: "het-batch-rank0", rank: 0, size: 3, host: "n3", hosts: []string{"n3", "n1", "n2"}, run: "19.0", gpus: -1, cpus: 1},
		{file: "het-batch-rank2", rank: 2, size: 3, host: "n2", hosts: []string{"n3", "n1", "n2"}, run: "19.0", gpus: -1, cpus: 1},
		{file: "het-one-group-rank1", rank: 1, size: 2, host: "n2", hosts: []string{"n1", "n2"}, run: "19.1", gpus: -1, cpus: 1},
	} {
		t.Run(tc.file, func(t *testing.T) {
			id, err := IdentifyDaemon(fromMap(recorded(t, tc.file)), "elsewhere.example", Overrides{})
			if err != nil {
				t.Fatal(err)
			}
			if id.Launcher != LauncherSlurm || id.NodeIndex != tc.rank || id.Size != tc.size || id.Host != tc.host {
				t.Errorf("got %s node %d of %d on %s, want slurm node %d of %d on %s", id.Launcher, id.NodeIndex, id.Size, id.Host, tc.rank, tc.size, tc.host)
			}
			if !slices.Equal(id.Hosts, tc.hosts) {
				t.Errorf("hosts are %q, want %q", id.Hosts, tc.hosts)
			}
			if id.RunName() != tc.run {
				t.Errorf("run name is %q, want %q", id.RunName(), tc.run)
			}
			if id.GPUs != tc.gpus || id.CPUs != tc.cpus || id.LocalRank() != 0 || id.LocalSize != 1 {
				t.Errorf("got %d GPUs, %d CPUs, local node %d of %d", id.GPUs, id.CPUs, id.LocalRank(), id.LocalSize)
			}
			if id.LaunchAddress != "127.0.0.1" {
				t.Errorf("launch address is %q", id.LaunchAddress)
			}
		})
	}
}

func TestIdentifySixtyNodes(t *testing.T) {
	for file, node := range map[string]int{"sixty-rank0": 0, "sixty-rank5": 5, "sixty-rank59": 59} {
		id, err := IdentifyDaemon(fromMap(recorded(t, file)), "", Overrides{})
		if err != nil || id.NodeIndex != node || id.Size != 60 || id.Host != fmt.Sprint("w", node+1) ||
			id.GPUs != 2 || len(id.Hosts) != 60 || id.HostOf(59) != "w60" {
			t.Errorf("%s: got %+v, %v", file, id, err)
		}
	}
}

// TestKeyShared verifies that the key is the same for all tasks of a real launch, and different
// from those of all others.
func TestKeyShared(t *testing.T) {
	launches := map[string][]string{
		"step":          {"step-rank0", "step-rank1", "step-rank2"},
		"requeued":      {"requeued-rank0", "requeued-rank1"},
		"arbitrary":     {"arbitrary-rank0", "arbitrary-rank1", "arbitrary-rank2"},
		"heterogeneous": {"het-step-rank0", "het-step-rank1", "het-step-rank2"},
		"het in batch":  {"het-batch-rank0", "het-batch-rank1", "het-batch-rank2"},
		"het one group": {"het-one-group-rank0", "het-one-group-rank1"},
		"sixty":         {"sixty-rank0", "sixty-rank5", "sixty-rank59"},
		"nested":        {"nested-rank1"},
	}
	owner := map[string]string{}
	for launch, files := range launches {
		keys := map[string]bool{}
		for _, file := range files {
			id, err := IdentifyDaemon(fromMap(recorded(t, file)), "", Overrides{})
			if err != nil {
				t.Fatalf("%s: %v", file, err)
			}
			keys[id.LaunchKey] = true
			if other, taken := owner[id.LaunchKey]; taken && other != launch {
				t.Errorf("%s has the key of launch %q, %s", file, other, id.LaunchKey)
			}
			owner[id.LaunchKey] = launch
		}
		if len(keys) != 1 {
			t.Errorf("the tasks of launch %q have %d keys: %v", launch, len(keys), keys)
		}
	}
}

func TestKeyTellsLaunchesApart(t *testing.T) {
	step := recorded(t, "step-rank0")
	key := func(changes ...string) string {
		t.Helper()
		id, err := IdentifyDaemon(fromMap(change(step, changes...)), "", Overrides{})
		if err != nil {
			t.Fatal(err)
		}
		return id.LaunchKey
	}
	same := key()
	if again := key("SLURM_SRUN_COMM_PORT=1", "SLURM_LAUNCH_NODE_IPADDR=10.0.0.1", "SLURMD_NODENAME=n9"); again != same {
		t.Errorf("the key changed with what differs between nodes: %s, %s", same, again)
	}
	for _, c := range []string{"SLURM_JOB_ID=2", "SLURM_STEP_ID=1", "SLURM_RESTART_COUNT=1", "SLURM_JOB_START_TIME=1700000000", "SLURM_STEP_LAUNCHER_PORT=1", "SLURM_CLUSTER_NAME=b"} {
		if other := key(c); other == same {
			t.Errorf("the key did not change with %s", c)
		}
	}
}

func TestIdentifyMistakes(t *testing.T) {
	step := recorded(t, "step-rank1")
	for _, tc := range []struct {
		name string
		env  map[string]string
		want Overrides
		host string
		says []string // parts of the problem or of the fix
	}{
		{name: "batch shell", env: recorded(t, "batch-shell"),
			says: []string{"the batch shell of job 1:", "srun --nodes=3 --ntasks=3 --ntasks-per-node=1 bringupd", "bringupd local"}},
		{name: "salloc's shell on the login node", env: recorded(t, "salloc-shell"),
			says: []string{"the shell of job 10:", "srun --nodes=2 --ntasks=2 --ntasks-per-node=1 bringupd"}},
		{name: "salloc's shell on a node", env: recorded(t, "interactive-step"),
			says: []string{"the interactive shell of job 11:", "srun --nodes=2 --ntasks=2 --ntasks-per-node=1 bringupd"}},
		{name: "batch pseudo-step", env: change(step, "SLURM_STEP_ID=4294967291"), says: []string{"the batch shell of job 1:"}},
		{name: "extern pseudo-step", env: change(step, "SLURM_STEP_ID=4294967292"), says: []string{"the extern shell of job 1:"}},
		{name: "nothing at all", env: nil,
			says: []string{"not under srun", "srun --ntasks-per-node=1 bringupd", "bringupd local --nodes=N"}},
		{name: "rank of a step alone", env: map[string]string{"SLURM_PROCID": "0", "SLURM_NTASKS": "3"}, says: []string{"not under srun"}},
		{name: "step without job", env: map[string]string{"SLURM_STEP_ID": "0", "SLURM_PROCID": "0"}, says: []string{"SLURM_JOB_ID is not"}},
		{name: "several tasks a node", env: recorded(t, "crowded-rank4"),
			says: []string{"8 daemons on one node", "12 tasks on 3 nodes (8,3,1 a node)", "--nodes=3 --ntasks=3 --ntasks-per-node=1"}},
		{name: "one node with two tasks, seen from another", env: recorded(t, "uneven-rank3"), says: []string{"2 daemons on one node", "2,1(x2)"}},
		{name: "second task of a node", env: change(step, "SLURM_LOCALID=1", "SLURM_STEP_TASKS_PER_NODE", "SLURM_TASKS_PER_NODE"),
			says: []string{"two daemons on one node", "n2", "--ntasks-per-node=1"}},
		{name: "fewer tasks than nodes", env: change(step, "SLURM_STEP_NUM_TASKS=2", "SLURM_STEP_TASKS_PER_NODE=1(x2),0"),
			says: []string{"2 daemons on 3 nodes", "--nodes=3 --ntasks=3"}},
		{name: "no rank", env: change(step, "SLURM_PROCID"), says: []string{"SLURM_PROCID is not set"}},
		{name: "rank is no number", env: change(step, "SLURM_PROCID=one"), says: []string{`SLURM_PROCID is "one"`}},
		{name: "rank below zero", env: change(step, "SLURM_PROCID=-1"), says: []string{`SLURM_PROCID is "-1"`}},
		{name: "rank beyond the size", env: change(step, "SLURM_PROCID=3"), says: []string{"the rank is 3 of 3"}},
		{name: "size zero", env: change(step, "SLURM_STEP_NUM_TASKS=0"), says: []string{`SLURM_STEP_NUM_TASKS is "0"`}},
		{name: "no size", env: change(step, "SLURM_STEP_NUM_TASKS", "SLURM_NTASKS", "SLURM_NPROCS"), says: []string{"SLURM_STEP_NUM_TASKS is not set"}},
		{name: "no nodes", env: change(step, "SLURM_STEP_NUM_NODES", "SLURM_NNODES", "SLURM_JOB_NUM_NODES"), says: []string{"SLURM_STEP_NUM_NODES is not set"}},
		{name: "job is a path", env: change(step, "SLURM_JOB_ID=../1"), says: []string{`"../1"`}},
		{name: "step is a word", env: change(step, "SLURM_STEP_ID=x"), says: []string{`"x"`}},
		{name: "restart is no number", env: change(step, "SLURM_RESTART_COUNT=x"), says: []string{`SLURM_RESTART_COUNT is "x"`}},
		{name: "malformed node list", env: change(step, "SLURM_STEP_NODELIST=n[1-"), says: []string{"SLURM_STEP_NODELIST", "at character 1"}},
		{name: "node list of another count", env: change(step, "SLURM_STEP_NODELIST=n[1-4]"), says: []string{"names 4 nodes (n[1-4]), and the step has 3"}},
		{name: "inside itself", env: change(step, "BRINGUPD_RUN=1.0"), says: []string{"inside run 1.0", "srun --overlap --ntasks-per-node=1 bringupd"}},

		{name: "inside a later attempt of itself", env: change(step, "BRINGUPD_RUN=1.0-a12"), says: []string{"inside run 1.0"}},
		{name: "rank without size", env: map[string]string{"RANK": "0"}, says: []string{"WORLD_SIZE is not set"}},
		{name: "size without rank", env: map[string]string{"WORLD_SIZE": "2"}, says: []string{"RANK is not set"}},
		{name: "plain rank is no number", env: map[string]string{"RANK": "a", "WORLD_SIZE": "2"}, want: Overrides{JobID: "j"}, says: []string{`RANK is "a"`}},
		{name: "plain rank beyond the size", env: map[string]string{"RANK": "2", "WORLD_SIZE": "2"}, want: Overrides{JobID: "j"}, says: []string{"the rank is 2", "0 to 1"}},
		{name: "plain size zero", env: map[string]string{"RANK": "0", "WORLD_SIZE": "0"}, want: Overrides{JobID: "j"}, says: []string{`WORLD_SIZE is "0"`}},
		{name: "plain ranks without a name", env: map[string]string{"RANK": "1", "WORLD_SIZE": "2"}, says: []string{"cannot name the run", "--job-id=NAME"}},
		{name: "a process a GPU", env: map[string]string{"RANK": "9", "WORLD_SIZE": "16", "LOCAL_WORLD_SIZE": "8"}, want: Overrides{JobID: "j"},
			says: []string{"8 daemons on one node", "--nproc-per-node=1"}},
		{name: "name with a slash", env: map[string]string{"RANK": "0", "WORLD_SIZE": "2"}, want: Overrides{JobID: "a/b"}, says: []string{`"a/b"`}},
		{name: "name with a dot first", env: map[string]string{"RANK": "0", "WORLD_SIZE": "2"}, want: Overrides{JobID: ".a"}, says: []string{`".a"`}},
		{name: "name of the link", env: map[string]string{"RANK": "0", "WORLD_SIZE": "2"}, want: Overrides{JobID: "latest"}, says: []string{`"latest"`}},
		{name: "launcher's name of the history", env: map[string]string{"KUBERNETES_SERVICE_HOST": "x", "JOB_COMPLETION_INDEX": "0", "HOSTNAME": "history-0"},
			host: "history-0", want: Overrides{Size: new(2)}, says: []string{`cannot name a run "history"`, "give --job-id=NAME", "use any name but latest, history, bad-nodes"}},
		{name: "plain ranks inside themselves", env: map[string]string{"RANK": "0", "WORLD_SIZE": "2", "BRINGUPD_RUN": "j"}, want: Overrides{JobID: "j"},
			says: []string{"inside run j", "another --job-id"}},
		{name: "flag --rank alone", want: Overrides{NodeIndex: new(0)}, says: []string{"--rank is given, and --nnodes is not"}},
		{name: "flag --nnodes alone", want: Overrides{Size: new(1)}, says: []string{"--nnodes is given, and --rank is not"}},
		{name: "flags out of range", want: Overrides{NodeIndex: new(-1), Size: new(2), JobID: "j"}, says: []string{"the rank is -1"}},
		{name: "flags of no size", want: Overrides{NodeIndex: new(0), Size: new(0), JobID: "j"}, says: []string{"the number of nodes is 0"}},
		{name: "flags of a huge size", want: Overrides{NodeIndex: new(0), Size: new(1 << 40), JobID: "j"}, says: []string{"the number of nodes is 1099511627776"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, err := IdentifyDaemon(fromMap(tc.env), cmp.Or(tc.host, "h"), tc.want)
			wantLaunchError(t, err, tc.says)
		})
	}
}

// wantLaunchError verifies that an error is a complete LaunchError with these parts.
func wantLaunchError(t *testing.T, err error, parts []string) {
	t.Helper()
	var launch *LaunchError
	if !errors.As(err, &launch) {
		t.Fatalf("got %v; want a LaunchError", err)
	}
	for _, part := range parts {
		if !strings.Contains(launch.Error(), part) {
			t.Errorf("%q is missing in: %s", part, launch)
		}
	}
	if !strings.HasPrefix(launch.Problem, "cannot ") || launch.Fix == "" {
		t.Errorf("the error is %+v", launch)
	}
}

func TestIdentifyRanks(t *testing.T) {
	plain := map[string]string{"RANK": "1", "WORLD_SIZE": "4", "MASTER_ADDR": "10.0.0.1"}
	for _, tc := range []struct {
		name string
		env  map[string]string
		want Overrides
		id   Identity
		run  string
	}{
		{name: "variables", env: plain, want: Overrides{JobID: "train-7"}, run: "train-7",
			id: Identity{Launcher: LauncherRanks, NodeIndex: 1, Size: 4, Host: "h", Job: "train-7", LaunchAddress: "10.0.0.1", LocalSize: 1, GPUs: -1}},
		{name: "flags outrank variables", env: plain, want: Overrides{NodeIndex: new(0), Size: new(2), JobID: "a"}, run: "a",
			id: Identity{Launcher: LauncherRanks, NodeIndex: 0, Size: 2, Host: "h", Job: "a", LaunchAddress: "10.0.0.1", LocalSize: 1, GPUs: -1}},
		{name: "flags outrank a step", env: recorded(t, "step-rank1"), want: Overrides{NodeIndex: new(0), Size: new(2), JobID: "a"}, run: "a",
			id: Identity{Launcher: LauncherRanks, NodeIndex: 0, Size: 2, Host: "h", Job: "a", LocalSize: 1, GPUs: -1}},
		{name: "a size alone outranks no launcher", env: plain, want: Overrides{Size: new(2), JobID: "a"}, run: "a",
			id: Identity{Launcher: LauncherRanks, NodeIndex: 1, Size: 4, Host: "h", Job: "a", LaunchAddress: "10.0.0.1", LocalSize: 1, GPUs: -1}},
		{name: "in a batch shell", env: change(recorded(t, "batch-shell"), "RANK=0", "WORLD_SIZE=1"), want: Overrides{JobID: "a"}, run: "a",
			id: Identity{Launcher: LauncherRanks, NodeIndex: 0, Size: 1, Host: "h", Job: "a", LocalSize: 1, GPUs: -1}},
		{name: "local", env: recorded(t, "batch-shell"), want: Overrides{Local: true, NodeIndex: new(1), Size: new(3), JobID: "local-1"}, run: "local-1",
			id: Identity{Launcher: LauncherLocal, NodeIndex: 1, Size: 3, Host: "h", Hosts: []string{"h", "h", "h"}, Job: "local-1", LocalSize: 3, GPUs: -1}},
		{name: "inside another run", env: change(plain, "BRINGUPD_RUN=12.0"), want: Overrides{JobID: "b"}, run: "b",
			id: Identity{Launcher: LauncherRanks, NodeIndex: 1, Size: 4, Host: "h", Job: "b", LaunchAddress: "10.0.0.1", LocalSize: 1, GPUs: -1}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			id, err := IdentifyDaemon(fromMap(tc.env), "h", tc.want)
			if err != nil {
				t.Fatal(err)
			}
			if len(id.LaunchKey) != 16 {
				t.Errorf("key is %q", id.LaunchKey)
			}
			tc.id.LaunchKey = id.LaunchKey
			if !equalIdentity(id, tc.id) {
				t.Errorf("got  %+v\nwant %+v", id, tc.id)
			}
			if id.RunName() != tc.run {
				t.Errorf("run name is %q, want %q", id.RunName(), tc.run)
			}
		})
	}
}

func equalIdentity(a, b Identity) bool {
	hosts := slices.Equal(a.Hosts, b.Hosts)
	a.Hosts, b.Hosts = nil, nil
	return hosts && a.Launcher == b.Launcher && a.NodeIndex == b.NodeIndex && a.Size == b.Size && a.Host == b.Host &&
		a.Job == b.Job && a.Step == b.Step && a.Restart == b.Restart && a.LaunchKey == b.LaunchKey &&
		a.LaunchAddress == b.LaunchAddress && a.LocalRank() == b.LocalRank() && a.LocalSize == b.LocalSize &&
		a.GPUs == b.GPUs && a.GPUsSource == b.GPUsSource && a.CPUs == b.CPUs
}

func TestSlurmWinsOverRank(t *testing.T) {
	env := change(recorded(t, "step-rank1"), "RANK=0", "WORLD_SIZE=8", "BRINGUPD_RUN=1.4")
	id, err := IdentifyDaemon(fromMap(env), "h", Overrides{JobID: "mine"})
	if err != nil {
		t.Fatal(err)
	}
	if id.Launcher != LauncherSlurm || id.NodeIndex != 1 || id.Size != 3 || id.RunName() != "1.0" {
		t.Errorf("got %+v", id)
	}
}

// TestOwnPlace verifies that a host list with another node at this rank's position is not used for
// any rank.
func TestOwnPlace(t *testing.T) {
	id, err := IdentifyDaemon(fromMap(change(recorded(t, "step-rank1"), "SLURMD_NODENAME=n3")), "", Overrides{})
	if err != nil {
		t.Fatal(err)
	}
	if id.NodeIndex != 1 || id.Host != "n3" || id.Hosts != nil || id.HostOf(1) != "n3" || id.HostOf(2) != "" {
		t.Errorf("got %+v", id)
	}
}

func TestHostFallback(t *testing.T) {
	env := change(recorded(t, "step-rank1"), "SLURMD_NODENAME")
	id, err := IdentifyDaemon(fromMap(env), "node-b", Overrides{})
	if err != nil {
		t.Fatal(err)
	}
	if id.Host != "node-b" || id.Hosts != nil || id.HostOf(1) != "node-b" || id.HostOf(0) != "" || id.HostOf(-1) != "" || id.HostOf(3) != "" {
		t.Errorf("got %+v", id)
	}
}

// TestArbitraryOrder verifies that a rank whose position in the list is right by chance does not
// trust the list either.
func TestArbitraryOrder(t *testing.T) {
	id, err := IdentifyDaemon(fromMap(change(recorded(t, "arbitrary-rank0"), "SLURM_PROCID=2")), "", Overrides{})
	if err != nil {
		t.Fatal(err)
	}
	if id.Hosts != nil || id.HostOf(2) != "n3" {
		t.Errorf("hosts are %q, and node 2 is on %q", id.Hosts, id.HostOf(2))
	}
}

func TestSlurmResources(t *testing.T) {
	for _, tc := range []struct {
		name       string
		vars       map[string]string
		gpus, cpus int
		from       string
		usable     int
	}{
		{name: "nothing told", gpus: -1},
		{name: "count", vars: map[string]string{"SLURM_GPUS_ON_NODE": "8"}, gpus: 8, from: "SLURM_GPUS_ON_NODE"},
		{name: "none", vars: map[string]string{"SLURM_GPUS_ON_NODE": "0"}, gpus: 0, from: "SLURM_GPUS_ON_NODE"},
		{name: "list of the step", vars: map[string]string{"SLURM_STEP_GPUS": "0,3", "SLURM_GPUS_ON_NODE": "8"}, gpus: 2, from: "SLURM_STEP_GPUS"},
		{name: "range of the step", vars: map[string]string{"SLURM_STEP_GPUS": "0-3"}, gpus: 4, from: "SLURM_STEP_GPUS"},
		{name: "list unreadable", vars: map[string]string{"SLURM_STEP_GPUS": "gpu:a", "SLURM_GPUS_ON_NODE": "4"}, gpus: 4, from: "SLURM_GPUS_ON_NODE"},
		{name: "count unreadable", vars: map[string]string{"SLURM_GPUS_ON_NODE": "gpu:2"}, gpus: -1},
		{name: "what sbatch was asked for", vars: map[string]string{"SLURM_GPUS_PER_NODE": "8"}, gpus: -1},
		{name: "CPUs of the node", vars: map[string]string{"SLURM_CPUS_ON_NODE": "96"}, gpus: -1, cpus: 96},
		{name: "a task that is bound", vars: map[string]string{"SLURM_CPUS_ON_NODE": "96"}, usable: 16, gpus: -1, cpus: 16},
		{name: "may run on more than it has", vars: map[string]string{"SLURM_CPUS_ON_NODE": "4"}, usable: 96, gpus: -1, cpus: 4},
		// sbatch --ntasks-per-node=2 -c3, and in it srun --ntasks-per-node=1 (R16)
		{name: "inherited from sbatch", vars: map[string]string{"SLURM_CPUS_PER_TASK": "3", "SLURM_CPUS_ON_NODE": "6"}, usable: 6, gpus: -1, cpus: 6},
		{name: "sbatch alone", vars: map[string]string{"SLURM_CPUS_PER_TASK": "16"}, usable: 8, gpus: -1},
	} {
		t.Run(tc.name, func(t *testing.T) {
			env := fromMap(tc.vars)
			if got, from := slurmGPUs(env); got != tc.gpus || from != tc.from {
				t.Errorf("got %d GPUs by %q, want %d by %q", got, from, tc.gpus, tc.from)
			}
			if got := slurmCPUs(env, tc.usable); got != tc.cpus {
				t.Errorf("got %d CPUs, want %d", got, tc.cpus)
			}
		})
	}
}

// TestFormatNodes verifies that nodes have the names of their hosts only if these identify them.
func TestFormatNodes(t *testing.T) {
	for _, tc := range []struct {
		launcher Launcher
		hosts    []string
		nodes    []int
		want     string
	}{
		{LauncherSlurm, []string{"n1", "n2", "n3"}, []int{2, 1, 2}, "n[2-3]"},
		{LauncherSlurm, []string{"n1", "", "n3"}, []int{2}, "n3"},
		{LauncherSlurm, []string{"n1", "", "n3"}, []int{1, 2}, "nodes 1-2"},
		{LauncherSlurm, []string{"n1", "n2", "n2"}, []int{0}, "n1"},
		{LauncherSlurm, []string{"n1", "n2", "n2"}, []int{2}, "node 2"},
		{LauncherLocal, []string{"n1", "", ""}, []int{0}, "node 0"},
		{LauncherSlurm, nil, nil, ""},
	} {
		id := Identity{Launcher: tc.launcher, Size: len(tc.hosts)}
		if got := id.FormatNodes(tc.nodes, func(node int) string { return tc.hosts[node] }); got != tc.want {
			t.Errorf("%v of %q: %q, want %q", tc.nodes, tc.hosts, got, tc.want)
		}
	}
}
