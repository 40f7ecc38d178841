package remote

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/bringupd/bringupd/pkg/mpi"
	"github.com/bringupd/bringupd/pkg/roles"
)

// The variables of programs that a driver starts, from which an agent sees whether it is in another job
// than the run, which has inherited them.
const (
	jobVariable     = "BRINGUPD_RSH_JOB"     // as roles.JobOf returns it
	programVariable = "BRINGUPD_RSH_PROGRAM" // the agent's program
)

// HostfileVariable tells a driver where its nodes are listed with their slots, as Open MPI and many others read it.
const HostfileVariable = "BRINGUPD_HOSTFILE"

// Driver is what a driver is told so that its own mpirun finds the nodes, and the way to them.
type Driver struct {
	Program string   // this one
	Hosts   []string // of the driver's nodes, in their order
	Slots   int      // how many ranks each may have
	Quiet   bool     // no mpirun is told: the hosts are listed, no more
	Argv    []string // what it is
}

// Equip lists the hosts in files and returns the variables for a driver whose environment is told: what somebody has set
// there stays. Where the files can't be made the log tells, and the driver does without.
func (n *Node) Equip(d Driver, environ []string) map[string]string {
	dir, err := n.Private()
	own := roles.EnvironmentOf(environ)
	inSlurm, inherited := roles.SlotVariables(own, d.Hosts, d.Slots), inheritedLaunchers(own)
	// An mpirun that does not find a file names it, and so whose it was.
	ours, hydras := filepath.Join(dir, "bringupd-hostfile"), ""
	if err == nil {
		err = os.WriteFile(ours, []byte(hostfile(d.Hosts, d.Slots, "%s slots=%d\n")), 0o600)
	}
	// Hydra reads its hosts from a file before it looks for those of its job, also in a job that has
	// inherited the variable. On one machine it needs none.
	oneMachine := len(slices.Compact(slices.Sorted(slices.Values(d.Hosts)))) == 1 && roles.JobOf(own) == roles.NoJob
	if err == nil && inSlurm == nil && !oneMachine {
		hydras = ours + hydraEnding
		err = os.WriteFile(hydras, []byte(hostfile(d.Hosts, d.Slots, "%s:%d\n")), 0o600)
	}
	if err != nil {
		n.Log.Warn(fmt.Sprintf("the driver has no %s, and its mpirun is told no nodes: %v", HostfileVariable, err))
		return nil
	}
	set := map[string]string{HostfileVariable: ours, SocketVariable: n.Socket()}
	if d.Quiet || set[SocketVariable] == "" {
		return set
	}
	maps.Copy(set, roles.PMIVariables(environ)) // Slurm's serves this daemon's task, if any
	maps.Copy(set, inSlurm)
	set[jobVariable], set[programVariable] = roles.JobOf(own), d.Program
	for name := range inherited {
		set[name] = "" // of the run that has submitted this job
	}
	if mpi.Launches(d.Argv) {
		n.Log.Info(fmt.Sprintf("%s has %d slots: %d on each of %d nodes, %s (--slots-per-node)", filepath.Base(d.Argv[0]), d.Slots*len(d.Hosts), d.Slots, len(d.Hosts), roles.CompactNodeList(d.Hosts)))
	}
	if idle := roles.Idle(own); idle != "" {
		n.Log.Warn(idle)
	}
	for name, value := range launchers(d.Program, ours, hydras) {
		_, told := own(name)
		if _, stale := inherited[name]; !told || stale {
			set[name] = value
		}
	}
	return set
}

// hydraEnding ends the name of the hosts' file for Hydra.
const hydraEnding = ".hydra"

// inheritedLaunchers are those of the variables of an environment that a run has set whose driver has
// submitted this job; those that a user has changed since are not among them.
func inheritedLaunchers(env roles.Environment) map[string]string {
	program, _ := env(programVariable)
	if program == "" {
		return nil
	}
	hosts, _ := env(HostfileVariable)
	set := launchers(program, hosts, hosts+hydraEnding)
	maps.DeleteFunc(set, func(name, value string) bool {
		now, _ := env(name)
		return now != value
	})
	return set
}

// hostfile lists each host once, with the slots of all nodes that it is.
func hostfile(hosts []string, slots int, form string) string {
	count := make(map[string]int)
	for _, host := range hosts {
		count[host] += slots
	}
	var list strings.Builder
	for _, host := range hosts {
		if count[host] > 0 {
			fmt.Fprintf(&list, form, host, count[host])
			delete(count, host)
		}
	}
	return list.String()
}

// launchers are the variables by which the launchers of the MPIs bring up their daemons by bringupd rsh. Without them each
// uses the launcher of the job: Slurm's srun would wait for what this run has. The daemons of Open MPI stay in the
// foreground, where they end with their agent. Open MPI reads its default hostfile only if the job
// tells no hosts.
func launchers(program, hosts, hydras string) map[string]string {
	agent := program + " rsh"
	set := map[string]string{
		"OMPI_MCA_plm": "rsh", "OMPI_MCA_plm_rsh_agent": agent, "OMPI_MCA_orte_default_hostfile": hosts, "OMPI_MCA_orte_leave_session_attached": "1",
		"PRTE_MCA_plm": "ssh", "PRTE_MCA_plm_ssh_agent": agent, "PRTE_MCA_prte_default_hostfile": hosts, "PRTE_MCA_prte_leave_session_attached": "1",
		"HYDRA_LAUNCHER": "rsh", "HYDRA_LAUNCHER_EXEC": program, "HYDRA_LAUNCHER_EXTRA_ARGS": "rsh",
		"I_MPI_HYDRA_BOOTSTRAP": "rsh", "I_MPI_HYDRA_BOOTSTRAP_EXEC": program, "I_MPI_HYDRA_BOOTSTRAP_EXEC_EXTRA_ARGS": "rsh",
	}
	if hydras != "" {
		set["HYDRA_HOST_FILE"], set["I_MPI_HYDRA_HOST_FILE"] = hydras, hydras
	}
	return set
}
