package local

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/bringupd/bringupd/test/jobtest"
)

// mistake is a command line of a first use, in the words of a shell, and what the user should type
// instead, as far as one line of the output has it.
type mistake struct {
	line string
	code int
	says string
}

// slurmStep are the variables of a task of a step of Slurm, of one task on each of two nodes.
const slurmStep = "SLURM_JOB_ID=7 SLURM_STEP_ID=0 SLURM_NNODES=2 SLURM_NTASKS=2 SLURM_PROCID=0 SLURM_LOCALID=0 " +
	"SLURM_STEP_NODELIST=n[1-2] SLURMD_NODENAME=n1 SLURM_STEP_TASKS_PER_NODE='1(x2)' "

// prints returns a driver that prints a line as an error, and fails.
func prints(line string) string { return `-- sh -c 'echo "$1" >&2; exit 1' sh "` + line + `"` }

var mistakes = []mistake{
	// Launch.
	{`bringupd`, 65, "bringupd local --nodes=4"},
	{`bringupd run`, 65, "start it with: srun --ntasks-per-node=1 bringupd"},
	{`SLURM_JOB_ID=7 SLURM_JOB_NUM_NODES=2 bringupd -- true`, 65, "srun --nodes=2 --ntasks=2"},
	{slurmStep + `SLURM_NTASKS=16 SLURM_STEP_TASKS_PER_NODE='8(x2)' bringupd -- true`, 65, "--ntasks-per-node=1"},
	{slurmStep + `bringupd --nnodes=3 -- true`, 65, "srun --nodes=3"},
	{slurmStep + `bringupd --job-id=mine -- true`, 64, "--job-id under Slurm, which names it 7.0: omit it"},
	{slurmStep + `BRINGUPD_JOB_ID=mine bringupd -- true`, 64, "BRINGUPD_JOB_ID under Slurm"},
	{slurmStep + `bringupd --config=named.yaml -- true`, 64, "named.yaml:1 under Slurm"},
	{`bringupd local --nodes=2 --nnodes=3 -- true`, 65, "bringupd local --nodes=3"},
	{`RANK=1 bringupd -- true`, 65, "WORLD_SIZE"},

	// Subcommands.
	{`bringupd ps`, 64, "bringupd list"},
	{`bringupd ls`, 64, "bringupd list"},
	{`bringupd kill 7`, 64, "bringupd stop RUN"},
	{`bringupd cancel 7`, 64, "bringupd stop RUN"},
	{`bringupd ray -- train.py`, 64, "bringupd --framework=ray"},
	{`bringupd torchrun --nproc-per-node=2 t.py`, 64, "--ranks-per-node=2 -- python t.py"},
	{`bringupd lcoal --nodes=2 -- true`, 64, "local"},
	{`bringupd local --nodes=2 python t.py`, 64, "bringupd local [flags] -- python t.py"},
	{`bringupd stop`, 64, "give its directory"},
	{`bringupd status`, 64, "--log-dir"},
	{`bringupd script rai`, 64, "did you mean ray?"},

	// Flags.
	{`bringupd -n 4 ./app`, 64, "--ranks=N"},
	{`bringupd --nproc_per_node=8 t.py`, 64, "--ranks-per-node=N"},
	{`bringupd local --num-nodes=2 -- ./app`, 64, "bringupd local --nodes=N"},
	{`bringupd --framework=torch -- python t.py`, 64, "--ranks-per-node=gpu"},
	{`bringupd local --frame-work=ray -- true`, 64, "--framework"},
	{`bringupd local --timeout=5m -- true`, 64, "--deadline=TIME"},
	{`bringupd local --peer-timeout=10 -- true`, 64, "90s"},
	{`bringupd local --tag -- true`, 64, "--ranks-per-node"},
	{`bringupd local --env=A=b -- true`, 64, "--ranks-per-node"},
	{`bringupd local --bind=none -- true`, 64, "--ranks-per-node"},
	{`bringupd local --max-requeues=2 -- true`, 64, "--on-failure=requeue"},
	{`bringupd local --nodes=2 -- torchrun --nproc-per-node=2 t.py`, 64, "--ranks-per-node=2 -- python t.py"},
	{`bringupd local --nodes=2 -- torchrun --nnodes=2 t.py`, 64, "once per node, see docs/recipes.md"},
	{`bringupd local --nodes=2 --ranks-per-node=2 -- torchrun --nnodes=2 t.py`, 64, "4 ranks run it"},
	{`bringupd local --nodes=2 --ranks-per-node=1 -- torchrun --nnodes=2 t.py`, 64, "without --node-rank"},
	{`bringupd local --nodes=2 -- composer -n 2 t.py`, 64, "-- sh -c 'NODE_RANK=$GROUP_RANK exec python t.py'"},
	{`bringupd local --nodes=2 --dry-run -- deepspeed t.py`, 0, "--ranks-per-node=gpu -- python t.py"},
	{`bringupd local --nodes=2 --ranks-per-node=1 -- mpirun ./app`, 64, "leave it out"},
	{`bringupd local --ranks=100000 -- true`, 65, "--oversubscribe"},
	{`BRINGUPD_FRAMWORK=ray bringupd local -- true`, 0, "BRINGUPD_FRAMEWORK"},
	{`BRINGUPD_RANKS_PER_NODE=2 bringupd local -- true`, 0, "--ranks-per-node"},

	// The configuration file.
	{`bringupd local --config=typo.yaml -- true`, 64, "framework"},
	{`bringupd local --config=key.yaml`, 64, "group"},
	{`bringupd local --config=probe.yaml`, 64, "tcp:PORT"},
	{`bringupd local --config=syntax.yaml`, 64, "syntax.yaml:3"},
	{`bringupd local --nodes=2 --config=large.yaml`, 65, "give the job more"},

	// The driver's file.
	{`bringupd local --nodes=1 -- no-such-program`, 127, "give the driver's path"},
	{`bringupd local --nodes=1 -- 'python3 t.py'`, 127, "-- python3 t.py"},
	{`bringupd local --nodes=1 -- t.py`, 127, "-- python t.py"},
	{`bringupd local --nodes=1 -- OMP_NUM_THREADS=1 python3 t.py`, 127, "sh -c 'OMP_NUM_THREADS=1 …'"},
	{`bringupd local --nodes=1 -- cd /tmp '&&' ls`, 127, "sh -c 'cd …'"},
	{`bringupd local --roles=key.yaml`, 64, "--config=key.yaml"},
	{`bringupd local --nodes=1 -- ./plain.sh`, 126, "chmod +x plain.sh"},
	{`bringupd local --nodes=1 -- ./bare`, 126, "#!/bin/sh"},
	{`bringupd local --nodes=1 -- ./windows`, 126, "sed -i"},

	// The program.
	{`bringupd local --nodes=1 -- sh -c 'exit 3'`, 3, "set -x"},
	{`bringupd local --nodes=2 ` + prints("environment variable RANK expected, but not set"), 1,
		"--ranks-per-node=gpu"},
	{`bringupd local --nodes=2 ` + prints("but OMPI was not built with SLURM's PMI support and therefore"), 1,
		"--ranks-per-node=core"},
	{`bringupd local --nodes=2 ` + prints("KeyError: 'DASK_SCHEDULER_ADDRESS'"), 1, "--framework=dask"},
	{`bringupd local --nodes=2 ` + prints("ConnectionError: Could not find any running Ray instance."), 1,
		"--framework=ray"},
	{`bringupd local --nodes=1 --ranks-per-node=1 ` + prints("RuntimeError: CUDA error: invalid device ordinal"), 1,
		"--bind=cpu,memory,network"},
	{`bringupd local --nodes=1 -- sh -c 'kill -USR1 $$'`, 138, "sbatch --signal"},
	{`bringupd local --nodes=1 --ranks-per-node=1 -- sh -c 'kill -USR2 $$'`, 140, "sbatch --signal"},
	{`bringupd local --nodes=1 --deadline=1s -- sleep 300`, 124, "give a longer --deadline"},

	// Services, setup and directories.
	{`bringupd local --nodes=1 --worker-cmd='sleep 300 &' -- sleep 300`, 77, "in the foreground"},
	{`bringupd local --nodes=1 --worker-cmd='exec sleep 300' --worker-ready=tcp:1 --start-timeout=1s -- true`, 77,
		"--start-timeout=2s"},
	{`bringupd local --nodes=1 --setup-cmd='sleep 300' --start-timeout=1s -- true`, 77, "--start-timeout=2s"},
	{`bringupd local --nodes=1 --log-dir=plain.sh -- true`, 66, "give a directory with --log-dir"},
	{`bringupd local --nodes=1 --log-dir=no/such/dir -- true`, 66, "create it"},
}

