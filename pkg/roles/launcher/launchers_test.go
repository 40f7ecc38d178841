package launcher

import (
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"testing"
)

// files returns a function that reads a launcher's files from a text.
func files(text string) func(string) ([]byte, error) {
	return func(path string) ([]byte, error) {
		if text == "" {
			return nil, &fs.PathError{Op: "open", Path: path, Err: fs.ErrNotExist}
		}
		return []byte(text), nil
	}
}

// TestLaunchers verifies that the daemons of each launcher derive the same facts for everything
// that all daemons of a launch must agree on.
func TestLaunchers(t *testing.T) {
	hosts := []string{"n1", "n2", "n3"}
	for _, tc := range []struct {
		files    string // without the rank
		launcher Launcher
		want     Overrides
		run      string
		hosts    []string
	}{
		{files: "openmpi-4.1.4/", launcher: LauncherOpenMPI, run: "mpirun-681771009"},
		{files: "openmpi-5.0.11/", launcher: LauncherOpenMPI, run: "prterun-vm-17536-1"},
		{files: "openmpi-5.0.11/", launcher: LauncherOpenMPI, want: Overrides{JobID: "17"}, run: "17"},
		{files: "mpich-4.0.2/", launcher: LauncherMPICH, want: Overrides{JobID: "17"}, run: "17"},
		{files: "mpich-5.0.2/", launcher: LauncherMPICH, want: Overrides{JobID: "17"}, run: "17"},
		{files: "intelmpi-2021.18.1/", launcher: LauncherMPICH, want: Overrides{JobID: "17"}, run: "17"},
		{files: "flux-0.88/run-", launcher: LauncherFlux, run: "f35EJeub5"},
		{files: "pals/mpiexec-", launcher: LauncherPALS, run: "1234.0f4fb1b2-73a0-4b63-9c43-6c2f1c1d0a11"},
		{files: "pals/mpiexec-", launcher: LauncherPALS, want: Overrides{JobID: "second"}, run: "1234.second"},
		{files: "openpbs/task-", launcher: LauncherPBS, want: Overrides{ReadFile: files("n1\nn2\nn3\n")}, run: "0", hosts: hosts},
		{files: "openpbs/task-", launcher: LauncherPBS, want: Overrides{JobID: "second", ReadFile: files("n1\nn2\nn3\n")}, run: "0.second", hosts: hosts},
		{files: "openpbs/task-", launcher: LauncherPBS, want: Overrides{Size: new(3), ReadFile: files("")}, run: "0"},
		{files: "openpbs/task-", launcher: LauncherPBS, want: Overrides{Size: new(3), ReadFile: files("n1\nn1\nn2\nn2\nn3\n")}, run: "0", hosts: hosts},
		{files: "lsf-10.1/blaunch-", launcher: LauncherLSF, run: "748", hosts: hosts},
		{files: "kubernetes-1.37/pod-", launcher: LauncherKubernetes, want: Overrides{Size: new(3)}, run: "train"},
		{files: "kubernetes-1.37/pod-", launcher: LauncherKubernetes, want: Overrides{Size: new(3), JobID: "mine"}, run: "mine"},
	} {
		t.Run(tc.files+tc.run, func(t *testing.T) {
			keys := map[string]bool{}
			for node := range 3 {
				hostname := fmt.Sprintf("n%d.example", node+1)
				if tc.launcher == LauncherKubernetes {
					hostname = fmt.Sprintf("train-%d", node)
				}
				id, err := IdentifyDaemon(fromMap(environmentOf(t, fmt.Sprintf("%srank%d", tc.files, node))), hostname, tc.want)
				if err != nil {
					t.Fatal(err)
				}
				if id.Launcher != tc.launcher || id.NodeIndex != node || id.Size != 3 || id.RunName() != tc.run || !slices.Equal(id.Hosts, tc.hosts) {
					t.Errorf("got %+v of run %s", id, id.RunName())
				}
				checkIdentity(t, id)
				keys[id.LaunchKey] = true
			}
			if len(keys) != 1 {
				t.Errorf("the daemons of a launch have the keys %v", keys)
			}
		})
	}
}

