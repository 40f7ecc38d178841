package exec

import (
	"os"
	"slices"
	"strings"
	"testing"

	"go.uber.org/zap"

	"github.com/bringupd/bringupd/internal/envlist"
)

func TestHostfile(t *testing.T) {
	for name, tc := range map[string]struct {
		hosts []string
		want  string
	}{
		"hosts":                     {[]string{"n0", "n1"}, "n0:4\nn1:4\n"},
		"several daemons on a host": {[]string{"n0", "vm", "n0"}, "n0:8\nvm:4\n"},
		"none":                      {nil, ""},
	} {
		if got := formatHostfile(tc.hosts, 4, "%s:%d\n"); got != tc.want {
			t.Errorf("%s: %q, not %q", name, got, tc.want)
		}
	}
}

func TestEquip(t *testing.T) {
	s := raise(t)
	d := DriverInfo{Program: "/bin/bringupd", Hosts: []string{"n0", "n1"}, Slots: 2}
	set := s.nodes[0].PrepareDriver(d, []string{"HYDRA_LAUNCHER=ssh", "OMPI_MCA_plm="})
	for name, want := range map[string]string{
		"OMPI_MCA_plm_rsh_agent": "/bin/bringupd rsh", "PRTE_MCA_plm": "ssh",
		"I_MPI_HYDRA_BOOTSTRAP_EXEC": "/bin/bringupd",
		// Values that the user has set stay.
		"HYDRA_LAUNCHER": "", "OMPI_MCA_plm": "", jobVariable: "none", SocketVariable: s.nodes[0].SocketPath(),
	} {
		if set[name] != want {
			t.Errorf("%s is %q, not %q", name, set[name], want)
		}
	}
	for name, want := range map[string]string{
		HostfileVariable:                 "n0 slots=2\nn1 slots=2\n",
		"PRTE_MCA_prte_default_hostfile": "n0 slots=2\nn1 slots=2\n", "HYDRA_HOST_FILE": "n0:2\nn1:2\n",
	} {
		if text, err := os.ReadFile(set[name]); string(text) != want {
			t.Errorf("%s has %q: %v", name, text, err)
		}
	}
	d.HostsOnly = true
	if set := s.nodes[0].PrepareDriver(d, nil); len(set) != 2 || set[HostfileVariable] == "" ||
		set[SocketVariable] == "" {
		t.Errorf("a driver whose mpirun is left alone is told %q", set)
	}
}

// TestEquipInSlurm verifies that, in a Slurm job, an mpirun finds the nodes through variables that
// Slurm sets again for another job.
func TestEquipInSlurm(t *testing.T) {
	s := raise(t)
	d := DriverInfo{Program: "/bin/bringupd", Hosts: []string{"n0", "n1", "n4"}, Slots: 2}
	job := []string{"SLURM_JOB_ID=17", "SLURM_JOBID=17", "SLURM_NODELIST=n[0-7]", "SLURM_TASKS_PER_NODE=1(x8)"}
	set := s.nodes[0].PrepareDriver(d, job)
	for name, want := range map[string]string{
		"SLURM_NODELIST": "n[0-1,4]", "SLURM_TASKS_PER_NODE": "2(x3)", "HYDRA_HOST_FILE": "",
		"I_MPI_HYDRA_HOST_FILE": "", "OMPI_MCA_ras": "",
		"HYDRA_LAUNCHER_EXEC": "/bin/bringupd", jobVariable: "SLURM_JOB_ID=17",
	} {
		if set[name] != want {
			t.Errorf("%s is %q, not %q", name, set[name], want)
		}
	}

	// A run in a job that this driver submits sets its own variables, except those that the user has
	// changed.
	inherited := envlist.With(append(job, "BRINGUPD_RUN=17.0"), set)
	inherited = envlist.With(inherited, map[string]string{"SLURM_JOB_ID": "18", "SLURM_JOBID": "18",
		"HYDRA_LAUNCHER": "ssh"})
	set = s.nodes[0].PrepareDriver(DriverInfo{Program: "/opt/bringupd", Hosts: []string{"n5"}, Slots: 4}, inherited)
	for name, want := range map[string]string{
		"SLURM_NODELIST": "n5", "SLURM_TASKS_PER_NODE": "4", "HYDRA_LAUNCHER_EXEC": "/opt/bringupd",
		"PRTE_MCA_plm_ssh_agent": "/opt/bringupd rsh",
		"HYDRA_LAUNCHER":         "", jobVariable: "SLURM_JOB_ID=18",
	} {
		if set[name] != want {
			t.Errorf("in a submitted job, %s is %q, not %q", name, set[name], want)
		}
	}

	// On one machine without a job Hydra needs no host file, which a submitted job would inherit.
	set = s.nodes[0].PrepareDriver(DriverInfo{Program: "/bin/bringupd", Hosts: []string{"vm", "vm"},
		Slots: 2}, []string{"HYDRA_HOST_FILE=mine"})
	if _, is := set["HYDRA_HOST_FILE"]; is || set["I_MPI_HYDRA_HOST_FILE"] != "" {
		t.Errorf("on one machine Hydra is told %q", set)
	}
}

func TestOutside(t *testing.T) {
	for _, tc := range []struct{ name, environ, want string }{
		{"in the run", "BRINGUPD_RSH_JOB=SLURM_JOB_ID=17 SLURM_JOB_ID=17", ""},
		{"in another job", "BRINGUPD_RSH_JOB=SLURM_JOB_ID=17 SLURM_JOB_ID=18", "srun"},
		{"in a job that a run without one has submitted", "BRINGUPD_RSH_JOB=none SLURM_JOB_ID=18", "srun"},
		{"in another job of PBS", "BRINGUPD_RSH_JOB=PBS_JOBID=17.s PBS_JOBID=18.s", "ssh"},
		{"where the job is not told", "BRINGUPD_RSH_JOB=SLURM_JOB_ID=17", ""},
		{"without a run", "SLURM_JOB_ID=18", ""},
	} {
		argv := OtherJobCommand(strings.Fields(tc.environ), "n1", "orted -x 1")
		if tc.want == "" && argv != nil || tc.want != "" &&
			(len(argv) == 0 || argv[0] != tc.want || argv[len(argv)-1] != "orted -x 1") {
			t.Errorf("%s: %q", tc.name, argv)
		}
		if tc.want == "srun" && !slices.Contains(argv, "--nodelist=n1") {
			t.Errorf("%s: %q", tc.name, argv)
		}
	}
}

func TestNoPrivateDirectory(t *testing.T) {
	n := NewNode(Daemon{})
	n.PrivateDir = func() (string, error) { return "/nowhere", os.ErrNotExist }
	n.SocketDir = n.PrivateDir
	n.Log = zap.NewNop()
	if set := n.PrepareDriver(DriverInfo{Hosts: []string{"n0"}, Slots: 1}, nil); set != nil || n.SocketPath() != "" {
		t.Errorf("it is told %q, and of a socket %q", set, n.SocketPath())
	}
}

func TestFind(t *testing.T) {
	s := new(stage)
	for word, want := range map[string]int{
		"n0": 0, "N1.site": 1, "n1": 1, "n2.site": 2, "3": 3, "10.0.0.3": 2, "localhost": 2, "127.0.0.1": 2, "::1": 2,
		"n1.other": -1, "10.0.0.9": -1, "4": -1, "": -1,
	} {
		rank, err := FindNode(word, 2, s)
		if want == -1 && err == nil || want >= 0 && (err != nil || rank != want) {
			t.Errorf("%q is %d (%v), not %d", word, rank, err, want)
		}
	}
}
