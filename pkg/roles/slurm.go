package roles

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Slurm is the launcher that starts one task a node of one job step.
const Slurm Launcher = "slurm"

var slurm = launcher{
	name: Slurm,
	traits: Traits{
		// proctrack/linuxproc signals all that descends from slurmstepd (kill_proc_tree), and so does proctrack/cgroup
		// with SignalChildrenProcesses=yes; without that, and with proctrack/pgid, only the tasks get a signal. A step
		// is not told which.
		NamesNodes: true, Steps: true, SignalsAll: true, Private: []string{"SLURM_", "SLURMD_"},
		Starter: "srun", Job: "SLURM_JOB_ID", Rank: "SLURM_PROCID", Host: "SLURMD_NODENAME", GPUs: "SLURM_GPUS_ON_NODE", SubmitDir: "SLURM_SUBMIT_DIR",
	},
	tasks: slurmTasks,
	claim: claimSlurm, identify: identifySlurm, words: slurmWords,
	// It is left to Slurm to say that an allocation without a batch script can't be started anew.
	requeuer: func(job string, run Program) Requeuer { return slurmJob{job, run} }, memory: slurmMemory,
}

func claimSlurm(env Environment, _ Want) claim {
	_, job := env.first("SLURM_JOB_ID", "SLURM_JOBID")
	switch {
	case inSlurmStep(env):
		return started
	case job != "" || env.get("SLURM_STEP_ID") != "":
		return hinted
	default:
		return unclaimed
	}
}

func slurmWords(job string) Words {
	return Words{
		Title: "Slurm", Nodes: srunNodes,
		Nested: "give the inner one a step of its own: " + srunLine(0, " --overlap") +
			", or keep it to this node with: bringupd local --nodes=N …",
		Exclude:    func(nodes string) string { return "sbatch --exclude=" + nodes + " …" },
		Memory:     "sbatch --mem=…",
		AllMemory:  "--mem=0",
		Time:       "sbatch --time=…",
		WhyEnded:   "the time limit, preemption or scancel: sacct -j " + job + " --format=JobID,State,Elapsed,Timelimit",
		MemoryUsed: "sacct -j " + job + " --format=JobID,State,MaxRSS,ReqMem",
		ShowNode:   func(nodes string) string { return "scontrol show node " + nodes },
		OnEach:     "srun --label",
		Drain: func(host, reason string) string {
			return fmt.Sprintf(`scontrol update nodename=%s state=drain reason="%s"`, host, reason)
		},
		Gone: "once squeue shows no such job", NoRequeue: noSlurm,
		Attach: func(host string) []string {
			return []string{"srun", "--overlap", "--jobid=" + job, "--nodelist=" + host, "--nodes=1", "--ntasks=1", "--pty", "bash"}
		},
	}
}

// srunLine is the command that starts one task a node. The counts are spelled out where they are known: with
// --ntasks=12 inherited from sbatch, srun drops a lone --ntasks-per-node=1 with no more than a warning.
func srunLine(nodes int, more string) string {
	if nodes < 1 {
		return "srun" + more + " --ntasks-per-node=1 bringupd …"
	}
	return fmt.Sprintf("srun%s --nodes=%d --ntasks=%d --ntasks-per-node=1 bringupd …", more, nodes, nodes)
}

// srunNodes are the flags by which srun starts one task on each of n nodes.
func srunNodes(n int) string { return fmt.Sprintf("srun --nodes=%d --ntasks-per-node=1", n) }

// Idle says that a Slurm step has not all nodes of its job, which its user may not mean, and how to start one that has; empty where it has
// all, or that is not known.
func Idle(env Environment) string {
	step, _ := strconv.Atoi(env.get("SLURM_STEP_NUM_NODES"))
	job, _ := strconv.Atoi(env.get("SLURM_JOB_NUM_NODES"))
	if step == 0 || job <= step {
		return ""
	}
	return fmt.Sprintf("this step has %d of the job's %d nodes, and bringupd runs on no other; on all of them: %s", step, job, srunLine(job, ""))
}

// Managed tells whether an environment is that of a job of Slurm's, with or without a step.
func Managed(env Environment) bool { return env.get("SLURM_JOB_ID") != "" }

// Block returns the name of the block of nodes that this node is in; empty where Slurm knows no blocks.
func Block(env Environment) string {
	block, _, found := strings.Cut(env.get("SLURM_TOPOLOGY_ADDR"), ".")
	if !found || env.get("SLURM_TOPOLOGY_ADDR_PATTERN") != "block.node" {
		return ""
	}
	return block
}

// slurmJob is one job, as Slurm's own client changes it.
type slurmJob struct {
	id  string
	run Program
}

var _ Requeuer = slurmJob{}

