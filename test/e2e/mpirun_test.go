//go:build testbed && mpi

package e2e

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

// ownMPI is an MPI whose own launcher is used as the driver.
type ownMPI struct {
	name     string
	launcher string   // the driver's command
	python   string   // with mpi4py; "" means the program in C, built by compiler
	compiler string   // only set without python
	daemons  []string // programs that it runs on each other node (base names)
	pool     []string // flags for as many workers as slots; nil if pools are not supported
	exits    []int    // possible exit codes if a program exits with 7
	// dies is set if the launcher itself is sometimes killed by SIGABRT or SIGSEGV when it spawns or
	// ends a pool, with any other rsh agent, too.
	dies bool
	// blind is set if the launcher exits with 0 after it has lost its daemon on a node, with any other
	// rsh agent, too.
	blind bool
}

// ownMPIs returns the MPIs that make test installs.
func ownMPIs(t *testing.T) []ownMPI {
	t.Helper()
	beside := func(name, launcher string) (python, path string) {
		python = installed(t, name)
		return python, filepath.Join(filepath.Dir(python), launcher)
	}
	all := []ownMPI{
		{name: "Open MPI 4", launcher: "mpirun.openmpi", python: installed(t, "OPENMPI4"),
			daemons: []string{"orted"}, pool: []string{}, exits: []int{7}},
		{name: "Open MPI 5", daemons: []string{"prted"}, pool: []string{}, exits: []int{7},
			blind: true, dies: true},
		{name: "MPICH 4", launcher: "mpirun.mpich", compiler: "mpicc.mpich",
			daemons: []string{"hydra_pmi_proxy"}, exits: []int{7}},
		{name: "MPICH 5", daemons: []string{"hydra_pmi_proxy"}, pool: []string{"-usize", "6"},
			exits: []int{7}},
		// Without bringupd, too, its launcher turns some exit codes into 255, and its pools do not end.
		// On a busy machine it sometimes dies of SIGPIPE: it writes to the proxy that it has started on
		// its own node after that has ended.
		{name: "Intel MPI", daemons: []string{"hydra_pmi_proxy", "hydra_bstrap_proxy"},
			exits: []int{7, 255, 128 + int(syscall.SIGPIPE)}},
	}
	all[1].python, all[1].launcher = beside("OPENMPI", "mpirun")
	all[3].python, all[3].launcher = beside("MPICH", "mpirun")
	all[4].python, all[4].launcher = beside("INTEL", "mpiexec.hydra")
	return all
}

// ring returns the command of the ring program for this MPI.
func (m ownMPI) ring(t *testing.T, bed *lane) []string {
	t.Helper()
	if m.python != "" {
		return []string{m.python, copyFile(t, "testdata/mpirun_ring.py", bed.Bin())}
	}
	binary := filepath.Join(bed.Bin(), "mpirun_ring")
	if out, err := exec.Command(m.compiler, "-o", binary,
		"testdata/mpirun_ring.c").CombinedOutput(); err != nil {
		t.Fatalf("cannot build the ring: %v: %s", err, out)
	}
	return []string{binary}
}

// launch returns a launch on three nodes with two slots each, with the MPI's launcher as the
// driver.
func (m ownMPI) launch(t *testing.T, bed *lane, flags []string, argv ...string) launch {
	t.Helper()
	bed.setenv("OMPI_ALLOW_RUN_AS_ROOT", "1")
	bed.setenv("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1")
	driver := slices.Concat([]string{m.launcher}, flags, argv)
	return launch{nodes: 3, flags: []string{"--slots-per-node=2"}, driver: driver}
}

