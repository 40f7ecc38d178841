package roles

import (
	"fmt"
	"hash/fnv"
	"slices"
	"strconv"
	"strings"
)

// slurmTasks is srun with one task per rank. A batch shell has SLURM_PROCID, too, so only a step's
// number is proof.
var slurmTasks = starter{
	title: "srun", mark: "SLURM_STEP_ID", started: inSlurmStep,
	names: rankNames{
		rank: []string{"SLURM_PROCID"}, ranks: []string{"SLURM_STEP_NUM_TASKS", "SLURM_NTASKS"},
		local: []string{"SLURM_LOCALID"}, node: []string{"SLURM_NODEID"}, nodes: []string{"SLURM_STEP_NUM_NODES", "SLURM_NNODES"},
	},
	complete: completeSlurm, origin: slurmOrigin,
	private: []string{"SLURM_PMI", "SLURM_TASK_PID", "SLURM_GPUS_PER_TASK", "SLURM_TRES_PER_TASK"},
	retell:  retellSlurm,
}

// The range of ports for completeSlurm: below the kernel's ephemeral ports (from 32768), and
// without 29500, torch's default.
const (
	firstMasterPort = 20000
	masterPorts     = 9000
)

// completeSlurm adds the number of tasks on the node, their resources, and the address and port of
// rank 0. Rank 0 is on the first node of the step, unless the user has arranged the tasks.
func completeSlurm(env Environment, r *StartedRank) {
	r.OwnGPUs = slurmSplitsGPUs(env)
	if locals := tasksOn(env.get("SLURM_STEP_TASKS_PER_NODE"), r.Node); locals > r.Local {
		r.Locals = locals
	}
	nodes, err := ExpandNodeList(env.get("SLURM_STEP_NODELIST"), 0)
	if err != nil || strings.HasPrefix(env.get("SLURM_DISTRIBUTION"), "arbitrary") || env.get("SLURM_HET_SIZE") != "" {
		return
	}
	name := fnv.New32a()
	for _, variable := range []string{"SLURM_CLUSTER_NAME", "SLURM_JOB_ID", "SLURM_STEP_ID", "SLURM_RESTART_COUNT"} {
		_, _ = fmt.Fprintln(name, env.get(variable)) // a hash never fails
	}
	r.Master, r.MasterPort = nodes[0], firstMasterPort+int(name.Sum32()%masterPorts)
}

// slurmSplitsGPUs reports whether srun shows each task its own part of the step's GPUs on the node.
// The options of srun are only available in batch scripts.
func slurmSplitsGPUs(env Environment) bool {
	if _, bind, told := strings.Cut(env.get("SLURMD_TRES_BIND"), "gpu:"); told {
		return !strings.Contains(bind, "none")
	}
	own, from := slurmGPUs(env)
	all, err := env.number(1, "SLURM_GPUS_ON_NODE")
	return err == nil && from == "SLURM_STEP_GPUS" && own < all
}

// tasksOn returns the count of one node in "2(x3),1", or 0 if it is missing.
func tasksOn(counts string, node int) int {
	for part := range strings.SplitSeq(counts, ",") {
		count, nodes, _ := strings.Cut(strings.TrimSuffix(part, ")"), "(x")
		times, err := strconv.Atoi(nodes)
		if err != nil {
			times = 1
		}
		if node -= times; node < 0 {
			n, _ := strconv.Atoi(count) // 0 if there is none
			return n
		}
	}
	return 0
}

// retellSlurm returns the variables that srun would set for a task: its rank, the number of tasks,
// and its share of the node. Nodes without tasks are left out, as in a step: Hydra divides by the
// count of each node.
func retellSlurm(env Environment, t Task) map[string]string {
	var onNode []string
	for _, rank := range t.OnNode {
		onNode = append(onNode, strconv.Itoa(rank))
	}
	rank, ranks, perNode := strconv.Itoa(t.Rank), strconv.Itoa(t.Ranks), ""
	used := slices.DeleteFunc(slices.Clone(t.PerNode), func(tasks int) bool { return tasks == 0 })
	if slices.Min(used) == slices.Max(used) {
		perNode = strconv.Itoa(used[0])
	}
	counts := taskCounts(used)
	set := map[string]string{
		"SLURM_PROCID": rank, "SLURM_LOCALID": strconv.Itoa(t.Local), "SLURM_GTIDS": strings.Join(onNode, ","),
		"SLURM_NTASKS": ranks, "SLURM_NPROCS": ranks, "SLURM_STEP_NUM_TASKS": ranks,
		"SLURM_TASKS_PER_NODE": counts, "SLURM_STEP_TASKS_PER_NODE": counts, "SLURM_NTASKS_PER_NODE": perNode,
	}
	if cpus, err := env.number(1, "SLURM_CPUS_PER_TASK"); err == nil {
		set["SLURM_CPUS_PER_TASK"] = strconv.Itoa(max(1, cpus/max(1, len(t.OnNode))))
	}
	if len(used) < len(t.PerNode) {
		retellNodes(env, t, set)
	}
	return set
}

// retellNodes adds the variables about nodes that have tasks.
func retellNodes(env Environment, t Task, set map[string]string) {
	nodes, err := ExpandNodeList(env.get("SLURM_STEP_NODELIST"), len(t.PerNode))
	if err != nil || len(nodes) != len(t.PerNode) {
		return // the step has another number of nodes
	}
	own, err := env.number(0, "SLURM_NODEID")
	var used []string
	for at, tasks := range t.PerNode {
		if err == nil && at == own {
			set["SLURM_NODEID"] = strconv.Itoa(len(used))
		}
		if tasks > 0 {
			used = append(used, nodes[at])
		}
	}
	list, count := strings.Join(used, ","), strconv.Itoa(len(used))
	set["SLURM_NODELIST"], set["SLURM_STEP_NODELIST"] = list, list
	set["SLURM_NNODES"], set["SLURM_STEP_NUM_NODES"] = count, count
}

// SlotVariables returns the variables of a Slurm step by which the mpiruns of Open MPI, MPICH and
// Intel MPI find the nodes and their numbers of slots, for these hosts, which may be repeated.
// Slurm sets them again for another job that inherits them. It returns nil outside of a Slurm job.
func SlotVariables(env Environment, hosts []string, slots int) map[string]string {
	names, perNode := each(hosts), []int(nil)
	list := HostList(names)
	if strings.Contains(list, ".") { // they ignore text after a bracket
		list = strings.Join(names, ",")
	}
	if env.get("SLURM_JOBID") == "" || list == "" { // SLURM_JOBID is how they recognise Slurm
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
	set := map[string]string{"SLURM_NODELIST": list, "SLURM_TASKS_PER_NODE": taskCounts(perNode)}
	// Hydra allocates that many counts. In a heterogeneous job the variable counts the nodes of one
	// component.
	if nodes, err := env.number(1, "SLURM_NNODES"); err != nil || nodes < len(names) {
		set["SLURM_NNODES"] = strconv.Itoa(len(names))
	}
	return set
}

// taskCounts writes the number of tasks of each node as Slurm does: "2(x3),1".
func taskCounts(perNode []int) string {
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
