package main

import (
	"os"
	"testing"
)

var rank0 = []string{"--rank=0", "--nnodes=2", "--job-id=x"}

func TestRefusesCommandLine(t *testing.T) {
	for _, tc := range []struct {
		name string
		args []string
		says []string
	}{
		{"unknown flag, near", []string{"--frame-work=ray"}, []string{"cannot use --frame-work: there is no such flag; did you mean --framework?"}},
		{"a hidden flag is no suggestion", []string{"--launched-localy"}, []string{"no such flag"}},
		{"flag without its value", []string{"--log-dir"}, []string{"cannot use --log-dir: it needs a value"}},
		{"bad syntax", []string{"--=x"}, []string{"cannot understand the command line"}},
		{"positional", []string{"python", "train.py"}, []string{`cannot use "python": give the driver and its arguments after --`}},
		{"removed subcommand", []string{"pmi", "test", "--fence"}, []string{"cannot run bringupd pmi: this subcommand was removed: use a program of your MPI"}},
		{"removed subcommand with a driver", []string{"pmi", "test", "--", "x"}, []string{"this subcommand was removed"}},
		{"removed operation", []string{"kv", "watch"}, []string{"cannot run bringupd kv watch: this operation was removed: get and fence"}},
		{"removed flag of check", []string{"check", "--bind"}, []string{"cannot use --bind=true: this flag was removed: "}},
		{"a removed subcommand is no suggestion", []string{"help", "pm"}, []string{`cannot help with "pm": there is no such subcommand or topic`}},
		{"mistyped subcommand", []string{"lcoal", "--nodes=2"}, []string{`cannot use "lcoal"`, "did you mean subcommand local?"}},
		{"positional of local", []string{"local", "--nodes=2", "driver.sh"}, []string{`cannot use "driver.sh"`, "after --"}},
		{"flags before the subcommand", []string{"--verbose", "local"}, []string{`cannot use "local" here: the subcommand comes first`}},
		{"nothing behind the dashes", []string{"local", "--"}, []string{"cannot run an empty driver"}},
		{"unknown role", append([]string{"--role=haed"}, rank0...), []string{"cannot use --role=haed: give one of auto, sandbox"}},
		{"unknown framework", []string{"--framework=rya"}, []string{"cannot use --framework=rya: give one of none, ray, dask; did you mean ray?"}},
		{"torch as a framework", []string{"--framework=torch"}, []string{"cannot use --framework=torch: torch needs no framework: give --ranks-per-node=gpu"}},
		{"mpirun's number of ranks", []string{"-np", "4", "--", "python", "a.py"}, []string{"cannot use --np: this flag is mpirun's; give --ranks=N, and the program after -- without mpirun"}},
		{"an unknown timeout", []string{"local", "--nodes=2", "--timeout=3s", "--", "a.py"}, []string{"cannot use --timeout: this flag is unknown; give --deadline=TIME"}},
		{"torchrun's number of ranks, as it was", []string{"--nproc_per_node=8"}, []string{"cannot use --nproc_per_node: this flag is torchrun's; give --ranks-per-node=N"}},
		{"torchrun's rendezvous", []string{"--rdzv_endpoint=n0:1"}, []string{"cannot use --rdzv_endpoint: this flag is torchrun's; omit it"}},
		{"mpirun's hosts", []string{"--hostfile", "x"}, []string{"cannot use --hostfile: this flag is mpirun's; start bringupd by srun"}},
		{"a flag of another launcher elsewhere", []string{"status", "-np", "4"}, []string{"cannot use --np: there is no such flag"}},
		{"requeues of a job that exits", append([]string{"--max-requeues=2"}, rank0...), []string{"cannot use --max-requeues with --on-failure=exit"}},
		{"requeues without end", []string{"--max-requeues=-1"}, []string{"cannot use --max-requeues=-1: give a whole number from 0 to"}},
		{"no exit code", []string{"--no-restart-codes=256"}, []string{"cannot use --no-restart-codes=256: give exit codes from 1"}},
		{"exit codes turned round", []string{"--no-restart-codes=3-2"}, []string{"cannot use --no-restart-codes=3-2: give exit codes from 1"}},
		{"no failure", []string{"--no-restart-codes=0"}, []string{"cannot use --no-restart-codes=0: give exit codes from 1"}},
		{"the removed build information", []string{"version", "--json"}, []string{"cannot use --json=true: this flag was removed: go version -m"}},
		{"duration without a unit", []string{"--peer-timeout=10"}, []string{"cannot use --peer-timeout=10: the unit is missing: give, for example, 90s"}},
		{"short duration", append([]string{"--peer-timeout=10ms"}, rank0...), []string{"cannot use --peer-timeout=10ms: give at least 1s"}},
		{"negative duration", append([]string{"--driver-grace=-1s"}, rank0...), []string{"cannot use --driver-grace=-1s: give at least"}},
		{"driver's grace too long", append([]string{"--driver-grace=2h"}, rank0...), []string{"cannot use --driver-grace=2h0m0s: give at most 1h0m0s"}},
		{"no number", []string{"--gpus-per-node=many"}, []string{"cannot use --gpus-per-node=many: give a whole number from 0 to"}},
		{"number out of range", []string{"--framework-port=65536"}, []string{"cannot use --framework-port=65536: give a whole number from 0 to 65535"}},
		{"no team", []string{"--nnodes=0"}, []string{"cannot use --nnodes=0: give a number of nodes, or minimum and maximum, as in 4:6"}},
		{"a team turned round", []string{"--nnodes=6:4"}, []string{"cannot use --nnodes=6:4"}},
		{"gate beyond the team", append([]string{"--sandbox-cmd=x", "--sandbox-require=2", "--nnodes=1:2"}, "--rank=0", "--job-id=x"), []string{"cannot require 2 sandboxes: the job has 1 nodes"}},
		{"a removed role", []string{"--role=worker"}, []string{"cannot use --role=worker: give one of auto, sandbox"}},
		{"a role of local", []string{"local", "--role=sandbox"}, []string{"cannot use --role=sandbox: this subcommand starts the daemons of all roles"}},
		{"a role on hosts", []string{"hosts", "--hosts=a", "--role=sandbox"}, []string{"cannot use --role=sandbox: this subcommand starts"}},
		{"no nodes", []string{"local", "--nodes=0"}, []string{"cannot use --nodes=0: give a whole number from 1 to 1024"}},
		{"a run named like the history", []string{"local", "--job-id=history"}, []string{"cannot use --job-id=history: the log directory contains its own history: use any name but"}},
		{"a run above the log directory", []string{"hosts", "--hosts=a", "--job-id=../x"}, []string{"cannot use --job-id=../x: use 1 to 128 letters"}},
		{"switch with a value", []string{"--verbose=loud"}, []string{"cannot use --verbose=loud: give true or false"}},
		{"unknown probe", []string{"--sandbox-cmd=x", "--sandbox-ready=tpc:80"}, []string{"cannot use --sandbox-ready=tpc:80", "is it tcp?"}},
		{"probe without a command", append([]string{"--head-ready=tcp:80"}, rank0...), []string{"cannot use --head-ready", "--head-cmd"}},
		{"probe without workers", append([]string{"--worker-ready=tcp:80"}, rank0...), []string{"cannot use --worker-ready", "--worker-cmd"}},
		{"probe without a sandbox", append([]string{"--sandbox-ready=tcp:80"}, rank0...), []string{"cannot use --sandbox-ready", "--sandbox-cmd"}},
		{"gate without a sandbox", append([]string{"--sandbox-require=any"}, rank0...), []string{"cannot use --sandbox-require without a sandbox"}},
		{"gate of a strange number", []string{"--sandbox-require=0"}, []string{"cannot use --sandbox-require=0", "all, any, head or a number"}},
		{"gate beyond the nodes", append([]string{"--sandbox-cmd=x", "--sandbox-require=3"}, rank0...), []string{"cannot require 3 sandboxes: the job has 2 nodes"}},
		{"two sandboxes", append([]string{"--sandbox-cmd=x", "--sandbox-step"}, rank0...), []string{"--sandbox-cmd", "--sandbox-step"}},
		{"sandbox without a command", append([]string{"--role=sandbox"}, rank0...), []string{"cannot use --role=sandbox without a command: give --sandbox-cmd"}},
		{"sandbox with a driver", append(append([]string{"--role=sandbox", "--sandbox-cmd=x"}, rank0...), "--", "true"), []string{"cannot run a driver with --role=sandbox"}},
		{"another framework's command", append([]string{"--framework=ray", "--head-cmd=x"}, rank0...), []string{"cannot use --head-cmd", "it is for --framework=none"}},
		{"another framework's port", append([]string{"--framework-port=1"}, rank0...), []string{"cannot use --framework-port", "it is for --framework=ray or dask"}},
		{"our own flag of ray start", append([]string{"--framework=ray", "--ray-head-args=--head"}, rank0...), []string{"cannot pass --head to ray start: bringupd chooses the head"}},
		{"a head's flag for workers", append([]string{"--framework=ray", "--ray-worker-args=--include-dashboard=true"}, rank0...), []string{"cannot pass --include-dashboard to a worker's ray start"}},
		{"resources that are none", append([]string{"--framework=ray", "--ray-worker-args=--resources=disk"}, rank0...), []string{"cannot parse --resources=disk", `such as {"disk": 2}`}},
		{"a time for logs that is none", append([]string{"--framework=ray", "--ray-logs=1ms"}, rank0...), []string{"cannot use --ray-logs=1ms: give failure or end"}},
		{"no worker of Dask's", append([]string{"--framework=dask", "--dask-worker-args=--nworkers=0"}, rank0...), []string{"cannot pass --nworkers=0 to dask worker"}},
		{"our own flag of dask scheduler", append([]string{"--framework=dask", "--dask-scheduler-args=--jupyter"}, rank0...), []string{"cannot pass --jupyter to dask scheduler"}},
		{"torchrun as the driver of two nodes", append(append([]string{}, rank0...), "--", "torchrun", "--nproc-per-node=4", "train.py"), []string{"cannot run torchrun as the driver of 2 nodes", "bringupd --ranks-per-node=4 -- python train.py"}},
		{"torchrun in every rank", append(append([]string{"--ranks-per-node=4"}, rank0...), "--", "python", "-m", "torch.distributed.run", "train.py"), []string{"cannot run python -m torch.distributed.run in each rank", "sh -c"}},
		{"unknown mode of the checks", []string{"--gpu-check=requier"}, []string{"cannot use --gpu-check=requier: give one of off, auto, require, strict; did you mean require?"}},
		{"a check without an effect", []string{"--check=gpu.busy"}, []string{"cannot use --check=gpu.busy: give ID=fail, ID=warn or ID=off", "bringupd check"}},
		{"a check of an unknown effect", []string{"--check=gpu.busy=ignore"}, []string{"cannot use --check=gpu.busy=ignore: give gpu.busy=fail, gpu.busy=warn or gpu.busy=off"}},
		{"a check of no pattern", []string{"--check=gpu.[a=off"}, []string{"cannot use --check=gpu.[a=off: \"gpu.[a\" is not a valid pattern"}},
		{"a removed check", append([]string{"--check=monitor.gpud=off"}, rank0...), []string{"cannot use --check=monitor.gpud=off: this check was removed: give --active-check"}},
		{"an empty active check", []string{"--active-check= "}, []string{"cannot use --active-check= : give a shell command"}},
		{"no time for active checks", append([]string{"--active-check=true", "--start-timeout=1ms"}, rank0...), []string{"cannot use --start-timeout=1ms: give at least 1s"}},
		{"GPUs required where there are none", append([]string{"--gpu-check=require", "--gpus-per-node=0"}, rank0...), []string{"cannot use --gpu-check=require with --gpus-per-node=0"}},
		{"work while a job may run", append([]string{"--active=short"}, rank0...), []string{"cannot use --active: there is no such flag"}},
		{"stop without a run", []string{"stop"}, []string{"cannot select a run to stop: give its directory"}},
		{"stop of two runs", []string{"stop", "a", "b"}, []string{"cannot use 2 runs: give one run directory"}},
		{"stop with a driver", []string{"stop", "a", "--", "b"}, []string{"cannot stop", "without --"}},
		{"stop of nothing", []string{"stop", "/nowhere/at/all"}, []string{"cannot find run all in /nowhere/at: it does not exist"}},
		{"stop with a flag", []string{"stop", "--now", "a"}, []string{"cannot use --now"}},
		{"version of something", []string{"version", "x"}, []string{`cannot use "x"`}},
		{"version with a driver", []string{"version", "--", "x"}, []string{"cannot use a driver"}},
		{"help with something", []string{"help", "lcoal"}, []string{`cannot help with "lcoal"`, "did you mean local?"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Chdir(t.TempDir())
			refused(t, call(t, nil, tc.args...), 64, tc.says...)
			untouched(t)
		})
	}
}

