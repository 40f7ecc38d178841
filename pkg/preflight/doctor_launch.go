package preflight

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/bringupd/bringupd/internal/textutil"
	"github.com/bringupd/bringupd/pkg/check"
	"github.com/bringupd/bringupd/pkg/signal"
)

const oneEnvironmentHint = "use the same environment on all nodes, " +
	"on the shared file system or in one container image"

// launchRows lists the checks of the launch as a whole, in the order of the report.
var launchRows = []reportRow{
	{"launch", checkLaunch},
	{"share.seen", checkJoined},
	{"node.answer", checkAnswers},
	{"share.delay", checkRoundTrips},
	{"node.twins", uniqueValueCheck("the host name",
		func(f DoctorFacts) string { return f.Hostname })},
	{"node.twins", uniqueValueCheck("the address", func(f DoctorFacts) string { return f.Address })},
	{"clock", checkClocks},
	{"framework.version", sameValueCheck(check.Fail, check.ClassUser, "the same version",
		oneEnvironmentHint, DoctorFacts.frameworkVersion)},
	{"mpi.alike", sameValueCheck(check.Fail, check.ClassUser, "the same MPI",
		oneEnvironmentHint, DoctorFacts.mpiLibrary)},
	{"x.alike", checkAttributes},
	{"share.kind", sameValueCheck(check.Warn, check.ClassNode, "the same file system",
		"check that LOGDIR is mounted in the same way there: findmnt -T LOGDIR",
		func(f DoctorFacts) string { return f.Share.FileSystem })},
	{"host.share", checkShareSpace},
}

// checkLaunch checks the number and placement of the daemons that the launcher has started.
func checkLaunch(p *checkContext) {
	// The hints of launch errors contain the command of a job. Replace it with that of the doctor.
	own := strings.NewReplacer("bringupd …", "bringupd doctor …")
	switch {
	case p.Mistake != nil:
		p.AddFailure(check.ClassUser, p.Mistake.Problem, "", own.Replace(p.Mistake.Fix))
	case p.AloneReason != nil:
		p.AddSkip("only this node is checked, not connections to other nodes or whether they share " +
			p.LogDir + "; " + own.Replace(p.AloneReason.Fix))
	case p.Identity.Size == 1:
		p.AddPass(fmt.Sprintf("%s, one daemon on one node", p.Identity.Launcher))
	default:
		p.AddPass(fmt.Sprintf("%s, one daemon on each of %d nodes", p.Identity.Launcher, p.Identity.Size))
	}
}

// checkJoined checks whether all nodes have joined through the shared file system.
func checkJoined(p *checkContext) {
	p.Template.Source = p.LogDir
	where := p.LogDir
	if len(p.Facts) > 0 && p.Facts[0].Share.FileSystem != "" {
		where += " (" + p.Facts[0].Share.FileSystem + ")"
	}
	wrong, isDir := p.ShareErr.(*signal.DirError)
	switch {
	case isDir:
		observed := fmt.Sprintf("cannot use %s on %s: %s", wrong.Path, wrong.Host, wrong.Problem)
		p.AddFailure(check.ClassUser, observed, "", wrong.Remedy)
	case p.ShareErr != nil:
		p.AddFailure(check.ClassUser, p.ShareErr.Error(), "",
			"use a --log-dir that all nodes share and that you can write to")
	case !p.hasPeers():
		p.AddPass(where + " is writable; not checked whether other nodes share it")
	case len(p.NotJoined) > 0:
		observed := fmt.Sprintf("%d of %d nodes did not appear in %s within %s: %s", len(p.NotJoined),
			p.Identity.Size, where, p.Waited.Round(time.Second/10), p.formatHosts(p.NotJoined))
		p.AddFailure(check.ClassUser, observed, "a record from each node",
			"check that the same file system is mounted there (findmnt -T "+p.LogDir+") and that their "+
				"tasks have started, or use a --log-dir that all nodes share").NodeIndices = p.NotJoined
	default:
		p.AddPass(fmt.Sprintf("all %d nodes can read and write %s", p.Identity.Size, where))
	}
}

