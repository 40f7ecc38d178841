package ranks

import (
	"maps"
	"net"
	"strconv"

	"github.com/bringupd/bringupd/pkg/process"
	"github.com/bringupd/bringupd/pkg/roles"
)

// Meeting is where the ranks of a world may meet, as torch.distributed's env:// has it.
type Meeting struct {
	Address string
	Port    int
	Run     string // the run's name
}

// Environ is what a rank is told, on top of base: who it is in bringupd's words, in
// those of torchrun, and in those that the launcher had for the daemon's own task. What
// comes in more, as of the rank's binding, wins over that, and the last of it over the
// others. A variable whose value is empty is taken away.
func Environ(base []string, p Plan, r Rank, at Meeting, more ...map[string]string) []string {
	rank, size := strconv.Itoa(r.Rank-p.first), strconv.Itoa(p.Ranks())
	local, locals := strconv.Itoa(r.Local), strconv.Itoa(p.Local(r.Node))
	node, nodes := strconv.Itoa(r.Node), strconv.Itoa(p.Nodes())
	set := roles.TaskVariables(base, p.task(r))
	maps.Copy(set, map[string]string{
		"BRINGUPD_RANK": strconv.Itoa(r.Rank), "BRINGUPD_RANKS": size, "BRINGUPD_LOCAL_RANK": local, "BRINGUPD_LOCAL_RANKS": locals,
		// As torchrun has them: torch/distributed/elastic/agent/server/local_elastic_agent.py.
		"RANK": rank, "WORLD_SIZE": size, "LOCAL_RANK": local, "LOCAL_WORLD_SIZE": locals,
		"GROUP_RANK": node, "GROUP_WORLD_SIZE": nodes, "ROLE_RANK": rank, "ROLE_WORLD_SIZE": size, "ROLE_NAME": "default",
		"MASTER_ADDR": at.Address, "MASTER_PORT": strconv.Itoa(at.Port),
		// Lightning heeds Slurm's variables only where there is no TORCHELASTIC_RUN_ID.
		"TORCHELASTIC_RESTART_COUNT": "0", "TORCHELASTIC_MAX_RESTARTS": "0", "TORCHELASTIC_RUN_ID": at.Run,
		"TORCHELASTIC_USE_AGENT_STORE": "", // there is no agent with a store: rank 0 opens it
		// Without it JAX takes the first node of Slurm's step and a port made of the job's number.
		"JAX_COORDINATOR_ADDRESS": net.JoinHostPort(at.Address, strconv.Itoa(at.Port)),
	})
	add(set, more)
	return process.WithEnv(base, set)
}

// task is a rank as a launcher would start it.
func (p Plan) task(r Rank) roles.Task {
	t := roles.Task{Rank: r.Rank - p.first, Ranks: p.Ranks(), Local: r.Local, PerNode: p.perNode}
	for _, other := range p.On(r.Node) {
		t.OnNode = append(t.OnNode, other.Rank-p.first)
	}
	return t
}
