package ranks

import (
	"maps"
	"net"
	"strconv"

	"github.com/bringupd/bringupd/pkg/process"
	"github.com/bringupd/bringupd/pkg/roles"
)

// Meeting is the address at which the ranks of a world meet, for torch.distributed (env://) and
// JAX.
type Meeting struct {
	Address string
	Port    int
	Run     string // name of the run
}

// Environ returns the environment of a rank: base, with the rank's numbers in bringupd's own
// variables, in those of torchrun, and in those that the launcher set for the daemon's task.
// Variables in more, such as those of the rank's binding, replace these; later maps take
// precedence. A variable with an empty value is removed.
func Environ(base []string, p Plan, r Rank, at Meeting, more ...map[string]string) []string {
	rank, size := strconv.Itoa(r.Rank-p.first), strconv.Itoa(p.Ranks())
	local, locals := strconv.Itoa(r.Local), strconv.Itoa(p.Local(r.Node))
	node, nodes := strconv.Itoa(r.Node), strconv.Itoa(p.Nodes())
	set := roles.TaskVariables(base, p.task(r))
	maps.Copy(set, map[string]string{
		"BRINGUPD_RANK": strconv.Itoa(r.Rank), "BRINGUPD_RANKS": size, "BRINGUPD_LOCAL_RANK": local, "BRINGUPD_LOCAL_RANKS": locals,
		// Same variables as torchrun: torch/distributed/elastic/agent/server/local_elastic_agent.py.
		"RANK": rank, "WORLD_SIZE": size, "LOCAL_RANK": local, "LOCAL_WORLD_SIZE": locals,
		"GROUP_RANK": node, "GROUP_WORLD_SIZE": nodes, "ROLE_RANK": rank, "ROLE_WORLD_SIZE": size, "ROLE_NAME": "default",
		"MASTER_ADDR": at.Address, "MASTER_PORT": strconv.Itoa(at.Port),
		// Lightning uses Slurm's variables unless TORCHELASTIC_RUN_ID is set.
		"TORCHELASTIC_RESTART_COUNT": "0", "TORCHELASTIC_MAX_RESTARTS": "0", "TORCHELASTIC_RUN_ID": at.Run,
		"TORCHELASTIC_USE_AGENT_STORE": "", // there is no agent with a store; rank 0 opens the store
		// Without this variable, JAX uses the first node of Slurm's step and a port derived from the job
		// number.
		"JAX_COORDINATOR_ADDRESS": net.JoinHostPort(at.Address, strconv.Itoa(at.Port)),
	})
	add(set, more)
	return process.WithEnv(base, set)
}

// task describes a rank as a launcher would start it.
func (p Plan) task(r Rank) roles.Task {
	t := roles.Task{Rank: r.Rank - p.first, Ranks: p.Ranks(), Local: r.Local, PerNode: p.perNode}
	for _, other := range p.On(r.Node) {
		t.OnNode = append(t.OnNode, other.Rank-p.first)
	}
	return t
}
