package ranks

import (
	"maps"
	"strconv"
	"strings"

	"github.com/bringupd/bringupd/internal/envlist"
	"github.com/bringupd/bringupd/internal/textutil"
	"github.com/bringupd/bringupd/pkg/gpu"
	"github.com/bringupd/bringupd/pkg/ranks/affinity"
	"github.com/bringupd/bringupd/pkg/roles/launcher"
)

// PassThroughEnviron returns the environment of a rank that another launcher has started. The
// variables of this launcher stay as they are, because MPI libraries find their servers with them.
// own are the user's variables, NAME=VALUE, which take precedence.
func PassThroughEnviron(base []string, r launcher.StartedRank, place affinity.Affinity, own []string) []string {
	has := launcher.EnvironmentOf(base)
	rank, size := strconv.Itoa(r.Rank), strconv.Itoa(r.RankCount)
	// Variables that identify the rank.
	set := map[string]string{
		"BRINGUPD_RANK": rank, "BRINGUPD_RANKS": size, "RANK": rank, "WORLD_SIZE": size,
		"ROLE_RANK": rank, "ROLE_WORLD_SIZE": size, "ROLE_NAME": "default",
	}
	if r.LocalRank >= 0 {
		set["BRINGUPD_LOCAL_RANK"], set["LOCAL_RANK"] = strconv.Itoa(r.LocalRank), strconv.Itoa(r.LocalRank)
	}
	if r.LocalCount > 0 {
		set["BRINGUPD_LOCAL_RANKS"], set["LOCAL_WORLD_SIZE"] = strconv.Itoa(r.LocalCount), strconv.Itoa(r.LocalCount)
	}
	if r.NodeIndex >= 0 {
		set["BRINGUPD_NODE_RANK"], set["GROUP_RANK"] = strconv.Itoa(r.NodeIndex), strconv.Itoa(r.NodeIndex)
	}
	if r.NodeCount > 0 {
		set["BRINGUPD_NODE_COUNT"], set["GROUP_WORLD_SIZE"] = strconv.Itoa(r.NodeCount), strconv.Itoa(r.NodeCount)
	}
	// The rendezvous address, unless it is set already, for these ranks: another number of them shows
	// that all is left from another launch.
	ofSize, _ := has("WORLD_SIZE")
	isStale := ofSize != "" && ofSize != size
	if value, _ := has("MASTER_ADDR"); (value == "" || isStale) && r.MasterHost != "" {
		set["MASTER_ADDR"] = r.MasterHost
	}
	if value, _ := has("MASTER_PORT"); (value == "" || isStale) && r.MasterPort > 0 {
		set["MASTER_PORT"] = strconv.Itoa(r.MasterPort)
	}
	// Set the variables that rrun sets under srun --mpi=pmix: rapidsmpf then uses Slurm's PMIx.
	if _, served := has("PMIX_NAMESPACE"); served {
		set["RRUN_RANK"], set["RRUN_NRANKS"] = rank, size
	}
	more := ParseVariables(own)
	mergeVariables(set, []map[string]string{affinityVariables(base, place, more), more})
	return envlist.With(base, set)
}

// mergeVariables adds variables to set. Later maps take precedence.
func mergeVariables(set map[string]string, more []map[string]string) {
	for _, m := range more {
		maps.Copy(set, m)
		for _, vendor := range []gpu.Vendor{"", gpu.AMD} {
			if visible := m[vendor.EnvVariable()]; visible != "" {
				// Without this variable, JAX would use the local number of the task as device number.
				set["JAX_LOCAL_DEVICE_IDS"] = textutil.ListOrdinals(strings.Count(visible, ",") + 1)
			}
		}
	}
}

// ParseVariables parses variables in the form NAME=VALUE. If a name occurs twice, the last value
// counts.
func ParseVariables(entries []string) map[string]string {
	values := make(map[string]string, len(entries))
	for _, entry := range entries {
		name, value, _ := strings.Cut(entry, "=")
		values[name] = value
	}
	return values
}
