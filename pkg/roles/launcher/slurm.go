package launcher

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/bringupd/bringupd/internal/textutil"
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
	name:  LauncherSlurm,
	query: slurmQuery,
	traits: Traits{
		NamesNodes: true, HasSteps: true, StarterProgram: "srun", MergesErrors: true,
		PrivatePrefixes: slurmTaskPrefixes,
		JobVariable:     "SLURM_JOB_ID", JobNameVariable: "SLURM_JOB_NAME", RankVariable: "SLURM_PROCID",
		SubmitDirVariable: "SLURM_SUBMIT_DIR",
	},
	// proctrack/linuxproc signals all descendants of slurmstepd (kill_proc_tree), and so does
	// proctrack/cgroup with SignalChildrenProcesses=yes. Otherwise, and with proctrack/pgid, only the
	// tasks get a signal. A step does not know which one is used.
	facts: Facts{
		KillDelay: 30 * time.Second, KillSetting: "KillWait",
		MaySignalAll: true, RequeuesEnded: true,
	},
	hints: CommandHints{
		Title: "Slurm", StartOnNodes: srunOnNodes,
		ExcludeNodes: "sbatch --exclude={nodes} …",
		MoreCPUs:     "srun --cpus-per-task={n}",
		MoreMemory:   "sbatch --mem=…", AllMemory: "--mem=0", MoreTime: "sbatch --time=…",
		WhyEnded: "the time limit, a preemption, a node failure or scancel: " +
			"sacct -j {job} --format=JobID,State,Elapsed,Timelimit",
		MemoryUsed:    "sacct -j {job} --format=JobID,State,MaxRSS,ReqMem",
		ShowNode:      "scontrol show node {nodes}",
		RunOnEachNode: "srun --label",
		DrainNode:     `scontrol update nodename={host} state=drain reason="{reason}"`,
		// Without --mem=0, a step of a job with --mem-per-cpu or DefMemPerCPU is refused:
		// "Memory required by task is not available".
		AttachShell: "srun --overlap --mem=0 --jobid={job} --nodelist={host} --nodes=1 --ntasks=1 " +
			"--export=ALL --pty bash",
	},
	nestedFix: "give the inner one a step of its own: " + srunCommand(0, " --overlap --mem=0") +
		", or keep it to this node with: bringupd local --nodes=N …",
	claim:    claimSlurm,
	starter:  slurmStarter,
	identify: identifySlurm,
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

