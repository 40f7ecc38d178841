package preflight

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"go.yaml.in/yaml/v3"

	"github.com/bringupd/bringupd/pkg/roles/launcher"
	"github.com/bringupd/bringupd/pkg/roles/rolefile"
)

// request returns a request for a file, outside of any job.
func request(counts, gpus []int) PreviewRequest {
	return PreviewRequest{
		Path: "my job.yaml", Counts: counts, GPUs: gpus,
		Identify: func() (launcher.Identity, error) {
			return launcher.Identity{}, &launcher.LaunchError{Problem: "no launcher", InShell: true}
		},
		Env: launcher.EnvironmentOf(nil),
	}
}

// parse returns the roles in a file, which may consist of a list of roles only.
func parse(t *testing.T, text string) (file rolefile.File) {
	t.Helper()
	if strings.HasPrefix(text, "- ") {
		text = "roles:\n" + text
	}
	var top map[string]yaml.Node
	err := yaml.Unmarshal([]byte(text), &top)
	if list := top[rolefile.RolesKey]; err == nil {
		file.Roles, err = rolefile.Parse(&list)
	}
	if spares, given := top[rolefile.SparesKey]; given && err == nil {
		file.Spares, err = rolefile.ParseSpares(&spares)
	}
	must(t, err)
	return file
}

const example = `
log-dir: /scratch
spares: 1
roles:
- {name: store, nodes: head, ports: {rpc: 7000, data: {count: 4}}, ready: "tcp:7000", command: serve}
- {name: judge, nodes: 1, per-node: 2, gpus: 2, restarts: 1, step: judge,
   ready: "http://localhost:$BRINGUPD_PORT/health", command: serve}
- {name: trainer, nodes: rest, ranks-per-node: gpu, primary: true, command: train}
`

const exampleTable = `role     instance  node  processes  GPUs         ports
store    0         n0    1          -            rpc 7000, data auto x 4
judge    0         n0    1          0-1          http auto
judge    1         n0    1          2-3          http auto
trainer  0         n1    4          0-3, 1 each  http auto
trainer  0         n2    4          0-3, 1 each  http auto

start: store, judge → trainer
end:   trainer → store, judge
step:  judge on n0
spare: n3
A spare replaces a lost node only with sbatch --no-kill and srun --no-kill --kill-on-bad-exit=0.
`

func TestFormatText(t *testing.T) {
	got, err := request([]int{4}, []int{4}).FormatText(parse(t, example))
	if err != nil || got != exampleTable {
		t.Errorf("got %v:\n%s", err, got)
	}
	idle, err := request([]int{12}, nil).FormatText(parse(t, "- {name: a, nodes: 2, command: c}\n"))
	if want := "no probe: a: ready once it runs"; !strings.Contains(idle, want) {
		t.Errorf("it does not say %q:\n%s", want, idle)
	}
	const last = "idle:  10 of 12 nodes have no role: n2 n3 n4 n5 n6 n7 n8 n9 and 2 more\n"
	if err != nil || !strings.Contains(idle, last) {
		t.Errorf("got %v:\n%s", err, idle)
	}
}