// TestPBSNodeFile verifies that a task on the first host without PBS_NODEFILE finds the file at its
// usual place.
func TestPBSNodeFile(t *testing.T) {
	const aux = "aux/0.pbs01"
	for _, tc := range []struct {
		name, file string
		change     []string
		files      map[string]string
		want       int // number of nodes; 0: an error that contains the file's path and says
		says       string
	}{
		{"PBS's usual place", "task-rank0", nil, map[string]string{"/var/spool/pbs/" + aux: "n1\nn2\n"}, 2, ""},
		{"PBS_HOME itself", "task-rank0", []string{"PBS_HOME=/h"}, map[string]string{"/h/" + aux: "n1\n"}, 1, ""},
		{"an element of an array", "array-rank0", nil, map[string]string{"/var/spool/pbs/aux/32[5].pbs01": "n1\nn2\n"}, 2, ""},
		{"no such file", "task-rank0", nil, nil, 0, "/var/spool/pbs/" + aux},
		{"told, and elsewhere", "task-rank1", []string{"PBS_NODEFILE=/x"}, map[string]string{"/var/spool/pbs/" + aux: "n1\nn2\n"}, 0, `"/x"`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			read := func(path string) ([]byte, error) { return files(tc.files[path])(path) }
			id, err := IdentifyDaemon(fromMap(change(environmentOf(t, "openpbs/"+tc.file), tc.change...)), "n1", Overrides{ReadFile: read})
			if tc.want > 0 && (err != nil || id.Size != tc.want || id.NodeIndex != 0) {
				t.Errorf("got %+v, %v", id, err)
			}
			if tc.want == 0 && (err == nil || !strings.Contains(err.Error(), tc.says)) {
				t.Errorf("the error is %v, want %q", err, tc.says)
			}
		})
	}
}

func TestPBSKinds(t *testing.T) {
	for _, tc := range []struct {
		name, file, host, lines string
		change                  []string
		rank, size              int
		run                     string
	}{
		{name: "an element of an array", file: "openpbs/array-rank1", host: "n2", lines: "n1\nn2\n", rank: 1, size: 2, run: "32-5"},
		{name: "a job of one host, in its shell", file: "openpbs/shell", host: "n1", lines: "n1\nn1\n", size: 1, run: "0"},
		{name: "after a chunk with mpiprocs=0", file: "openpbs/task-rank2", host: "n3", lines: "n1\nn3\n", rank: 1, size: 2, run: "0"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			id, err := IdentifyDaemon(fromMap(change(environmentOf(t, tc.file), tc.change...)), tc.host, Overrides{ReadFile: files(tc.lines)})
			if err != nil || id.NodeIndex != tc.rank || id.Size != tc.size || id.RunName() != tc.run || id.Host != tc.host {
				t.Errorf("got %+v of run %s, %v", id, id.RunName(), err)
			}
		})
	}
}