// TestOwnMPIRun checks a driver that is an MPI's own launcher: it starts its ranks on all nodes,
// and the job's exit code is that of the ranks.
func TestOwnMPIRun(t *testing.T) {
	t.Parallel()
	for _, m := range ownMPIs(t) {
		t.Run(m.name, func(t *testing.T) {
			bed := claim(t, fewNodes)
			j := bed.run(t, m.launch(t, bed, []string{"-n", "6"}, m.ring(t, bed)...))
			j.wantCode(0)
			if want := "ring of 6 on n0,n1,n2\n"; j.stdout.String() != want {
				t.Errorf("it said %q, not %q", &j.stdout, want)
			}
			j = bed.run(t, m.launch(t, bed, []string{"-n", "6"}, append(m.ring(t, bed), "7")...))
			if code := j.wait(); !slices.Contains(m.exits, code) {
				t.Errorf("the job ended with %d, not %v\n%s", code, m.exits, &j.stderr)
			}
		})
	}
}

// TestOwnMPIRunBesideSlurmsPMIx checks that the ranks of an mpirun do not see the PMIx that Slurm
// provides for each daemon's task: MPICH's ranks would fail.
func TestOwnMPIRunBesideSlurmsPMIx(t *testing.T) {
	t.Parallel()
	for _, m := range ownMPIs(t) {
		t.Run(m.name, func(t *testing.T) {
			bed := claim(t, fewNodes)
			l := m.launch(t, bed, []string{"-n", "6"}, m.ring(t, bed)...)
			l.srun = []string{"--mpi=pmix"}
			bed.run(t, l).wantCode(0)
		})
	}
}

// TestOwnMPIRunIsKilled checks that killing one part of an mpirun ends everything else on every
// node, and that the job's exit code is not 0.
func TestOwnMPIRunIsKilled(t *testing.T) {
	t.Parallel()
	for _, m := range ownMPIs(t) {
		for name, victim := range map[string]func(*testing.T, *lane) int{
			"launcher": func(t *testing.T, bed *lane) int {
				return bed.findOf(t, 0, m.launcherNames()...)
			},
			"agent": func(t *testing.T, bed *lane) int {
				return bed.find(t, 0, program, "rsh", "n1")
			},
			"remote": func(t *testing.T, bed *lane) int { return bed.findOf(t, 1, m.daemons...) },
		} {
			t.Run(m.name+"/"+name, func(t *testing.T) {
				bed := claim(t, fewNodes)
				j := bed.start(t, m.launch(t, bed, []string{"-n", "6"},
					append(m.ring(t, bed), "hold")...))
				eventually(t, func() string {
					if strings.Contains(j.stdout.String(), "ring of 6") {
						return ""
					}
					return "not up: " + j.stderr.String()
				})
				killed := time.Now()
				kill(t, victim(t, bed), syscall.SIGKILL)
				code := j.wait()
				told := strings.Contains(j.stderr.String(), " that it ran on n")
				if (code == 0) != (m.blind && told && name != "launcher") ||
					name == "launcher" && code != 128+int(syscall.SIGKILL) {
					t.Errorf("the job ended with %d\n%s", code, &j.stderr)
				}
				bed.noneLeft(t)
				took := time.Since(killed).Round(time.Millisecond)
				t.Logf("ended with %d; nothing was left after %s", code, took)
				if took > 15*time.Second {
					t.Errorf("the end took %s", took)
				}
			})
		}
	}
}

// launcherNames returns the possible names of the launcher's process: some launchers execute
// another program.
func (m ownMPI) launcherNames() []string {
	return []string{filepath.Base(m.launcher), "prterun", "mpiexec.hydra", "mpiexec"}
}

// findOf waits for a process on a node that runs one of these programs, and returns its pid.
func (bed *lane) findOf(t *testing.T, node int, programs ...string) (pid int) {
	t.Helper()
	eventually(t, func() string {
		all, err := bed.Processes(node)
		if err != nil {
			return err.Error()
		}
		for _, p := range all {
			if !p.Infra && len(p.Args) > 0 && slices.Contains(programs, filepath.Base(p.Args[0])) {
				pid = p.PID
				return ""
			}
		}
		return fmt.Sprintf("no process of %v\n%s", programs, bed.processes())
	})
	return pid
}

