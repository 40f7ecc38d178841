//go:build testbed && starters

package e2e

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/bringupd/bringupd/pkg/signal"
	"github.com/bringupd/bringupd/pkg/signal/record"
)

// started is the number of daemons that each starter starts, one on each of the first nodes.
const started = 4

// starter starts the daemons of one run with a given launcher.
type starter struct {
	name string
	// start returns the command that starts the daemons with the given arguments of bringupd. If wrong
	// is set, the launch has the error that mistake describes.
	start   func(t *testing.T, bed *lane, logs string, wrong bool, args []string) *exec.Cmd
	mistake string // the message of a wrong launch, whose exit code is 65
}

// mpirun returns a starter that runs an mpirun in a Slurm allocation with the given flags. JOB in
// the flags stands for the flag of bringupd that names the run.
func mpirun(name, command, right, wrong, mistake string) starter {
	return starter{name: name, mistake: mistake,
		start: func(t *testing.T, bed *lane, logs string, isWrong bool, args []string) *exec.Cmd {
			bed.setenv("OMPI_ALLOW_RUN_AS_ROOT", "1")
			bed.setenv("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1")
			flags := right
			if isWrong {
				flags = wrong
			}
			if strings.Contains(flags, "JOB") {
				args = append([]string{"--job-id=" + filepath.Base(logs)}, args...)
				flags = strings.Replace(flags, "JOB", "", 1)
			}
			argv := slices.Concat([]string{"--quiet", "-N4", "--ntasks-per-node=2", "-w", "n[0-3]",
				command}, strings.Fields(flags), []string{program}, args)
			return bed.Command(context.Background(), "salloc", argv...)
		}}
}

// fake returns a starter that simulates a launcher which cannot run here: it starts the daemons
// with only the variables that the real launcher sets and waits for all of them; its exit code is
// the highest of theirs. The functions right and wrong return the environments of a node's daemons,
// one for each daemon, which may include flags of bringupd. SHARE in them stands for the shared
// directory. The variables are those of pkg/roles/testdata.
func fake(name, mistake string, right, wrong func(node int) [][]string) starter {
	return starter{name: name, mistake: mistake,
		start: func(t *testing.T, bed *lane, logs string, isWrong bool, args []string) *exec.Cmd {
			environments := right
			if isWrong {
				environments = wrong
			}
			var script strings.Builder
			for node := range started {
				enter, err := bed.Enter(bed.Node(node))
				must(t, err)
				for _, environment := range environments(node) {
					var flags, variables []string
					for _, word := range environment {
						if strings.HasPrefix(word, "--") {
							flags = append(flags, word)
						} else {
							variables = append(variables,
								strings.ReplaceAll(word, "SHARE", bed.Share()))
						}
					}
					words := slices.Concat([]string{"env", "-i", "PATH=/usr/bin:/bin", "HOME=/root"},
						variables, []string{program}, flags, args)
					fmt.Fprintf(&script, "%s -- '%s' & all=\"$all $!\"\n", enter,
						strings.Join(words, "' '"))
				}
			}
			script.WriteString("trap 'kill $all' TERM\nworst=0\nfor one in $all; do wait $one; " +
				"code=$?; [ $code -le $worst ] || worst=$code; done\nexit $worst\n")
			return bed.Command(context.Background(), "sh", "-c", script.String())
		}}
}

// one converts the environment of a launcher that starts one daemon per node.
func one(environment func(node int) []string) func(int) [][]string {
	return func(node int) [][]string { return [][]string{environment(node)} }
}

// two converts the environment of a launcher that starts two daemons per node.
func two(environment func(task, local int) []string) func(int) [][]string {
	return func(node int) [][]string {
		return [][]string{environment(2*node, 0), environment(2*node+1, 1)}
	}
}

const several = "cannot run several daemons on one node"

