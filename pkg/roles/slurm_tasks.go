package roles

import (
	"fmt"
	"hash/fnv"
	"slices"
	"strconv"
	"strings"
)

// slurmTasks is srun where it starts one task a rank. A batch shell has SLURM_PROCID,
// too: only a step's number is proof.
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

// The ports that completeSlurm picks from: below those that kernels give away (32768 on),
// without 29500, which torch takes where it is told none.
const (
	firstMasterPort = 20000
	masterPorts     = 9000
)

// completeSlurm adds how many tasks the node has, what is theirs, and where the ranks may
// meet: rank 0 is on the first node of the step, unless the user has laid out the tasks.
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
		_, _ = fmt.Fprintln(name, env.get(variable)) // a hash takes everything
	}
	r.Master, r.MasterPort = nodes[0], firstMasterPort+int(name.Sum32()%masterPorts)
}

// slurmSplitsGPUs tells whether srun shows each task GPUs of its own, of those that the
// step has on the node. What srun was asked for is told to batch scripts alone.
func slurmSplitsGPUs(env Environment) bool {
	if _, bind, told := strings.Cut(env.get("SLURMD_TRES_BIND"), "gpu:"); told {
		return !strings.Contains(bind, "none")
	}
	own, from := slurmGPUs(env)
	all, err := env.number(1, "SLURM_GPUS_ON_NODE")
	return err == nil && from == "SLURM_STEP_GPUS" && own < all
}

// tasksOn returns the count of one node of "2(x3),1"; 0 where it isn't told.
func tasksOn(counts string, node int) int {
	for part := range strings.SplitSeq(counts, ",") {
		count, nodes, _ := strings.Cut(strings.TrimSuffix(part, ")"), "(x")
		times, err := strconv.Atoi(nodes)
		if err != nil {
			times = 1
		}
		if node -= times; node < 0 {
			n, _ := strconv.Atoi(count) // 0 where it is none
			return n
		}
	}
	return 0
}

// retellSlurm returns srun's variables that tell which task a process is, how many there
// are, and what each may use of its node. As those of a step, they have no nodes without tasks: a
// Hydra divides by the count of each.
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

// retellNodes adds srun's variables of the nodes that have tasks.
func retellNodes(env Environment, t Task, set map[string]string) {
	nodes, err := ExpandNodeList(env.get("SLURM_STEP_NODELIST"), len(t.PerNode))
	if err != nil || len(nodes) != len(t.PerNode) {
		return // the step was started in a way that tells another number of nodes
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

// SlotVariables are the variables of a step of Slurm's by which the mpiruns of Open MPI, MPICH and Intel
// MPI find nodes and how many ranks each may have, for these hosts, of which one may be there several
// times. Another job that inherits them is told its own. It returns nil outside of a job of Slurm's.
func SlotVariables(env Environment, hosts []string, slots int) map[string]string {
	names, perNode := each(hosts), []int(nil)
	list := HostList(names)
	if strings.Contains(list, ".") { // they do not read what stands behind a bracket
		list = strings.Join(names, ",")
	}
	if env.get("SLURM_JOBID") == "" || list == "" { // by the first they know Slurm
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
	// Hydra has room for so many counts, and in a heterogeneous job the variable counts one component.
	if nodes, err := env.number(1, "SLURM_NNODES"); err != nil || nodes < len(names) {
		set["SLURM_NNODES"] = strconv.Itoa(len(names))
	}
	return set
}

// taskCounts writes how many tasks each node has as Slurm does: "2(x3),1".
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
