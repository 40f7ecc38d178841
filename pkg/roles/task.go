package roles

import (
	"maps"
	"strings"
)

// Task is a process of a world as a launcher that starts one task a process would
// number it.
type Task struct {
	Rank, Ranks int
	Local       int
	PerNode     []int // how many each node has
	OnNode      []int // the ranks of the task's own node
}

// taskPrefixes are the beginnings of what launchers and MPIs tell the one process that
// they have started, whichever it was: whoever believes it takes himself for that one.
var taskPrefixes = []string{
	"PMI_", "PMIX_", "OMPI_", "PRTE_", "HYDRA_", "PALS_RANK", "PALS_LOCAL", "MPI_LOCAL", "MV2_COMM_", "FLUX_TASK_", "SLURM_PMI", "JSM_NAMESPACE_",
}

// TaskVariables are the variables of an environment that speak of the one process which
// a launcher has started there, as they would speak of that task; the empty string where
// they must not be there at all.
func TaskVariables(environ []string, t Task) map[string]string {
	set := make(map[string]string)
	for _, entry := range environ {
		name, _, _ := strings.Cut(entry, "=")
		for _, prefix := range taskPrefixes {
			if strings.HasPrefix(name, prefix) {
				set[name] = ""
			}
		}
	}
	for _, l := range launchers {
		if l.task == nil {
			continue
		}
		maps.Copy(set, l.task(EnvironmentOf(environ), t))
	}
	return set
}
