package ranks

import (
	"maps"
	"net"
	"strconv"

	"github.com/bringupd/bringupd/internal/envlist"
	"github.com/bringupd/bringupd/pkg/roles/launcher"
)

// Master is the address at which the ranks of a world meet, for torch.distributed (env://) and
// JAX.
type Master struct {
	Address string
	Port    int
	RunName string // name of the run
	// RestartCount is the number of restarts of the job so far, and MaxRestarts the maximum.
	RestartCount, MaxRestarts int
}

// RankEnviron returns the environment of a rank: base, with the rank's numbers in bringupd's own
// variables, in those of torchrun, and in those that the launcher set for the daemon's task.
// Variables in more, such as those of the rank's binding, replace these; later maps take
// precedence. A variable with an empty value is removed.
func RankEnviron(base []string, p Plan, r Rank, at Master, more ...map[string]string) []string {
	rank, size := strconv.Itoa(r.Rank-p.firstRank), strconv.Itoa(p.RankCount())
	local, locals := strconv.Itoa(r.Local), strconv.Itoa(p.LocalCount(r.Node))
	node, nodes := strconv.Itoa(r.Node), strconv.Itoa(p.NodeCount())
	set := launcher.TaskVariables(base, p.launcherTask(r))
	maps.Copy(set, map[string]string{
		"BRINGUPD_RANK": strconv.Itoa(r.Rank), "BRINGUPD_RANKS": size, "BRINGUPD_LOCAL_RANK": local,
		"BRINGUPD_LOCAL_RANKS": locals,
		// Same variables as torchrun: torch/distributed/elastic/agent/server/local_elastic_agent.py.
		"RANK": rank, "WORLD_SIZE": size, "LOCAL_RANK": local, "LOCAL_WORLD_SIZE": locals,
		"GROUP_RANK": node, "GROUP_WORLD_SIZE": nodes, "ROLE_RANK": rank, "ROLE_WORLD_SIZE": size,
		"ROLE_NAME":   "default",
		"MASTER_ADDR": at.Address, "MASTER_PORT": strconv.Itoa(at.Port),
		// Lightning uses Slurm's variables unless TORCHELASTIC_RUN_ID is set.
		"TORCHELASTIC_RESTART_COUNT": strconv.Itoa(at.RestartCount),
		"TORCHELASTIC_MAX_RESTARTS":  strconv.Itoa(at.MaxRestarts), "TORCHELASTIC_RUN_ID": at.RunName,
		"TORCHELASTIC_USE_AGENT_STORE": "", // there is no agent with a store; rank 0 opens the store
		// Without this variable, JAX uses the first node of Slurm's step and a port derived from the job
		// number.
		"JAX_COORDINATOR_ADDRESS": net.JoinHostPort(at.Address, strconv.Itoa(at.Port)),
	})
	maps.Copy(set, launcher.LocalAliases(local, locals))
	mergeVariables(set, more)
	return envlist.With(base, set)
}

// launcherTask describes a rank as a launcher would start it.
func (p Plan) launcherTask(r Rank) launcher.Task {
	t := launcher.Task{Rank: r.Rank - p.firstRank, RankCount: p.RankCount(), LocalRank: r.Local,
		TasksPerNode: p.perNode}
	for _, other := range p.RanksOn(r.Node) {
		t.LocalRanks = append(t.LocalRanks, other.Rank-p.firstRank)
	}
	return t
}
