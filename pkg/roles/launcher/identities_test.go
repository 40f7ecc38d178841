package launcher

import (
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var update = flag.Bool("update", false, "write the identities in testdata/identities.txt anew")

// start is a process in testdata/identities.txt, from the words of its line.
type start struct {
	vars     map[string]string
	host     string
	want     Overrides
	nodeCPUs int
}

// parseStart reads the words of a line. In their order, they are the name of a recorded environment
// (testdata/README.md), NAME=VALUE, -NAME for a variable that is not set, the flags of bringupd, --host
// (the host's own name), --cpus and --node-cpus (those of the process and of the node), --file (the
// content of each file, or PATH:CONTENT) and the ancestors, each after "<", of which the first has the
// PID 40. "+" is a space, and "," in a file the end of a line.
func parseStart(t *testing.T, words []string) start {
	t.Helper()
	s := start{vars: make(map[string]string)}
	s.want.ReadFile = func(string) ([]byte, error) { return nil, fs.ErrNotExist }
	for _, word := range words {
		name, value, isSet := strings.Cut(strings.ReplaceAll(word, "+", " "), "=")
		number, _ := strconv.Atoi(value)
		switch {
		case name == "--host":
			s.host = value
		case name == "--rank":
			s.want.NodeIndex = &number
		case name == "--nnodes":
			s.want.Size = &number
		case name == "--cpus":
			s.want.CPUs = number
		case name == "--node-cpus":
			s.nodeCPUs = number
		case name == "--job-id":
			s.want.JobID = value
		case name == "--local":
			s.want.Local = true
		case name == "--hosts":
			s.want.Hosts = strings.Split(value, ",")
		case name == "--file":
			s.want.ReadFile = fileReader(strings.ReplaceAll(value, ",", "\n"))
		case strings.HasPrefix(word, "<"):
			for at, argv := range strings.Split(strings.ReplaceAll(word[1:], "+", " "), "<") {
				s.want.Ancestors = append(s.want.Ancestors, Ancestor{40 + at, strings.Fields(argv)})
			}
		case isSet:
			s.vars[name] = value
		case strings.HasPrefix(name, "-"):
			delete(s.vars, name[1:])
		default:
			maps.Copy(s.vars, environmentOf(t, name))
		}
	}
	return s
}

// fileReader reads a content, of any file unless it has the path of one. No content is no file.
func fileReader(content string) func(path string) ([]byte, error) {
	return func(path string) ([]byte, error) {
		file, text, isOne := strings.Cut(content, ":")
		if !isOne {
			file, text = path, content
		}
		if file != path || text == "" {
			return nil, &fs.PathError{Op: "open", Path: path, Err: fs.ErrNotExist}
		}
		return []byte(text), nil
	}
}

// describeDaemon returns the identity of a daemon, or why it has none.
func (s start) describeDaemon(t *testing.T) (string, error) {
	id, err := IdentifyDaemon(fromMap(s.vars), s.host, s.want)
	if err != nil {
		return "", err
	}
	checkIdentity(t, id)
	text := fmt.Sprintf("%s: node %d of %d on %s, run %s, key %s, %d CPUs, %d GPUs", id.Launcher, id.NodeIndex,
		id.Size, id.Host, id.RunName(), id.LaunchKey, id.CPUs, id.GPUs)
	if id.GPUsSource != "" {
		text += " by " + id.GPUsSource
	}
	if id.Hosts != nil {
		text += ", hosts " + HostList(id.Hosts)
	}
	if id.LaunchAddress != "" {
		text += ", from " + id.LaunchAddress
	}
	return text, nil
}

// describeRank returns which rank a process is, or why it is none.
func (s start) describeRank() (string, error) {
	r, err := IdentifyRank(fromMap(s.vars), s.want)
	text := fmt.Sprintf("%s: rank %d of %d, local %d of %d, node %d of %d, %d CPUs", r.LauncherTitle, r.Rank,
		r.RankCount, r.LocalRank, r.LocalCount, r.NodeIndex, r.NodeCount, r.CPUs)
	if r.OwnGPUs {
		text += ", own GPUs"
	}
	if r.MasterHost != "" {
		text += fmt.Sprintf(", rank 0 at %s:%d", r.MasterHost, r.MasterPort)
	}
	return text, err
}

// describeJob returns what is known about the job of an environment, also outside of a launch.
func (s start) describeJob() (string, error) {
	env := fromMap(s.vars)
	ofJob, from := BatchGPUs(env)
	ofStep, fromStep := slurmGPUs(env)
	facts := []string{
		fmt.Sprintf("%s: reporting %t, signals all %t, from %q on %q in %q", SurroundingLauncher(env),
			!LeavesErrors(env), MaySignalAll(s.environ()), SubmitDir(env), NodeName(env), TopologyBlock(env)),
		fmt.Sprintf("GPUs %d of the job %q, %d of the step %q, %d requested, split %t", ofJob, from, ofStep, fromStep,
			RequestedGPUs(env), slurmSplitsGPUs(env)),
		fmt.Sprintf("%d CPUs, %d MiB", slurmCPUs(env, s.want.CPUs), GrantedMemory(s.environ())>>20),
	}
	for _, lacking := range []*Shortfall{FindGPUShortfall(env), FindCPUShortfall(env, s.want.CPUs, s.nodeCPUs)} {
		if lacking != nil {
			facts = append(facts, lacking.Problem+": "+lacking.Fix)
		}
	}
	if hint := IdleNodesHint(env); hint != "" {
		facts = append(facts, hint)
	}
	return strings.Join(facts, "; "), nil
}

// environ returns the variables as NAME=VALUE, sorted.
func (s start) environ() (environ []string) {
	for _, name := range slices.Sorted(maps.Keys(s.vars)) {
		environ = append(environ, name+"="+s.vars[name])
	}
	return environ
}

// describeTask returns the variables that a task of a world gets, "" for those that are removed.
func (s start) describeTask() (string, error) {
	task := Task{Rank: 5, RankCount: 7, LocalRank: 1, TasksPerNode: []int{2, 2, 2, 1}, LocalRanks: []int{4, 5}}
	return fmt.Sprintf("%q", TaskVariables(s.environ(), task)), nil
}

// describeChild returns how the variables of a child of a kind differ from those of the daemon, "" for
// those that are removed.
func (s start) describeChild(kind ChildKind) func() (string, error) {
	return func() (string, error) { return fmt.Sprintf("%q", InheritedVariables(s.environ(), kind)), nil }
}

// TestIdentities compares the identity of each daemon and rank in testdata/identities.txt, and what else
// launchers say about a process.
func TestIdentities(t *testing.T) {
	const path = "testdata/identities.txt"
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for block := range strings.SplitSeq(strings.TrimSpace(string(text)), "\n\n") {
		block, _, _ = strings.Cut(block, "\n> ")
		words := strings.Fields(block[strings.LastIndexByte(block, '\n')+1:])
		s := parseStart(t, words[1:])
		answer, err := map[string]func() (string, error){
			"daemon": func() (string, error) { return s.describeDaemon(t) }, "rank": s.describeRank,
			"job": s.describeJob, "task": s.describeTask, "driver": s.describeChild(ChildCommand),
			"process": s.describeChild(ChildProcess), "service": s.describeChild(ChildService),
			"inrank": s.describeChild(ChildRank),
		}[words[0]]()
		if err != nil {
			launch, is := errors.AsType[*LaunchError](err)
			if !is || !strings.HasPrefix(launch.Problem, "cannot ") || launch.Fix == "" {
				t.Errorf("%s: the error is %+v", block, err)
			}
			answer = err.Error()
		}
		got = append(got, block+"\n> "+answer)
	}
	all := strings.Join(got, "\n\n") + "\n"
	if *update {
		if err := os.WriteFile(path, []byte(all), 0o644); err != nil {
			t.Fatal(err)
		}
	} else if diff := cmp.Diff(string(text), all); diff != "" {
		t.Errorf("the identities are others (-update writes them):\n%s", diff)
	}
}
