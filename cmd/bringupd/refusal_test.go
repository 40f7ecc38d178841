package main

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

var rank0 = []string{"--rank=0", "--nnodes=2", "--job-id=x"}

// refusal is a call that ends with 64 and a sentence. In the arguments RANK0 stands for rank0, and DIR
// for the directory of a run; " … " separates parts of the sentence.
type refusal struct{ args, says string }

func (r refusal) check(t *testing.T, dir string) {
	t.Helper()
	args := strings.NewReplacer("RANK0", strings.Join(rank0, " "), "DIR", dir).Replace(r.args)
	refused(t, call(t, nil, strings.Fields(args)...), 64, strings.Split(r.says, " … ")...)
}

func TestRefusesCommandLine(t *testing.T) {
	dir, _ := recordedRun(t, "good")
	for _, tc := range []refusal{
		{"--frame-work=ray", "no such flag; did you mean --framework?"},
		{"--launched-localy", "no such flag"},
		{"--log-dir", "--log-dir: it needs a value"},
		{"--=x", "understand the command line"},
		{"python train.py", `"python" … after --, for example: bringupd run [flags] -- python train.py`},
		{"ps", `"ps" … bringupd list`},
		{"ls logs", `"ls" … bringupd list`},
		{"up -f roles.yaml", `"up" … --config=FILE`},
		{"apply -f roles.yaml", `"apply" … bringupd --config=FILE`},
		{"get pods", `"get" … bringupd status RUN`},
		{"--ntasks=4 -- ./a.out", "--ntasks: this flag is srun's; give --ranks=N"},
		{"--ntasks-per-node=4 -- ./a.out", "--ranks-per-node=N"},
		{"kill 17", `"kill" … bringupd stop RUN`},
		{"cancel 17", `"cancel" … bringupd stop RUN`},
		{"ray -- train.py", `"ray" … bringupd --framework=ray -- driver`},
		{"torchrun --nproc-per-node=4 t.py", `"torchrun" … --ranks-per-node=4 -- python t.py`},
		{"-n 4 -- ./a.out", "cannot use -n: … --ranks=N"},
		{"-nodes=4", "cannot use -nodes: this flag is that of other launchers"},
		{"local --num-nodes=4", "--num-nodes … bringupd local --nodes=N"},
		{"pmi test --fence", "subcommand was removed: use a program of your MPI"},
		{"kv watch", "run bringupd kv watch: this operation was removed: get and fence"},
		{"check --bind", "--bind=true: this flag was removed:"},
		{"help pm", `help with "pm": there is no such subcommand or topic`},
		{"lcoal --nodes=2", `"lcoal" … did you mean subcommand local?`},
		{"local --nodes=2 driver.sh", `"driver.sh" … after --`},
		{"--verbose local", `"local" here: the subcommand comes first`},
		{"local --", "run an empty driver"},
		{"--role=haed RANK0", "--role=haed: give auto"},
		{"--framework=rya", "none, ray, dask; did you mean ray?"},
		{"--framework=torch", "--ranks-per-node=gpu"},
		{"-np 4 -- python a.py", "mpirun's; give --ranks=N"},
		{"local --nodes=2 --timeout=3s -- a.py", "give --deadline=TIME"},
		{"--nproc_per_node=8", "torchrun's; give --ranks-per-node=N"},
		{"--num_processes=4 -- a.py", "--num_processes: … --ranks=N"},
		{"--framework=dask --nworkers=2", "--dask-worker-args=--nworkers=2"},
		{"--framework=ray --num-cpus=2", "--ray-head-args=FLAG"},
		{"-N 2", "cannot use -N: … srun --nodes=N"},
		{"--log=x", "did you mean --log-dir?"},
		{"--hostfile x", "--hostfile: this flag is mpirun's; start bringupd by srun"},
		{"status -np 4", "-np: there is no such flag"},
		{"--max-requeues=2 RANK0", "--max-requeues with --on-failure=exit"},
		{"--no-restart-codes=256", "--no-restart-codes=256: give exit codes from 1"},
		{"version --json", "--json=true: this flag was removed: go version -m"},
		{"--peer-timeout=10", "unit is missing … 90s"},
		{"--peer-timeout=10ms RANK0", "--peer-timeout=10ms: give at least 1s"},
		{"--driver-grace=2h RANK0", "--driver-grace=2h0m0s: give at most 1h0m0s"},
		{"--gpus-per-node=many", "--gpus-per-node=many: give a whole number from 0 to"},
		{"--nnodes=0", "as in 4:6"},
		{"--sandbox-cmd=x --sandbox-require=2 --nnodes=1:2 --rank=0 --job-id=x", "2 sandboxes … 1 nodes"},
		{"--role=worker", "--role=worker: give auto"},
		{"local --role=sandbox", "daemons of all roles"},
		{"local --nodes=0", "--nodes=0: give a whole number from 1 to 1024"},
		{"local --job-id=history", "use any name but"},
		{"hosts --hosts=a --job-id=../x", "--job-id=../x: use 1 to 128 letters"},
		{"--verbose=loud", "--verbose=loud: give true or false"},
		{"local --roles=job.yaml", "--roles=job.yaml … file of roles: --config=job.yaml"},
		{"--sandbox-cmd=x --sandbox-ready=tpc:80", "--sandbox-ready=tpc:80 … is it tcp?"},
		{"--head-ready=tcp:80 RANK0", "--head-ready … --head-cmd"},
		{"--sandbox-ready=tcp:80 RANK0", "--sandbox-ready … --sandbox-cmd"},
		{"--sandbox-require=any RANK0", "--sandbox-require without a sandbox"},
		{"--sandbox-require=0", "--sandbox-require=0 … all, any, head or a number"},
		{"--sandbox-cmd=x --sandbox-require=3 RANK0", "require 3 sandboxes: the job has 2 nodes"},
		{"--sandbox-step RANK0", "--sandbox-step=true: this flag was removed: make the sandbox a role"},
		{"--role=sandbox RANK0", "--role=sandbox: it was removed: make the sandbox a role"},
		{"--env=A=b RANK0 -- true", "--env without ranks: give --ranks-per-node or --ranks, or export"},
		{"--tag RANK0 -- true", "--tag without ranks: give --ranks-per-node"},
		{"--output=rank0 RANK0 -- true", "--output without ranks: give --ranks-per-node"},
		{"local --bind=none -- true", "--bind without ranks: give --ranks-per-node"},
		{"--framework=ray --head-cmd=x RANK0", "--head-cmd … it is for --framework=none"},
		{"--framework-port=1 RANK0", "--framework-port … it is for --framework=ray or dask"},
		{"--framework=ray --ray-head-args=--head RANK0", "--head … bringupd chooses the head"},
		{"--framework=ray --ray-worker-args=--include-dashboard=true RANK0", "--include-dashboard to a worker's"},
		{"--framework=ray --ray-worker-args=--resources=disk RANK0", `--resources=disk … {"disk": 2}`},
		{"--ray-logs=1ms", "--ray-logs=1ms: give one of failure, end"},
		{"--framework=dask --dask-worker-args=--nworkers=0 RANK0", "pass --nworkers=0 to dask worker"},
		{"--framework=dask --dask-scheduler-args=--jupyter RANK0", "pass --jupyter to dask scheduler"},
		{"RANK0 -- torchrun --nproc-per-node=4 train.py", "--ranks-per-node=4 -- python train.py"},
		{"--ranks-per-node=4 RANK0 -- python -m torch.distributed.run train.py",
			"in each rank … see docs/recipes.md"},
		{"--gpu-check=requier", "off, auto, require, strict; did you mean require?"},
		{"--check=gpu.busy", "ID=fail, ID=warn or ID=off … bringupd check"},
		{"--check=gpu.busy=ignore", "gpu.busy=fail, gpu.busy=warn or gpu.busy=off"},
		{"--check=monitor.gpud=off RANK0", "removed: give --active-check"},
		{"--active-check=true --start-timeout=1ms RANK0", "--start-timeout=1ms: give at least 1s"},
		{"--gpu-check=require --gpus-per-node=0 RANK0", "--gpu-check=require with --gpus-per-node=0"},
		{"--active=short RANK0", "--active: there is no such flag"},
		{"stop", "select a run to stop: give its directory"},
		{"stop a b", "2 runs: give one run directory"},
		{"stop a -- b", "stop … without --"},
		{"stop --now a", "--now"},
		{"version x", `"x"`},
		{"check n7", `"n7": bringupd check has no arguments`},
		{"check --gpu-chek=off", "did you mean --gpu-check?"},
		{"check --record=-", "write the recording to standard output"},
		{"check --record=/dev/null", "write /dev/null: it exists already; give a new file"},
		{"check --active=short", "removed: … --active-check"},
		{"check --config=nowhere.yaml", "read the configuration"},
		{"doctor --max-requeues=1", "--max-requeues with --on-failure=exit"},
		{"doctor --active=long", "removed: … dcgmi diag … nccl-tests"},
		{"doctor --join-timeout=0s", "--join-timeout=0s: give 1s to"},
		{"doctor --framework-port=1", "--framework-port"},
		{"topology --ranks-per-node=socket", "--ranks-per-node=socket: give a number … gpu, numa, core"},
		{"topology --bind=cpus", "--bind=cpus: give auto, none, or a list of cpu,"},
		{"topology --ranks-per-node=100000", "100000 ranks: give at most 8192"},
		{"report DIR DIR", "report 2 runs"},
		{"report DIR --format=pdf", "--format=pdf: give one of html, json"},
		{"report DIR --format=text", "removed: bringupd status"},
		{"report DIR -o no/where.html", "no/where.html … -o"},
		{"report DIR --compare=nowhere", "removed: … --format=json"},
	} {
		t.Run(tc.args, func(t *testing.T) {
			t.Chdir(t.TempDir())
			tc.check(t, dir)
			untouched(t)
		})
	}
	refused(t, call(t, nil, "--active-check= "), 64, "--active-check= ")
	refused(t, call(t, []string{"CUDA_VISIBLE_DEVICES=0-3"}, "topology"), 64, "cannot use CUDA_VISIBLE_DEVICES=0-3")
}