// Requeue has Slurm end the job and put it back into the queue.
func (j slurmJob) Requeue(ctx context.Context) error {
	_, err := j.run(ctx, "scontrol", "requeue", j.id)
	return err
}

// Exclude adds hosts to those that the job excludes already. Slurm takes it from jobs that wait in the queue alone.
func (j slurmJob) Exclude(ctx context.Context, hosts []string) error {
	shown, err := j.run(ctx, "scontrol", "show", "job", "--oneliner", j.id)
	if err != nil {
		return err
	}
	var excluded []string
	for field := range strings.FieldsSeq(shown) {
		if list, ok := strings.CutPrefix(field, "ExcNodeList="); ok && list != "(null)" {
			if excluded, err = ExpandNodeList(list, 0); err != nil {
				return fmt.Errorf("cannot tell which nodes job %s excludes: %v", j.id, err)
			}
			break
		}
	}
	_, err = j.run(ctx, "scontrol", "update", "JobId="+j.id, "ExcNodeList="+CompactNodeList(append(excluded, hosts...)))
	return err
}

// Slurm numbers its own steps from the top. These are no launch of ours: their one process is a shell, or a
// process that came in by ssh.
var pseudoSteps = map[string]string{
	"4294967290":  "interactive",
	"4294967291":  "batch",
	"4294967292":  "extern",
	"4294967293":  "pending",
	"interactive": "interactive",
	"batch":       "batch",
	"extern":      "extern",
}

// inSlurmStep tells whether srun started this process as a task. SLURM_PROCID, SLURM_NTASKS and the rest prove
// nothing: a batch shell has them too, and only the step's number is missing there.
func inSlurmStep(env Environment) bool {
	step := env.get("SLURM_STEP_ID")
	_, pseudo := pseudoSteps[step]
	return step != "" && !pseudo && env.get("SLURM_JOB_ID") != ""
}

// noStepError is for a process that no srun has started, in a job or in none.
func noStepError(env Environment) error {
	_, job := env.first("SLURM_JOB_ID", "SLURM_JOBID")
	switch {
	case job == "" && env.get("SLURM_STEP_ID") == "":
		return &LaunchError{
			Problem: "cannot tell which node this is: not under srun (SLURM_STEP_ID is not set), and RANK and WORLD_SIZE are not set either",
			Mend: "start it with: " + srunLine(0, "") + ", or on this machine alone with: bringupd local --nodes=N …" +
				" (in a container, let the SLURM_ variables through)",
			Alone: true,
		}
	case job == "":
		return &LaunchError{
			Problem: "cannot tell which node this is: SLURM_STEP_ID is set and SLURM_JOB_ID is not, so a part of srun's environment has been lost",
			Mend:    "let all SLURM_ variables through (in a container, and in srun --export), and start it with: " + srunLine(0, ""),
		}
	}
	place := "the batch shell"
	if name := pseudoSteps[env.get("SLURM_STEP_ID")]; name != "" && name != "batch" {
		place = "the " + name + " shell"
	} else if env.get("SLURM_PROCID") == "" {
		place = "the shell"
	}
	_, nodes := env.first("SLURM_JOB_NUM_NODES", "SLURM_NNODES")
	count, _ := strconv.Atoi(nodes)
	return &LaunchError{
		Problem: fmt.Sprintf("cannot start in %s of job %s: no srun has started this process, and bringupd runs once on every node", place, job),
		Mend:    "start it with: " + srunLine(count, "") + ", or on this node alone with: bringupd local --nodes=N …",
		Alone:   true,
	}
}

// slurmStep is what srun tells a task about its step, read but not yet judged.
type slurmStep struct {
	Environment
	job, step    string
	nodes, tasks int
	perNode      string // "2(x3),1"
	list         string // nodes of the step, in the order of their names
	het          int    // components of a heterogeneous job, 0 for an ordinary one
}

// identifySlurm reads a task's environment, and refuses a step that isn't one task a node.
func identifySlurm(env Environment, hostname string, want Want) (Identity, error) {
	if !inSlurmStep(env) {
		return Identity{}, noStepError(env)
	}
	s := slurmStep{Environment: env, job: env.get("SLURM_JOB_ID"), step: env.get("SLURM_STEP_ID"), list: env.get("SLURM_STEP_NODELIST")}
	id, err := s.identity(hostname)
	id.CPUs = slurmCPUs(env, want.CPUs)
	if _, launch := err.(*LaunchError); err != nil && !launch {
		// No srun has made this environment.
		err = &LaunchError{
			Problem: fmt.Sprintf("cannot tell which node this is from srun's environment (job %q, step %q): %v", s.job, s.step, err),
			Mend:    "let srun alone set the SLURM_ variables, and start it with: " + srunLine(0, ""),
		}
	}
	return id, err
}

