package doctor

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/bringupd/bringupd/pkg/check"
	"github.com/bringupd/bringupd/pkg/prose"
	"github.com/bringupd/bringupd/pkg/signal"
)

// ofLaunch lists the checks of the launch as a whole, in the order of the report.
var ofLaunch = []row{
	{"launch", judgeLaunch},
	{"share.seen", judgeSeen},
	{"node.answer", func(p *page) { // nodes that have joined but sent no facts
		if len(p.Silent) > 0 {
			p.Fail(check.Node, "no facts came from "+p.hosts(p.Silent), "an answer of each node that was seen",
				"see whether a GPU's driver, a disk or the share hangs there; what their tasks said is on standard error").Ranks = p.Silent
		}
	}},
	{"share.delay", judgeTrips},
	{"node.twins", twins("the host name", func(f Facts) string { return f.Hostname })},
	{"node.twins", twins("the address", func(f Facts) string { return f.Address })},
	{"clock", judgeClocks},
	{"framework.version", judgeVersions},
	{"mpi.alike", judgeMPIs},
	{"x.alike", judgeAlike},
	{"share.kind", judgeKinds},
	{"gpus", judgeGPUs},
	{"host.share", judgeRoom},
	{"left.runs", judgeRuns},
}

// judgeLaunch checks the number and placement of the daemons that the launcher has started.
func judgeLaunch(p *page) {
	// The hints of launch errors contain the command of a job. Replace it with that of the doctor.
	ours := strings.NewReplacer("bringupd …", "bringupd doctor …")
	switch {
	case p.Mistake != nil:
		p.Fail(check.User, p.Mistake.Problem, "", ours.Replace(p.Mistake.Mend))
	case p.Alone != nil:
		mend, _, _ := strings.Cut(p.Alone.Mend, ", or on this")
		p.Skip("this node alone: what needs several (the ways between them, whether they share " + p.LogDir + ") is not looked at; " + ours.Replace(mend))
	case p.Identity.Size == 1:
		p.Pass(fmt.Sprintf("%s, one daemon on one node", p.Identity.Launcher))
	default:
		p.Pass(fmt.Sprintf("%s, one daemon on each of %d nodes", p.Identity.Launcher, p.Identity.Size))
	}
}

// judgeSeen checks whether all nodes have joined through the shared file system.
func judgeSeen(p *page) {
	p.Each.Source = p.LogDir
	where := p.LogDir
	if len(p.Facts) > 0 && p.Facts[0].Share.FileSystem != "" {
		where += " (" + p.Facts[0].Share.FileSystem + ")"
	}
	wrong, isDir := p.ShareErr.(*signal.DirError)
	switch {
	case isDir:
		p.Fail(check.User, fmt.Sprintf("%s can't be used on %s: %s", wrong.Path, wrong.Host, wrong.Seen), "", wrong.Mend)
	case p.ShareErr != nil:
		p.Fail(check.User, p.ShareErr.Error(), "", "give a --log-dir that all nodes share and you can write to")
	case !p.several():
		p.Pass(where + " can be written; whether other nodes see it is not known")
	case len(p.NotSeen) > 0:
		p.Fail(check.User, fmt.Sprintf("%d of %d nodes were not seen in %s for %s: %s",
			len(p.NotSeen), p.Identity.Size, where, p.Waited.Round(time.Second/10), p.hosts(p.NotSeen)), "a record of each node",
			"see whether the same file system is mounted there (findmnt -T "+p.LogDir+
				"), whether their tasks have started, or give a --log-dir that all nodes share").Ranks = p.NotSeen
	default:
		p.Pass(fmt.Sprintf("all %d nodes see and write %s", p.Identity.Size, where))
	}
}

// slowTrip is a slow round trip of two records. A bring-up, which needs a dozen of them in
// sequence, takes a minute longer with it.
const slowTrip = 5 * time.Second

