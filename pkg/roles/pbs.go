package roles

import (
	"cmp"
	"fmt"
	"path/filepath"
	"strings"
)

// PBS is pbsdsh or pbs_tmrsh of OpenPBS, PBS Professional and Torque: the job's task manager starts
// the tasks.
//
// A task gets the job, and the index of its host among the job's hosts (PBS_NODENUM: ji_nodeid in
// OpenPBS's src/resmom/start_exec.c), but not the number of hosts. PBS_NODEFILE has a line for each
// process slot of the job. Tasks on the first host do not get that variable, although the file
// exists: see pbsNodeFile. If PBS makes the file only on the first host (before December 2020, or
// with $gen_nodefile_on_sister_mom 0), --nnodes must be given. The number of restarts is not
// available.
const PBS Launcher = "pbs"

var pbs = launcher{
	name: PBS,
	traits: Traits{
		NamesNodes: true, Relaunches: true, Starter: "pbsdsh", Private: []string{"PBS_"},
		Job: "PBS_JOBID", Rank: "PBS_NODENUM", SubmitDir: "PBS_O_WORKDIR",
	},
	tasks: pbsTasks,
	claim: claimPBS, identify: identifyPBS, words: pbsWords,
}

// pbsTasks is the starter of a job's task manager.
var pbsTasks = starter{title: "pbsdsh", origin: origin{programs: []string{"pbs_mom"}}}

func claimPBS(env Environment, _ Want) claim {
	switch {
	case env.get("PBS_JOBID") == "":
		return unclaimed
	case env.get("PBS_NODENUM") == "" || env.get("PBS_TASKNUM") == "" || inPBSShell(env):
		return hinted
	default:
		return started
	}
}

// inPBSShell reports whether this is the job's script or its shell: the task manager's first task,
// on the first host.
func inPBSShell(env Environment) bool {
	return env.get("PBS_NODENUM") == "0" && strings.TrimLeft(env.get("PBS_TASKNUM"), "0") == "1"
}

func pbsWords(job string) Words {
	if job, index, array := strings.Cut(job, "-"); array {
		return pbsWords(job + "[" + index + "]")
	}
	return Words{
		Title: "PBS", Nodes: pbsNodes, Nested: anotherName,
		Memory: "qsub -l select=…:mem=…", AllMemory: "-l place=scatter:excl without mem=", Time: "qsub -l walltime=…",
		WhyEnded:   "the walltime, a preemption or qdel: qstat -xf " + job,
		MemoryUsed: "qstat -xf " + job,
		ShowNode:   func(nodes string) string { return "pbsnodes " + spaced(nodes) },
		OnEach:     "pbsdsh --",
		Drain:      func(host, reason string) string { return fmt.Sprintf(`pbsnodes -C "%s" -o %s`, reason, host) },
		Gone:       "once qstat shows no such job",
		NoRequeue:  "PBS lets its operators alone have a job run again (qrerun " + job + ")",
	}
}

// pbsNodes returns the command that starts one daemon on each of n hosts.
func pbsNodes(n int) string {
	return fmt.Sprintf("pbsdsh, in a job of -l select=%d:mpiprocs=1 -l place=scatter", n)
}

// spaced writes the hosts of a node list separated by spaces.
func spaced(nodes string) string {
	if hosts, err := ExpandNodeList(nodes, 0); err == nil {
		return strings.Join(hosts, " ")
	}
	return nodes
}

// pbsJob returns the job's number, with its index in an array: "17[4].server" is "17-4". Another
// server is another cluster.
func pbsJob(env Environment) string {
	job, _, _ := strings.Cut(env.get("PBS_JOBID"), ".")
	return named(strings.ReplaceAll(job, "[]", ""))
}

func identifyPBS(env Environment, hostname string, want Want) (Identity, error) {
	rank, err := env.number(0, "PBS_NODENUM")
	if err != nil {
		return Identity{}, torn("PBS", err)
	}
	lines, err := pbsLines(env, want)
	hosts := each(lines)
	id := Identity{Launcher: PBS, Rank: rank, Size: len(hosts), Host: hostname, Job: pbsJob(env)}
	switch {
	case err != nil && want.Size == nil:
		return Identity{}, &LaunchError{
			Problem: fmt.Sprintf("cannot tell how many nodes the job has: its PBS_NODEFILE (%q) can't be read on %s: %v", clip(pbsNodeFile(env, want)), hostname, err),
			Mend:    "give --nnodes, as in: pbsdsh -- bringupd --nnodes=$(sort -u $PBS_NODEFILE | wc -l) …",
		}
	case err != nil:
		id.Size = *want.Size
	case inPBSShell(env) && len(hosts) > 1:
		return Identity{}, &LaunchError{
			Problem: fmt.Sprintf("cannot start in the shell of job %s: no pbsdsh has started this process, and bringupd runs once on each of %d hosts", id.Job, len(hosts)),
			Mend:    "start it with: pbsdsh -- bringupd …, or on this node alone with: bringupd local --nodes=N …",
			Alone:   true,
		}
	case again(env, lines), len(lines) > len(hosts) && want.Size == nil && env.get("PBS_VNODENUM") == "":
		return Identity{}, &LaunchError{
			Problem: fmt.Sprintf("cannot run several daemons on one node: PBS_NODEFILE has %d lines for %d hosts, and pbsdsh starts a process for each line", len(lines), len(hosts)),
			Mend: "start it with: " + pbsNodes(len(hosts)) +
				fmt.Sprintf("; or, started once a host (pbsdsh -u of Torque, pbs_tmrsh HOST), with --nnodes=%d", len(hosts)),
		}
	case rank < len(hosts) && sameHost(hostname, hosts[rank]):
		id.Host, id.Hosts = hosts[rank], hosts
	}
	return settle(id, want, env.get("PBS_JOBID"))
}

// pbsLines returns the hosts in PBS_NODEFILE, one for each process slot of the job.
func pbsLines(env Environment, want Want) ([]string, error) {
	text, err := want.read(pbsNodeFile(env, want))
	if err != nil {
		return nil, err
	}
	return hostColumn(text)
}

// pbsNodeFile returns the path of the job's PBS_NODEFILE. If the variable is not set, it returns
// the path at which the MoM of every host writes the file: $PBS_HOME/aux, with PBS_HOME from PBS's
// configuration.
func pbsNodeFile(env Environment, want Want) string {
	if file := env.get("PBS_NODEFILE"); file != "" {
		return file
	}
	home := env.get("PBS_HOME")
	text, _ := want.read(cmp.Or(env.get("PBS_CONF_FILE"), "/etc/pbs.conf")) // without one the default applies
	for line := range strings.Lines(text) {
		if value, is := strings.CutPrefix(strings.TrimSpace(line), "PBS_HOME="); is && home == "" {
			home = strings.Trim(value, `"'`)
		}
	}
	return filepath.Join(cmp.Or(home, "/var/spool/pbs"), "aux", env.get("PBS_JOBID"))
}

// again reports whether Torque, which numbers the lines (PBS_VNODENUM), has started this process
// for a line whose host has an earlier line.
func again(env Environment, lines []string) bool {
	line, err := env.number(0, "PBS_VNODENUM")
	return err == nil && line < len(lines) && placeOf(lines[line], lines) < line
}
