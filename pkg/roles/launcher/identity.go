// Package launcher determines the identity of a daemon: its launcher, its node index and its peers,
// and whether the launch is a mistake. It does not start processes, and does not read
// files or the environment by itself.
package launcher

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/bringupd/bringupd/internal/textutil"
	"github.com/bringupd/bringupd/pkg/signal/record"
)

// RunVariable is the environment variable with the RunName of the run, which a daemon sets for its
// children. A daemon that finds its own run name there was started inside itself.
const RunVariable = "BRINGUPD_RUN"

// RendezvousVariable is the environment variable with the path of the socket at which the ranks of
// a node reach their rendezvous server.
const RendezvousVariable = "BRINGUPD_SOCKET"

// Environment looks a variable up, like os.LookupEnv. An empty variable counts as not set.
type Environment func(name string) (value string, set bool)

// EnvironmentOf looks variables up in a list of NAME=VALUE. The first entry of a name counts, as
// for getenv.
func EnvironmentOf(environ []string) Environment {
	return func(name string) (string, bool) {
		for _, entry := range environ {
			if value, found := strings.CutPrefix(entry, name+"="); found {
				return value, true
			}
		}
		return "", false
	}
}

func (env Environment) valueOf(name string) string {
	value, _ := env(name)
	return value
}

// firstSet returns the first of these variables that is set, and its name.
func (env Environment) firstSet(names ...string) (name, value string) {
	for _, name := range names {
		if value := env.valueOf(name); value != "" {
			return name, value
		}
	}
	return names[0], ""
}

// parseNumber reads a whole number of at least least from the first of these variables that is set.
func (env Environment) parseNumber(least int, names ...string) (int, error) {
	name, value := env.firstSet(names...)
	if value == "" {
		return 0, fmt.Errorf("%s is not set, and should be a whole number of at least %d",
			name, least)
	}
	return parseWhole(name, value, least)
}

// parseWhole reads a whole number of at least least, the value of a variable.
func parseWhole(name, value string, least int) (int, error) {
	n, err := strconv.Atoi(value)
	if err != nil || n < least {
		return 0, fmt.Errorf("%s is %q, and should be a whole number of at least %d", name, value, least)
	}
	return n, nil
}

// Overrides has the values of the command line about the launch. With the zero Overrides everything
// is read from the environment.
type Overrides struct {
	// Hosts are the hosts on which "bringupd hosts" has started the daemons, as given to ssh. If it is
	// set, the environment of a launcher is ignored.
	Hosts []string
	// a daemon that "bringupd local" has started: the environment of a launcher is ignored
	Local     bool
	NodeIndex *int // --rank: given together with Size; they override the environment
	Size      *int // the maximum of --nnodes: used if no launcher provides a size, or with NodeIndex
	// JobID is --job-id: it names the run if the launcher does not, or one of several runs in the
	// launcher's job. Slurm ignores it.
	JobID string
	CPUs  int // number of CPUs on which this process may run; 0 if unknown
	// ReadFile reads a file that the launcher names, completely or not at all.
	ReadFile func(path string) ([]byte, error)
	// Ancestors show which of several launchers has started this process.
	Ancestors []Ancestor
}

// Identity identifies a daemon. All daemons of a run have the same Launcher, Size, Job, Step,
// Restart, Attempt and LaunchKey.
type Identity struct {
	Launcher Launcher
	// NodeIndex is the index of the node, 0 … Size-1. A daemon of a further job step of the run has its
	// member index instead: see [record.MemberIndex].
	NodeIndex int
	Size      int    // number of nodes of the run
	Host      string // the launcher's name of this node

	// Hosts has the host of each node. It is nil if the launcher does not provide them, or not in the
	// order of the node indices (srun --distribution=arbitrary).
	Hosts []string

	Job     string
	Step    string // empty if the launcher has no steps
	Restart int    // how often the job was requeued
	Attempt int    // how often the run was restarted within this launch

	// LaunchKey is a digest of values that all daemons of this launch share. Another launch with the
	// same RunName in the same cluster most likely has another LaunchKey: job ids start again if a
	// controller loses its state.
	LaunchKey string

	// LaunchAddress is the address or name of the host that launched the run, or empty if it is
	// unknown. It is a destination for route lookups, and may be a loopback address.
	LaunchAddress string

	LocalSize int // number of daemons on this machine: 1 except for LauncherLocal
	GPUs      int // granted on this node; -1 if unknown
	Grant

	// Steps are the names of the run's further job steps, in the order of their numbers.
	Steps []string
}

// Grant has more of what a launcher has granted.
type Grant struct {
	CPUs       int    // granted on this node; 0 if unknown
	GPUsSource string // the variable or flag with the number of GPUs; empty if there is none
}

// LocalRank returns the index of this daemon among those of this machine: 0 except for
// LauncherLocal.
func (id Identity) LocalRank() int {
	if id.LocalSize > 1 {
		return record.NodeOfMember(id.NodeIndex, id.Size)
	}
	return 0
}

// LauncherTitle returns the launcher's display name. It is empty if it has none.
func (id Identity) LauncherTitle() string { return id.Launcher.CommandHints(id.Job).Title }

