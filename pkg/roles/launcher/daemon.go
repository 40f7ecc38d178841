package launcher

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/bringupd/bringupd/internal/textutil"
)

// IdentifyDaemon determines the identity of this daemon. In order of precedence it uses want, the
// launcher that has started this process (which its ancestors show if several are possible), and
// RANK and WORLD_SIZE. A size alone is not a launch; a launcher's size overrides the one in want.
// hostname is used if the launcher provides no host name. A launch that cannot work is a
// *LaunchError.
func IdentifyDaemon(env Environment, hostname string, want Overrides) (Identity, error) {
	env = env.withoutStep(want.Ancestors)
	by, err := likeliestLauncher(env, want)
	if err != nil {
		return Identity{}, err
	}
	identify := by.identify
	if identify == nil {
		identify = by.identifyTask
	}
	id, err := identify(env, hostname, want)
	if err != nil {
		return Identity{}, err
	}
	if err := CheckRunName(id.RunName()); err != nil {
		return Identity{}, &LaunchError{
			Problem: fmt.Sprintf("cannot name a run %q: its directory has the same name",
				shortenText(id.RunName())),
			Fix: "give --job-id=NAME: " + err.Error(),
		}
	}
	if run := env.valueOf(RunVariable); IsRunOf(run, id.RunName()) {
		return Identity{}, nestedError(id)
	}
	return id, nil
}

// nestedError returns the error for a daemon inside its own run. The outer daemon waits for its
// driver, and the driver's daemon would join the run as a second process with the same index.
func nestedError(id Identity) error {
	run := id.RunName()
	return &LaunchError{
		Problem: fmt.Sprintf("cannot start inside run %s as a part of it (%s=%s, node %d on %s): "+
			"this process is a child of that run's daemon", run, RunVariable, run, id.NodeIndex, id.Host),
		Fix: cmp.Or(id.Launcher.findSpec().nestedFix, "give the inner one another --job-id"),
	}
}

// identifyTask identifies a daemon by the variables of the launcher's starter of ranks: each rank
// is a daemon.
func (l *launcherSpec) identifyTask(
	env Environment, hostname string, want Overrides,
) (Identity, error) {
	if l.inShell != nil && env.valueOf(l.starter.markVariable) == "" {
		return Identity{}, l.inShell
	}
	names := l.starter.variableNames
	env, err := l.starter.withCount(env, want)
	if err != nil {
		return Identity{}, &LaunchError{
			Problem: fmt.Sprintf("cannot tell how many nodes the launch has: %v", err),
			Fix: "give --nnodes=N, as in: " + strings.ReplaceAll(l.hints.StartOnNodes, "{n}", "N") +
				" bringupd --nnodes=N …",
		}
	}
	r, err := names.readRank(env)
	switch {
	case err == nil && len(names.nodeCount) > 0 && r.NodeCount == 0:
		err = fmt.Errorf("%s is not set", names.nodeCount[0])
	case err == nil && r.NodeCount > 0 && r.RankCount > r.NodeCount:
		seen := fmt.Sprintf("the job has %d tasks on %d nodes", r.RankCount, r.NodeCount)
		return Identity{}, crowdedNodeError(seen, l.hints.StartOn(r.NodeCount), true)
	case err == nil && (r.LocalRank > 0 || r.LocalCount > 1):
		name, value := env.firstSet(slices.Concat(names.localCount, names.localRank)...)
		seen := fmt.Sprintf("%s=%s, rank %d of %d on %s", name, value, r.Rank, r.RankCount, hostname)
		return Identity{}, crowdedNodeError(seen, l.oneEach, false)
	}
	if err != nil {
		return Identity{}, environmentError(l.starter.displayName, err)
	}
	id := Identity{Launcher: l.name, NodeIndex: r.Rank, Size: r.RankCount, Host: hostname}
	var facts []string
	if l.nameJob != nil {
		id.Job, id.Step, facts = l.nameJob(env, want)
	}
	return completeIdentity(id, want, facts...)
}

// maxNodes is far above the size of any existing run. It prevents that a mistake allocates a huge
// list of hosts.
const maxNodes = 1 << 20

