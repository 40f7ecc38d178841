package ranks_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/bringupd/bringupd/pkg/process"
	"github.com/bringupd/bringupd/pkg/ranks"
)

// Who runs a command: the driver of two nodes, one rank on each of them, two, or one per GPU.
var (
	ofDriver = ranks.Runners{MinNodes: 2, MaxNodes: 2}
	ofNodes  = ranks.LayoutRequest{PerNode: "1"}.RunnersOn(2, 2)
	ofRanks  = ranks.LayoutRequest{PerNode: "2"}.RunnersOn(2, 2)
)

// TestJudgeCommand verifies for each launcher which command lines fit who runs them. A column is the
// driver, one rank per node, and two of them: "-" if it may be right, "!" if it cannot be, "?" if
// something else decides.
func TestJudgeCommand(t *testing.T) {
	for command, want := range map[string]string{
		// Without a number of nodes, it is 1.
		"torchrun --nproc-per-node=4 train.py":                          "!!!",
		"/opt/venv/bin/torchrun --nproc_per_node gpu --standalone t.py": "!!!",
		"python3 -u /opt/venv/bin/torchrun t.py":                        "!!!",
		"torchrun --nnodes=1 t.py":                                      "!!!",
		"torchrun --nnodes 1:1 -m pkg.train x":                          "!!!",
		"torchrun --rdzv_endpoint=n0:1 t.py":                            "!!!",
		"torchrun t.py --nnodes=2":                                      "!!!",
		"torchrun --standalone ./t --nnodes=2":                          "!!!",
		"torchrun --nnodes=2 t.py":                                      "!!!",
		"torchrun --nnodes 2 --node-rank=0 --master-addr=n0 t.py":       "!!!",
		"torchrun --nnode=2 t.py":                                       "!!!",
		"torchrun --nnodes=4 t.py":                                      "!!!",
		// The number of the node must differ.
		"torchrun --nnodes=2 --rdzv-backend=c10d --rdzv-endpoint=n0 t.py":    "!-!",
		"torchrun --nnodes=4 --rdzv_backend=c10d --rdzv_endpoint=n0 t.py":    "!!-",
		"torchrun --nnodes=2 --node-rank=$GROUP_RANK t.py":                   "!-!",
		"env PET_NNODES=2 PET_NODE_RANK=1 torchrun t.py":                     "!-!",
		"ft_launcher --nnodes=2 t.py":                                        "!-!",
		"accelerate launch --num_machines 2 --machine_rank $GROUP_RANK t.py": "!-!",
		"composer -n 8 --world_size 16 --node_rank $GROUP_RANK t.py":         "!-!",
		"fabric run --num-nodes=2 --node-rank=$GROUP_RANK t.py":              "!-!",
		"tune run --nnodes 2 --rdzv-backend c10d full_finetune --config x":   "!-!",
		"axolotl train x.yml -- --nnodes=2 --rdzv_endpoint=n0":               "!-!",
		"env FORCE_TORCHRUN=1 NNODES=2 NODE_RANK=1 lmf train x.yml":          "!-!",
		"torchrun --nnodes=3 t.py":                                           "!!!",
		"torchrun --nnodes=1:4 t.py":                                         "!--",
		"torchrun --nnodes=$N t.py":                                          "!--",
		"env -i PET_NNODES=2 torchrun t.py":                                  "!!!",
		"uv run torchrun --nproc-per-node=8 t.py":                            "!!!",
		"python -m torch.distributed.run --nnodes=2 t.py":                    "!!!",
		"python3.11 -u -X faulthandler -m torch.distributed.launch t":        "!!!",
		"ft_launcher --nproc-per-node=8 t.py":                                "!!!",
		"accelerate launch --num_processes 8 t.py":                           "!!!",
		"accelerate-launch t.py":                                             "!!!",
		"accelerate launch --num_machines 2 --machine_rank 0 t.py":           "!!!",
		"accelerate launch --config_file two_nodes.yaml t.py":                "---",
		"accelerate launch --use_deepspeed t.py":                             "!!!",
		"accelerate launch --use_deepspeed --num_machines 2 t.py":            "--!",
		"deepspeed t.py":                                         "?!!",
		"deepspeed --num_nodes=1 t.py":                           "!!!",
		"deepspeed --include localhost:0,1 t.py":                 "!!!",
		"deepspeed --hostfile=hosts t.py":                        "-!!",
		"deepspeed --hostfile=hosts --no_ssh --node_rank=1 t.py": "!--",
		"composer -n 8 t.py":                                     "!!!",
		"composer -n 8 --world_size 16 t.py":                     "!!!",
		"composer --world_size 16 t.py":                          "!--",
		"composer -n 8 -c ./train":                               "!!!",
		"composer install":                                       "---", // PHP's
		"colossalai run --nproc_per_node 8 t.py":                 "!!!",
		"colossalai run --nproc_per_node 8 --host a,b t.py":      "-!!",
		"fabric run model --devices=8 t.py":                      "!!!",
		"fabric run --num-nodes=2 t.py":                          "!!!",
		"tune run --nproc_per_node 8 full_finetune --config x":   "!!!",
		"tune run --nnodes 2 full_finetune --config x":           "!!!",
		"tune run full_finetune --config x":                      "!--",
		"tune ls":                                                "---",
		"torchx run dist.ddp -j 1x2 --script t.py":               "???",
		"torchx run -s slurm dist.ddp -j 2x2 --script t.py":      "---",
		"axolotl train x.yml":                                    "!!!",
		"axolotl train x.yml --launcher torchrun -- --nnodes=2":  "!!!",
		"axolotl train x.yml --launcher python":                  "---",
		"llamafactory-cli train x.yml":                           "!--",
		"env FORCE_TORCHRUN=1 llamafactory-cli train x.yml":      "!!!",
		"env FORCE_TORCHRUN=1 NNODES=2 lmf train x.yml":          "!!!",
		"llamafactory-cli chat x.yml":                            "---",
		"horovodrun -np 4 python t.py":                           "?!!",
		"horovodrun -np 4 -H localhost:4 python t.py":            "!!!",
		"horovodrun -np 4 -H a:2,b:2 python t.py":                "-!!",
		"ray symmetric-run --address n0:1 --min-nodes 2 -- t.py": "!--",
		"mpirun -n 4 ./app":                                      "-!!",
		"/usr/bin/mpirun.openmpi ./app":                          "-!!",
		"mpiexec.hydra ./app":                                    "-!!",
		// Others.
		"torchrun --help":                      "---",
		"accelerate launch -h":                 "---",
		"mpirun --version":                     "---",
		"./mpirunner":                          "---",
		"mpirun.py":                            "---",
		"./torchrunner":                        "---",
		"accelerate":                           "---",
		"accelerate env":                       "---",
		"python t.py -m torch.distributed.run": "---",
		"python -m train":                      "---",
		"python -m":                            "---",
		"python -X":                            "---",
		"python":                               "---",
		"env":                                  "---",
		"sh -c 'torchrun t.py'":                "---",
		"":                                     "---",
	} {
		got := ""
		for _, by := range []ranks.Runners{ofDriver, ofNodes, ofRanks} {
			switch f := ranks.JudgeCommand(strings.Fields(command), nil, by); {
			case f == nil:
				got += "-"
			case f.IsCertain:
				got += "!"
			default:
				got += "?"
			}
		}
		if got != want {
			t.Errorf("%s: got %s, want %s", command, got, want)
		}
	}
}

