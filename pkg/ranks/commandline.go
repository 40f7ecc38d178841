package ranks

import (
	"cmp"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/bringupd/bringupd/internal/envlist"
	"github.com/bringupd/bringupd/pkg/process"
)

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
	flags   []flag
	environ []string
	program string // command that it runs, without an interpreter; empty if there is none
}

// flag is a flag of a launcher; typed is how it is written.
type flag struct{ name, value, typed string }

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
		own.flags = append(own.flags, flag{name, value, typed})
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
		for _, f := range a.flags {
			isAbbreviated := len(f.name) >= minAbbreviation && strings.HasPrefix(name, f.name)
			if (f.name == name || isAbbreviated) && (want == "" || f.value == want) {
				return f.value, f.typed
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
	hosts := make(map[string]bool)
	for host := range strings.SplitSeq(list, separator) {
		name, _, _ := strings.Cut(host, ":")
		hosts[name] = true
	}
	return len(hosts)
}

// number parses a positive number; it returns 0 if text is none.
func number(text string) int {
	n, err := strconv.Atoi(text)
	if err != nil {
		return 0
	}
	return max(n, 0)
}