func TestRefusesVariables(t *testing.T) {
	for _, tc := range []struct{ variable, says string }{
		{"BRINGUPD_PEER_TIMEOUT=10", "BRINGUPD_PEER_TIMEOUT=10: the unit is missing"},
		{"BRINGUPD_FRAMEWORK_PORT=none", "BRINGUPD_FRAMEWORK_PORT=none: give a whole number"},
		{"BRINGUPD_VERBOSE=loud", "BRINGUPD_VERBOSE=loud: give true or false"},
		{"BRINGUPD_FRAMEWORK=rya", "BRINGUPD_FRAMEWORK=rya: give one of none, ray, dask; did you mean ray?"},
		{"BRINGUPD_HEAD_READY=80", "BRINGUPD_HEAD_READY=80: cannot read probe"},
		{"BRINGUPD_CONFIG=/nowhere.yaml", "cannot read the configuration: open /nowhere.yaml: no such file"},
	} {
		t.Run(tc.variable, func(t *testing.T) {
			t.Chdir(t.TempDir())
			refused(t, call(t, []string{tc.variable}, rank0...), 64, tc.says)
			untouched(t)
		})
	}
}

// TestNamesVariables verifies that a contradiction between settings names the variables that the user
// may have forgotten.
func TestNamesVariables(t *testing.T) {
	t.Chdir(t.TempDir())
	writeFile(t, "job.yaml", "roles:\n  - {name: a, nodes: all, primary: true, command: 'true'}\n")
	env := []string{"BRINGUPD_HEAD_CMD=sleep 9"}
	refused(t, call(t, env, append(rank0, "--config=job.yaml")...), 64,
		"cannot use roles together with services", "(set by BRINGUPD_HEAD_CMD: override it")
	got := call(t, nil, append(rank0, "--config=job.yaml", "--head-cmd=sleep 9")...)
	refused(t, got, 64, "cannot use roles together with services")
	if strings.Contains(got.err, "set by") {
		t.Errorf("a flag is called a variable: %s", got.err)
	}
}