// TestFormatTextInJob uses the nodes of a launch or of a Slurm job.
func TestFormatTextInJob(t *testing.T) {
	const text = "- {name: a, nodes: all, command: c}\n- {name: b, nodes: rest, per-node: gpu, group: 1, command: c}\n"
	const het = "SLURM_JOB_ID=1 SLURM_HET_SIZE=2 SLURM_GPUS_ON_NODE=1 " +
		"SLURM_JOB_NODELIST_HET_GROUP_0=x3,x4 SLURM_JOB_NODELIST_HET_GROUP_1=x1,x2"
	for _, tc := range []struct {
		name    string
		environ string
		id      *launcher.Identity
		gpus    []int
		want    []string // the hosts of the rows
		message string
	}{
		{name: "a job", environ: "SLURM_JOB_ID=1 SLURM_JOB_NODELIST=x[1-2] SLURM_GPUS_ON_NODE=1",
			message: "cannot place the roles: b needs the rest, at least 1 node: 1 node in all, and the " +
				"job has 0 in group 1; give the job more, or the roles fewer"},
		{name: "a heterogeneous job", environ: het, want: []string{"x3", "x4", "x1", "x2"}},
		{name: "a step of it", environ: het, id: &launcher.Identity{Hosts: []string{"x3", "x1"},
			Size: 2, GPUs: 1}, want: []string{"x3", "x1"}},
		{name: "a shell in a job", environ: "SLURM_JOB_ID=1 SLURM_HET_SIZE=2 " +
			"SLURM_GPUS_PER_NODE=a100:2 SLURM_JOB_NODELIST_HET_GROUP_0=x3 " +
			"SLURM_JOB_NODELIST_HET_GROUP_1=x1", want: []string{"x3", "x1", "x1"}},
		{name: "other GPUs", environ: het, gpus: []int{0, 2}, want: []string{"x3", "x4", "x1", "x1", "x2", "x2"}},
		{name: "another node of a launch", environ: het,
			id: &launcher.Identity{Hosts: []string{"x3", "x1"}, Size: 2, NodeIndex: 1}},
		{name: "no job", message: "cannot place the roles: this is no job"},
		{name: "a wrong job", environ: "SLURM_JOB_ID=1 SLURM_JOB_NODELIST=x[",
			message: "cannot use SLURM_JOB_NODELIST"},
		{name: "no GPUs", environ: het + " SLURM_GPUS_ON_NODE=0", gpus: []int{0},
			message: "cannot place role b (line 3): per-node is gpu, and node x1 has no GPUs " +
				"(without --gpus-per-node, the nodes have no GPUs here)"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			q := request(nil, tc.gpus)
			q.Env = launcher.EnvironmentOf(strings.Fields(tc.environ))
			if tc.id != nil {
				q.Identify = func() (launcher.Identity, error) { return *tc.id, nil }
			}
			got, err := q.FormatText(parse(t, text))
			if tc.message != "" {
				if err == nil || !strings.HasPrefix(err.Error(), tc.message) {
					t.Errorf("got %v, want %s", err, tc.message)
				}
				return
			}
			var hosts []string
			for line := range strings.Lines(got) {
				if fields := strings.Fields(line); len(fields) > 2 && (fields[0] == "a" || fields[0] == "b") {
					hosts = append(hosts, fields[2])
				}
			}
			if err != nil || !slices.Equal(hosts, tc.want) {
				t.Errorf("got %v, %v; want %v", hosts, err, tc.want)
			}
		})
	}
	q := request(nil, nil)
	wrong := &launcher.LaunchError{Problem: "two tasks on a node"}
	q.Identify = func() (launcher.Identity, error) { return launcher.Identity{}, wrong }
	if _, err := q.FormatText(parse(t, text)); !errors.Is(err, wrong) {
		t.Errorf("got %v, want %v", err, wrong)
	}
	q.Identify = func() (launcher.Identity, error) { return launcher.Identity{Size: 3, GPUs: -1}, nil }
	if got, err := q.FormatText(parse(t, "- {name: a, nodes: 3, command: c}")); err != nil ||
		!strings.Contains(got, "n2") {
		t.Errorf("got %v:\n%s", err, got)
	}
}

func TestRefusals(t *testing.T) {
	for _, tc := range []struct{ name, text, message string }{
		{"too many nodes", "- {name: a, nodes: 5, command: c}\n",
			"cannot place the roles: a needs 5 nodes: 5 nodes in all, and the job has 4;"},
		{"only spares", "spares: 4\nroles:\n- {name: a, nodes: all, command: c}\n",
			"cannot place the roles: all 4 nodes are spare"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			_, err := request([]int{4}, nil).FormatText(parse(t, tc.text))
			if err == nil || !strings.HasPrefix(err.Error(), tc.message) {
				t.Errorf("got %v, want %s", err, tc.message)
			}
		})
	}
}