// judgeTrips checks the time between a record of the head and the answers of the nodes.
func judgeTrips(p *page) {
	ranks := slices.Sorted(maps.Keys(p.Trips))
	// The head's answer to itself is not a measurement.
	ranks = slices.DeleteFunc(ranks, func(rank int) bool { return rank == 0 })
	if len(ranks) == 0 || p.ShareErr != nil || len(p.NotSeen) > 0 {
		return
	}
	slowest := slices.MaxFunc(ranks, func(a, b int) int { return cmp.Compare(p.Trips[a], p.Trips[b]) })
	observed := fmt.Sprintf("a record of the head was answered within %s, last by %s", prose.Span(p.Trips[slowest], time.Minute), p.host(slowest))
	late := slices.DeleteFunc(ranks, func(rank int) bool { return p.Trips[rank] <= slowTrip })
	if len(late) == 0 {
		p.Pass(observed)
		return
	}
	p.Warn(check.Node, observed+"; too late by "+p.hosts(late), "an answer within "+slowTrip.String(),
		"see the mount's options for how long a directory is cached (acdirmax, actimeo), and the load of its server").Ranks = late
}

// twins returns a check that fails if several nodes have a value in common that should be unique.
// what is the name of the value in messages, and of returns the value of a node.
func twins(what string, of func(Facts) string) func(*page) {
	return func(p *page) {
		if !p.several() || !p.Identity.Launcher.Traits().NamesNodes {
			return // other launchers may start several daemons on one machine
		}
		values, by := p.by(of)
		for _, value := range values {
			if ranks := by[value]; len(ranks) > 1 {
				p.Fail(check.Node, fmt.Sprintf("%s have %s %s", p.hosts(ranks), what, value), "one for each node",
					"frameworks take them for one node: set the host name, or name the interface with --interface").Ranks = ranks
			}
		}
	}
}

const (
	// Offsets above wrongClock mislead readers who compare the logs of two nodes.
	wrongClock = 2 * time.Second
	// Offsets above worseClock are failures: munge rejects credentials that are older than 5 minutes.
	worseClock = time.Minute
)

// judgeClocks compares the clocks of the nodes with their median. The head is not the reference,
// because its own clock may be wrong.
func judgeClocks(p *page) {
	ahead := make(map[int]time.Duration)
	for _, f := range p.Facts {
		if offset, known := p.aheadOfHead(f); known {
			ahead[f.Rank] = offset
		}
	}
	if !p.several() || len(ahead) < 2 {
		return
	}
	// With two nodes there is no median, and the head is the reference.
	sorted := slices.Sorted(maps.Values(ahead))
	middle := sorted[(len(sorted)-1)/2]
	if len(sorted) == 2 {
		middle = 0
	}
	// Group the nodes with a wrong clock by verdict.
	ranks, parts := make(map[check.Verdict][]int), make(map[check.Verdict][]string)
	for _, rank := range slices.Sorted(maps.Keys(ahead)) {
		off, verdict, way := ahead[rank]-middle, check.Warn, "ahead"
		if off.Abs() <= wrongClock {
			continue
		}
		if off.Abs() > worseClock {
			verdict = check.Fail
		}
		if off < 0 {
			way = "behind"
		}
		ranks[verdict] = append(ranks[verdict], rank)
		parts[verdict] = append(parts[verdict], fmt.Sprintf("%s is %s %s", p.host(rank), off.Abs().Round(time.Second/10), way))
	}
	// Report the failures before the warnings.
	for _, verdict := range []check.Verdict{check.Fail, check.Warn} {
		if parts := parts[verdict]; len(parts) > 0 {
			p.Say(verdict, check.Node, "of the other nodes' clocks "+prose.List(parts, mostSaid, "; "),
				fmt.Sprintf("within %s of them", wrongClock), "see whether chronyd or ntpd runs there: chronyc tracking").Ranks = ranks[verdict]
		}
	}
	if len(parts) == 0 {
		p.Pass(fmt.Sprintf("%d nodes within %s of each other", len(ahead), wrongClock))
	}
}

// aheadOfHead returns how far a node's clock is ahead of the head's: as measured over the network,
// or otherwise with the server's clock as the reference. It returns false if that is unknown.
func (c *scene) aheadOfHead(f Facts) (time.Duration, bool) {
	for _, call := range f.Calls {
		if call.Ahead != nil {
			return *call.Ahead, true
		}
	}
	head := c.Facts[0]
	if head.Rank != 0 || head.Share.Offset == nil || f.Share.Offset == nil {
		return 0, f.Rank == 0
	}
	return *head.Share.Offset - *f.Share.Offset, true
}