// starters returns all launchers that docs/launchers.md lists, except Slurm and Intel MPI. The
// first four are the real programs.
func starters(t *testing.T) []starter {
	t.Helper()
	openMPI5 := filepath.Join(filepath.Dir(installed(t, "OPENMPI")), "mpirun")
	nodefile := filepath.Join(beds.bin(), "nodefile")
	must(t, os.WriteFile(nodefile, []byte("n0\nn1\nn2\nn3\n"), 0o644))
	twice := filepath.Join(beds.bin(), "nodefile-twice")
	must(t, os.WriteFile(twice, []byte("n0\nn0\nn1\nn1\nn2\nn2\nn3\nn3\n"), 0o644))
	job := places.Add(1) + 1000

	pbs := func(node, task int, file string) []string {
		return []string{fmt.Sprintf("PBS_JOBID=%d.server", job), "PBS_NODENUM=" + itoa(node),
			fmt.Sprintf("PBS_TASKNUM=%d", task+2),
			"PBS_MOMPORT=15003", "PBS_JOBCOOKIE=1234", "PBS_ENVIRONMENT=PBS_BATCH",
			"PBS_NODEFILE=" + file, "PBS_O_WORKDIR=SHARE"}
	}
	flux := func(rank, ranks, local int) []string {
		return []string{fmt.Sprintf("FLUX_JOB_ID=f%d", job), "FLUX_TASK_RANK=" + itoa(rank),
			"FLUX_TASK_LOCAL_ID=" + itoa(local), "FLUX_JOB_SIZE=" + itoa(ranks),
			"FLUX_JOB_NNODES=4", "FLUX_URI=local:///run/flux/local", "FLUX_KVS_NAMESPACE=job-1",
			"PMI_RANK=" + itoa(rank), "PMI_SIZE=" + itoa(ranks), "PMI_FD=99"}
	}
	lsf := func(task int, hosts string) []string {
		return []string{fmt.Sprintf("LSB_JOBID=%d", job), "LSB_JOBINDEX=0",
			"LSB_MCPU_HOSTS=" + hosts, "LSF_PM_TASKID=" + itoa(task+1),
			"LSB_BATCH_JID=" + itoa(int(job)), "LS_SUBCWD=SHARE"}
	}
	pals := func(rank, ranks, local, locals int) []string {
		return []string{fmt.Sprintf("PBS_JOBID=%d.server", job+1),
			"PALS_APID=" + fmt.Sprint("apid-", job), "PALS_RANKID=" + itoa(rank),
			"PALS_NODEID=" + itoa(rank/locals),
			"PALS_LOCAL_RANKID=" + itoa(local), "PALS_LOCAL_SIZE=" + itoa(locals),
			"PMI_RANK=" + itoa(rank), "PMI_SIZE=" + itoa(ranks)}
	}
	pod := func(node int) []string {
		return []string{"JOB_COMPLETION_INDEX=" + itoa(node), "KUBERNETES_SERVICE_HOST=10.0.0.1",
			"KUBERNETES_SERVICE_PORT=443"}
	}
	return []starter{
		mpirun("Open MPI 4", "mpirun.openmpi", "-np 4 --map-by ppr:1:node",
			"-np 8 --map-by ppr:2:node", several),
		mpirun("Open MPI 5", openMPI5, "-np 4 --map-by ppr:1:node",
			"-np 8 --map-by ppr:2:node", several),
		// By default mpiexec kills all tasks when the first one fails, and no cause would be recorded.
		mpirun("MPICH", "mpiexec.hydra", "-disable-auto-cleanup -n 4 -ppn 1 JOB", "-n 4 -ppn 1",
			"cannot name the run"),
		fake("PBS", several,
			one(func(node int) []string { return pbs(node, node, nodefile) }),
			two(func(task, _ int) []string { return pbs(task/2, task, twice) })),
		fake("Flux", several,
			one(func(node int) []string { return flux(node, started, 0) }),
			two(func(task, local int) []string { return flux(task, 2*started, local) })),
		fake("LSF", "no blaunch has started this process",
			one(func(node int) []string { return lsf(node, "n0 1 n1 1 n2 1 n3 1") }),
			one(func(int) []string {
				return slices.DeleteFunc(lsf(0, "n0 1 n1 1 n2 1 n3 1"), func(v string) bool {
					return strings.HasPrefix(v, "LSF_PM_")
				})
			})),
		fake("PALS", several,
			one(func(node int) []string { return pals(node, started, 0, 1) }),
			two(func(task, local int) []string { return pals(task, 2*started, local, 2) })),
		// A pod's host name ends in its index; the nodes' names do not.
		fake("Kubernetes", "cannot tell how many pods the Job has",
			one(func(node int) []string {
				return append(pod(node), "--nnodes=4", fmt.Sprint("--job-id=pods-", job))
			}),
			one(pod)),
	}
}