// TestOwnMPIRunsPool checks that a pool whose workers are spawned by an MPI's own launcher uses all
// nodes.
func TestOwnMPIRunsPool(t *testing.T) {
	t.Parallel()
	for _, m := range ownMPIs(t) {
		if m.pool == nil {
			continue // its own launcher does not support it
		}
		t.Run(m.name, func(t *testing.T) {
			bed := claim(t, fewNodes)
			argv := []string{m.python, copyFile(t, "testdata/mpirun_pool.py", bed.Bin())}
			const want = "workers on n0,n1,n2\n"
			for tries := 1; ; tries++ {
				j := bed.run(t, m.launch(t, bed, append([]string{"-n", "1"}, m.pool...), argv...))
				code := j.wait()
				died := m.dies && (code == 128+int(syscall.SIGABRT) ||
					code == 128+int(syscall.SIGSEGV))
				if died && j.stdout.String() != want && tries < 3 {
					continue
				}
				if code != 0 && !died || j.stdout.String() != want {
					t.Errorf("the job ended with %d; it said %q, not %q\n%s", code, &j.stdout,
						want, &j.stderr)
				}
				return
			}
		})
	}
}

// TestOwnMPIRunsSideBySide checks that of two concurrent mpiruns on the same nodes the end of one
// does not affect the other.
func TestOwnMPIRunsSideBySide(t *testing.T) {
	t.Parallel()
	for _, m := range ownMPIs(t) {
		t.Run(m.name, func(t *testing.T) {
			bed := claim(t, fewNodes)
			ring := strings.Join(m.ring(t, bed), " ")
			l := m.launch(t, bed, nil)
			l.flags = append(l.flags, "--driver-grace=1s")
			l.driver = []string{"sh", "-c", m.launcher + " -n 6 " + ring + " hold & while ! " +
				m.launcher + " -n 6 " + ring + "; do exit 9; done; sleep 1; kill -0 $! && exit 5"}
			bed.run(t, l).wantCode(5)
		})
	}
}

// TestJobSubmittedFromMPIRun checks a job that is submitted from within an mpirun: it inherits the
// variables of that mpirun's ranks, but its own ranks and daemons must use those of its srun.
func TestJobSubmittedFromMPIRun(t *testing.T) {
	t.Parallel()
	for _, m := range ownMPIs(t) {
		t.Run(m.name, func(t *testing.T) {
			bed := claim(t, fewNodes)
			m.launch(t, bed, nil) // permits mpirun for root
			dir := bed.place(t)
			bed.makeDir(t, dir)
			script, out := filepath.Join(dir, "job.sh"), filepath.Join(dir, "out")
			must(t, os.WriteFile(script, []byte("#!/bin/sh\n"+
				"srun -n4 "+program+" rank --bind=none -- sh -c 'echo rank $BRINGUPD_RANK/$BRINGUPD_RANKS'\n"+
				"srun -n4 "+program+" --log-dir="+dir+" -- sh -c 'echo $BRINGUPD_NODE_COUNT nodes'\n"), 0o755))
			cmd := bed.Command(t.Context(), m.launcher, "-n", "1", "sbatch", "--quiet", "--wait",
				"-N4", "--ntasks-per-node=1", "--chdir="+dir, "--output="+out, script)
			if said, err := cmd.CombinedOutput(); err != nil {
				t.Errorf("%v: %s", err, said)
			}
			text, err := os.ReadFile(out)
			must(t, err)
			for _, line := range []string{"rank 0/4\n", "rank 1/4\n", "rank 2/4\n", "rank 3/4\n",
				"4 nodes\n"} {
				if strings.Count(string(text), line) != 1 {
					t.Errorf("%q is not there once in:\n%s", line, text)
				}
			}
		})
	}
}