// TestInnermostLauncher verifies that a launcher that starts processes inside another one takes
// precedence, and that a shell of a batch system yields to a launcher with more information.
func TestInnermostLauncher(t *testing.T) {
	step := recorded(t, "step-rank1")
	with := func(name string, more ...map[string]string) map[string]string {
		all := environmentOf(t, name)
		for _, vars := range more {
			for variable, value := range vars {
				if _, set := all[variable]; !set {
					all[variable] = value
				}
			}
		}
		return all
	}
	for _, tc := range []struct {
		name string
		env  map[string]string
		want Overrides
		by   Launcher
	}{
		{name: "mpirun, whose daemon srun has started", env: with("openmpi-4.1.4/rank1", step), by: LauncherOpenMPI},
		{name: "mpiexec in a shell that srun has started", env: with("mpich-4.0.2/rank1", step), want: Overrides{JobID: "a"}, by: LauncherMPICH},
		{name: "mpirun in a job of PBS", env: with("openmpi-5.0.11/rank1", environmentOf(t, "openpbs/task-rank1")), by: LauncherOpenMPI},
		{name: "mpirun in a job of LSF", env: with("openmpi-5.0.11/rank1", environmentOf(t, "lsf-10.1/blaunch-rank1")), by: LauncherOpenMPI},
		{name: "Flux in a step of Slurm's", env: with("flux-0.88/run-rank1", step), by: LauncherFlux},
		{name: "Flux, which tells its tasks Cray's variables", env: with("flux-0.88/run-rank1", environmentOf(t, "pals/mpiexec-rank1")), by: LauncherFlux},
		{name: "Flux with Spectrum MPI", env: change(with("flux-0.88/run-rank1"), "OMPI_COMM_WORLD_RANK=1"), by: LauncherFlux},
		{name: "Slurm, which tells its tasks Cray's variables", env: change(with("pals/mpiexec-rank1", step), "PALS_APID=1.0"), by: LauncherSlurm},
		{name: "Slurm with PMI", env: change(step, "PMI_RANK=1", "PMI_SIZE=3", "PMIX_NAMESPACE=slurm.pmix.1.0", "PMIX_RANK=1"), by: LauncherSlurm},
		{name: "Slurm in a pod", env: change(step, "KUBERNETES_SERVICE_HOST=h", "JOB_COMPLETION_INDEX=1"), by: LauncherSlurm},
		{name: "plain ranks in the shell of a job", env: change(environmentOf(t, "lsf-10.1/shell"), "RANK=0", "WORLD_SIZE=1"), want: Overrides{JobID: "a"}, by: LauncherRanks},
		{name: "plain ranks in a pod", env: change(environmentOf(t, "kubernetes-1.37/pod-of-no-index"), "RANK=0", "WORLD_SIZE=1"), want: Overrides{JobID: "a"}, by: LauncherRanks},
		{name: "flags in a job of PBS", env: environmentOf(t, "openpbs/task-rank1"), want: Overrides{NodeIndex: new(0), Size: new(1), JobID: "a"}, by: LauncherRanks},
	} {
		t.Run(tc.name, func(t *testing.T) {
			id, err := IdentifyDaemon(fromMap(tc.env), "n2", tc.want)
			if tc.by == LauncherPBS || err != nil || id.Launcher != tc.by {
				t.Errorf("got %+v, %v; want %s", id, err, tc.by)
			}
		})
	}
}

