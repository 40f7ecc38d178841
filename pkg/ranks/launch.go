package ranks

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/bringupd/bringupd/pkg/process"
)

// Runners are the processes that run a command: the driver of some nodes, or the ranks of a world.
type Runners struct {
	MinNodes, MaxNodes int
	IsRanked           bool
	// MinRanks and MaxRanks are the numbers of ranks; a MaxRanks of 0 is any.
	MinRanks, MaxRanks int
	AreOfRole          bool // a role of a file has the command
	AreProcesses       bool // these are no ranks, but processes of one instance of a role
	// Instances is the number of all such instances, which can form one world; 0 is any, or others, too.
	Instances int
}

func (r Runners) each() string {
	if r.AreProcesses {
		return "process"
	}
	return "rank"
}

func (r Runners) all() string {
	if r.AreProcesses {
		return "processes"
	}
	return "ranks"
}

// RunnersOn returns which processes run the command of a job on so many nodes.
func (w LayoutRequest) RunnersOn(minNodes, maxNodes int) Runners {
	r := Runners{MinNodes: minNodes, MaxNodes: maxNodes, IsRanked: w.IsRequested(), MinRanks: minNodes, Instances: 1}
	if perNode, fixed := w.FixedPerNode(); fixed {
		r.MinRanks, r.MaxRanks = minNodes*perNode, maxNodes*perNode
	}
	if w.Total > 0 {
		r.MinRanks, r.MaxRanks = w.Total, w.Total
	}
	return r
}

// Finding is why a launcher cannot form one world on all nodes of its job.
type Finding struct {
	// IsCertain is false if it may be right: its own files, or a number that is not known yet, decide.
	IsCertain bool
	name      string // launcher, such as torchrun
	runners   string // "as the driver of 2 nodes"
	problem   string
	advice    string
}

// Error returns the finding as the reason not to start.
func (f *Finding) Error() string {
	return fmt.Sprintf("cannot run %s %s: %s; %s", f.name, f.runners, f.problem, f.advice)
}

// Warning returns the finding about a command that is to run.
func (f *Finding) Warning() string {
	return fmt.Sprintf("%s %s may be wrong: %s; %s", f.name, f.runners, f.problem, f.advice)
}

// JudgeCommand returns why a command cannot form one world on the nodes of its runners: it is a
// launcher, and what it says of its nodes does not fit these runners. It returns nil if it may be
// right, or starts other programs by a shell or a script. environ are its variables, NAME=VALUE.
func JudgeCommand(argv, environ []string, by Runners) *Finding {
	l, is := parseLaunch(argv, environ)
	if !is {
		return nil
	}
	return cmp.Or(l.judge(by), l.judgeNumber(by))
}

// IsMPILauncher reports whether a command is an MPI's launcher.
func IsMPILauncher(argv []string) bool {
	l, is := parseLaunch(argv, nil)
	return is && l.findsNodes
}

// LauncherAdvice returns what to do instead of running a launcher, or an empty string if the command
// is not one.
func LauncherAdvice(argv []string) string {
	l, is := parseLaunch(argv, nil)
	if !is {
		return ""
	}
	return l.advice(Runners{})
}

// LookBelow returns a function that finds a launcher in the process trees below some processes. pids
// returns their PIDs. by describes all processes that run the same command, and runner is the name of
// these, such as "the driver".
func LookBelow(runner string, pids func() []int, by Runners) process.Look {
	return func(tree []process.TreeProcess) (found string) {
		below := make(map[int]bool)
		for _, pid := range pids() {
			below[pid] = true
		}
		for _, p := range tree {
			if !below[p.PID] && !below[p.Parent] {
				continue
			}
			below[p.PID] = true
			argv := process.CommandLine(p.PID)
			if slices.ContainsFunc(remoteStarters, commandWords(argv).beginWith) {
				return ""
			}
			l, is := parseLaunch(argv, nil)
			if !is || l.framework != "" { // framework.LookForOwnCluster finds what it starts
				continue
			}
			l, _ = parseLaunch(argv, process.Environ(p.PID))
			switch f := l.judge(by); {
			case f == nil && l.reach == reachesAll:
				return "" // it starts the others below it on all nodes
			case f != nil && found == "":
				found = fmt.Sprintf("%s runs %s (process %d): %s; %s",
					runner, f.name, p.PID, f.problem, f.advice)
			}
		}
		return found
	}
}