// TestJudgeOwnPrograms verifies that a path of a program with the name of a launcher is that launcher only
// if it is the script that its package installs.
func TestJudgeOwnPrograms(t *testing.T) {
	installed := "#!/venv/bin/python3\n# -*- coding: utf-8 -*-\nimport sys\nfrom %s import main\n"
	for command, want := range map[string]struct {
		text    string
		isFound bool
	}{
		"composer fit.py":       {"#!/bin/sh\nexec python \"$@\"\n", false},
		"tune run x":            {"\x7fELF", false},
		"composer t.py":         {strings.Replace(installed, "%s", "composer.cli.launcher", 1), true},
		"tune run --nnodes=2 x": {strings.Replace(installed, "%s", "torchtune._cli.tune", 1), true},
		"fabric run t.py":       {strings.Replace(installed, "%s", "lightning_fabric.cli", 1), true},
		"torchrun t.py":         {"#!/bin/sh\nexec apptainer exec x.sif torchrun \"$@\"\n", true},
	} {
		dir, argv := t.TempDir(), strings.Fields(command)
		argv[0] = filepath.Join(dir, argv[0])
		if err := os.WriteFile(argv[0], []byte(want.text), 0o700); err != nil {
			t.Fatal(err)
		}
		if f := ranks.JudgeCommand(argv, nil, ofDriver); (f != nil) != want.isFound {
			t.Errorf("%s: got %v", command, f)
		}
	}
}