// identity is that of a task of the step. The error is a *LaunchError where srun has made what it tells.
func (s slurmStep) identity(hostname string) (Identity, error) {
	if err := s.read(); err != nil {
		return Identity{}, err
	}
	if err := s.oneTaskANode(); err != nil {
		return Identity{}, err
	}
	rank, err := s.number(0, "SLURM_PROCID")
	if err != nil {
		return Identity{}, err
	}
	if rank >= s.tasks {
		return Identity{}, fmt.Errorf("SLURM_PROCID is %d in a step of %d tasks", rank, s.tasks)
	}
	nodes, err := s.expandList()
	if err != nil {
		return Identity{}, err
	}
	restart := 0
	if s.get("SLURM_RESTART_COUNT") != "" {
		if restart, err = s.number(0, "SLURM_RESTART_COUNT"); err != nil {
			return Identity{}, err
		}
	}
	id := Identity{
		Launcher: Slurm, Rank: rank, Size: s.tasks,
		Host: hostname,
		Job:  s.job, Step: s.step, Restart: restart,
		Key:       s.key(restart),
		LocalSize: 1,
	}
	id.GPUs, id.GPUsFrom = slurmGPUs(s.Environment)
	if name := s.get("SLURMD_NODENAME"); name != "" {
		id.Host = name
		id.Hosts = s.hostsByRank(nodes, rank, name)
	}
	_, id.LaunchAddress = s.first("SLURM_LAUNCH_NODE_IPADDR", "SLURM_SRUN_COMM_HOST")
	return id, nil
}

// read reads the step's sizes.
func (s *slurmStep) read() (err error) {
	// They become a directory's name.
	if !isDecimal(s.job) || !isDecimal(s.step) || max(len(s.job), len(s.step)) > 19 {
		return fmt.Errorf("SLURM_JOB_ID and SLURM_STEP_ID should be numbers")
	}
	// The step's own variables come first: SLURM_NTASKS and SLURM_NNODES are also how sbatch and a user ask srun.
	tasks := []string{"SLURM_STEP_NUM_TASKS", "SLURM_NTASKS", "SLURM_NPROCS"}
	if s.tasks, err = s.number(1, tasks...); err != nil {
		return err
	}
	if s.tasks > maxSize {
		name, _ := s.first(tasks...)
		return fmt.Errorf("%s is %d, and should be 1 to %d", name, s.tasks, maxSize)
	}
	if s.nodes, err = s.number(1, "SLURM_STEP_NUM_NODES", "SLURM_NNODES", "SLURM_JOB_NUM_NODES"); err != nil {
		return err
	}
	_, s.perNode = s.first("SLURM_STEP_TASKS_PER_NODE", "SLURM_TASKS_PER_NODE")
	_, het := s.first("SLURM_HET_SIZE", "SLURM_PACK_SIZE")
	s.het, _ = strconv.Atoi(het)
	return nil
}

// oneTaskANode is nil where the step has one task on each of its nodes.
func (s slurmStep) oneTaskANode() error {
	most, err := mostTasks(s.perNode)
	if err != nil {
		return fmt.Errorf("SLURM_STEP_TASKS_PER_NODE is %q: %v", s.perNode, err)
	}
	problem := ""
	switch local := s.get("SLURM_LOCALID"); {
	case most > 1:
		problem = fmt.Sprintf("cannot run %d daemons on one node: step %s.%s has %d tasks on %d nodes (%s a node)", most, s.job, s.step, s.tasks, s.nodes, s.perNode)
	case local != "" && local != "0":
		problem = fmt.Sprintf("cannot run two daemons on one node: this is task %s on %s (SLURM_LOCALID) of step %s.%s", local, s.get("SLURMD_NODENAME"), s.job, s.step)
	case s.tasks != s.nodes:
		problem = fmt.Sprintf("cannot run %d daemons on %d nodes: step %s.%s has that many tasks, and bringupd runs once on every node", s.tasks, s.nodes, s.job, s.step)
	default:
		return nil
	}
	return &LaunchError{Problem: problem, Mend: "start it with: " + srunLine(s.nodes, "")}
}

// expandList returns the nodes of the step in the launcher's order, nil where no list is told.
func (s slurmStep) expandList() ([]string, error) {
	if s.list == "" {
		return nil, nil
	}
	nodes, err := ExpandNodeList(s.list, 0)
	if err != nil {
		return nil, fmt.Errorf("SLURM_STEP_NODELIST is wrong: %v", err)
	}
	if len(nodes) != s.nodes {
		return nil, fmt.Errorf("SLURM_STEP_NODELIST names %d nodes (%s), and the step has %d", len(nodes), clip(s.list), s.nodes)
	}
	return nodes, nil
}

