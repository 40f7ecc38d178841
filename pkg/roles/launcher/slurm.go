package launcher

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"
)

// slurmTaskPrefixes are the prefixes of variables that describe a task or its step, and of those
// from which an mpirun takes the nodes of the job.
var slurmTaskPrefixes = []string{
	"SLURM_PROCID", "SLURM_LOCALID", "SLURM_NODEID", "SLURM_NTASKS", "SLURM_NPROCS", "SLURM_TASK_",
	"SLURM_GTIDS", "SLURM_STEP", "SLURM_SRUN_", "SLURM_LAUNCH_", "SLURM_CPU_BIND", "SLURM_MEM_BIND",
	"SLURM_GPU_BIND", "SLURM_CPUS_PER_TASK", "SLURM_GPUS_PER_TASK", "SLURM_TRES_PER_TASK",
	"SLURM_DISTRIBUTION", "SLURM_MPI_TYPE", "SLURM_PMI", "SLURM_JOBID", "SLURM_NODELIST",
	"SLURM_JOB_NODELIST", "SLURM_TASKS_PER_NODE",
}

// slurmLauncher is srun with one task per node.
var slurmLauncher = launcherSpec{
	name: LauncherSlurm,
	traits: Traits{
		NamesNodes: true, HasSteps: true, StarterProgram: "srun", PrivatePrefixes: slurmTaskPrefixes,
		JobVariable: "SLURM_JOB_ID", JobNameVariable: "SLURM_JOB_NAME", RankVariable: "SLURM_PROCID",
		HostVariable: "SLURMD_NODENAME", GPUsVariable: "SLURM_GPUS_ON_NODE",
		SubmitDirVariable: "SLURM_SUBMIT_DIR",
	},
	// proctrack/linuxproc signals all descendants of slurmstepd (kill_proc_tree), and so does
	// proctrack/cgroup with SignalChildrenProcesses=yes. Otherwise, and with proctrack/pgid, only the
	// tasks get a signal. A step does not know which one is used.
	facts: Facts{
		KillDelay: 30 * time.Second, KillSetting: "KillWait",
		MaySignalAll: true,
	},
	hints: CommandHints{
		Title: "Slurm", StartOnNodes: srunOnNodes,
		NestedAdvice: "give the inner one a step of its own: " + srunCommand(0, " --overlap") +
			", or keep it to this node with: bringupd local --nodes=N …",
		ExcludeNodes: "sbatch --exclude={nodes} …",
		MoreMemory:   "sbatch --mem=…", AllMemory: "--mem=0", MoreTime: "sbatch --time=…",
		WhyEnded: "the time limit, preemption or scancel: " +
			"sacct -j {job} --format=JobID,State,Elapsed,Timelimit",
		MemoryUsed:      "sacct -j {job} --format=JobID,State,MaxRSS,ReqMem",
		ShowNode:        "scontrol show node {nodes}",
		RunOnEachNode:   "srun --label",
		DrainNode:       `scontrol update nodename={host} state=drain reason="{reason}"`,
		NoRequeueReason: noSlurmReason,
		AttachShell: "srun --overlap --jobid={job} --nodelist={host} --nodes=1 --ntasks=1 " +
			"--export=ALL --pty bash",
	},
	claims:   claims{custom: claimSlurm},
	starter:  slurmStarter,
	identify: identifySlurm,
	// Slurm itself reports that an allocation without a batch script cannot be requeued.
	newRequeuer: func(job string, run ProgramRunner) Requeuer { return slurmRequeuer{job, run} },
	memoryLimit: slurmMemory,
}

func claimSlurm(env Environment, _ Overrides) claimLevel {
	switch {
	case inSlurmStep(env):
		return claimStarted
	case slurmJob(env) != "" || env.valueOf("SLURM_STEP_ID") != "":
		return claimHinted
	default:
		return claimNone
	}
}

func slurmJob(env Environment) string {
	_, job := env.firstSet("SLURM_JOB_ID", "SLURM_JOBID")
	return job
}