func TestRefusesVariables(t *testing.T) {
	for _, tc := range []struct{ name, variable, says string }{
		{"duration without a unit", "BRINGUPD_PEER_TIMEOUT=10", "cannot use BRINGUPD_PEER_TIMEOUT=10: the unit is missing"},
		{"no number", "BRINGUPD_FRAMEWORK_PORT=none", "cannot use BRINGUPD_FRAMEWORK_PORT=none: give a whole number"},
		{"switch", "BRINGUPD_VERBOSE=loud", "cannot use BRINGUPD_VERBOSE=loud: give true or false"},
		{"framework", "BRINGUPD_FRAMEWORK=rya", "cannot use BRINGUPD_FRAMEWORK=rya: give one of none, ray, dask; did you mean ray?"},
		{"probe", "BRINGUPD_HEAD_READY=80", "cannot use BRINGUPD_HEAD_READY=80: cannot read probe"},
		{"file", "BRINGUPD_CONFIG=/nowhere.yaml", "cannot read the configuration: open /nowhere.yaml: no such file"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Chdir(t.TempDir())
			refused(t, call(t, []string{tc.variable}, rank0...), 64, tc.says)
			untouched(t)
		})
	}
}

func TestRefusesFile(t *testing.T) {
	for _, tc := range []struct{ name, text, says string }{
		{"unknown key", "role: auto\nframwork: ray\n", `cannot use job.yaml:2: there is no key "framwork"; did you mean framework?`},
		{"an alias for a key", "job-id: &framework ray\n*framework : ray\n", "cannot use job.yaml:2: a key must be the name of a setting"},
		{"a list for a key", "? [a]\n: b\n", "cannot use job.yaml:1: a key must be"},
		{"a value of two lines", "role: \"a\\nb\"\n", `cannot use job.yaml:1 (role: a\nb): give one of`},
		{"unknown key, far", "zzz: 1\n", `cannot use job.yaml:1: there is no key "zzz"`},
		{"the driver mistyped", "drivr: [a]\n", `did you mean driver?`},
		{"a hidden setting", "launched-locally: true\n", `there is no key "launched-locally"`},
		{"a file in the file", "config: other.yaml\n", "cannot use job.yaml:1: config cannot be set in the file: use --config"},
		{"a rank in the file", "rank: 1\n", "cannot use job.yaml:1: rank cannot be set in the file"},
		{"key twice", "deadline: 1s\nrole: auto\ndeadline: 2s\n", `cannot use job.yaml:3: deadline is already set in line 1`},
		{"duration without a unit", "\npeer-timeout: 10\n", "cannot use job.yaml:2 (peer-timeout: 10): the unit is missing"},
		{"no number", "framework-port: high\n", "cannot use job.yaml:1 (framework-port: high): give a whole number"},
		{"list for one value", "framework: [ray]\n", "cannot use job.yaml:1: framework takes one value"},
		{"map for one value", "framework:\n  name: ray\n", "cannot use job.yaml:1: framework takes one value"},
		{"map for a list", "ray-head-args: {a: b}\n", "cannot use job.yaml:1: ray-head-args takes a list of values"},
		{"driver as a line", "driver: python train.py\n", "cannot use job.yaml:1: give the driver as a list"},
		{"driver with a hole", "driver: [python, null]\n", "give the driver as a list"},
		{"no map", "- a\n- b\n", "cannot read the configuration job.yaml:1: use the flags' names as keys"},
		{"two documents", "role: auto\n---\nrole: head\n", "give one document"},
		{"a check that is none", "check: [gpu.busy=off, gpu.busy=of]\n", "cannot use job.yaml:1 (check: gpu.busy=of): give gpu.busy=fail"},
		{"another framework's setting", "framework: none\nframework-port: 1\n", "cannot use --framework-port (given by job.yaml:2) with --framework=none"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			path := file(t, "job.yaml", tc.text)
			refused(t, call(t, nil, append([]string{"--config=" + path}, rank0...)...), 64, tc.says)
		})
	}
	t.Run("too large", func(t *testing.T) {
		path := file(t, "job.yaml", "")
		if err := os.Truncate(path, 1<<20+1); err != nil {
			t.Fatal(err)
		}
		refused(t, call(t, nil, append([]string{"--config=" + path}, rank0...)...), 64, "job.yaml is larger than")
	})
}