// mistakenFiles are the files in the directory of each call.
var mistakenFiles = map[string]string{
	"plain.sh": "#!/bin/sh\n", "bare": "echo\n", "windows": "#!/bin/sh\r\n",
	"typo.yaml": "framwork: ray\n", "named.yaml": "job-id: mine\n",
	"key.yaml":    "roles:\n  - {name: a, nodes: 1, component: 1, primary: true, command: x}\n",
	"probe.yaml":  "roles:\n  - {name: a, nodes: 1, ready: \"localhost:8000\", command: x}\n",
	"syntax.yaml": "roles:\n  - name: a\n   nodes: 1\n",
	"large.yaml":  "roles:\n  - {name: a, nodes: 3, command: sleep 1}\n  - {name: b, nodes: rest, command: x}\n",
}

// TestMistakesOfFirstUse verifies that each mistake has its exit code, and one line that names what
// to type.
func TestMistakesOfFirstUse(t *testing.T) {
	path := filepath.Dir(jobtest.Bringupd) + string(filepath.ListSeparator) + os.Getenv("PATH")
	for _, tc := range mistakes {
		t.Run(tc.line, func(t *testing.T) {
			dir := t.TempDir()
			for name, text := range mistakenFiles {
				mode := os.FileMode(0o600)
				if !strings.Contains(name, ".") {
					mode = 0o700
				}
				if err := os.WriteFile(filepath.Join(dir, name), []byte(text), mode); err != nil {
					t.Fatal(err)
				}
			}
			ctx, cancel := context.WithTimeout(t.Context(), ceiling)
			defer cancel()
			call := exec.CommandContext(ctx, "sh", "-c", tc.line)
			call.Dir, call.Env = dir, append(jobtest.Environ(), "PATH="+path, "HOME="+dir, "TMPDIR="+os.TempDir())
			said, _ := call.CombinedOutput()
			lines := 0
			for line := range strings.Lines(string(said)) {
				if strings.Contains(line, tc.says) {
					lines++
				}
			}
			if code := jobtest.ExitCode(call.ProcessState); code != tc.code || lines != 1 {
				t.Errorf("code %d, want %d; %d lines have %q:\n%s", code, tc.code, lines, tc.says, said)
			}
		})
	}
}
