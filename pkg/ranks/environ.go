package ranks

import (
	"maps"
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
// those of torchrun, and in those that the launcher had for the daemon's own task.
func Environ(base []string, p Plan, r Rank, at Meeting) []string {
	rank, size := strconv.Itoa(r.Rank), strconv.Itoa(p.Ranks())
	local, locals := strconv.Itoa(r.Local), strconv.Itoa(p.Local(r.Node))
	node, nodes := strconv.Itoa(r.Node), strconv.Itoa(p.Nodes())
	set := map[string]string{
		"BRINGUPD_RANK": rank, "BRINGUPD_RANKS": size, "BRINGUPD_LOCAL_RANK": local, "BRINGUPD_LOCAL_RANKS": locals,
		// As torchrun has them: torch/distributed/elastic/agent/server/local_elastic_agent.py.
		"RANK": rank, "WORLD_SIZE": size, "LOCAL_RANK": local, "LOCAL_WORLD_SIZE": locals,
		"GROUP_RANK": node, "GROUP_WORLD_SIZE": nodes, "ROLE_RANK": rank, "ROLE_WORLD_SIZE": size, "ROLE_NAME": "default",
		"MASTER_ADDR": at.Address, "MASTER_PORT": strconv.Itoa(at.Port),
		"TORCHELASTIC_RESTART_COUNT": "0", "TORCHELASTIC_MAX_RESTARTS": "0", "TORCHELASTIC_RUN_ID": at.Run,
		"TORCHELASTIC_USE_AGENT_STORE": "", // there is no agent with a store: rank 0 opens it
	}
	maps.Copy(set, roles.TaskVariables(base, p.task(r)))
	return process.WithEnv(base, set)
}

// task is a rank as a launcher would start it.
func (p Plan) task(r Rank) roles.Task {
	t := roles.Task{Rank: r.Rank, Ranks: p.Ranks(), Local: r.Local, PerNode: p.perNode}
	for _, other := range p.On(r.Node) {
		t.OnNode = append(t.OnNode, other.Rank)
	}
	return t
}