// hostsByRank returns the host of each rank where that can be told. Ranks follow the step's list of nodes but
// for two cases: srun --distribution=arbitrary, and a heterogeneous step, whose list is sorted over all
// components while its ranks go through one component after the other.
func (s slurmStep) hostsByRank(nodes []string, rank int, own string) []string {
	switch {
	case strings.HasPrefix(s.get("SLURM_DISTRIBUTION"), "arbitrary"):
		return nil
	case s.het > 1:
		nodes = s.hetHosts(nodes)
	}
	if len(nodes) != s.tasks || nodes[rank] != own {
		return nil
	}
	return nodes
}

// maxHetGroups is Slurm's own limit of components in a job.
const maxHetGroups = 128

// hetHosts returns the nodes of a step that spans all components of its job, one component after the other, or
// sorted where the step is just one of them; otherwise nil.
func (s slurmStep) hetHosts(sorted []string) []string {
	if len(sorted) == 0 {
		return nil
	}
	var all []string
	told := true // all components, with no more nodes than the step has
	for i := range min(s.het, maxHetGroups) {
		_, list := s.first(fmt.Sprintf("SLURM_JOB_NODELIST_HET_GROUP_%d", i), fmt.Sprintf("SLURM_JOB_NODELIST_PACK_GROUP_%d", i))
		group, err := ExpandNodeList(list, len(sorted))
		if err == nil && slices.Equal(group, sorted) {
			return sorted
		}
		if told = told && err == nil && len(all)+len(group) <= len(sorted); told {
			all = append(all, group...)
		}
	}
	if !told || len(all) != len(sorted) {
		return nil
	}
	return all
}

// key leaves out what differs between the tasks of one step: srun gives each component of a heterogeneous step
// a launcher port of its own (and the components may have begun a second apart), gives SLURM_SRUN_COMM_PORT
// another value for each group of 48 nodes, and is seen by each node under the address that node is reached from.
func (s slurmStep) key(restart int) string {
	facts := []string{string(Slurm), s.get("SLURM_CLUSTER_NAME"), s.job, s.step, strconv.Itoa(restart), strconv.Itoa(s.tasks)}
	if s.het < 2 {
		facts = append(facts, s.get("SLURM_JOB_START_TIME"), s.get("SLURM_STEP_LAUNCHER_PORT"))
	}
	return digest(facts...)
}

// slurmGPUs returns the number of GPUs of this task's node, and the variable that tells it. SLURM_GPUS_PER_NODE
// is not asked: it is what sbatch was asked for, and stays the same in a step that was given fewer.
func slurmGPUs(env Environment) (n int, from string) {
	// The indices are written as in the bracket of a node list, "0,1" or "0-1".
	if list := env.get("SLURM_STEP_GPUS"); list != "" && !strings.ContainsAny(list, "[]") {
		if ids, err := ExpandNodeList("["+list+"]", 0); err == nil {
			return len(ids), "SLURM_STEP_GPUS"
		}
	}
	if n, err := env.number(0, "SLURM_GPUS_ON_NODE"); err == nil {
		return n, "SLURM_GPUS_ON_NODE"
	}
	return -1, ""
}

// slurmCPUs returns how many CPUs this task may use; 0 if that is not known. usable is how many the
// process may run on, 0 if that is not known. SLURM_CPUS_ON_NODE is what the step has on the node, or all
// that the job has if the step is not bound. SLURM_CPUS_PER_TASK is not asked: it is what sbatch was told
// for tasks of its own kind, and srun with another number of tasks leaves it as it is.
func slurmCPUs(env Environment, usable int) int {
	n, err := env.number(1, "SLURM_CPUS_ON_NODE")
	switch {
	case err != nil:
		return 0
	case usable == 0:
		return n
	default:
		return min(n, usable)
	}
}

// slurmMemory returns the memory on this node that the step may use, in bytes: --mem, --mem-per-cpu and --mem-per-gpu
// are told in MiB, and --mem=0, which is all of it, as 0. It returns 0 if nothing is told.
func slurmMemory(env Environment) int64 {
	gpus, _ := env.number(1, "SLURM_GPUS_ON_NODE")
	for _, of := range []struct {
		name  string
		times int
	}{{"SLURM_MEM_PER_NODE", 1}, {"SLURM_MEM_PER_CPU", slurmCPUs(env, 0)}, {"SLURM_MEM_PER_GPU", gpus}} {
		if n, err := env.number(1, of.name); err == nil && of.times > 0 {
			return int64(n) * int64(of.times) << 20
		}
	}
	return 0
}

// mostTasks returns the highest count of "2(x3),1", two tasks on each of three nodes and then one on one; 0
// where nothing is told.
func mostTasks(s string) (most int, err error) {
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
		most = max(most, tasks)
	}
	return most, nil
}