// srunCommand returns the command that starts one task per node. It includes the counts if they are
// known: if --ntasks=12 is inherited from sbatch, srun ignores a lone --ntasks-per-node=1 with only
// a warning.
func srunCommand(nodes int, more string) string {
	if nodes < 1 {
		return "srun" + more + " --ntasks-per-node=1 bringupd …"
	}
	const format = "srun%s --nodes=%d --ntasks=%d --ntasks-per-node=1 bringupd …"
	return fmt.Sprintf(format, more, nodes, nodes)
}

// srunOnNodes starts one task on each of {n} nodes.
const srunOnNodes = "srun --nodes={n} --ntasks-per-node=1"

// IdleNodesHint describes that a Slurm step has fewer nodes than its job, which may be a mistake,
// and the command that uses all nodes. It returns an empty string if the step has all nodes, or if
// that is unknown.
func IdleNodesHint(env Environment) string {
	step, _ := strconv.Atoi(env.valueOf("SLURM_STEP_NUM_NODES"))
	job, _ := strconv.Atoi(env.valueOf("SLURM_JOB_NUM_NODES"))
	if step == 0 || job <= step {
		return ""
	}
	return fmt.Sprintf("this step has %d of the job's %d nodes, and bringupd runs on no other; "+
		"on all of them: %s", step, job, srunCommand(job, ""))
}

// IsSlurmJob reports whether an environment belongs to a Slurm job, with or without a step.
func IsSlurmJob(env Environment) bool { return env.valueOf("SLURM_JOB_ID") != "" }

// TopologyBlock returns the name of this node's block. It is empty if Slurm has no blocks.
func TopologyBlock(env Environment) string {
	block, _, found := strings.Cut(env.valueOf("SLURM_TOPOLOGY_ADDR"), ".")
	if !found || env.valueOf("SLURM_TOPOLOGY_ADDR_PATTERN") != "block.node" {
		return ""
	}
	return block
}

// slurmRequeuer changes a job by Slurm's own client programs.
type slurmRequeuer struct {
	jobID      string
	runProgram ProgramRunner
}

var _ Requeuer = slurmRequeuer{}

// RequeueJob makes Slurm end the job and queue it again.
func (j slurmRequeuer) RequeueJob(ctx context.Context) error {
	_, err := j.runProgram(ctx, "scontrol", "requeue", j.jobID)
	return err
}

// ExcludeHosts adds hosts to the excluded hosts of the job. Slurm accepts that only for queued
// jobs.
func (j slurmRequeuer) ExcludeHosts(ctx context.Context, hosts []string) error {
	shown, err := j.runProgram(ctx, "scontrol", "show", "job", "--oneliner", j.jobID)
	if err != nil {
		return err
	}
	var excluded []string
	for field := range strings.FieldsSeq(shown) {
		if list, ok := strings.CutPrefix(field, "ExcNodeList="); ok && list != "(null)" {
			if excluded, err = ExpandNodeList(list, 0); err != nil {
				return fmt.Errorf("cannot tell which nodes job %s excludes: %v", j.jobID, err)
			}
			break
		}
	}
	list := CompactNodeList(append(excluded, hosts...))
	_, err = j.runProgram(ctx, "scontrol", "update", "JobId="+j.jobID, "ExcNodeList="+list)
	return err
}

// Slurm numbers its own steps from the maximum downwards. Their single process is a shell, or a
// process that was started by ssh, and not a launch of daemons.
var pseudoSteps = map[string]string{
	"4294967290":  "interactive",
	"4294967291":  "batch",
	"4294967292":  "extern",
	"4294967293":  "pending",
	"interactive": "interactive",
	"batch":       "batch",
	"extern":      "extern",
}

// inSlurmStep reports whether srun started this process as a task. SLURM_PROCID, SLURM_NTASKS and
// others prove nothing, because a batch shell has them, too; only the step's number is missing
// there.
func inSlurmStep(env Environment) bool {
	step := env.valueOf("SLURM_STEP_ID")
	_, pseudo := pseudoSteps[step]
	return step != "" && !pseudo && env.valueOf("SLURM_JOB_ID") != ""
}