// checkAnswers reports the nodes that have joined but sent no facts.
func checkAnswers(p *checkContext) {
	if len(p.WithoutFacts) > 0 {
		p.AddFailure(check.ClassNode, "no facts received from "+p.formatHosts(p.WithoutFacts),
			"an answer from each node that has joined", "check whether a GPU driver, a disk or the shared "+
				"file system hangs there; their tasks' messages are on standard error").
			NodeIndices = p.WithoutFacts
	}
}

// slowRoundTrip is a slow round trip of two records. A bring-up, which needs a dozen of them in
// sequence, takes a minute longer with it.
const slowRoundTrip = 5 * time.Second

// checkRoundTrips checks the time between a record of the head and the answers of the nodes.
func checkRoundTrips(p *checkContext) {
	nodes := slices.Sorted(maps.Keys(p.RoundTrips))
	// The head's answer to itself is not a measurement.
	nodes = slices.DeleteFunc(nodes, func(node int) bool { return node == 0 })
	if len(nodes) == 0 || p.ShareErr != nil || len(p.NotJoined) > 0 {
		return
	}
	slowest := slices.MaxFunc(nodes, func(a, b int) int { return cmp.Compare(p.RoundTrips[a], p.RoundTrips[b]) })
	observed := fmt.Sprintf("slowest response to a record of the head: %s, from %s",
		textutil.RoundedDuration(p.RoundTrips[slowest], time.Minute), p.hostName(slowest))
	late := slices.DeleteFunc(nodes, func(node int) bool { return p.RoundTrips[node] <= slowRoundTrip })
	if len(late) == 0 {
		p.AddPass(observed)
		return
	}
	p.AddWarning(check.ClassNode, observed+"; too slow: "+p.formatHosts(late),
		"at most "+slowRoundTrip.String(), "check the mount's directory caching (acdirmax, actimeo) "+
			"and the load of its server").NodeIndices = late
}

// uniqueValueCheck returns a check that fails if several nodes have a value in common that should
// be unique. what is the name of the value in messages, and of returns the value of a node.
func uniqueValueCheck(what string, of func(DoctorFacts) string) func(*checkContext) {
	return func(p *checkContext) {
		if !p.hasPeers() || !p.Identity.Launcher.Traits().NamesNodes {
			return // other launchers may start several daemons on one machine
		}
		for _, v := range p.groupNodesBy(of) {
			if len(v.Nodes) > 1 {
				p.AddFailure(check.ClassNode,
					fmt.Sprintf("%s share %s %s", p.formatHosts(v.Nodes), what, v.Value),
					"a different one for each node", "frameworks treat them as one node: "+
						"set the host name, or select the interface with --interface").NodeIndices = v.Nodes
			}
		}
	}
}

// sameValueCheck returns a check that reports different values of the nodes. The most common value
// is expected, unless another one is equally common. hint may name the LOGDIR.
func sameValueCheck(
	verdict check.Verdict, by check.Class, expected, hint string, of func(DoctorFacts) string,
) func(*checkContext) {
	return func(p *checkContext) {
		values := p.groupNodesBy(of)
		if !p.hasPeers() || len(values) < 2 {
			return
		}
		var parts []string
		var odd []int
		for i, v := range values {
			parts = append(parts, v.Value+" on "+p.formatHosts(v.Nodes))
			if i > 0 && len(values[0].Nodes) > len(values[1].Nodes) {
				odd = append(odd, v.Nodes...)
			}
		}
		slices.Sort(odd)
		p.AddFinding(verdict, by, strings.Join(parts, "; "), expected+" on all nodes",
			strings.ReplaceAll(hint, "LOGDIR", p.LogDir)).NodeIndices = odd
	}
}