// ofInstances are the processes of so many instances of a role, which have one each.
func ofInstances(count int) ranks.Runners {
	return ranks.Runners{MinNodes: 1, MaxNodes: 1, IsRanked: true, MinRanks: 1, MaxRanks: 1, AreOfRole: true,
		AreProcesses: true, Instances: count}
}

// TestJudgeUncertainNumbers verifies that a finding is certain only if each number of nodes and ranks
// of the job makes it so.
func TestJudgeUncertainNumbers(t *testing.T) {
	perGPU, pool := ranks.LayoutRequest{PerNode: ranks.PerGPU}, ranks.LayoutRequest{Total: 1}
	for _, tc := range []struct {
		command   string
		by        ranks.Runners
		isFound   bool
		isCertain bool
	}{
		{"torchrun t.py", ranks.Runners{MinNodes: 1, MaxNodes: 1}, false, false},
		{"torchrun t.py", ranks.Runners{MinNodes: 1, MaxNodes: 4}, true, false},
		{"torchrun t.py", perGPU.RunnersOn(1, 1), true, false},
		{"torchrun t.py", perGPU.RunnersOn(2, 2), true, true},
		{"torchrun --nnodes=2 --node-rank=$N t.py", perGPU.RunnersOn(2, 2), true, false},
		{"torchrun --nnodes=2 --node-rank=$N t.py", ranks.LayoutRequest{PerNode: "1"}.RunnersOn(2, 4), true, false},
		{"torchrun --nnodes=2:4 t.py", ranks.LayoutRequest{PerNode: "1"}.RunnersOn(2, 4), false, false},
		{"torchrun t.py", pool.RunnersOn(1, 1), false, false},
		{"torchrun t.py", pool.RunnersOn(2, 2), true, true},
		{"mpirun ./app", pool.RunnersOn(1, 1), true, true},
		// Other instances, and other jobs, may be the other nodes.
		{"torchrun --nnodes=2 t.py", ofInstances(2), true, true},
		{"torchrun --nnodes=2 t.py", ofInstances(0), true, false},
		{"torchrun --nnodes=2 --node-rank=$I t.py", ofInstances(2), false, false},
		{"torchrun --nnodes=3 --node-rank=$I t.py", ofInstances(2), true, false},
		{"torchrun --nnodes=2 --node-rank=0 t.py", ofInstances(2), true, false},
		{"torchrun --nnodes=2 --node-rank=0 t.py", ofInstances(0), false, false},
		{"torchrun --nnodes=2 --rdzv-backend=c10d t.py", ofInstances(2), false, false},
		{"torchrun --nnodes=2 --rdzv-backend=c10d t.py", ofInstances(1), true, false},
		{"torchrun --nnodes=1:2 t.py", ofInstances(1), false, false},
		{"torchrun --nnodes=$N t.py", ofInstances(1), false, false},
		{"ft_launcher --nnodes=2 t.py", ofInstances(2), false, false},
		{"mpirun -n 4 ./app", ofInstances(1), false, false},
		{"mpirun -n 4 ./app", ofInstances(2), false, false},
		{"horovodrun -np 4 python t.py", ofInstances(2), false, false},
		{"deepspeed --hostfile=h t.py", pool.RunnersOn(2, 2), false, false},
	} {
		f := ranks.JudgeCommand(strings.Fields(tc.command), nil, tc.by)
		if (f != nil) != tc.isFound || f != nil && f.IsCertain != tc.isCertain {
			t.Errorf("%s by %+v: got %+v", tc.command, tc.by, f)
		}
	}
	environ := []string{"PET_NNODES=2", "PET_NODE_RANK=1"}
	if f := ranks.JudgeCommand([]string{"torchrun", "t.py"}, environ, ofNodes); f != nil {
		t.Error(f)
	}
}