// noStepError returns the error for a process that was not started by srun, inside or outside of a
// job.
func noStepError(env Environment) error {
	job := slurmJob(env)
	switch {
	case job == "" && env.valueOf("SLURM_STEP_ID") == "":
		return &LaunchError{
			Problem: "cannot tell which node this is: not under srun (SLURM_STEP_ID is not set), " +
				"and RANK and WORLD_SIZE are not set either",
			Fix: "start it with: " + srunCommand(0, ""),
			LocalFix: "or on this machine alone with: bringupd local --nodes=N …" +
				" (in a container, let the SLURM_ variables through)",
			InShell: true,
		}
	case job == "":
		return &LaunchError{
			Problem: "cannot tell which node this is: SLURM_STEP_ID is set and SLURM_JOB_ID is not, " +
				"so a part of srun's environment has been lost",
			Fix: "let all SLURM_ variables through (in a container, and in srun --export), " +
				"and start it with: " + srunCommand(0, ""),
		}
	}
	place := "the batch shell"
	if name := pseudoSteps[env.valueOf("SLURM_STEP_ID")]; name != "" && name != "batch" {
		place = "the " + name + " shell"
	} else if env.valueOf("SLURM_PROCID") == "" {
		place = "the shell"
	}
	_, nodes := env.firstSet("SLURM_JOB_NUM_NODES", "SLURM_NNODES")
	count, _ := strconv.Atoi(nodes)
	return shellError(place+" of job "+job, "no srun", srunCommand(count, ""))
}

// slurmStep has the step variables that srun sets for a task, parsed but not validated.
type slurmStep struct {
	Environment
	job, step    string
	nodes, tasks int
	tasksPerNode string // for example "2(x3),1"
	nodeList     string // nodes of the step, sorted by name
	hetGroups    int    // components of a heterogeneous job; 0 for an ordinary job
}

// identifySlurm reads a task's environment. A step with more or less than one task per node is an
// error.
func identifySlurm(env Environment, hostname string, want Overrides) (Identity, error) {
	if !inSlurmStep(env) {
		return Identity{}, noStepError(env)
	}
	s := slurmStep{
		Environment: env, job: env.valueOf("SLURM_JOB_ID"), step: env.valueOf("SLURM_STEP_ID"),
		nodeList: env.valueOf("SLURM_STEP_NODELIST"),
	}
	id, err := s.buildIdentity(hostname)
	id.CPUs = slurmCPUs(env, want.CPUs)
	if _, launch := err.(*LaunchError); err != nil && !launch {
		// srun has not made this environment.
		err = &LaunchError{
			Problem: fmt.Sprintf("cannot tell which node this is from srun's environment "+
				"(job %q, step %q): %v", s.job, s.step, err),
			Fix: "let only srun set the SLURM_ variables, and start it with: " + srunCommand(0, ""),
		}
	}
	return id, err
}

// buildIdentity returns the identity of a task of the step. The error is a *LaunchError if srun has
// made the environment.
func (s slurmStep) buildIdentity(hostname string) (Identity, error) {
	if err := s.readVariables(); err != nil {
		return Identity{}, err
	}
	if err := s.checkOneTaskPerNode(); err != nil {
		return Identity{}, err
	}
	node, err := s.parseNumber(0, "SLURM_PROCID")
	if err != nil {
		return Identity{}, err
	}
	if node >= s.tasks {
		return Identity{}, fmt.Errorf("SLURM_PROCID is %d in a step of %d tasks", node, s.tasks)
	}
	nodes, err := s.expandNodes()
	if err != nil {
		return Identity{}, err
	}
	restart := 0
	if s.valueOf("SLURM_RESTART_COUNT") != "" {
		if restart, err = s.parseNumber(0, "SLURM_RESTART_COUNT"); err != nil {
			return Identity{}, err
		}
	}
	id := Identity{
		Launcher: LauncherSlurm, NodeIndex: node, Size: s.tasks, Host: hostname,
		Job: s.job, Step: s.step, Restart: restart, LaunchKey: s.launchKey(restart), LocalSize: 1,
	}
	id.GPUs, id.GPUsSource = slurmGPUs(s.Environment)
	if name := s.valueOf("SLURMD_NODENAME"); name != "" {
		id.Host = name
		id.Hosts = s.hostsByRank(nodes, node, name)
	}
	_, id.LaunchAddress = s.firstSet("SLURM_LAUNCH_NODE_IPADDR", "SLURM_SRUN_COMM_HOST")
	return id, nil
}