// runBy starts a run with the starter.
func (s starter) runBy(t *testing.T, bed *lane, wrong bool, what string) *job {
	t.Helper()
	logs := bed.place(t)
	driver := copyFile(t, "testdata/starter_driver.sh", bed.Bin())
	args := []string{"--log-dir=" + logs, "--", driver, what}
	return bed.startCommand(t, logs, s.start(t, bed, logs, wrong, args))
}

// TestStarters brings up four nodes by each launcher: with a driver that succeeds, with one that
// fails, with a wrong launch, and with a daemon that is killed.
func TestStarters(t *testing.T) {
	t.Parallel()
	for _, s := range starters(t) {
		t.Run(s.name, func(t *testing.T) {
			bed := claim(t, fewNodes)
			for what, want := range map[string]int{"end with 0": 0, "end with 42": 42} {
				t.Run("the driver is to "+what, func(t *testing.T) {
					s.testEnd(t, bed, what, want)
				})
			}
			t.Run("a wrong launch", func(t *testing.T) {
				j := s.runBy(t, bed, true, "end with 0")
				j.wantCode(65)
				if said := j.stdout.String() +
					j.stderr.String(); !strings.Contains(said, s.mistake) {
					t.Errorf("it lacks %q: %s", s.mistake, said)
				}
			})
			t.Run("a daemon is killed", func(t *testing.T) { s.testLoss(t, bed) })
		})
	}
}

func (s starter) testEnd(t *testing.T, bed *lane, what string, want int) {
	j := s.runBy(t, bed, false, what)
	j.wantCode(want)
	var seen string
	for line := range strings.Lines(j.stdout.String()) {
		if told, ok := strings.CutPrefix(line, "node 0 of 4: "); ok {
			// The hosts are in the order of the ranks, which Grid Engine chooses.
			hosts := strings.Split(strings.TrimSpace(told), ",")
			slices.Sort(hosts)
			seen += strings.Join(hosts, " ")
		}
	}
	if seen != "n0 n1 n2 n3" {
		t.Errorf("the driver saw the nodes %q\n%s%s", seen, &j.stdout, &j.stderr)
	}
	if code := j.result().Code; code != want {
		t.Errorf("the result says %d, want %d", code, want)
	}
}

// testLoss kills a worker's daemon. The launcher may end the other daemons itself, by a signal,
// when it notices this.
func (s starter) testLoss(t *testing.T, bed *lane) {
	j := s.runBy(t, bed, false, "hold")
	j.reached("control/go")
	var head record.Job
	readJSON(t, filepath.Join(j.runDir(), signal.ControlDir, signal.NameJob), &head)
	victim := 2
	if head.Host == bed.Node(victim) {
		victim = 1
	}
	kill(t, bed.daemonOf(t, victim), syscall.SIGKILL)
	if code := j.wait(); code == 0 {
		t.Errorf("the starter ended with %d: %s", code, &j.stderr)
	}
	r, host := j.result(), bed.Node(victim)
	if died := fmt.Sprintf("the daemon of node %d ", slices.Index(r.Hosts, host)); r.Code != 76 ||
		!strings.HasPrefix(r.Reason, died) {
		t.Errorf("the result is %d, of %v: %s\n%s", r.Code, r.Hosts, r.Reason, &j.stderr)
	}
	if !slices.Equal(r.BadNodes, []string{host}) {
		t.Errorf("the bad nodes are %q", r.BadNodes)
	}
	if said := j.stdout.String() +
		j.stderr.String(); !strings.Contains(said, "where: "+host+", node") {
		t.Errorf("the node is not named: %s", said)
	}
}