// judge compares the nodes that a launcher is to span with the processes that run it.
func (l launch) judge(by Runners) *Finding {
	f := &Finding{IsCertain: !l.isVague, name: l.name, advice: l.advice(by)}
	count := by.MinRanks
	// An mpirun in the only process of an instance may start a world on its node.
	isOne := !by.IsRanked || by.MaxRanks == 1 && (by.AreProcesses || !l.findsNodes)
	switch {
	case isOne && l.reach != reachesNone && (by.MaxNodes < 2 || l.max != 1), l.isAlone && by.IsRanked:
		return nil
	case isOne && by.MaxNodes < 2:
		return l.judgeOnly(by)
	case isOne:
		where, rest := "on the head's node", "which leaves the others idle"
		switch {
		case by.IsRanked:
			f.runners = fmt.Sprintf("as the only rank of %d nodes", by.MaxNodes)
		case by.AreOfRole:
			f.runners, where, rest = where, "there", fmt.Sprintf("and the job has %d nodes", by.MaxNodes)
		default:
			f.runners = fmt.Sprintf("as the driver of %d nodes", by.MaxNodes)
		}
		if l.min > 1 {
			rest = fmt.Sprintf("and with %s it waits for others, which nothing starts", l.said)
		}
		f.problem = fmt.Sprintf("it starts processes only %s, %s", where, rest)
		if l.isVague {
			f.problem = "unless a default file of it names others, " + f.problem
		}
		f.IsCertain = f.IsCertain && by.MinNodes > 1
		return f
	}
	f.runners = "in each " + by.each()
	switch isWithin := by.MaxRanks > 0 && by.MaxRanks <= l.max && count >= l.min; {
	case l.reach == reachesAll:
		f.problem, f.IsCertain = "each starts a separate world", count > 1 || l.findsNodes
		if l.max != 1 {
			flags := "--ranks and --ranks-per-node"
			if by.AreOfRole {
				flags = "ranks-per-node"
			}
			f.advice += ", or leave out " + flags + " to run it once"
		}
	case l.max == 0 || isWithin:
		return nil
	case l.max == 1:
		f.problem = fmt.Sprintf(
			"it starts processes only on its own node, so each %s is a separate world", by.each())
		f.IsCertain = f.IsCertain && count > 1
	default:
		world, running := strconv.Itoa(l.max), strconv.Itoa(count)
		if l.min != l.max {
			world = fmt.Sprintf("%d to %d", l.min, l.max)
		}
		if by.MaxRanks != count {
			running = "at least " + running
		}
		f.problem = fmt.Sprintf("%s means that %s of it form one world, and %s %s run it", l.said, world,
			running, by.all())
		f.IsCertain = f.IsCertain && (count > l.max || by.MaxRanks > 0 && by.MaxRanks < l.min)
	}
	return f
}

// judgeOnly returns why the only process of a job, or of an instance of a role, waits for other nodes. Those
// may be other instances, if it is told the number of its own.
func (l launch) judgeOnly(by Runners) *Finding {
	isNumbered := l.ownNode != "" || l.differs
	if l.min < 2 || isNumbered && (by.Instances == 0 || l.differs && l.min <= by.Instances) {
		return nil
	}
	f := &Finding{IsCertain: !isNumbered && by.Instances > 0, name: l.name, runners: "as the only process of one node",
		problem: fmt.Sprintf("with %s it waits for others, which nothing starts", l.said),
		advice:  fmt.Sprintf("leave out %s, or see docs/recipes.md for several nodes", l.said)}
	if by.AreOfRole && by.Instances != 1 && !isNumbered {
		f.problem = fmt.Sprintf("with %s it waits for others, and without --%s each instance is node 0",
			l.said, l.own[0])
	}
	return f
}

// judgeNumber returns why a launcher that knows how many nodes it spans cannot know which of them is
// its own, because all ranks run the same command.
func (l launch) judgeNumber(by Runners) *Finding {
	if !by.IsRanked || by.MinRanks < 2 || l.isAlone || l.reach != reachesNone || l.differs ||
		l.min != l.max || l.max < 2 {
		return nil
	}
	problem := fmt.Sprintf("without --%s each of them is node 0 of %d", l.own[0], l.max)
	if l.ownNode != "" {
		problem = fmt.Sprintf("with %s each of them is the same node of %d", l.ownNode, l.max)
	}
	return &Finding{IsCertain: true, name: l.name, runners: "in each " + by.each(), problem: problem,
		advice: l.advice(by)}
}

// advice returns what to do instead of running the launcher.
func (l launch) advice(by Runners) string {
	asRanks := "bringupd … --ranks-per-node=%s -- %s"
	if by.AreOfRole {
		asRanks = "ranks-per-node: %s, command: %s"
	}
	reason := "ranks get the variables that it sets"
	if l.isMPI {
		reason = "bringupd starts MPI ranks itself"
	}
	switch {
	case l.framework != "" && by.AreOfRole:
		return fmt.Sprintf("leave it out: framework: %s", l.framework)
	case l.framework != "":
		return fmt.Sprintf("leave it out: bringupd … --framework=%s -- %s", l.framework, cmp.Or(l.program, "…"))
	case l.findsNodes:
		return "leave it out, because " + reason
	case l.rank == "":
		return "start the processes that it starts as ranks: " + fmt.Sprintf(asRanks, PerGPU, "…")
	}
	advice := fmt.Sprintf("leave it out, because %s: "+asRanks, reason, l.slots, cmp.Or(l.program, "…"))
	if strings.HasPrefix(l.program, l.name) {
		advice = "let ranks run it, which " + strings.TrimPrefix(advice, "leave it out, because ranks ")
	}
	if len(l.nodes) > 0 && !l.reaches {
		advice += "; or run it once per node, see docs/recipes.md"
	}
	return advice
}