// TestExceptions verifies what a preview says about roles that may be a mistake.
func TestExceptions(t *testing.T) {
	const server = "- {name: a, nodes: all, per-node: 2, primary: true, "
	for _, tc := range []struct{ name, text, want string }{
		{"idle GPUs", server + "command: c}\n", "idle:  GPUs 0-7 of n0-n3: no process gets them\n"},
		{"idle GPUs of some nodes", server + "command: c}\n- {name: b, nodes: 2, gpus: 3, command: c}\n",
			"idle:  GPUs 3-7 of n0-n1, GPUs 0-7 of n2-n3: no process gets them\n"},
		{"no primary", "- {name: a, nodes: all, gpus: all, command: c}\n",
			"warning: no role is primary, so the run goes on until bringupd stop: "},
		{"a variable that is none", server + "command: serve $BRINGUPD_PROT}\n",
			"warning: role a (line 2): the command uses $BRINGUPD_PROT, which no process gets; " +
				"did you mean $BRINGUPD_PORT?\n"},
		{"a default of a variable", server + "gpus: all, command: 'serve ${BRINGUPD_X:-1}'}\n", ""},
		{"a variable of the role", server + "gpus: all, env: {BRINGUPD_X: 1}, command: serve $BRINGUPD_X " +
			"$BRINGUPD_GPU_COUNT}\n", ""},
		{"variables of the run", server + "gpus: all, command: serve $BRINGUPD_HOSTS $BRINGUPD_SOCKET}\n", ""},
		{"variables that the command sets", server + "gpus: all, command: 'export BRINGUPD_X=1; read BRINGUPD_Y; " +
			"for BRINGUPD_Z in $BRINGUPD_X$BRINGUPD_Y; do echo \"$BRINGUPD_Z\"; done'}\n", ""},
		{"quoted variables", server + "gpus: all, command: \"echo '$BRINGUPD_X' \\\\$BRINGUPD_Y\"}\n", ""},
		{"a variable in quotes", server + "command: 'sh -c \"serve ${BRINGUPD_PROT}\"'}\n",
			"the command uses ${BRINGUPD_PROT}, which no process gets; did you mean $BRINGUPD_PORT?\n"},
		{"a list of bash", server + "command: 'A=(1 2); serve ${A[0]}'}\n",
			"a command is for bash, and /bin/sh may not"},
		{"a shell for it", server + "gpus: all, shell: bash, command: 'A=(1 2); serve ${A[0]}'}\n", ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got, err := request([]int{4}, []int{8}).FormatText(parse(t, tc.text))
			must(t, err)
			isQuiet := !strings.Contains(got, "idle:") && !strings.Contains(got, "warning:")
			if !strings.Contains(got, tc.want) || tc.want == "" && !isQuiet {
				t.Errorf("no %q in:\n%s", tc.want, got)
			}
		})
	}
}

// TestServersAlone verifies that a run whose roles all serve has no warning. A preview has one.
func TestServersAlone(t *testing.T) {
	defs := parse(t, "- {name: a, nodes: all, command: c}\n").Roles
	if got := rolefile.Warnings(defs, func(string) bool { return false }); got != nil {
		t.Errorf("it warns: %q", got)
	}
}

func TestDescribeFault(t *testing.T) {
	const servers = "- {name: judge, nodes: 2, per-node: 4, gpus: 2, command: c, restarts: " +
		"{max: 3, window: 10m}, require: {start: all, run: 6}}\n"
	const setup = "- {name: setup, nodes: all, oneshot: true, command: c"
	const oneSpare = "spares: 1\nroles:\n"
	const trainer = "- {name: trainer, nodes: rest, ranks-per-node: 2, primary: true, command: c}\n"
	for _, tc := range []struct{ name, text, fault, want string }{
		{"a restart, and a loss that is tolerated", servers + trainer, "judge.1", `judge.1 on n0: a process fails.
It starts again in its place, at most 3 times within 10m0s. After that:
It is lost: role judge has 7 of 8 instances left, and needs 6.
The run goes on.
`},
		{"a primary over several nodes", servers + trainer, "trainer.0", `trainer.0 on n2, n3: a process fails.
Its other processes are stopped: 3.
It is lost: role trainer has 0 of 1 instances left, and needs 1.
The run ends with the code of the process.
`},
		{"a oneshot role, before the gate", setup + ", require: {start: 3, run: 0}}",
			"setup.3", `setup.3 on n3: a process fails.
It is lost: role setup has 3 of 4 instances left, and needs 3.
The run goes on.
`},
		{"the head's node", servers + trainer, "node:0", `node 0 (n0) is lost: it is the node of the head.
The run ends with the code 76.
`},
		{"a node without a spare", servers + trainer, "node:1", `node 1 (n1) is lost:
  judge: instances (4-7) lost: judge has 4 of 8 instances left, and needs 6
  trainer: not affected
The run ends with the code 76.
`},
		{"a spare", oneSpare + servers + trainer, "node:1", `node 1 (n1) is lost:
  judge: instances (4-7) started again on the spare node n3, which takes the place
  trainer: not affected
The run goes on.
`},
		{"a spare for one of two roles", oneSpare + servers + "- {name: b, with: judge, command: c}",
			"node:1", `node 1 (n1) is lost:
  judge: instances (4-7) could start again on the spare node n3
  b: instances (1) lost: b has 1 of 2 instances left, and needs 2
The run ends with the code 76.
`},
		{"the spare", oneSpare + servers + trainer, "node:3",
			"node 3 (n3) is lost: it is a spare node.\nThe run goes on.\n"},
		{"a oneshot role that is done", "- {name: setup, nodes: all, oneshot: true, command: c}",
			"node:2", "node 2 (n2) is lost:\n  setup: not affected\nThe run goes on.\n"},
		{"no such node", servers + trainer, "node:4", "cannot use --fail=node:4: give a node from node:0 to node:3"},
		{"no such role", servers + trainer, "x.1",
			"cannot use --fail=x.1: give node:INDEX or an instance ROLE.INDEX; the roles are judge, trainer"},
		{"no such instance", servers + trainer, "judge.8",
			"cannot use --fail=judge.8: give an instance from judge.0 to judge.7"},
		{"no index", servers + trainer, "judge", "cannot use --fail=judge: give an instance from judge.0 to judge.7"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			q := request([]int{4}, []int{8})
			q.Fault = tc.fault
			got, err := q.FormatText(parse(t, tc.text))
			if err != nil {
				got = err.Error()
			}
			if got != tc.want || strings.HasPrefix(got, "cannot") != (err != nil) {
				t.Errorf("got %v:\n%s\nwant\n%s", err, got, tc.want)
			}
		})
	}
}

