package ranks

import (
	"maps"
	"strconv"
	"strings"

	"github.com/bringupd/bringupd/pkg/binding"
	"github.com/bringupd/bringupd/pkg/gpu"
	"github.com/bringupd/bringupd/pkg/process"
	"github.com/bringupd/bringupd/pkg/prose"
	"github.com/bringupd/bringupd/pkg/roles"
)

// PassedOn returns the environment of a rank that another launcher has started. The variables of
// this launcher stay as they are, because MPI libraries find their servers with them; the variables
// of outer launchers are removed. own are the user's variables, NAME=VALUE, which take precedence.
func PassedOn(base []string, r roles.StartedRank, place binding.Place, own []string) []string {
	base = process.WithEnv(base, roles.OuterVariables(base, r))
	has := roles.EnvironmentOf(base)
	rank, size := strconv.Itoa(r.Rank), strconv.Itoa(r.Ranks)
	// Variables that identify the rank.
	set := map[string]string{
		"BRINGUPD_RANK": rank, "BRINGUPD_RANKS": size, "RANK": rank, "WORLD_SIZE": size,
		"ROLE_RANK": rank, "ROLE_WORLD_SIZE": size, "ROLE_NAME": "default",
	}
	if r.Local >= 0 {
		set["BRINGUPD_LOCAL_RANK"], set["LOCAL_RANK"] = strconv.Itoa(r.Local), strconv.Itoa(r.Local)
	}
	if r.Locals > 0 {
		set["BRINGUPD_LOCAL_RANKS"], set["LOCAL_WORLD_SIZE"] = strconv.Itoa(r.Locals), strconv.Itoa(r.Locals)
	}
	if r.Node >= 0 {
		set["BRINGUPD_NODE_RANK"], set["GROUP_RANK"] = strconv.Itoa(r.Node), strconv.Itoa(r.Node)
	}
	if r.Nodes > 0 {
		set["BRINGUPD_NODE_COUNT"], set["GROUP_WORLD_SIZE"] = strconv.Itoa(r.Nodes), strconv.Itoa(r.Nodes)
	}
	// The rendezvous address, unless it is set already.
	if value, _ := has("MASTER_ADDR"); value == "" && r.Master != "" {
		set["MASTER_ADDR"] = r.Master
	}
	if value, _ := has("MASTER_PORT"); value == "" && r.MasterPort > 0 {
		set["MASTER_PORT"] = strconv.Itoa(r.MasterPort)
	}
	// Set the variables that rrun sets under srun --mpi=pmix: rapidsmpf then uses Slurm's PMIx.
	if _, served := has("PMIX_NAMESPACE"); served {
		set["RRUN_RANK"], set["RRUN_NRANKS"] = rank, size
	}
	more := Told(own)
	add(set, []map[string]string{placed(base, place, more), more})
	return process.WithEnv(base, set)
}

// add adds variables to set. Later maps take precedence.
func add(set map[string]string, more []map[string]string) {
	for _, m := range more {
		maps.Copy(set, m)
		for _, vendor := range []gpu.Vendor{"", gpu.AMD} {
			if visible := m[vendor.Variable()]; visible != "" {
				// Without this variable, JAX would use the local number of the task as device number.
				set["JAX_LOCAL_DEVICE_IDS"] = prose.Ordinals(strings.Count(visible, ",") + 1)
			}
		}
	}
}

// Told parses variables in the form NAME=VALUE. If a name occurs twice, the last value counts.
func Told(entries []string) map[string]string {
	told := make(map[string]string, len(entries))
	for _, entry := range entries {
		name, value, _ := strings.Cut(entry, "=")
		told[name] = value
	}
	return told
}