func TestLaunchersMistakes(t *testing.T) {
	env := func(name string, changes ...string) map[string]string {
		return change(environmentOf(t, name), changes...)
	}
	for _, tc := range []struct {
		name string
		env  map[string]string
		host string
		want Overrides
		says []string
	}{
		{name: "mpirun without a map", env: env("openmpi-4.1.4/crowded-rank1"), says: []string{"rank 1 of 2", "start it with: mpirun --map-by ppr:1:node bringupd"}},
		{name: "mpirun without a namespace", env: env("openmpi-5.0.11/rank1", "PMIX_NAMESPACE"), says: []string{"cannot name the run", "--job-id=NAME"}},
		{name: "mpirun, a rank beyond", env: env("openmpi-5.0.11/rank1", "OMPI_COMM_WORLD_RANK=3"), says: []string{"the rank is 3 of 3"}},
		{name: "mpiexec without -ppn", env: env("mpich-4.0.2/crowded-rank0"), want: Overrides{JobID: "a"}, says: []string{"MPI_LOCALNRANKS=2", "mpiexec -ppn 1"}},
		{name: "mpiexec without a name", env: env("mpich-5.0.2/rank1"), says: []string{"cannot name the run", "--job-id=NAME"}},
		{name: "mpirun in its own run", env: env("openmpi-4.1.4/rank0", "BRINGUPD_RUN=mpirun-681771009"), says: []string{"inside run mpirun-681771009", "another --job-id"}},

		{name: "Flux, two tasks a node", env: env("flux-0.88/run-rank1", "FLUX_JOB_SIZE=6"), says: []string{"6 tasks on 3 nodes", "flux run -N3 --tasks-per-node=1 bringupd"}},
		{name: "Flux's shell", env: env("flux-0.88/batch-shell"), says: []string{"no flux run has started this process", "flux run -N"}},
		{name: "Flux without nodes", env: env("flux-0.88/run-rank1", "FLUX_JOB_NNODES"), says: []string{"FLUX_JOB_NNODES is not set"}},

		{name: "PALS, two ranks a node", env: env("pals/mpiexec-rank1", "PALS_LOCAL_SIZE=2"), says: []string{"mpiexec --ppn 1"}},
		{name: "PALS without PMI", env: env("pals/mpiexec-rank1", "PMI_SIZE"), says: []string{"PMI_SIZE is not set"}},

		{name: "PBS's shell", env: env("openpbs/shell"), want: Overrides{ReadFile: files("n1\nn2\n")}, says: []string{"the shell of job 0", "once on every node", "pbsdsh -- bringupd"}},
		{name: "PBS's shell with --nnodes", env: env("openpbs/shell"), want: Overrides{Size: new(2), ReadFile: files("n1\nn2\n")}, says: []string{"the shell of job 0", "pbsdsh -- bringupd"}},
		{name: "an array's shell with --nnodes", env: env("openpbs/array-shell"), want: Overrides{Size: new(2), ReadFile: files("")}, says: []string{"the shell of job 32-5", "pbsdsh -- bringupd"}},
		{name: "PBS, a process for each CPU", env: env("openpbs/task-rank1"), want: Overrides{ReadFile: files("n1\nn1\nn2\nn2\n")},
			says: []string{"4 lines for 2 hosts", "-l select=2:mpiprocs=1 -l place=scatter", "--nnodes=2"}},
		{name: "PBS without a file", env: env("openpbs/task-rank1"), want: Overrides{ReadFile: files("")}, says: []string{`PBS_NODEFILE ("/var/spool/pbs/aux/0.pbs01")`, "does not exist", "--nnodes"}},
		{name: "PBS with a file of something else", env: env("openpbs/task-rank1"), want: Overrides{ReadFile: files("#!/bin/sh\n\x7fELF\n")}, says: []string{"where a host name was expected"}},
		{name: "PBS, a host beyond", env: env("openpbs/task-rank2"), host: "n3", want: Overrides{ReadFile: files("n1\nn2\n")}, says: []string{"the rank is 2"}},

		{name: "LSF's shell", env: env("lsf-10.1/shell"), host: "n1", says: []string{"the shell of job 748", `blaunch -z "n1 n2 n3" bringupd`}},
		{name: "LSF, a task for each slot", env: env("lsf-10.1/blaunch-rank1", "LSB_MCPU_HOSTS=n1 2 n2 2"), host: "n1", says: []string{"4 slots on 2 hosts", `blaunch -z "n1 n2"`}},
		{name: "LSF, an unknown host", env: env("lsf-10.1/blaunch-rank1", "LSB_MCPU_HOSTS=n1 2 n2 2"), host: "x", says: []string{"x is none of the job's hosts"}},
		{name: "LSF, odd hosts", env: env("lsf-10.1/blaunch-rank1", "LSB_MCPU_HOSTS=n1 2 n2"), host: "n1", says: []string{"each with its number of slots"}},
		{name: "LSF without hosts", env: env("lsf-10.1/blaunch-rank1", "LSB_MCPU_HOSTS", "LSB_HOSTS"), want: Overrides{ReadFile: files("")}, says: []string{"LSB_DJOB_HOSTFILE cannot be read"}},

		{name: "a Job that is not indexed", env: env("kubernetes-1.37/pod-of-no-index"), host: "train-xyz12", says: []string{"not in an Indexed Job", "completionMode: Indexed"}},
		{name: "a pod without a size", env: env("kubernetes-1.37/pod-rank1"), host: "train-1", says: []string{"how many pods", "--nnodes=N"}},
		{name: "a pod beyond", env: env("kubernetes-1.37/pod-rank2"), host: "train-2", want: Overrides{Size: new(2)}, says: []string{"pod 2 of 2", "0 to 1"}},
		{name: "a pod of another name", env: env("kubernetes-1.37/pod-rank1"), host: "node7", want: Overrides{Size: new(2)}, says: []string{`"node7" does not end in -1`, "--job-id"}},
		{name: "an index that is none", env: env("kubernetes-1.37/pod-rank1", "JOB_COMPLETION_INDEX=one"), host: "train-1", want: Overrides{Size: new(2)}, says: []string{`JOB_COMPLETION_INDEX is "one"`}},
		{name: "a name that leads out", env: env("openpbs/task-rank1"), want: Overrides{JobID: "../x", Size: new(2), ReadFile: files("")}, says: []string{"cannot name a run"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if tc.host == "" {
				tc.host = "n2"
			}
			_, err := IdentifyDaemon(fromMap(tc.env), tc.host, tc.want)
			wantLaunchError(t, err, tc.says)
		})
	}
}

