package exec

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/bringupd/bringupd/pkg/roles/launcher"
)

// Environment variables of programs that a driver starts. An agent compares them with its own job:
// a job that the driver submits inherits them.
const (
	jobVariable     = "BRINGUPD_RSH_JOB"     // result of launcher.JobIdentity in the run
	programVariable = "BRINGUPD_RSH_PROGRAM" // path of the agent's program
)

// HostfileVariable is the environment variable with the path of a file that lists the driver's
// nodes with their slots, in the format of Open MPI and many others.
const HostfileVariable = "BRINGUPD_HOSTFILE"

// DriverInfo has the information by which an mpirun of the driver finds and reaches the nodes.
type DriverInfo struct {
	Program   string   // path of bringupd's own program
	Hosts     []string // hosts of the driver's nodes, in order
	Slots     int      // number of ranks that each node can have
	HostsOnly bool     // only list the hosts, without variables for an mpirun
	Argv      []string // the driver's command
	IsMPIRun  bool     // the driver is an MPI's launcher itself
}

// PrepareDriver writes host files and returns additional variables for a driver with the given
// environment. Variables that a user has set are not changed. If the files cannot be written, it
// logs the reason and returns nil, and the driver runs without them.
func (n *Node) PrepareDriver(d DriverInfo, environ []string) map[string]string {
	dir, err := n.PrivateDir()
	own := launcher.EnvironmentOf(environ)
	inSlurm := launcher.SlotVariables(own, d.Hosts, d.Slots)
	// If an mpirun does not find the host file, its error contains this name, which shows the origin
	// of the file.
	hostfile, hydras := filepath.Join(dir, "bringupd-hostfile"), ""
	if err == nil {
		err = os.WriteFile(hostfile, []byte(formatHostfile(d.Hosts, d.Slots, "%s slots=%d\n")), 0o600)
	}
	// Hydra prefers its host file to the hosts of its job, even in another job that has inherited the
	// variable. Within a Slurm job, and on one machine, Hydra needs no file.
	oneMachine := len(slices.Compact(slices.Sorted(slices.Values(d.Hosts)))) == 1 &&
		launcher.JobIdentity(own) == launcher.NoJob
	if err == nil && inSlurm == nil && !oneMachine {
		hydras = hostfile + hydraSuffix
		err = os.WriteFile(hydras, []byte(formatHostfile(d.Hosts, d.Slots, "%s:%d\n")), 0o600)
	}
	if err != nil {
		n.Log.Warn(fmt.Sprintf("cannot set %s for the driver, so mpirun in it does not know the "+
			"run's nodes: %v", HostfileVariable, err))
		return nil
	}
	set := map[string]string{HostfileVariable: hostfile, SocketVariable: n.SocketPath()}
	if d.HostsOnly || set[SocketVariable] == "" {
		return set
	}
	maps.Copy(set, inSlurm)
	set[jobVariable], set[programVariable] = launcher.JobIdentity(own), d.Program
	if d.IsMPIRun {
		n.Log.Info(fmt.Sprintf("%s has %d slots: %d on each of %d nodes, %s (--slots-per-node)",
			filepath.Base(d.Argv[0]), d.Slots*len(d.Hosts), d.Slots, len(d.Hosts), launcher.CompactNodeList(d.Hosts)))
	}
	if idle := launcher.IdleNodesHint(own); idle != "" {
		n.Log.Warn(idle)
	}
	// Set the variables for the launchers, unless the user has set them. Those of the run whose driver
	// has submitted this job are not valid any more.
	outerProgram, isNested := own(programVariable)
	outerHosts, _ := own(HostfileVariable)
	outer := launcherVariables(outerProgram, outerHosts, outerHosts+hydraSuffix)
	for name, value := range launcherVariables(d.Program, hostfile, hydras) {
		if now, isSet := own(name); !isSet && value != "" || isSet && isNested && now == outer[name] {
			set[name] = value
		}
	}
	return set
}

const hydraSuffix = ".hydra"

// formatHostfile returns the text of a host file, which lists each host once, with the slots of all
// its nodes. form is the format of a line.
func formatHostfile(hosts []string, slots int, form string) string {
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

// launcherVariables returns the variables that make the launchers of the MPIs start their daemons
// by bringupd rsh. By default, each uses the launcher of the job, but an srun would wait for the
// resources of this run. The daemons of Open MPI stay in the foreground, so that they end with
// their agent. Open MPI reads its default host file only if the job provides no hosts. An empty value
// is that of a variable that is not needed.
func launcherVariables(program, hosts, hydras string) map[string]string {
	agent := program + " rsh"
	return map[string]string{
		"HYDRA_HOST_FILE": hydras, "I_MPI_HYDRA_HOST_FILE": hydras,
		"OMPI_MCA_plm": "rsh", "OMPI_MCA_plm_rsh_agent": agent,
		"OMPI_MCA_orte_default_hostfile": hosts, "OMPI_MCA_orte_leave_session_attached": "1",
		"PRTE_MCA_plm": "ssh", "PRTE_MCA_plm_ssh_agent": agent,
		"PRTE_MCA_prte_default_hostfile": hosts, "PRTE_MCA_prte_leave_session_attached": "1",
		"HYDRA_LAUNCHER": "rsh", "HYDRA_LAUNCHER_EXEC": program, "HYDRA_LAUNCHER_EXTRA_ARGS": "rsh",
		"I_MPI_HYDRA_BOOTSTRAP": "rsh", "I_MPI_HYDRA_BOOTSTRAP_EXEC": program,
		"I_MPI_HYDRA_BOOTSTRAP_EXEC_EXTRA_ARGS": "rsh",
	}
}