// NodeName returns the launcher's name of this node, also outside of a launch, as in a prolog. It is
// empty if it provides none.
func NodeName(env Environment) string { return env.valueOf("SLURMD_NODENAME") }

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
	case env.lostStepMark() != "":
		return &LaunchError{
			Problem: "cannot tell which node this is: SLURM_STEP_ID is not set, but " + env.lostStepMark() +
				", as in a task of srun, so a part of srun's environment has been lost",
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

// lostStepMark returns a variable with its value that only srun sets, in an environment without
// SLURM_STEP_ID. It is empty if there is none: a batch shell has the numbers of node 0.
func (env Environment) lostStepMark() string {
	if env.valueOf("SLURM_STEP_ID") != "" {
		return ""
	}
	for _, name := range []string{"SLURM_PROCID", "SLURM_NODEID", "SLURM_STEPID", "SLURM_STEP_NODELIST",
		"SLURM_STEP_NUM_TASKS", "SLURM_SRUN_COMM_HOST"} {
		value := env.valueOf(name)
		if isNumber := strings.HasSuffix(name, "_PROCID") || strings.HasSuffix(name, "_NODEID"); value != "" &&
			(!isNumber || value != "0") {
			return name + "=" + shortenText(value)
		}
	}
	return ""
}

// slurmStep is a step of Slurm as one of its tasks sees it.
type slurmStep struct {
	Environment
	StartedRank
	job, step string
}

// identifySlurm reads a task's environment. A step with more or less than one task per node is an
// error.
func identifySlurm(env Environment, hostname string, want Overrides) (Identity, error) {
	if !inSlurmStep(env) {
		return Identity{}, noStepError(env)
	}
	s := slurmStep{
		Environment: env, job: env.valueOf("SLURM_JOB_ID"), step: env.valueOf("SLURM_STEP_ID"),
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
func (s slurmStep) buildIdentity(hostname string) (id Identity, err error) {
	// They become the name of a directory.
	if !isDecimal(s.job) || !isDecimal(s.step) || max(len(s.job), len(s.step)) > 19 {
		return Identity{}, errors.New("SLURM_JOB_ID and SLURM_STEP_ID should be numbers")
	}
	if s.StartedRank, err = slurmStarter.variableNames.readRank(s.Environment); err != nil {
		return Identity{}, err
	}
	switch {
	case s.NodeCount == 0:
		return Identity{}, errors.New("SLURM_STEP_NUM_NODES is not set")
	case s.RankCount > maxNodes:
		return Identity{}, fmt.Errorf("the step has %d tasks, and should have 1 to %d", s.RankCount, maxNodes)
	}
	if err := s.checkOneTaskPerNode(); err != nil {
		return Identity{}, err
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
	id = Identity{
		Launcher: LauncherSlurm, NodeIndex: s.Rank, Size: s.RankCount, Host: hostname,
		Job: s.job, Step: s.step, Restart: restart, LaunchKey: s.launchKey(restart), LocalSize: 1,
	}
	id.GPUs, id.GPUsSource = slurmGPUs(s.Environment)
	if name := s.valueOf("SLURMD_NODENAME"); name != "" {
		id.Host, id.Hosts = name, s.hostsByRank(nodes, name)
	}
	_, id.LaunchAddress = s.firstSet("SLURM_LAUNCH_NODE_IPADDR", "SLURM_SRUN_COMM_HOST")
	return id, nil
}

func (s slurmStep) checkOneTaskPerNode() error {
	_, perNode := s.firstSet("SLURM_STEP_TASKS_PER_NODE", "SLURM_TASKS_PER_NODE")
	highest := 0
	for _, run := range parseTaskCounts(perNode) {
		highest = max(highest, run.tasks)
	}
	each := ""
	if s.NodeCount > 1 {
		each = fmt.Sprintf(" (%s a node)", perNode)
	}
	problem, isOwn := "", false
	switch {
	case highest > 1:
		problem = fmt.Sprintf("%d daemons on one node: step %s.%s has %d tasks on %d %s%s",
			highest, s.job, s.step, s.RankCount, s.NodeCount, textutil.PluralForm(s.NodeCount, "node"), each)
	case s.LocalRank > 0:
		isOwn = true
		problem = fmt.Sprintf("two daemons on one node: this is task %d on %s (SLURM_LOCALID) of step %s.%s",
			s.LocalRank, s.valueOf("SLURMD_NODENAME"), s.job, s.step)
	case s.RankCount != s.NodeCount:
		problem = fmt.Sprintf("%d daemons on %d nodes: step %s.%s has that many tasks, "+
			"and bringupd runs once on every node", s.RankCount, s.NodeCount, s.job, s.step)
	default:
		return nil
	}
	return &LaunchError{
		Problem: "cannot run " + problem, Fix: "start it with: " + srunCommand(s.NodeCount, ""),
		SameForAll: !isOwn,
	}
}

// expandNodes returns the nodes of the step, sorted by name, or nil if there is no list.
func (s slurmStep) expandNodes() ([]string, error) {
	list := s.valueOf("SLURM_STEP_NODELIST")
	if list == "" {
		return nil, nil
	}
	nodes, err := ExpandNodeList(list, 0)
	if err != nil {
		return nil, fmt.Errorf("SLURM_STEP_NODELIST is wrong: %v", err)
	}
	if len(nodes) != s.NodeCount {
		return nil, fmt.Errorf("SLURM_STEP_NODELIST names %d nodes (%s), and the step has %d",
			len(nodes), shortenText(list), s.NodeCount)
	}
	return nodes, nil
}

// hostsByRank returns the host of each node if they are known. Node indices follow the step's list
// of nodes, with two exceptions: srun --distribution=arbitrary, and a step of several components of
// a heterogeneous job, whose list is sorted over all of them while the indices follow one component
// after the other.
func (s slurmStep) hostsByRank(nodes []string, own string) []string {
	if strings.HasPrefix(s.valueOf("SLURM_DISTRIBUTION"), "arbitrary") {
		return nil
	}
	if slurmComponentCount(s.Environment) > 1 {
		components, err := expandComponents(s.Environment, s.NodeCount)
		if err != nil {
			return nil
		}
		isStep := func(hosts []string) bool { return slices.Equal(hosts, nodes) }
		if !slices.ContainsFunc(components, isStep) {
			nodes = slices.Concat(components...)
		}
	}
	if len(nodes) != s.RankCount || nodes[s.Rank] != own {
		return nil
	}
	return nodes
}

// maxHetComponents is Slurm's maximum number of components of a job (MAX_HET_JOB_COMPS).
const maxHetComponents = 128

// slurmComponentCount returns the number of components of a heterogeneous job, or 0 in any other.
func slurmComponentCount(env Environment) int {
	count, _ := strconv.Atoi(env.valueOf("SLURM_HET_SIZE")) // 0 in a job without components
	return min(max(count, 0), maxHetComponents)
}

// SlurmComponents returns the hosts of each component of a Slurm allocation, of which an ordinary
// job has one. Unlike an identity, they are also known in the job's script. It returns nil outside
// of a job.
func SlurmComponents(env Environment) ([][]string, error) { return expandComponents(env, 0) }

// expandComponents returns the components of a job, of which each has at most limit hosts.
func expandComponents(env Environment, limit int) (components [][]string, err error) {
	count := slurmComponentCount(env)
	for component := range max(1, count) {
		name, list := env.firstSet("SLURM_JOB_NODELIST", "SLURM_NODELIST")
		if count > 1 {
			// A step of salloc has only the older name.
			name, list = env.firstSet(fmt.Sprint("SLURM_JOB_NODELIST_HET_GROUP_", component),
				fmt.Sprint("SLURM_JOB_NODELIST_PACK_GROUP_", component))
		} else if list == "" || !IsSlurmJob(env) {
			return nil, nil
		}
		hosts, err := ExpandNodeList(list, limit)
		if err != nil {
			return nil, fmt.Errorf("cannot use %s=%s: %v", name, shortenText(list), err)
		}
		components = append(components, hosts)
	}
	return components, nil
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
		strconv.Itoa(restart), strconv.Itoa(s.RankCount),
	}
	if slurmComponentCount(s.Environment) < 2 {
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
	return BatchGPUs(env)
}

// BatchGPUs returns how many GPUs a job has on this node, also outside of a launch, as in a batch
// shell, and the variable with that number. It returns -1 if there is none.
func BatchGPUs(env Environment) (n int, from string) {
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

// GrantedMemory returns the memory in bytes that a Slurm step may use on this node. --mem,
// --mem-per-cpu and --mem-per-gpu are given in MiB, and --mem=0, which means all of it, as 0. It
// returns 0 if nothing is set.
func GrantedMemory(environ []string) int64 {
	env := EnvironmentOf(environ)
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

// unboundSrun returns how to start a task with count of the CPUs that its step has. Without a request,
// the default of one CPU per task may be the reason.
func unboundSrun(env Environment, count int) string {
	if env.valueOf("SLURM_CPUS_PER_TASK") != "" {
		return "srun --cpu-bind=none"
	}
	return fmt.Sprintf("srun --cpus-per-task=%d, or --cpu-bind=none", count)
}

// isSlurmBound reports whether a task may use only cpus of the CPUs that its step has on the node.
func isSlurmBound(env Environment, cpus int) bool {
	return cpus > 0 && lacksCPUs(env, cpus, slurmCPUs(env, 0))
}

// lacksCPUs reports whether cpus are fewer than all, unless the user has asked for that: they are one of two
// threads of each core, or one core of each socket.
func lacksCPUs(env Environment, cpus, all int) bool {
	hint := env.valueOf("SLURM_HINT")
	hasOneThread := hint == "nomultithread" || hint == "compute_bound" || env.valueOf("SLURM_THREADS_PER_CORE") == "1"
	return cpus < all && hint != "memory_bound" && (!hasOneThread || 2*cpus != all)
}

// MoreCPUs returns how to start this daemon with count CPUs, or an empty string if that is unknown.
func (id Identity) MoreCPUs(environ []string, count int) string {
	env := EnvironmentOf(environ)
	if id.Launcher == LauncherSlurm && isSlurmBound(env, id.CPUs) && count <= slurmCPUs(env, 0) {
		return unboundSrun(env, count)
	}
	return strings.ReplaceAll(id.Launcher.findSpec().hints.MoreCPUs, "{n}", strconv.Itoa(count))
}

// Shortfall is a resource of a Slurm job that a step does not have, which may be a mistake.
type Shortfall struct {
	Problem string // the resources of the step and of the job
	Fix     string // the flag that gives the step all of them
}

// FindGPUShortfall returns that the job has GPUs here and the step of an environment has none, or nil. In
// a heterogeneous job, the list of the job may be that of another component, and a component without
// GPUs is the usual case.
func FindGPUShortfall(env Environment) *Shortfall {
	job := env.valueOf("SLURM_JOB_GPUS")
	// A step without GPUs has an empty list, or none.
	if !inSlurmStep(env) || job == "" || env.valueOf("SLURM_STEP_GPUS") != "" || isHeterogeneous(env) {
		return nil
	}
	flag := "--gpus-per-node=N"
	if ids, err := ExpandNodeList("["+job+"]", 0); err == nil {
		flag = "--gpus-per-node=" + strconv.Itoa(len(ids))
	}
	return &Shortfall{
		fmt.Sprintf("the job has the GPUs %s here, but this step has none", shortenText(job)),
		"add " + flag + " to srun",
	}
}

func isHeterogeneous(env Environment) bool { return env.valueOf("SLURM_HET_SIZE") != "" }

// FindCPUShortfall returns the CPUs that the step of an environment lacks, or nil. cpus is how many CPUs
// the task may use, and nodeCPUs how many its node has, or 0 if they are unknown.
func FindCPUShortfall(env Environment, cpus, nodeCPUs int) *Shortfall {
	if !inSlurmStep(env) || cpus == 0 {
		return nil
	}
	asked := env.valueOf("SLURM_CPUS_PER_TASK") + env.valueOf("SLURM_CPUS_PER_GPU")
	ofJob := min(grantedCPUs(env), nodeCPUs)
	switch granted := slurmCPUs(env, 0); {
	case isSlurmBound(env, cpus) && (nodeCPUs == 0 || cpus < nodeCPUs):
		return &Shortfall{
			fmt.Sprintf("this task is bound to %d of the %d CPUs that its step has here", cpus, granted),
			"start it with " + unboundSrun(env, granted),
		}
	case lacksCPUs(env, cpus, ofJob):
		return &Shortfall{
			fmt.Sprintf("this task may use %d of the %d CPUs that the job has for it here", cpus, ofJob),
			fmt.Sprintf("add --cpus-per-task=%d to srun, which does not take it from sbatch", ofJob),
		}
	case asked == "" && 2*cpus < nodeCPUs:
		return &Shortfall{
			fmt.Sprintf("this task may use %d of the node's %d CPUs, and no number was requested",
				cpus, nodeCPUs),
			"add --cpus-per-task=N to srun and sbatch, or --exclusive for all",
		}
	}
	return nil
}

// grantedCPUs returns how many CPUs the job has for the only task of a step on any of its nodes, or 0
// if that is unknown: those that the job has requested for a task, or has on each node. In a
// heterogeneous job they may be those of another component, and the GPUs of a step may decide.
func grantedCPUs(env Environment) int {
	if isHeterogeneous(env) || env.valueOf("SLURM_CPUS_PER_GPU") != "" {
		return 0
	}
	if perTask, err := env.parseNumber(1, "SLURM_CPUS_PER_TASK"); err == nil {
		return perTask
	}
	fewest := 0
	for _, run := range parseTaskCounts(env.valueOf("SLURM_JOB_CPUS_PER_NODE")) {
		if fewest == 0 || run.tasks < fewest {
			fewest = run.tasks
		}
	}
	return fewest
}
