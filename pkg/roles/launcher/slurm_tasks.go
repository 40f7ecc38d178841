package launcher

import (
	"fmt"
	"hash/fnv"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/bringupd/bringupd/internal/textutil"
)

// slurmStarter is srun with one task per rank. The step's own variables come first: SLURM_NTASKS and
// SLURM_NNODES are also options of sbatch and of users for srun. A batch shell has SLURM_PROCID, too, so only a
// step's number is proof.
var slurmStarter = rankStarter{
	displayName: "srun", markVariable: "SLURM_STEP_ID", customCheck: inSlurmStep,
	variableNames: rankVariables{
		rank: []string{"SLURM_PROCID"}, rankCount: []string{"SLURM_STEP_NUM_TASKS", "SLURM_NTASKS", "SLURM_NPROCS"},
		localRank: []string{"SLURM_LOCALID"}, nodeIndex: []string{"SLURM_NODEID"},
		nodeCount: []string{"SLURM_STEP_NUM_NODES", "SLURM_NNODES", "SLURM_JOB_NUM_NODES"},
	},
	completeRank: completeSlurmRank, origin: slurmOrigin, taskVariables: slurmTaskVariables,
	privatePrefixes: []string{
		"SLURM_PMI", "SLURM_TASK_PID", "SLURM_GPUS_PER_TASK", "SLURM_TRES_PER_TASK",
	},
}

// The range of ports for completeSlurmRank: below the kernel's ephemeral ports (from 32768), and
// without 29500, torch's default.
const (
	firstMasterPort = 20000
	masterPortCount = 9000
)

// completeSlurmRank adds the number of tasks on the node, their resources, and the address and port
// of rank 0. Rank 0 is on the first node of the step, unless the user has arranged the tasks.
func completeSlurmRank(env Environment, r *StartedRank) {
	r.OwnGPUs = slurmSplitsGPUs(env)
	if locals := taskCountOf(env.valueOf("SLURM_STEP_TASKS_PER_NODE"), r.NodeIndex); locals > r.LocalRank {
		r.LocalCount = locals
	}
	nodes, err := ExpandNodeList(env.valueOf("SLURM_STEP_NODELIST"), 0)
	isArranged := strings.HasPrefix(env.valueOf("SLURM_DISTRIBUTION"), "arbitrary")
	if err != nil || isArranged || isHeterogeneous(env) {
		return
	}
	name := fnv.New32a()
	for _, variable := range []string{
		"SLURM_CLUSTER_NAME", "SLURM_JOB_ID", "SLURM_STEP_ID", "SLURM_RESTART_COUNT",
	} {
		_, _ = fmt.Fprintln(name, env.valueOf(variable)) // a hash never fails
	}
	r.MasterHost, r.MasterPort = nodes[0], firstMasterPort+int(name.Sum32()%masterPortCount)
}

// slurmSplitsGPUs reports whether srun shows each task its own part of the step's GPUs on the node.
// The options of srun are only available in batch scripts.
func slurmSplitsGPUs(env Environment) bool {
	if _, bind, isSet := strings.Cut(env.valueOf("SLURMD_TRES_BIND"), "gpu:"); isSet {
		return !strings.Contains(bind, "none")
	}
	own, from := slurmGPUs(env)
	all, err := env.parseNumber(1, "SLURM_GPUS_ON_NODE")
	return err == nil && from == "SLURM_STEP_GPUS" && own < all
}

// taskCounts is the number of tasks on each of some nodes that follow each other.
type taskCounts struct{ tasks, nodes int }

// parseTaskCounts reads "2(x3),1", which is two tasks on each of three nodes and one on another. A
// part that srun would not write is one node without tasks.
func parseTaskCounts(text string) (runs []taskCounts) {
	for part := range strings.SplitSeq(text, ",") {
		count, nodes, _ := strings.Cut(strings.TrimSuffix(part, ")"), "(x")
		tasks, _ := strconv.Atoi(count) // 0 if it is no number
		times, err := strconv.Atoi(nodes)
		if err != nil {
			times = 1
		}
		runs = append(runs, taskCounts{max(0, tasks), times})
	}
	return runs
}

// taskCountOf returns the count of one node in "2(x3),1", or 0 if it is missing.
func taskCountOf(counts string, node int) int {
	for _, run := range parseTaskCounts(counts) {
		if node -= run.nodes; node < 0 {
			return run.tasks
		}
	}
	return 0
}