func TestRefusesLaunch(t *testing.T) {
	step := []string{
		"SLURM_JOB_ID=7", "SLURM_STEP_ID=0", "SLURM_NTASKS=2", "SLURM_NNODES=2", "SLURM_PROCID=1",
		"SLURM_STEP_NODELIST=n[1-2]", "SLURMD_NODENAME=n2", "SLURM_TASKS_PER_NODE=1(x2)", "SLURM_LOCALID=0",
	}
	but := func(more ...string) []string { return append(append([]string{}, step...), more...) }
	for _, tc := range []struct {
		name string
		env  []string
		args []string
		says []string
	}{
		{"no launcher", nil, nil, []string{"not under srun", "bringupd local"}},
		{"batch shell", but("SLURM_STEP_ID="), nil, []string{"cannot start in the batch shell of job 7", "srun --nodes=2 --ntasks=2"}},
		{"tasks and nodes differ", but("SLURM_NTASKS=4"), nil, []string{"cannot run 4 daemons on 2 nodes", "start it with: srun"}},
		{"two daemons on a node", but("SLURM_LOCALID=1"), nil, []string{"cannot run two daemons on one node"}},
		{"two tasks a node", but("SLURM_NTASKS=4", "SLURM_TASKS_PER_NODE=2(x2)"), nil, []string{"cannot run 2 daemons on one node"}},
		{"no rank", but("SLURM_PROCID="), nil, []string{"SLURM_PROCID is not set"}},
		{"rank beyond the step", but("SLURM_PROCID=2"), nil, []string{"the rank is 2 of 2"}},
		{"malformed node list", but("SLURM_STEP_NODELIST=n[1-"), nil, []string{"SLURM_STEP_NODELIST", "n[1-"}},
		{"inside itself", but("BRINGUPD_RUN=7.0"), nil, []string{"cannot start inside run 7.0 as a part of it"}},
		{"rank beyond the nodes", nil, []string{"--rank=2", "--nnodes=2", "--job-id=x"}, []string{"the rank is 2"}},
		{"rank alone", nil, []string{"--rank=1"}, []string{"--rank is given, and --nnodes is not"}},
		{"nodes alone", nil, []string{"--nnodes=2"}, []string{"--nnodes is given, and --rank is not"}},
		{"more nodes than tasks", step, []string{"--nnodes=3"}, []string{"cannot gather 3 nodes (--nnodes): the launch has 2 daemons", "srun --nodes=3"}},
		{"at least more nodes than tasks", step, []string{"--nnodes=3:4"}, []string{"cannot gather 3 nodes"}},
		{"more nodes than local ones", nil, []string{"local", "--nodes=2", "--nnodes=3", "--", "true"}, []string{"cannot gather 3 nodes", "(bringupd local --nodes=3)"}},
		{"no name", nil, []string{"--rank=1", "--nnodes=2"}, []string{"cannot name the run", "--job-id=NAME"}},
		{"local inside itself", []string{"BRINGUPD_RUN=x"}, []string{"local", "--job-id=x", "--", "true"}, []string{"cannot start inside run x"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Chdir(t.TempDir())
			refused(t, call(t, tc.env, tc.args...), 65, tc.says...)
			untouched(t)
		})
	}
}

// untouched checks that nothing was created in the test's directory.
func untouched(t *testing.T) {
	t.Helper()
	entries, err := os.ReadDir(".")
	if err != nil || len(entries) > 0 {
		t.Errorf("the directory has %v, %v", entries, err)
	}
}
