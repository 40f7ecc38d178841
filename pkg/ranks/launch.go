package ranks

import (
	"cmp"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/bringupd/bringupd/internal/envlist"
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
			if !is {
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

// reach is whether one process of a launcher starts processes on all nodes of its world.
type reach int

const (
	reachesNone reach = iota
	mayReach
	reachesAll
)

// launch is what the command line of a launcher says.
type launch struct {
	knownLauncher
	name     string // common name, such as "python -m torch.distributed.run"
	min, max int    // number of nodes that its world spans; 0: unknown
	said     string // flag or variable with that number, such as --nnodes=2; empty: none
	reach    reach
	isVague  bool   // a default file of it may say something else
	slots    string // number of processes of a node, as for --ranks-per-node
	program  string // command that its processes run, of which ranks can do the same; empty if unknown
	isAlone  bool   // in a rank, it runs the program itself
	ownNode  string // flag or variable with the number of its node, such as --node-rank=0; empty: none
	differs  bool   // the number may differ from node to node, or is not needed
}

// parseLaunch parses a command, and reports whether it is a launcher.
func parseLaunch(argv, environ []string) (launch, bool) {
	argv, assigned := stripWrapper(argv)
	words := commandWords(argv)
	for _, known := range knownLaunchers {
		at := slices.IndexFunc(known.commands, words.beginWith)
		if at < 0 {
			continue
		}
		l := launch{knownLauncher: known, name: known.commands[at], min: 1, max: 1}
		switch {
		case strings.HasPrefix(l.name, "-m "):
			l.name = filepath.Base(argv[0]) + " " + l.name
		case known.findsNodes:
			l.name = words[0]
		}
		args := words[len(strings.Fields(known.commands[at])):]
		if len(args) > 0 && slices.Contains([]string{"-h", "--help", "-V", "--version"}, args[0]) {
			return launch{}, false
		}
		if known.script != "" && isOther(argv[0], known.script) {
			return launch{}, false
		}
		own := known.parseArguments(args)
		own.environ = slices.Concat(environ, assigned)
		if own.isSet(known.alone) || known.needsScript && !own.hasScript() {
			return launch{}, false
		}
		l.apply(own)
		return l, true
	}
	return launch{}, false
}

// isOther reports whether a path is that of a program other than the script that has a text at its beginning.
func isOther(path, text string) bool {
	if !strings.Contains(path, "/") || strings.HasPrefix(filepath.Base(path), "python") {
		return false
	}
	head := process.ReadHead(path)
	return len(head) > 0 && !strings.Contains(string(head), text)
}

// apply takes what the arguments say.
func (l *launch) apply(own arguments) {
	l.isAlone = l.joins || len(l.unless) > 0 && !own.isSet(l.unless)
	switch {
	case own.isSet(l.local):
	case l.reaches:
		l.reach = reachesAll
	case own.isSet(l.files) || own.isSet(l.remote):
		l.reach = mayReach
	}
	node, saidNode := own.value(l.own)
	_, err := strconv.Atoi(node)
	isForAll := saidNode == "" || strings.HasPrefix(saidNode, "-") && err == nil
	l.ownNode, l.differs = saidNode, len(l.own) == 0 || own.isSet(l.meets) || !isForAll
	nodes, said := own.value(l.nodes)
	perNode, _ := own.value(l.perNode)
	total, saidTotal := own.value(l.total)
	hosts, saidHosts := own.value(l.hosts)
	switch all, each := number(total), number(perNode); {
	case said != "":
		l.said = said
		l.min, l.max = nodeRange(nodes)
	case own.isSet(l.files) || l.findsNodes:
		l.min, l.max = 0, 0
	case saidHosts != "":
		l.said = saidHosts
		l.min = countHosts(hosts, l.separator)
		l.max = l.min
	case len(l.perNode) > 0 && all > 0 && len(l.hosts) == 0:
		l.said = saidTotal
		if l.min, l.max = 0, 0; each > 0 {
			l.min, l.max = all/each, all/each
		}
	default:
		l.isVague = l.hasDefault
	}
	if all := number(total); perNode == "" && all > 0 && l.max > 0 {
		perNode = strconv.Itoa(max(1, all/l.max))
	}
	l.slots = PerGPU
	if n := number(perNode); n > 0 {
		l.slots = strconv.Itoa(n)
	} else if perNode == "cpu" {
		l.slots = PerCore
	}
	command := l.rank
	if own.isSet([]string{"no-python", "c", "command-mode"}) {
		command = strings.Replace(command, "python %s", "%s", 1)
	}
	if own.program != "" || !strings.Contains(command, "%s") {
		l.program = strings.Replace(command, "%s", own.program, 1)
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
	asRanks := "bringupd --ranks-per-node=%s -- %s"
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
		return fmt.Sprintf("leave it out: bringupd --framework=%s -- %s", l.framework, cmp.Or(l.program, "…"))
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

// commandWords returns the words of a command that identify its program: the name without its
// folder, and for a script or a module of Python that of it.
func commandWords(argv []string) words {
	if len(argv) == 0 {
		return nil
	}
	name := filepath.Base(argv[0])
	all := words(append([]string{name}, argv[1:]...))
	if !strings.HasPrefix(name, "python") {
		return all
	}
	switch at := pythonProgram(argv); {
	case at == len(argv):
		return all
	case argv[at] == "-m":
		return argv[at:]
	default:
		return append([]string{filepath.Base(argv[at])}, argv[at+1:]...)
	}
}

type words []string

// beginWith reports whether the first words are those of a command. Debian's mpirun.openmpi and
// Intel's mpiexec.hydra are mpirun and mpiexec.
func (w words) beginWith(command string) bool {
	want := strings.Fields(command)
	if len(w) < len(want) || !slices.Equal(w[1:len(want)], want[1:]) {
		return false
	}
	name, variant, _ := strings.Cut(w[0], ".")
	return w[0] == want[0] || name == want[0] && slices.Contains(mpiVariants, variant)
}

var mpiVariants = []string{"openmpi", "mpich", "hydra", "lam"}

// stripWrapper returns a command without a preceding env or uv run, and the variables that env sets.
func stripWrapper(argv []string) (command, assigned []string) {
	switch {
	case len(argv) > 0 && filepath.Base(argv[0]) == "env":
		at := 1
		for at < len(argv) && (strings.HasPrefix(argv[at], "-") || strings.Contains(argv[at], "=")) {
			assigned = append(assigned, argv[at])
			at++
		}
		return argv[at:], assigned
	case len(argv) > 2 && filepath.Base(argv[0]) == "uv" && argv[1] == "run" &&
		!strings.HasPrefix(argv[2], "-"):
		return argv[2:], nil
	}
	return argv, nil
}

// pythonProgram returns the position of Python's script or of its flag -m, or the number of
// arguments if it has neither.
func pythonProgram(argv []string) int {
	at := 1
	for ; at < len(argv) && strings.HasPrefix(argv[at], "-") && argv[at] != "-m"; at++ {
		if argv[at] == "-X" || argv[at] == "-W" {
			at++
		}
	}
	return min(at, len(argv))
}

// arguments are those of a launcher.
type arguments struct {
	flags   []string // names, each with =VALUE if it has one
	typed   []string // the same as they are written
	environ []string
	program string // command that it runs, without an interpreter; empty if there is none
}

// parseArguments splits the arguments of a launcher into its own flags and its program, which begins
// at the first argument that is neither a flag nor the value of one.
func (l knownLauncher) parseArguments(args []string) (own arguments) {
	for at := 0; at < len(args); at++ {
		name, value, isJoined := strings.Cut(strings.TrimLeft(args[at], "-"), "=")
		if !strings.HasPrefix(args[at], "-") || name == "" {
			if l.noProgram {
				continue
			}
			own.program = strings.TrimPrefix(strings.Join(args[at:], " "), "-- ")
			break
		}
		typed := args[at]
		name = strings.ReplaceAll(name, "_", "-")
		hasValue := at+1 < len(args) && !strings.HasPrefix(args[at+1], "-")
		if !isJoined && hasValue && !slices.Contains(l.switches, name) {
			at++
			value = args[at]
			typed += " " + value
		}
		own.flags, own.typed = append(own.flags, name+"="+value), append(own.typed, typed)
	}
	if own.isSet([]string{"m", "module", "module-mode"}) && own.program != "" {
		own.program = "-m " + own.program
	}
	return own
}

// hasScript reports whether the program is a script or a module of Python, or any command.
func (a arguments) hasScript() bool {
	name, _, _ := strings.Cut(a.program, " ")
	return strings.HasSuffix(name, ".py") || name == "-m" || a.isSet([]string{"c", "command-mode"})
}

func (a arguments) isSet(names []string) bool {
	_, said := a.value(names)
	return said != ""
}

// value returns the value of the first of the names that is set, and how it is set. An abbreviated
// flag is the one that it abbreviates, as for Python's argparse.
func (a arguments) value(names []string) (value, said string) {
	for _, name := range names {
		name, want, _ := strings.Cut(name, "=")
		if len(name) > 1 && strings.ToUpper(name) == name {
			if value, isSet := envlist.Lookup(a.environ, name); isSet && value != "" {
				return value, name + "=" + value
			}
			continue
		}
		for at, flag := range a.flags {
			given, value, _ := strings.Cut(flag, "=")
			isAbbreviated := len(given) >= minAbbreviation && strings.HasPrefix(name, given)
			if (given == name || isAbbreviated) && (want == "" || value == want) {
				return value, a.typed[at]
			}
		}
	}
	return "", ""
}

// minAbbreviation is the minimum length of an abbreviated flag: a shorter one is ambiguous.
const minAbbreviation = 3

// nodeRange parses N or MIN:MAX. Both are 0 if it is neither, such as the name of a variable.
func nodeRange(text string) (minimum, maximum int) {
	low, high, _ := strings.Cut(text, ":")
	if minimum, maximum = number(low), number(cmp.Or(high, low)); minimum == 0 || maximum == 0 {
		return 0, 0
	}
	return minimum, maximum
}

// countHosts returns the number of different hosts of a list, each of which may be followed by a
// colon and more.
func countHosts(list, separator string) int {
	var hosts []string
	for host := range strings.SplitSeq(list, separator) {
		name, _, _ := strings.Cut(host, ":")
		hosts = append(hosts, name)
	}
	slices.Sort(hosts)
	return len(slices.Compact(hosts))
}

// number parses a positive number; it returns 0 if text is none.
func number(text string) int {
	n, err := strconv.Atoi(text)
	if err != nil {
		return 0
	}
	return max(n, 0)
}