// slurmTaskVariables returns the variables that srun would set for a task: its rank, the number of
// tasks, and its share of the node. Nodes without tasks are left out, as in a step: Hydra divides
// by the count of each node.
func slurmTaskVariables(env Environment, t Task) map[string]string {
	onNode := textutil.MapSlice(t.LocalRanks, strconv.Itoa)
	rank, ranks, perNode := strconv.Itoa(t.Rank), strconv.Itoa(t.RankCount), ""
	isZero := func(tasks int) bool { return tasks == 0 }
	used := slices.DeleteFunc(slices.Clone(t.TasksPerNode), isZero)
	if slices.Min(used) == slices.Max(used) {
		perNode = strconv.Itoa(used[0])
	}
	counts := formatTaskCounts(used)
	set := map[string]string{
		"SLURM_PROCID": rank, "SLURM_LOCALID": strconv.Itoa(t.LocalRank),
		"SLURM_GTIDS":  strings.Join(onNode, ","),
		"SLURM_NTASKS": ranks, "SLURM_NPROCS": ranks, "SLURM_STEP_NUM_TASKS": ranks,
		"SLURM_TASKS_PER_NODE": counts, "SLURM_STEP_TASKS_PER_NODE": counts,
		"SLURM_NTASKS_PER_NODE": perNode,
	}
	if cpus, err := env.parseNumber(1, "SLURM_CPUS_PER_TASK"); err == nil {
		set["SLURM_CPUS_PER_TASK"] = strconv.Itoa(max(1, cpus/max(1, len(t.LocalRanks))))
	}
	if len(used) < len(t.TasksPerNode) {
		addNodeVariables(env, t, set)
	}
	return set
}

func addNodeVariables(env Environment, t Task, set map[string]string) {
	nodes, err := ExpandNodeList(env.valueOf("SLURM_STEP_NODELIST"), len(t.TasksPerNode))
	if err != nil || len(nodes) != len(t.TasksPerNode) {
		return // the step has another number of nodes
	}
	own, err := env.parseNumber(0, "SLURM_NODEID")
	index := -1
	var used []string
	for at, tasks := range t.TasksPerNode {
		if err == nil && at == own {
			index = len(used)
		}
		if tasks > 0 {
			used = append(used, nodes[at])
		}
	}
	maps.Copy(set, SubsetVariables(env, used, index))
}

// SubsetVariables returns the variables that describe the nodes of a Slurm step, as if it had only
// these nodes, in their order. index is that of the present node, or -1 to leave it as it is. It
// returns nil outside of a step, and if nodes are several tasks of one host.
func SubsetVariables(env Environment, nodes []string, index int) map[string]string {
	if env.valueOf("SLURM_STEP_NODELIST") == "" || len(uniqueHosts(nodes)) < len(nodes) {
		return nil
	}
	list, count := strings.Join(nodes, ","), strconv.Itoa(len(nodes))
	set := map[string]string{
		"SLURM_NODELIST": list, "SLURM_STEP_NODELIST": list,
		"SLURM_NNODES": count, "SLURM_STEP_NUM_NODES": count,
	}
	if index >= 0 {
		set["SLURM_NODEID"] = strconv.Itoa(index)
	}
	return set
}

// SlotVariables returns the variables of a Slurm step by which the mpiruns of Open MPI, MPICH and
// Intel MPI find the nodes and their numbers of slots, for these hosts, which may be repeated.
// Slurm sets them again for another job that inherits them. It returns nil outside of a Slurm job.
func SlotVariables(env Environment, hosts []string, slots int) map[string]string {
	names, perNode := uniqueHosts(hosts), []int(nil)
	list := HostList(names)
	if strings.Contains(list, ".") { // they ignore text after a bracket
		list = strings.Join(names, ",")
	}
	if env.valueOf("SLURM_JOBID") == "" || list == "" { // SLURM_JOBID is how they recognise Slurm
		return nil
	}
	for _, name := range names {
		n := 0
		for _, host := range hosts {
			if host == name {
				n += slots
			}
		}
		perNode = append(perNode, n)
	}
	set := map[string]string{"SLURM_NODELIST": list, "SLURM_TASKS_PER_NODE": formatTaskCounts(perNode)}
	// Hydra allocates that many counts. In a heterogeneous job the variable counts the nodes of one
	// component.
	if nodes, err := env.parseNumber(1, "SLURM_NNODES"); err != nil || nodes < len(names) {
		set["SLURM_NNODES"] = strconv.Itoa(len(names))
	}
	return set
}

// formatTaskCounts writes the number of tasks of each node as Slurm does: "2(x3),1".
func formatTaskCounts(perNode []int) string {
	var parts []string
	for at := 0; at < len(perNode); {
		n := 1
		for at+n < len(perNode) && perNode[at+n] == perNode[at] {
			n++
		}
		part := strconv.Itoa(perNode[at])
		if n > 1 {
			part += fmt.Sprintf("(x%d)", n)
		}
		parts, at = append(parts, part), at+n
	}
	return strings.Join(parts, ",")
}