// TestLauncherAdvice verifies that the advice is a command line for the same program.
func TestLauncherAdvice(t *testing.T) {
	for command, want := range map[string]string{
		"torchrun --nproc-per-node=4 train.py --lr 1":               "--ranks-per-node=4 -- python train.py --lr 1;",
		"torchrun --nproc-per-node=auto -m pkg.train x":             "--ranks-per-node=gpu -- python -m pkg.train x;",
		"torchrun --nproc-per-node=cpu --no-python ./t x":           "--ranks-per-node=core -- ./t x;",
		"accelerate launch --num_processes 8 t.py":                  "--ranks-per-node=8 -- python t.py;",
		"accelerate launch --num_processes 8 --num_machines 2 t.py": "--ranks-per-node=4 -- python t.py;",
		"accelerate launch --config_file=x t.py":                    "; or run it once per node, see docs/recipes.md",
		"deepspeed --num_gpus 8 t.py --deepspeed":                   "--ranks-per-node=8 -- python t.py --deepspeed",
		"composer -n 8 -c ./train":                                  "-- sh -c 'NODE_RANK=$GROUP_RANK exec ./train'",
		"tune run --nproc_per_node 2 full --config x":               "--ranks-per-node=2 -- tune run full --config x",
		"llamafactory-cli train x.yml":                              "=gpu -- llamafactory-cli train x.yml",
		"axolotl train x.yml":                                       "-- axolotl train --launcher=python …",
		"horovodrun -np 4 python t.py":                              "--ranks-per-node=4 -- python t.py",
		"torchrun --nproc-per-node=2 -- t.py --x":                   "--ranks-per-node=2 -- python t.py --x;",
		"ray symmetric-run --address n0:1 -- python t.py":           "out: bringupd … --framework=ray -- python t.py;",
		"torchrun":            "--ranks-per-node=gpu -- …;",
		"mpirun -n 4 ./app":   "leave it out",
		"torchx run dist.ddp": "--ranks-per-node=gpu",
	} {
		if got := ranks.LauncherAdvice(strings.Fields(command)); !strings.Contains(got+";", want) {
			t.Errorf("%s: the advice is %q, want %q", command, got, want)
		}
	}
	f := ranks.JudgeCommand(strings.Fields("accelerate launch --num_machines 2 t.py"), nil, ofDriver)
	if !strings.Contains(f.Error(), "with --num_machines 2 it waits") || len(f.Error()) > 350 {
		t.Error(f)
	}
	if got := ranks.LauncherAdvice([]string{"python", "t.py"}); got != "" {
		t.Error(got)
	}
}

// TestLookBelow verifies that a launcher below the driver is found by its command line and its
// variables, unless something beside it starts processes on other nodes, and only below the driver.
func TestLookBelow(t *testing.T) {
	for name, tc := range map[string]struct {
		script  string
		by      ranks.Runners
		isOther bool // the driver is another process
		isFound bool
	}{
		"in a script":          {script: "exec -a torchrun sleep 600", by: ofDriver, isFound: true},
		"of a script":          {script: "(exec -a torchrun sleep 600) & wait", by: ofDriver, isFound: true},
		"not below the driver": {script: "(exec -a torchrun sleep 600) & wait", by: ofDriver, isOther: true},
		"another program":      {script: "(exec -a python sleep 600) & wait", by: ofDriver},
		"with its variables":   {script: "export PET_NNODES=2; (exec -a torchrun sleep 600) & wait", by: ofNodes},
		"in each rank":         {script: "(exec -a torchrun sleep 600) & wait", by: ofRanks, isFound: true},
		"beside ssh":           {script: "(exec -a torchrun sleep 600)& exec -a /bin/ssh sleep 600", by: ofDriver},
		"below mpirun":         {script: "(exec -a torchrun sleep 600)& exec -a mpirun sleep 600", by: ofDriver},
		"that of a framework": {
			script: "echo 'sleep 600; :' >symmetric-run; exec -a ray bash symmetric-run", by: ofDriver},
		"beside another launcher": {
			script: "(exec -a torchrun sleep 600)& exec -a composer sleep 600", by: ofDriver, isFound: true},
	} {
		t.Run(name, func(t *testing.T) {
			driver := exec.Command("bash", "-c", tc.script)
			driver.Dir, driver.SysProcAttr = t.TempDir(), &syscall.SysProcAttr{Setpgid: true}
			if err := driver.Start(); err != nil {
				t.Fatal(err)
			}
			pid := driver.Process.Pid
			defer func() {
				_ = syscall.Kill(-pid, syscall.SIGKILL)
				_ = driver.Wait()
			}()
			tops := []int{pid}
			if tc.isOther {
				tops = nil
			}
			look := ranks.LookBelow("the driver", func() []int { return tops }, tc.by)
			for sleeping := 0; sleeping < strings.Count(tc.script, "sleep"); time.Sleep(time.Millisecond) {
				sleeping = 0
				for _, p := range process.ProcessTree(pid) {
					if p.Name == "sleep" {
						sleeping++
					}
				}
			}
			if got := look(process.ProcessTree(pid)); (got != "") != tc.isFound {
				t.Errorf("got %q", got)
			}
		})
	}
}