func TestRefusesFile(t *testing.T) {
	for _, tc := range []struct{ text, says string }{
		{"role: auto\nframwork: ray\n", `job.yaml:2: there is no key "framwork"; did you mean framework?`},
		{"job-id: &framework ray\n*framework : ray\n", "job.yaml:2: a key must be the name of a setting"},
		{"? [a]\n: b\n", "job.yaml:1: a key must be"},
		{"framework: \"a\\nb\"\n", `job.yaml:1 (framework: a\nb): give one of`},
		{"zzz: 1\n", `job.yaml:1: there is no key "zzz"`},
		{"drivr: [a]\n", `did you mean driver?`},
		{"launched-locally: true\n", `there is no key "launched-locally"`},
		{"config: other.yaml\n", "job.yaml:1: config cannot be set in the file: use --config"},
		{"rank: 1\n", "job.yaml:1: rank cannot be set in the file"},
		{"deadline: 1s\nrole: auto\ndeadline: 2s\n", `job.yaml:3: deadline is already set in line 1`},
		{"\npeer-timeout: 10\n", "job.yaml:2 (peer-timeout: 10): the unit is missing"},
		{"framework-port: high\n", "job.yaml:1 (framework-port: high): give a whole number"},
		{"framework: [ray]\n", "job.yaml:1: framework takes one value"},
		{"framework:\n  name: ray\n", "job.yaml:1: framework takes one value"},
		{"ray-head-args: {a: b}\n", "job.yaml:1: ray-head-args takes a list of values"},
		{"role: auto\nroles:\n  - name: a\n   nodes: 1\n", "job.yaml:4: did not find expected '-' indicator"},
		{"role: auto\nroles: [a,\n  b\n", "job.yaml:2: did not find expected ',' or ']'"},
		{"roles:\n  - {name: a, nodes: 1, component: 1, command: x}\n",
			"role a: there is no key \"component\"; did you mean group?"},
		{"roles:\n  - {name: a, nodes: 1, ready: \"localhost:8000\", command: x}\n",
			"cannot use ready of role a (line 2): cannot read probe"},
		{"roles:\n  - {name: a, nodes: 1, ready: \"http://a/?key=$BRINGUPD_ROLE_A_KEY\", command: x}\n",
			"cannot use ready of role a (line 2): cannot put a key into"},
		{"role:\n- {name: a, nodes: 1, command: c}\n", `job.yaml:1: there is no key "role"; did you mean roles?`},
		{"roles:\n- name: a\n  nodes: 1\n  command: echo a: b\n", `job.yaml:4: mapping values are not allowed in ` +
			`this context; a text that contains ": "`},
		{"roles:\n- {name: a, nodes: 1, command: echo a: b}\n", `needs quotes, as in 'a: b', or a block`},
		{"roles:\n- name: a\n\tnodes: 1\n", "job.yaml:3: a tab is used as indentation; use spaces"},
		{"roles:\n- {name: a, nodes: 1, command: c, ready: 'http://localhost:$PORT/health'}\n",
			"only $BRINGUPD_… is replaced in probes; use $BRINGUPD_PORT"},
		{"services:\n  web: {image: x}\n",
			"job.yaml:1: there is no key \"services\"; the programs of a job are a list under"},
		{"spares: {3: 1}\nroles:\n- {name: a, nodes: 1, command: c}\n", "cannot use job.yaml:1: spares: no role uses " +
			"group 3; the groups in use are: 0"},
		{"x-a: &a {nodes: 1}\nroles:\n- {<<: *a, name: a, command: c, after: [b]}\n",
			"job.yaml:3: role a: after: there is no role b"},
		{"driver: python train.py\n", "job.yaml:1: give the driver as a list"},
		{"driver: [python, null]\n", "give the driver as a list"},
		{"- a\n- b\n", "cannot read the configuration job.yaml:1: use the flags' names as keys"},
		{"role: auto\n---\nrole: head\n", "give one document"},
		{"check: [gpu.busy=off, gpu.busy=of]\n", "job.yaml:1 (check: gpu.busy=of): give gpu.busy=fail"},
		{"framework: none\nframework-port: 1\n", "framework-port in job.yaml:2 with --framework=none"},
	} {
		t.Run(tc.says, func(t *testing.T) {
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
		"SLURM_JOB_ID=7", "SLURM_STEP_ID=0", "SLURM_NTASKS=2", "SLURM_NNODES=2", "SLURM_PROCID=0",
		"SLURM_STEP_NODELIST=n[1-2]", "SLURMD_NODENAME=n1", "SLURM_TASKS_PER_NODE=1(x2)", "SLURM_LOCALID=0",
	}
	but := func(more ...string) []string { return append(append([]string{}, step...), more...) }
	for _, tc := range []struct {
		name string
		env  []string
		args []string
		says []string
	}{
		{"no launcher", nil, []string{"run"}, []string{"not under srun", "bringupd local"}},
		{"batch shell", but("SLURM_STEP_ID=", "SLURM_STEP_NODELIST=", "SLURM_PROCID=0"), nil,
			[]string{"cannot start in the batch shell of job 7", "srun --nodes=2 --ntasks=2"}},
		{"a step whose number is lost", but("SLURM_STEP_ID="), nil,
			[]string{"SLURM_STEP_ID is not set, but SLURM_", "let all SLURM_ variables through"}},
		{"tasks and nodes differ", but("SLURM_NTASKS=4"), nil,
			[]string{"cannot run 4 daemons on 2 nodes", "start it with: srun"}},
		{"two daemons on a node", but("SLURM_LOCALID=1"), nil, []string{"cannot run two daemons on one node"}},
		{"two tasks a node", but("SLURM_NTASKS=4", "SLURM_TASKS_PER_NODE=2(x2)"), nil,
			[]string{"cannot run 2 daemons on one node"}},
		{"no rank", but("SLURM_PROCID="), nil, []string{"SLURM_PROCID is not set"}},
		{"rank beyond the step", but("SLURM_PROCID=2"), nil, []string{"the rank is 2 of 2"}},
		{"malformed node list", but("SLURM_STEP_NODELIST=n[1-"), nil, []string{"SLURM_STEP_NODELIST", "n[1-"}},
		{"inside itself", but("BRINGUPD_RUN=7.0"), nil, []string{"cannot start inside run 7.0 as a part of it"}},
		{"rank beyond the nodes", nil, []string{"--rank=2", "--nnodes=2", "--job-id=x"}, []string{"the rank is 2"}},
		{"rank alone", nil, []string{"--rank=1"}, []string{"--rank is given, and --nnodes is not"}},
		{"nodes alone", nil, []string{"--nnodes=2"}, []string{"--nnodes is given, and --rank is not"}},
		{"more nodes than tasks", step, []string{"--nnodes=3"},
			[]string{"cannot gather 3 nodes (--nnodes): the launch has 2 daemons", "srun --nodes=3"}},
		{"at least more nodes than tasks", step, []string{"--nnodes=3:4"}, []string{"cannot gather 3 nodes"}},
		{"more nodes than local ones", nil, []string{"local", "--nodes=2", "--nnodes=3", "--",
			"true"}, []string{"cannot gather 3 nodes", "(bringupd local --nodes=3)"}},
		{"no name", nil, []string{"--rank=1", "--nnodes=2"}, []string{"cannot name the run", "--job-id=NAME"}},
		{"a second node that a launch of one lacks", nil, []string{"local", "--nodes=1", "--nnodes=2", "--", "true"},
			[]string{"the launch has 1 daemon,", "(bringupd local --nodes=2)"}},
		{"local inside itself", []string{"BRINGUPD_RUN=x"},
			[]string{"local", "--job-id=x", "--", "true"}, []string{"cannot start inside run x"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Chdir(t.TempDir())
			refused(t, call(t, tc.env, tc.args...), 65, tc.says...)
			untouched(t)
		})
	}
}

// TestReportsOnce verifies that the first task of a launch reports an error that all tasks have,
// and that each of them reports one of its own. A task that reports nothing first waits for a
// signal.
func TestReportsOnce(t *testing.T) {
	step := func(node int, more ...string) []string {
		return append([]string{
			"SLURM_JOB_ID=7", "SLURM_STEP_ID=0", "SLURM_NNODES=2", "SLURM_NTASKS=2", "SLURM_LOCALID=0",
			"SLURM_STEP_TASKS_PER_NODE=1(x2)", "SLURM_STEP_NODELIST=n[1-2]",
			fmt.Sprintf("SLURM_PROCID=%d", node), fmt.Sprintf("SLURMD_NODENAME=n%d", node+1),
		}, more...)
	}
	for _, tc := range []struct {
		name       string
		env        []string
		args       string
		code       int
		byEveryone bool
	}{
		{"no such flag", nil, "--frame-work=ray", 64, false},
		{"a value", nil, "--nnodes=0", 64, false},
		{"a flag of rank", nil, "rank --frame-work=ray", 64, false},
		{"a contradiction", nil, "--max-requeues=1", 64, false},
		{"several daemons on each node", []string{"SLURM_NTASKS=4", "SLURM_STEP_TASKS_PER_NODE=2(x2)"}, "", 65, false},
		{"more nodes than tasks", nil, "--nnodes=3", 65, false},
		{"a file that one node may lack", nil, "--config=nowhere.yaml", 64, true},
		{"a second task of a node", []string{"SLURM_STEP_TASKS_PER_NODE=", "SLURM_LOCALID=1"}, "", 65, true},
		{"a launch by flags", nil, "--rank=1 --nnodes=0", 64, true},
		{"no launch", nil, "status --nnodes=0", 64, true},
		{"pods", []string{"SLURM_PROCID=", "JOB_COMPLETION_INDEX=1"}, "--nnodes=0", 64, true},
		{"a dry run in a pod", []string{"SLURM_PROCID=", "SLURM_JOB_ID=", "SLURM_STEP_ID=",
			"JOB_COMPLETION_INDEX=1"}, "--dry-run", 65, true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Chdir(t.TempDir())
			for node := range 2 {
				signals := make(chan os.Signal, 1)
				isSilent := node > 0 && !tc.byEveryone
				if isSilent {
					signals <- os.Interrupt
				}
				got := callWith(t, signals, step(node, tc.env...), strings.Fields(tc.args)...)
				if got.code != tc.code || (got.out+got.err == "") != isSilent || len(signals) > 0 {
					t.Errorf("node %d: code %d: %s%s", node, got.code, got.out, got.err)
				}
			}
			untouched(t)
		})
	}
}

// TestAlone verifies that the program alone prints its overview where there is no job, and what is
// wrong inside of one.
func TestAlone(t *testing.T) {
	t.Chdir(t.TempDir())
	if got, help := call(t, nil), call(t, nil, "help"); got.code != 65 || got.out != help.out || got.err != "" {
		t.Errorf("code %d: %s%s", got.code, got.out, got.err)
	}
	refused(t, call(t, []string{"SLURM_JOB_ID=7"}), 65, "the shell of job 7")
	refused(t, call(t, []string{"KUBERNETES_SERVICE_HOST=10.0.0.1"}), 65, "completionMode: Indexed")
	untouched(t)
}

// TestReaderHasGone verifies that nothing is said about the reader of standard output that has
// gone.
func TestReaderHasGone(t *testing.T) {
	dir, _ := recordedRun(t, "good")
	for _, args := range [][]string{
		{"status", dir}, {"list", filepath.Dir(dir)}, {"help"}, {"report", dir, "--format=json", "-o", "-"},
	} {
		reading, writing, err := os.Pipe()
		if err != nil {
			t.Fatal(err)
		}
		_ = reading.Close()
		command := program(t, args...)
		var errs bytes.Buffer
		command.Stdout, command.Stderr = writing, &errs
		_ = command.Run()
		_ = writing.Close()
		if code := command.ProcessState.ExitCode(); code != 141 || errs.Len() > 0 {
			t.Errorf("%v ends with %d: %s", args, code, &errs)
		}
	}
}

// TestRefusesNameUnderSlurm verifies that a name of the run is refused where it has no effect.
func TestRefusesNameUnderSlurm(t *testing.T) {
	step := []string{
		"SLURM_JOB_ID=7", "SLURM_STEP_ID=0", "SLURM_NTASKS=1", "SLURM_NNODES=1", "SLURM_PROCID=0",
		"SLURM_STEP_NODELIST=n1", "SLURMD_NODENAME=n1", "SLURM_STEP_TASKS_PER_NODE=1", "SLURM_LOCALID=0",
	}
	t.Chdir(t.TempDir())
	refused(t, call(t, step, "--job-id=mine", "--", "true"), 64, "--job-id under Slurm", "7.0")
	step = append(step, "BRINGUPD_JOB_ID=mine")
	refused(t, call(t, step, "--dry-run", "--", "true"), 64, "BRINGUPD_JOB_ID under Slurm", "7.0")
	if got := call(t, step, "local", "--job-id=mine", "--dry-run", "--", "true"); got.code != 0 {
		t.Errorf("code %d: %s", got.code, got.err)
	}
	untouched(t)
}

// untouched checks that nothing was created in the test's directory.
func untouched(t *testing.T) {
	t.Helper()
	entries, err := os.ReadDir(".")
	if err != nil || len(entries) > 0 {
		t.Errorf("the directory has %v, %v", entries, err)
	}
}