const exampleScript = `#!/bin/bash
#SBATCH --job-name=my-job
#SBATCH --output=%x-%j.out
#SBATCH --signal=B:TERM@120
#SBATCH --nodes=4
#SBATCH --ntasks-per-node=1
#SBATCH --exclusive
#SBATCH --gpus-per-node=4
# Your site: change these lines, and remove one # from those that you need.
##SBATCH --account=ACCOUNT
##SBATCH --partition=PARTITION
##SBATCH --time=1:00:00
# source "$HOME/venv/bin/activate"
judge_image=/path/to/judge.sqsh

logs="${LOG_DIR:-$SLURM_SUBMIT_DIR/bringupd-logs}"
roles='my job.yaml'
# Two minutes before the time limit, Slurm sends TERM to this script only.
trap 'for run in "$logs/$SLURM_JOB_ID".*; do bringupd stop "$run"; done' TERM

srun --overlap --export=ALL --kill-on-bad-exit=1 --wait=0 --relative=0 --nodes=1 --ntasks=1 \
    --container-image="$judge_image" \
    bringupd --config="$roles" --log-dir="$logs" --step=judge &

srun --overlap --export=ALL --kill-on-bad-exit=1 --wait=0 \
    bringupd --config="$roles" --log-dir="$logs" &
while kill -0 $! 2>/dev/null; do wait $!; done # a trap interrupts wait
wait $! # returns srun's exit code
code=$?
wait
exit $code
`