func (s *slurmStep) readVariables() (err error) {
	// They become the name of a directory.
	if !isDecimal(s.job) || !isDecimal(s.step) || max(len(s.job), len(s.step)) > 19 {
		return fmt.Errorf("SLURM_JOB_ID and SLURM_STEP_ID should be numbers")
	}
	// The step's own variables come first: SLURM_NTASKS and SLURM_NNODES are also options of sbatch
	// and of users for srun.
	tasks := []string{"SLURM_STEP_NUM_TASKS", "SLURM_NTASKS", "SLURM_NPROCS"}
	if s.tasks, err = s.parseNumber(1, tasks...); err != nil {
		return err
	}
	if s.tasks > maxNodes {
		name, _ := s.firstSet(tasks...)
		return fmt.Errorf("%s is %d, and should be 1 to %d", name, s.tasks, maxNodes)
	}
	s.nodes, err = s.parseNumber(1, "SLURM_STEP_NUM_NODES", "SLURM_NNODES", "SLURM_JOB_NUM_NODES")
	if err != nil {
		return err
	}
	_, s.tasksPerNode = s.firstSet("SLURM_STEP_TASKS_PER_NODE", "SLURM_TASKS_PER_NODE")
	s.hetGroups = slurmComponentCount(s.Environment)
	return nil
}

func (s slurmStep) checkOneTaskPerNode() error {
	highest, err := maxTaskCount(s.tasksPerNode)
	if err != nil {
		return fmt.Errorf("SLURM_STEP_TASKS_PER_NODE is %q: %v", s.tasksPerNode, err)
	}
	problem := ""
	switch local := s.valueOf("SLURM_LOCALID"); {
	case highest > 1:
		problem = fmt.Sprintf("%d daemons on one node: step %s.%s has %d tasks on %d nodes (%s a node)",
			highest, s.job, s.step, s.tasks, s.nodes, s.tasksPerNode)
	case local != "" && local != "0":
		problem = fmt.Sprintf("two daemons on one node: this is task %s on %s (SLURM_LOCALID) of step %s.%s",
			local, s.valueOf("SLURMD_NODENAME"), s.job, s.step)
	case s.tasks != s.nodes:
		problem = fmt.Sprintf("%d daemons on %d nodes: step %s.%s has that many tasks, "+
			"and bringupd runs once on every node", s.tasks, s.nodes, s.job, s.step)
	default:
		return nil
	}
	return &LaunchError{
		Problem: "cannot run " + problem, Fix: "start it with: " + srunCommand(s.nodes, ""),
	}
}

// expandNodes returns the nodes of the step in the launcher's order, or nil if there is no list.
func (s slurmStep) expandNodes() ([]string, error) {
	if s.nodeList == "" {
		return nil, nil
	}
	nodes, err := ExpandNodeList(s.nodeList, 0)
	if err != nil {
		return nil, fmt.Errorf("SLURM_STEP_NODELIST is wrong: %v", err)
	}
	if len(nodes) != s.nodes {
		return nil, fmt.Errorf("SLURM_STEP_NODELIST names %d nodes (%s), and the step has %d",
			len(nodes), shortenText(s.nodeList), s.nodes)
	}
	return nodes, nil
}