// frameworkVersion returns the version of the framework's program, or an empty string.
func (f DoctorFacts) frameworkVersion() string {
	if f.Framework == nil || f.Framework.Version == "" {
		return ""
	}
	return f.Framework.Name + " " + f.Framework.Version
}

const (
	// Offsets above clockWarnOffset mislead readers who compare the logs of two nodes.
	clockWarnOffset = 2 * time.Second
	// Offsets above clockFailOffset are failures: munge rejects credentials that are older than 5
	// minutes.
	clockFailOffset = time.Minute
)

// checkClocks compares the clocks of the nodes, as seen against that of the shared file system, with
// their median. Neither the head nor the file system's server is the reference, because its own
// clock may be wrong.
func checkClocks(p *checkContext) {
	ahead := make(map[int]time.Duration)
	for _, f := range p.Facts {
		if f.Share.Offset != nil {
			ahead[f.NodeIndex] = -*f.Share.Offset
		}
	}
	if !p.hasPeers() || len(ahead) < 2 {
		return
	}
	sorted := slices.Sorted(maps.Values(ahead))
	middle := sorted[(len(sorted)-1)/2]
	if head, known := ahead[0]; known && len(sorted) == 2 {
		middle = head // there is no median
	}
	nodes, parts := make(map[check.Verdict][]int), make(map[check.Verdict][]string)
	for _, node := range slices.Sorted(maps.Keys(ahead)) {
		off, verdict, direction := ahead[node]-middle, check.Warn, "ahead"
		if off.Abs() <= clockWarnOffset {
			continue
		}
		if off.Abs() > clockFailOffset {
			verdict = check.Fail
		}
		if off < 0 {
			direction = "behind"
		}
		nodes[verdict] = append(nodes[verdict], node)
		parts[verdict] = append(parts[verdict],
			fmt.Sprintf("%s is %s %s", p.hostName(node), off.Abs().Round(time.Second/10), direction))
	}
	for _, verdict := range []check.Verdict{check.Fail, check.Warn} {
		if parts := parts[verdict]; len(parts) > 0 {
			observed := "clocks differ from those of the other nodes: " +
				textutil.JoinLimited(parts, maxListedTexts, "; ")
			p.AddFinding(verdict, check.ClassNode, observed, fmt.Sprintf("within %s", clockWarnOffset),
				"check that chronyd or ntpd runs there (chronyc tracking)").NodeIndices = nodes[verdict]
		}
	}
	if len(parts) == 0 {
		p.AddPass(fmt.Sprintf("%d nodes within %s of each other", len(ahead), clockWarnOffset))
	}
}

// checkAttributes compares the attributes that should be equal on all nodes. The findings have the
// ids of the attributes.
func checkAttributes(p *checkContext) {
	var groups []check.NodeGroup
	for _, f := range p.Facts {
		if f.Report != nil {
			groups = append(groups, check.NodeGroup{Report: *f.Report, NodeIndices: []int{f.NodeIndex}})
		}
	}
	if !p.hasPeers() || len(groups) < 2 {
		return
	}
	if p.Findings = check.CompareNodes(groups, p.formatHosts); len(p.Findings) == 0 {
		p.AddPass(fmt.Sprintf("%d nodes have the same kernel, processors, GPUs and bringupd", len(groups)))
	}
}

// checkShareSpace checks the free space on the shared file system. If there is only one node, it
// also checks its clock; with several nodes, checkClocks compares their clocks.
func checkShareSpace(p *checkContext) {
	if len(p.Facts) == 0 || p.Facts[0].NodeIndex != 0 {
		return // only the head queries the space
	}
	seen := p.Facts[0].Share
	share := check.ShareFacts{Path: p.LogDir, Space: seen.Space}
	if !p.hasPeers() {
		share.Offset = seen.Offset
	}
	p.Findings = check.CheckShare(share)
	if seen.SpaceErr != "" {
		p.AddFinding(check.Unknown, check.ClassNode, seen.SpaceErr, "", "")
	}
}