// judgeVersions compares the versions of the framework's program on all nodes.
func judgeVersions(p *page) {
	tool := ""
	versions, by := p.by(func(f Facts) string {
		if f.Tool == nil || f.Tool.Version == "" {
			return ""
		}
		tool = cmp.Or(tool, f.Tool.Name)
		return f.Tool.Version
	})
	if len(versions) < 2 {
		return
	}
	// The most common version is expected. If two are equally common, all are reported.
	slices.SortStableFunc(versions, func(a, b string) int { return len(by[b]) - len(by[a]) })
	odd := versions
	if len(by[versions[0]]) > len(by[versions[1]]) {
		odd = versions[1:]
	}
	var parts []string
	var ranks []int
	for _, version := range odd {
		parts = append(parts, version+" on "+p.hosts(by[version]))
		ranks = append(ranks, by[version]...)
	}
	slices.Sort(ranks)
	p.Fail(check.User, tool+": "+strings.Join(parts, "; "),
		fmt.Sprintf("one version, as %s on %s", versions[0], p.hosts(by[versions[0]])),
		"have all nodes use one environment, on the share or in one container image").Ranks = ranks
}

// judgeAlike compares the attributes that should be equal on all nodes. The findings have the ids
// of the attributes.
func judgeAlike(p *page) {
	var groups []check.Group
	for _, f := range p.Facts {
		if f.Report != nil {
			groups = append(groups, check.Group{Report: *f.Report, Ranks: []int{f.Rank}})
		}
	}
	if !p.several() || len(groups) < 2 {
		return
	}
	if p.Found = check.Compare(groups, p.hosts); len(p.Found) == 0 {
		p.Pass(fmt.Sprintf("%d nodes have the same kernel, processors, GPUs and bringupd", len(groups)))
	}
}

// judgeKinds compares the types of the file system that contains the log directory on each node.
func judgeKinds(p *page) {
	kinds, by := p.by(func(f Facts) string { return f.Share.FileSystem })
	if !p.several() || len(kinds) < 2 {
		return
	}
	for i, kind := range kinds {
		kinds[i] = kind + " on " + p.hosts(by[kind])
	}
	p.Warn(check.Node, strings.Join(kinds, "; "), "one file system",
		"see whether "+p.LogDir+" is mounted in the same way there: findmnt -T "+p.LogDir)
}

// judgeGPUs reports the number and models of the GPUs.
func judgeGPUs(p *page) {
	counts, by := p.by(func(f Facts) string {
		switch {
		case f.Report == nil:
			return ""
		case f.Report.Trait(check.GPUModel) == "":
			return "none"
		}
		return f.Report.Trait(check.GPUCount) + " × " + f.Report.Trait(check.GPUModel)
	})
	if p.Policy.Mode == check.ModeOff || len(counts) == 0 {
		return
	}
	for i, what := range counts {
		counts[i] = what + p.on(by[what], len(counts) == 1)
	}
	p.Pass(strings.Join(counts, "; "))
}

// head returns the facts of the head, which include those that only the head gathers. It returns
// false if the head has none.
func (c *scene) head() (Facts, bool) {
	if len(c.Facts) == 0 {
		return Facts{}, false
	}
	return c.Facts[0], c.Facts[0].Rank == 0
}

// judgeRoom checks the free space on the shared file system. If there is only one node, it also
// checks its clock.
func judgeRoom(p *page) {
	f, known := p.head()
	if !known {
		return
	}
	share := check.Share{Path: p.LogDir, Space: f.Share.Space}
	if !p.several() {
		share.Offset = f.Share.Offset // with several nodes, judgeClocks compares their clocks
	}
	p.Found = check.JudgeShare(share)
	if f.Share.SpaceErr != "" {
		p.Say(check.Unknown, check.Node, f.Share.SpaceErr, "", "")
	}
}

// judgeRuns reports old runs in the log directory that have no result.
func judgeRuns(p *page) {
	f, known := p.head()
	switch {
	case !known:
		return
	case f.Left.RunsErr != "":
		p.Say(check.Unknown, check.Node, f.Left.RunsErr, "", "")
		return
	}
	var runs, paths []string
	for _, run := range f.Left.Runs {
		runs = append(runs, fmt.Sprintf("%s (quiet for %s)", run.Path, strings.TrimSuffix(run.Quiet.Round(time.Hour).String(), "0m0s")))
		paths = append(paths, run.Path)
	}
	p.left("runs without an end", runs, p.Identity.Launcher.Gone(p.Identity.Job)+": "+removal(paths), "no run without an end in "+p.LogDir)
}