// TestWords verifies that each launcher has all phrases that messages are composed of.
func TestWords(t *testing.T) {
	for _, l := range allLaunchers {
		w := l.name.CommandHints("17-4")
		switch {
		case w.NoRequeueReason == "" || !strings.Contains(w.StartOn(3), "3"):
			t.Errorf("%s lacks words: %+v", l.name, w)
		case w.MemoryUsed != "" && (w.MoreMemory == "" || w.AllMemory == ""), w.WhyEnded != "" && w.MoreTime == "", w.ShowNode != "" && w.Title == "":
			t.Errorf("%s has a part of what a sentence needs: %+v", l.name, w)
		}
	}
	for _, tc := range []struct{ got, want string }{
		{LauncherPBS.CommandHints("17-4").MemoryUsed, "qstat -xf 17[4]"},
		{ForNodes(LauncherPBS.CommandHints("17").ShowNode, "n[1-2]"), "pbsnodes n1 n2"},
		{ForHost(LauncherPBS.CommandHints("17").DrainNode, "n1", "Xid 79"), `pbsnodes -C "Xid 79" -o n1`},
		{LauncherPALS.CommandHints("17").StartOn(4), "mpiexec -n 4 --ppn 1"},
		{LauncherLSF.CommandHints("17-4").MemoryUsed, `bjobs -l "17[4]"`},
		{ForNodes(LauncherLSF.CommandHints("17").ExcludeNodes, "n[1-2]"), `bsub -R "select[hname!='n1' && hname!='n2']" …`},
		{Identity{Launcher: LauncherKubernetes, Job: "train-cb0c52b1", Host: "train-1", NodeIndex: 1}.LauncherJob(), "train"},
		{Identity{Launcher: LauncherKubernetes, Job: "train-cb0c52b1", Host: "n1"}.LauncherJob(), "train-cb0c52b1"},
		{LauncherFlux.CommandHints("fA-fB").WhyEnded, "the time limit, an exception or flux cancel: flux job eventlog fA"},
		{ForNodes(LauncherFlux.CommandHints("f1").ExcludeNodes, "n[1-2]"), "flux run --requires=-host:n[1-2] …"},
		{ForHost(LauncherFlux.CommandHints("f1").DrainNode, "n1", "bad"), `flux resource drain n1 "bad"`},
		{ForNodes(LauncherFlux.CommandHints("f1").ShowNode, "n1"), "flux resource status --include=n1"},
		{ForHost(LauncherLSF.CommandHints("1").DrainNode, "n1", "bad"), `badmin hclose -C "bad" n1`},
		{LauncherLSF.StarterProgram() + ", " + LauncherKubernetes.StarterProgram() + ", " + Launcher("").StarterProgram(), "blaunch, the pods start, srun"},
	} {
		if tc.got != tc.want {
			t.Errorf("got %q, want %q", tc.got, tc.want)
		}
	}
}

func TestSignalsAll(t *testing.T) {
	for variable, want := range map[string]bool{"SLURM_JOB_ID=7": true, "PBS_JOBID=7": false, "FLUX_JOB_ID=7": false, "HOME=/": false} {
		if got := MaySignalAll([]string{variable}); got != want {
			t.Errorf("with %s it is %t", variable, got)
		}
	}
}