// hostsByRank returns the host of each node if they are known. Node indices follow the step's list
// of nodes, with two exceptions: srun --distribution=arbitrary, and a heterogeneous step, whose
// list is sorted over all components while the indices follow one component after the other.
func (s slurmStep) hostsByRank(nodes []string, node int, own string) []string {
	switch {
	case strings.HasPrefix(s.valueOf("SLURM_DISTRIBUTION"), "arbitrary"):
		return nil
	case s.hetGroups > 1:
		nodes = s.hetGroupHosts(nodes)
	}
	if len(nodes) != s.tasks || nodes[node] != own {
		return nil
	}
	return nodes
}

// hetGroupHosts returns the nodes of a step that includes all components of its job, one component
// after the other, or the sorted nodes if the step has only one component. Otherwise it returns
// nil.
func (s slurmStep) hetGroupHosts(sorted []string) []string {
	if len(sorted) == 0 {
		return nil
	}
	var all []string
	isKnown := true // all components are known, with no more nodes than the step has
	for component := range s.hetGroups {
		_, list := componentList(s.Environment, component)
		group, err := ExpandNodeList(list, len(sorted))
		if err == nil && slices.Equal(group, sorted) {
			return sorted
		}
		isKnown = isKnown && err == nil && len(all)+len(group) <= len(sorted)
		if isKnown {
			all = append(all, group...)
		}
	}
	if !isKnown || len(all) != len(sorted) {
		return nil
	}
	return all
}

// maxHetComponents is Slurm's maximum number of components of a job (MAX_HET_JOB_COMPS).
const maxHetComponents = 128

// slurmComponentCount returns the number of components of a heterogeneous job, or 0 in any other.
func slurmComponentCount(env Environment) int {
	count, _ := strconv.Atoi(env.valueOf("SLURM_HET_SIZE")) // 0 in a job without components
	return min(max(count, 0), maxHetComponents)
}

// componentList returns the variable with the nodes of a component, and its value. A step of salloc
// has only the older name.
func componentList(env Environment, component int) (name, list string) {
	return env.firstSet(fmt.Sprint("SLURM_JOB_NODELIST_HET_GROUP_", component),
		fmt.Sprint("SLURM_JOB_NODELIST_PACK_GROUP_", component))
}

// SlurmComponents returns the hosts of each component of a Slurm allocation, of which an ordinary
// job has one. Unlike an identity, they are also known in the job's script. It returns nil outside
// of a job.
func SlurmComponents(env Environment) (components [][]string, err error) {
	count := slurmComponentCount(env)
	if count < 2 {
		name, list := env.firstSet("SLURM_JOB_NODELIST", "SLURM_NODELIST")
		if list == "" || !IsSlurmJob(env) {
			return nil, nil
		}
		hosts, err := expandVariable(name, list)
		return [][]string{hosts}, err
	}
	for component := range count {
		hosts, err := expandVariable(componentList(env, component))
		if err != nil {
			return nil, err
		}
		components = append(components, hosts)
	}
	return components, nil
}

func expandVariable(name, list string) ([]string, error) {
	hosts, err := ExpandNodeList(list, 0)
	if err != nil {
		return nil, fmt.Errorf("cannot use %s=%s: %v", name, shortenText(list), err)
	}
	return hosts, nil
}

// ComponentOf returns the number of the component of a heterogeneous job that has a host. It is 0 in
// any other job, and if the host is unknown.
func ComponentOf(env Environment, host string) int {
	components, err := SlurmComponents(env)
	if err != nil {
		return 0
	}
	has := func(hosts []string) bool { return slices.Contains(hosts, host) }
	return max(0, slices.IndexFunc(components, has))
}

// RequestedGPUs returns the number of GPUs of each node of a job: those of this node, or, in a shell
// that salloc has started, those that the job has requested. It returns -1 if it is unknown.
func RequestedGPUs(env Environment) int {
	if granted, _ := BatchGPUs(env); granted >= 0 {
		return granted
	}
	// The list has the GPUs of each type, such as "a100:3,v100:1", or one number.
	sum := 0
	for part := range strings.SplitSeq(env.valueOf("SLURM_GPUS_PER_NODE"), ",") {
		n, err := strconv.Atoi(part[strings.LastIndexByte(part, ':')+1:])
		if err != nil || n < 0 {
			return -1
		}
		sum += n
	}
	return sum
}