// LauncherJob returns the name by which the launcher's own commands know the job. On Kubernetes the
// user may have named the run differently.
func (id Identity) LauncherJob() string {
	if id.Launcher == LauncherKubernetes {
		return cmp.Or(podJob(id.Host, id.NodeIndex), id.Job)
	}
	return id.Job
}

// HostOf returns the host of a node, or of another member, or an empty string if the launcher does
// not provide it.
func (id Identity) HostOf(member int) string {
	node := record.NodeOfMember(member, id.Size)
	switch {
	case member < 0 || id.Size > 0 && member >= id.CountMembers():
		return ""
	case node == record.NodeOfMember(id.NodeIndex, id.Size):
		return id.Host
	case node >= 0 && node < len(id.Hosts):
		return id.Hosts[node]
	default:
		return ""
	}
}

// MemberLabel returns the name of a member for messages: that of its node, such as "node 1 (n1)", or
// "step judge of node 1 (n1)" for a daemon of a further step. The host may be empty.
func (id Identity) MemberLabel(member int, host string) string {
	label := NodeLabel(record.NodeOfMember(member, id.Size), host)
	if step := id.StepNameOf(member); step != "" {
		return fmt.Sprintf("step %s of %s", step, label)
	}
	return label
}

// StepNameOf returns the name of the further step of a member, or an empty string for one of the run's
// own step.
func (id Identity) StepNameOf(member int) string {
	if step := record.StepOfMember(member, id.Size); step > 0 && step <= len(id.Steps) {
		return id.Steps[step-1]
	}
	return ""
}

// DaemonLogKind returns the kind of daemon in the names of its logs, from the name of its further
// step, if any.
func DaemonLogKind(step string) string {
	if step == "" {
		return "daemon"
	}
	return step + "-daemon"
}

// CountMembers returns the number of member indices of the run: see [record.MemberIndex].
func (id Identity) CountMembers() int { return record.MemberIndex(0, 1+len(id.Steps), id.Size) }

// NodeLabel returns the name of a node for messages, such as "node 1 (n1)", or "node 1" if its host
// is unknown.
func NodeLabel(node int, host string) string {
	if host == "" {
		return fmt.Sprintf("node %d", node)
	}
	return fmt.Sprintf("node %d (%s)", node, host)
}

// FormatNodes returns a list of nodes, and of other members, for messages: their hosts, such as
// "n[1,3-5]", if these are known and no other node has the same, or else their indices, such as
// "nodes 1,3-5". The nodes may be unsorted and have duplicates.
func (id Identity) FormatNodes(nodes []int, hostOf func(node int) string) string {
	nodes = slices.Compact(slices.Sorted(slices.Values(nodes)))
	// Those of further steps follow.
	if first, _ := slices.BinarySearch(nodes, id.Size); first < len(nodes) && id.Size > 0 {
		var parts []string
		if first > 0 {
			parts = append(parts, id.FormatNodes(nodes[:first], hostOf))
		}
		for _, member := range nodes[first:] {
			parts = append(parts, id.MemberLabel(member, hostOf(member)))
		}
		return strings.Join(parts, ", ")
	}
	nodesOn := make(map[string]int)
	for node := range id.Size {
		nodesOn[hostOf(node)]++
	}
	hosts := make([]string, 0, len(nodes))
	for _, node := range nodes {
		host := hostOf(node)
		if host == "" || nodesOn[host] > 1 || id.Launcher == LauncherLocal {
			return textutil.FormatIndices("node", nodes)
		}
		hosts = append(hosts, host)
	}
	return CompactNodeList(hosts)
}

// FindNode returns the index of the node that word selects among size nodes: the index itself or,
// if there is no such index, a host with exactly one daemon. hostOf returns a node's host, or an
// empty string if it is unknown. The error states what would be accepted.
func FindNode(word string, size int, hostOf func(rank int) string) (int, error) {
	number, err := strconv.Atoi(word)
	if err == nil && 0 <= number && number < size {
		return number, nil
	}
	var on []int
	for rank := range size {
		if word != "" && hostOf(rank) == word {
			on = append(on, rank)
		}
	}
	switch len(on) {
	case 0:
		return 0, fmt.Errorf("there is no node %q: give a number of 0 to %d, or a host", word, size-1)
	case 1:
		return on[0], nil
	default:
		return 0, fmt.Errorf("%s has %d daemons: give the number, one of %v", word, len(on), on)
	}
}

// FindMember returns the index of the member that word selects: a node, as in [FindNode], or, after
// the name of a further step and a slash, the daemon of that step on a node, such as judge/n1.
func (id Identity) FindMember(word string) (int, error) {
	step, node, isOfStep := strings.Cut(word, "/")
	if !isOfStep {
		return FindNode(word, id.Size, id.HostOf)
	}
	number := 1 + slices.Index(id.Steps, step)
	if number == 0 {
		return 0, fmt.Errorf("there is no step %q: the steps are %s", step, strings.Join(id.Steps, ", "))
	}
	index, err := FindNode(node, id.Size, id.HostOf)
	return record.MemberIndex(index, number, id.Size), err
}