// completeIdentity completes an identity with properties that all daemons of a launch share, and
// validates it. facts distinguish this launch from another one with the same name.
func completeIdentity(id Identity, want Overrides, facts ...string) (Identity, error) {
	switch {
	case id.Size < 1 || id.Size > maxNodes:
		return Identity{}, rankError(fmt.Errorf("the number of nodes is %d, and should be 1 to %d",
			id.Size, maxNodes))
	case id.NodeIndex < 0 || id.NodeIndex >= id.Size:
		return Identity{}, rankError(fmt.Errorf("the rank is %d, and should be 0 to %d in a run of %d nodes",
			id.NodeIndex, id.Size-1, id.Size))
	case id.Job == "" && want.JobID == "":
		return Identity{}, unnamedRunError(id, "nothing identifies their launch")
	case want.JobID != "" && id.Job == "":
		id.Job, id.Step = want.JobID, ""
	case want.JobID != "":
		id.Step = want.JobID
	}
	if id.Hosts != nil && (len(id.Hosts) != id.Size || id.Hosts[id.NodeIndex] != id.Host) {
		id.Hosts = nil
	}
	id.LocalSize, id.GPUs = 1, -1
	all := []string{
		string(id.Launcher), id.Job, id.Step, strconv.Itoa(id.Restart), strconv.Itoa(id.Size),
	}
	id.LaunchKey = digestFacts(append(all, facts...)...)
	return id, nil
}

func unnamedRunError(id Identity, reason string) error {
	return &LaunchError{
		Problem: fmt.Sprintf("cannot name the run of rank %d of %d: %s, "+
			"and runs of the same name would interfere", id.NodeIndex, id.Size, reason),
		Fix:        "give --job-id=NAME, the same on all nodes and different for every launch",
		SameForAll: true,
	}
}

func rankError(err error) error {
	return &LaunchError{
		Problem: fmt.Sprintf("cannot tell which node this is: %v", err),
		Fix: "give each node its own RANK from 0 and the same WORLD_SIZE (or --rank and --nnodes), " +
			"and all of them one --job-id",
	}
}

// environmentError returns the error for an environment that the launcher alone cannot have made.
func environmentError(by string, err error) error {
	return &LaunchError{
		Problem: fmt.Sprintf("cannot tell which node this is from the variables of %s: %v", by, err),
		Fix: "let all variables of the launcher through (in a container, and where the environment is " +
			"cleaned), and let nothing else set them",
	}
}

// crowdedNodeError returns the error for a daemon that is not the only one on its node. isForAll
// says whether all daemons of the launch see that.
func crowdedNodeError(seen, start string, isForAll bool) error {
	return &LaunchError{
		Problem: "cannot run several daemons on one node (" + seen + "): bringupd runs once on every node",
		Fix:     "start it with: " + start + " bringupd …", SameForAll: isForAll,
	}
}

// parseHostColumn returns the first word of each line of a launcher's host file, in order.
// Comments, which begin with #, are ignored.
func parseHostColumn(text string) ([]string, error) {
	var hosts []string
	for line := range strings.Lines(text) {
		line, _, _ = strings.Cut(line, "#")
		words := strings.Fields(line)
		if len(words) == 0 {
			continue
		}
		if !IsHostName(words[0]) {
			return nil, fmt.Errorf("%q where a host name was expected", shortenText(words[0]))
		}
		if hosts = append(hosts, words[0]); len(hosts) > maxNodes {
			return nil, fmt.Errorf("it has more than %d hosts", maxNodes)
		}
	}
	if len(hosts) == 0 {
		return nil, errors.New("it names no host")
	}
	return hosts, nil
}

var (
	hostNamePattern = textutil.CompileLazily(`^[A-Za-z0-9_][A-Za-z0-9_.-]*$`)
	// unsuitableInName matches a character that a name of a run must not have.
	unsuitableInName = textutil.CompileLazily(`[^A-Za-z0-9_.+-]`)
)

// IsHostName reports whether a text can be a host name. Batch systems also put their own keywords
// there.
func IsHostName(text string) bool {
	return len(text) <= maxNodeName && hostNamePattern().MatchString(text)
}

// uniqueHosts returns every host once, in the order of first occurrence.
func uniqueHosts(hosts []string) (unique []string) {
	seen := make(map[string]bool, len(hosts))
	for _, host := range hosts {
		if !seen[host] {
			seen[host] = true
			unique = append(unique, host)
		}
	}
	return unique
}

// hostIndex returns the index of a host in a list, or -1 if it is missing. One of the two names may
// include a domain.
func hostIndex(host string, hosts []string) int {
	if at := slices.Index(hosts, host); at >= 0 || host == "" {
		return at
	}
	return slices.IndexFunc(hosts, func(other string) bool { return IsSameHost(host, other) })
}

// IsSameHost compares two names, of which one may include a domain.
func IsSameHost(a, b string) bool {
	labelA, domainA, _ := strings.Cut(strings.ToLower(a), ".")
	labelB, domainB, _ := strings.Cut(strings.ToLower(b), ".")
	return labelA == labelB && (domainA == "" || domainB == "" || domainA == domainB)
}

// sanitizeRunName converts a launcher's name of a job to a valid name of a run, by replacing
// unsuitable characters by dashes.
func sanitizeRunName(job string) string {
	return strings.Trim(unsuitableInName().ReplaceAllString(job, "-"), "._+-")
}