// launchKey excludes values that differ between the tasks of one step: srun gives each component of
// a heterogeneous step its own launcher port (and the components may have started a second apart),
// sets another SLURM_SRUN_COMM_PORT for each group of 48 nodes, and has another address on each
// network.
func (s slurmStep) launchKey(restart int) string {
	facts := []string{
		string(LauncherSlurm), s.valueOf("SLURM_CLUSTER_NAME"), s.job, s.step,
		strconv.Itoa(restart), strconv.Itoa(s.tasks),
	}
	if s.hetGroups < 2 {
		facts = append(facts, s.valueOf("SLURM_JOB_START_TIME"), s.valueOf("SLURM_STEP_LAUNCHER_PORT"))
	}
	return digestFacts(facts...)
}

// slurmGPUs returns the number of GPUs of this task's node, and the variable with that number. It
// ignores SLURM_GPUS_PER_NODE, which is the request of sbatch and does not change in a step with
// fewer GPUs.
func slurmGPUs(env Environment) (n int, from string) {
	// The indices are written as in the bracket of a node list, "0,1" or "0-1".
	if list := env.valueOf("SLURM_STEP_GPUS"); list != "" && !strings.ContainsAny(list, "[]") {
		if ids, err := ExpandNodeList("["+list+"]", 0); err == nil {
			return len(ids), "SLURM_STEP_GPUS"
		}
	}
	if n, err := env.parseNumber(0, "SLURM_GPUS_ON_NODE"); err == nil {
		return n, "SLURM_GPUS_ON_NODE"
	}
	return -1, ""
}

// slurmCPUs returns how many CPUs this task may use, or 0 if that is unknown. usable is the number
// of CPUs on which the process may run, or 0 if that is unknown. SLURM_CPUS_ON_NODE is the step's
// number of CPUs on the node, or the job's if the step is not bound. SLURM_CPUS_PER_TASK is
// ignored: it is a request of sbatch for its own tasks, and srun with another number of tasks does
// not change it.
func slurmCPUs(env Environment, usable int) int {
	n, err := env.parseNumber(1, "SLURM_CPUS_ON_NODE")
	switch {
	case err != nil:
		return 0
	case usable == 0:
		return n
	default:
		return min(n, usable)
	}
}

// slurmMemory returns the memory in bytes that the step may use on this node. --mem, --mem-per-cpu
// and --mem-per-gpu are given in MiB, and --mem=0, which means all of it, as 0. It returns 0 if
// nothing is set.
func slurmMemory(env Environment) int64 {
	gpus, _ := env.parseNumber(1, "SLURM_GPUS_ON_NODE")
	for _, of := range []struct {
		name  string
		times int
	}{
		{"SLURM_MEM_PER_NODE", 1}, {"SLURM_MEM_PER_CPU", slurmCPUs(env, 0)}, {"SLURM_MEM_PER_GPU", gpus},
	} {
		if n, err := env.parseNumber(1, of.name); err == nil && of.times > 0 {
			return int64(n) * int64(of.times) << 20
		}
	}
	return 0
}

// maxTaskCount returns the highest count in "2(x3),1", which is two tasks on each of three nodes
// and one on another. It returns 0 for an empty text.
func maxTaskCount(s string) (highest int, err error) {
	if s == "" {
		return 0, nil
	}
	for part := range strings.SplitSeq(s, ",") {
		count, nodes, several := strings.Cut(part, "(x")
		nodes, closed := strings.CutSuffix(nodes, ")")
		if !isDecimal(count) || several && (!closed || !isDecimal(nodes) || nodes[0] == '0') {
			return 0, fmt.Errorf("%q should be TASKS or TASKS(xNODES)", part)
		}
		tasks, err := strconv.Atoi(count)
		if err != nil {
			return 0, fmt.Errorf("%q counts too many tasks", part)
		}
		highest = max(highest, tasks)
	}
	return highest, nil
}
