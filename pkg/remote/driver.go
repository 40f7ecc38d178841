package remote

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"strings"

	"github.com/bringupd/bringupd/pkg/mpi"
	"github.com/bringupd/bringupd/pkg/roles"
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
	ours, hydras := filepath.Join(dir, "hostfile"), filepath.Join(dir, "hostfile.hydra")
	if err == nil {
		err = os.WriteFile(ours, []byte(hostfile(d.Hosts, d.Slots, "%s slots=%d\n")), 0o600)
	}
	if err == nil {
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
	own := roles.EnvironmentOf(environ)
	if mpi.Launches(d.Argv) {
		n.Log.Info(fmt.Sprintf("%s has %d slots: %d on each of %d nodes, %s (--slots-per-node)", filepath.Base(d.Argv[0]), d.Slots*len(d.Hosts), d.Slots, len(d.Hosts), roles.CompactNodeList(d.Hosts)))
	}
	if idle := roles.Idle(own); idle != "" {
		n.Log.Warn(idle)
	}
	for name, value := range launchers(d.Program, ours, hydras) {
		if _, told := own(name); !told {
			set[name] = value
		}
	}
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

// launchers are the variables that have the launchers of the MPIs bring up their daemons by bringupd rsh. By itself, each
// takes to the launcher of the job: Slurm's srun waits for ever for what this run has. The daemons of Open MPI stay in the
// foreground, where they end with their agent.
func launchers(program, hosts, hydras string) map[string]string {
	agent := program + " rsh"
	return map[string]string{
		"OMPI_MCA_plm": "rsh", "OMPI_MCA_plm_rsh_agent": agent, "OMPI_MCA_ras": "^slurm", "OMPI_MCA_orte_default_hostfile": hosts,
		"OMPI_MCA_orte_leave_session_attached": "1",
		"PRTE_MCA_plm":                         "ssh", "PRTE_MCA_plm_ssh_agent": agent, "PRTE_MCA_ras": "^slurm", "PRTE_MCA_prte_default_hostfile": hosts,
		"PRTE_MCA_prte_leave_session_attached": "1",
		"HYDRA_LAUNCHER":                       "rsh", "HYDRA_LAUNCHER_EXEC": program, "HYDRA_LAUNCHER_EXTRA_ARGS": "rsh", "HYDRA_HOST_FILE": hydras,
		"I_MPI_HYDRA_BOOTSTRAP": "rsh", "I_MPI_HYDRA_BOOTSTRAP_EXEC": program, "I_MPI_HYDRA_BOOTSTRAP_EXEC_EXTRA_ARGS": "rsh",
		"I_MPI_HYDRA_HOST_FILE": hydras,
	}
}