func TestFormatScript(t *testing.T) {
	got, err := request([]int{4}, []int{4}).FormatScript(parse(t, strings.Replace(example, "spares: 1", "", 1)))
	if err != nil || got != exampleScript {
		t.Errorf("got %v:\n%s", err, got)
	}
	for _, tc := range []struct {
		name         string
		text         string
		counts, gpus []int
		want         []string
		message      string
	}{
		{
			name: "fewer instances", text: "- {name: a, nodes: 2, command: serve, require: {start: all, run: 1}}\n",
			want: []string{"#SBATCH --no-kill\n",
				"srun --export=ALL --no-kill --kill-on-bad-exit=0 --wait=0 \\\n    bringupd",
				"\nbringupd status --log-dir=\"$logs\" --code=$code \"$SLURM_JOB_ID\"\n"},
		},
		{
			name: "all instances", text: "spares: 1\nroles:\n- {name: a, nodes: 2, command: serve}\n",
			want: []string{"srun --export=ALL --kill-on-bad-exit=1 --wait=0 \\\n    bringupd"},
		},
		{
			name: "spares", text: example, counts: []int{4}, gpus: []int{4},
			want: []string{"#SBATCH --no-kill\n",
				"srun --overlap --export=ALL --no-kill --kill-on-bad-exit=0 --wait=0 \\\n    --container-image"},
		},
		{
			name: "claimed nodes", text: "spares: 1\nroles:\n- {name: a, nodes: 3, command: " +
				"c}\n- {name: b, nodes: head, primary: true, command: c}\n",
			want: []string{"--nodes=4\n", "##SBATCH --gpus-per-node=8\n", "SLURM_GPUS_ON_NODE", "\nsrun --export=ALL"},
		},
		{
			name: "the head alone", text: "- {name: a, nodes: head, command: c}", want: []string{"#SBATCH --nodes=1\n"},
		},
		{
			name: "components", text: "- {name: a, nodes: 3, command: c}\n- {name: b, group: 1, " +
				"nodes: 1, command: c}\n- {name: c, group: 1, nodes: 3, gpus: 2, step: my-step, command: c}\n",
			gpus: []int{0, 2},
			want: []string{
				"#SBATCH --nodes=3\n#SBATCH --ntasks-per-node=1\n#SBATCH --exclusive\n# Your site: ",
				"##SBATCH --time=1:00:00\n#SBATCH hetjob\n#SBATCH --nodes=4\n#SBATCH --ntasks-per-node=1\n" +
					"#SBATCH --exclusive\n#SBATCH --gpus-per-node=2\n##SBATCH --account=ACCOUNT\n" +
					"##SBATCH --partition=PARTITION\n##SBATCH --time=1:00:00\n# source",
				"my_step_image=", " --het-group=1 --relative=1 --nodes=3 --ntasks=3 \\\n    " +
					"--container-image=\"$my_step_image\" \\\n", "--step=my-step",
				" --het-group=0-1 \\\n    bringupd --config",
			},
		},
		{
			name: "components of which some need GPUs",
			text: "- {name: a, nodes: 2, per-node: 2, gpus: 2, command: c}\n" +
				"- {name: b, group: 1, nodes: 1, ranks-per-node: gpu, command: c}\n" +
				"- {name: c, group: 2, nodes: 1, command: c}\n- {name: d, group: 3, nodes: 1, gpus: 1, command: c}\n",
			want: []string{
				"#SBATCH --nodes=2\n#SBATCH --ntasks-per-node=1\n#SBATCH --exclusive\n" +
					"# The roles need GPUs here: change the number to that of a node.\n" +
					"#SBATCH --gpus-per-node=4\n# Your",
				"\n#SBATCH --gpus-per-node=8\n##SBATCH --account=ACCOUNT\n##SBATCH --partition=PARTITION\n" +
					"##SBATCH --time=1:00:00\n#SBATCH hetjob\n#SBATCH --nodes=1\n#SBATCH --ntasks-per-node=1\n" +
					"#SBATCH --exclusive\n##SBATCH --account=ACCOUNT\n##SBATCH --partition=PARTITION\n" +
					"##SBATCH --time=1:00:00\n##SBATCH --gpus-per-node=8\n#SBATCH hetjob\n",
				"\n#SBATCH --gpus-per-node=1\n",
			},
		},
		{name: "the rest", text: "- {name: a, nodes: rest, command: c}",
			message: "cannot determine the number of nodes: role a (line 2) has the rest; give " +
				"it, for example --nodes=8"},
		{name: "all", text: "- {name: a, nodes: all, command: c}",
			message: "cannot determine the number of nodes: no role of group 0 claims a number of them"},
		{name: "too few nodes", text: example, counts: []int{2}, gpus: []int{4},
			message: "cannot place the roles: judge needs 1 node, trainer the rest, at least 1: 2 nodes " +
				"in all, and the job has 1; give the job more, or the roles fewer"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got, err := request(tc.counts, tc.gpus).FormatScript(parse(t, tc.text))
			if tc.message != "" {
				if err == nil || !strings.HasPrefix(err.Error(), tc.message) {
					t.Errorf("got %v, want %s", err, tc.message)
				}
				return
			}
			must(t, err)
			for _, part := range tc.want {
				if !strings.Contains(got, part) {
					t.Errorf("no %q in:\n%s", part, got)
				}
			}
			checkSyntax(t, got)
		})
	}
}

// checkSyntax fails the test if a shell does not accept a script.
func checkSyntax(t *testing.T, script string) {
	t.Helper()
	shell := exec.Command("bash", "-n")
	shell.Stdin = strings.NewReader(script)
	if out, err := shell.CombinedOutput(); err != nil {
		t.Errorf("%v: %s in:\n%s", err, out, script)
	}
}

// TestScriptsOfTopologies writes a script for each topology.
func TestScriptsOfTopologies(t *testing.T) {
	files, err := filepath.Glob("../roles/rolefile/testdata/topologies/*.yaml")
	if err != nil || len(files) != 12 {
		t.Fatal(files, err)
	}
	for _, path := range files {
		text, err := os.ReadFile(path)
		must(t, err)
		counts := []int{33}
		if strings.Contains(string(text), "group: 1") {
			counts = []int{33, 4}
		}
		if strings.Contains(path, "torchft") {
			counts = []int{32}
		}
		q := request(counts, []int{8})
		q.Path = path
		script, err := q.FormatScript(parse(t, string(text)))
		if err != nil {
			t.Errorf("%s: %v", path, err)
			continue
		}
		checkSyntax(t, script)
		if sruns, steps := strings.Count(script, "\nsrun "), strings.Count(script, "--step="); sruns != steps+1 {
			t.Errorf("%s: %d srun for %d steps", path, sruns, steps)
		}
		if _, err := q.FormatText(parse(t, string(text))); err != nil {
			t.Errorf("%s: %v", path, err)
		}
	}
}