// TestOwnMPIRunInSubmittedJob checks a job that the driver submits: it inherits the settings for
// the driver's mpirun, but its own mpirun must use its own nodes.
func TestOwnMPIRunInSubmittedJob(t *testing.T) {
	t.Parallel()
	for _, m := range ownMPIs(t) {
		t.Run(m.name, func(t *testing.T) {
			bed := claim(t, fewNodes)
			dir := bed.place(t)
			bed.makeDir(t, dir)
			script, out := filepath.Join(dir, "job.sh"), filepath.Join(dir, "out")
			must(t, os.WriteFile(script,
				[]byte("#!/bin/sh\nexec "+m.launcher+" -n 4 "+strings.Join(m.ring(t, bed),
					" ")+"\n"), 0o755))
			l := m.launch(t, bed, nil)
			l.nodes = 2
			l.driver = []string{"sh", "-c",
				"sbatch --quiet --wait -N2 -n4 --ntasks-per-node=2 -w n[2-3] --chdir=" + dir +
					" --output=" + out + " " + script + "; code=$?; cat " + out + "; exit $code"}
			j := bed.run(t, l)
			j.wantCode(0)
			// Slurm may print more, also after it.
			if want := "ring of 4 on n2,n3\n"; !strings.Contains(j.stdout.String(), want) {
				t.Errorf("it said %q, not %q", &j.stdout, want)
			}
		})
	}
}

// TestNestedSrunOverlaps runs an srun inside the run.
func TestNestedSrunOverlaps(t *testing.T) {
	t.Parallel()
	for name, srun := range map[string]string{"given to it": "srun --overlap -N2 hostname",
		"in the environment": "SLURM_OVERLAP=1 srun -N2 hostname"} {
		t.Run("--overlap "+name, func(t *testing.T) {
			bed := claim(t, fewNodes)
			bed.run(t, launch{nodes: 2, driver: []string{"sh", "-c", srun}}).wantCode(0)
		})
	}
}

// TestOwnMPIRunNeedsLifelines checks the error of bringupd rsh if there are no peer links.
func TestOwnMPIRunNeedsLifelines(t *testing.T) {
	bed := claim(t, fewNodes)
	j := bed.run(t, launch{nodes: 2, flags: []string{"--lifeline=off"},
		driver: []string{program, "rsh", "n1", "true"}})
	j.wantCode(255)
	if want := "has no peer link, which bringupd rsh needs"; !strings.Contains(j.stderr.String(),
		want) {
		t.Errorf("standard error lacks %q: %s", want, &j.stderr)
	}
}

// TestRsh checks that hosts are found by each of their names, and that output is not delayed.
func TestRsh(t *testing.T) {
	bed := claim(t, fewNodes)
	script := `for host in n1 n1.cluster.example ` + bed.Address(1) + ` 1; do ` + program +
		` rsh $host 'hostname; exit 3'; echo $?; done; ` + program + ` rsh nowhere true`
	j := bed.run(t, launch{nodes: 3, driver: []string{"sh", "-c", script}})
	j.wantCode(255)
	if want := strings.Repeat("n1\n3\n", 4); j.stdout.String() != want {
		t.Errorf("it said %q, not %q", &j.stdout, want)
	}
	want := "cannot run a command on nowhere: it is not one of this run's nodes: n[0-2]"
	if !strings.Contains(j.stderr.String(), want) {
		t.Errorf("standard error lacks %q: %s", want, &j.stderr)
	}
}

// TestRshToALostNode checks that bringupd rsh reports the loss of its node, and that the run ends
// because of the loss.
func TestRshToALostNode(t *testing.T) {
	bed := claim(t, fewNodes)
	j := bed.start(t, launch{nodes: 3,
		driver: []string{"sh", "-c",
			program + " rsh n2 'echo up; sleep 1000'; echo code $?; sleep 1000"}})
	eventually(t, func() string {
		if strings.Contains(j.stdout.String(), "up") {
			return ""
		}
		return "not up: " + j.stderr.String()
	})
	kill(t, bed.daemonOf(t, 2), syscall.SIGKILL)
	j.wait()
	if code := j.result().Code; code != 76 || j.stdout.String() != "up\ncode 255\n" ||
		!strings.Contains(j.stderr.String(), "cannot run a command on n2: the node is lost") {
		t.Errorf("the run ended with %d, and the driver said %q\n%s", code, &j.stdout, &j.stderr)
	}
}
