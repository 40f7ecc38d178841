package doctor

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/bringupd/bringupd/pkg/check"
	"github.com/bringupd/bringupd/pkg/prose"
)

// judgeNames finds nodes that share a name, or an address.
func judgeNames(c scene) (lines []Finding) {
	if !c.several() || !c.Launcher.Traits().NamesNodes {
		return nil // plain ranks may well be on one machine
	}
	twins := func(what string, of func(Facts) string) {
		values, by := c.by(of)
		for _, value := range values {
			if ranks := by[value]; len(ranks) > 1 {
				lines = append(lines, c.about(line("node.twins").fail(check.Node,
					fmt.Sprintf("%s have %s %s", c.hosts(ranks), what, value), "one for each node",
					"frameworks take them for one node: set the host name, or name the interface with --interface"), ranks))
			}
		}
	}
	twins("the host name", func(f Facts) string { return f.Hostname })
	twins("the address", func(f Facts) string { return f.Address })
	return lines
}

const (
	// wrongClock misleads who reads the logs of two nodes side by side.
	wrongClock = 2 * time.Second
	// worseClock has credentials refused: those of munge live for 5 minutes.
	worseClock = time.Minute
)

// judgeClocks compares the clocks of the nodes with the middle one of them: it may be the head's that is wrong.
func judgeClocks(c scene) (lines []Finding) {
	const id = line("clock")
	ahead := make(map[int]time.Duration)
	for _, f := range c.Facts {
		if offset, known := c.aheadOfHead(f); known {
			ahead[f.Rank] = offset
		}
	}
	if !c.several() || len(ahead) < 2 {
		return nil
	}
	sorted := slices.Sorted(maps.Values(ahead))
	middle := sorted[(len(sorted)-1)/2]
	if len(sorted) == 2 {
		middle = 0
	}
	// tell tells of the clocks that are off by more than least, and by no more than most.
	tell := func(verdict check.Verdict, least, most time.Duration) {
		var ranks []int
		var parts []string
		for _, rank := range slices.Sorted(maps.Keys(ahead)) {
			off := ahead[rank] - middle
			if off.Abs() <= least || off.Abs() > most {
				continue
			}
			way := "ahead"
			if off < 0 {
				way = "behind"
			}
			ranks = append(ranks, rank)
			parts = append(parts, fmt.Sprintf("%s is %s %s", c.host(rank), off.Abs().Round(time.Second/10), way))
		}
		if len(ranks) > 0 {
			f := id.warn(check.Node, "of the other nodes' clocks "+prose.List(parts, mostSaid, "; "),
				fmt.Sprintf("within %s of them", wrongClock), "see whether chronyd or ntpd runs there: chronyc tracking")
			f.Verdict = verdict
			lines = append(lines, c.about(f, ranks))
		}
	}
	tell(check.Fail, worseClock, math.MaxInt64)
	tell(check.Warn, wrongClock, worseClock)
	if len(lines) == 0 {
		return whole(id.pass(fmt.Sprintf("%d nodes within %s of each other", len(ahead), wrongClock)))
	}
	return lines
}

// aheadOfHead returns by how much a node's clock is ahead of the head's: as the
// head has told over the network, or else as the share's clock shows.
func (c scene) aheadOfHead(f Facts) (time.Duration, bool) {
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

// judgeTools compares the versions of the framework's program.
func judgeTools(c scene) []Finding {
	versions, by := c.by(func(f Facts) string {
		if f.Tool == nil {
			return ""
		}
		return f.Tool.Version
	})
	if len(versions) < 2 {
		return nil
	}
	slices.SortStableFunc(versions, func(a, b string) int { return len(by[b]) - len(by[a]) })
	odd := versions
	if len(by[versions[0]]) > len(by[versions[1]]) {
		odd = versions[1:]
	}
	var parts []string
	var ranks []int
	for _, version := range odd {
		parts = append(parts, version+" on "+c.hosts(by[version]))
		ranks = append(ranks, by[version]...)
	}
	slices.Sort(ranks)
	return []Finding{c.about(line("framework.version").fail(check.User, c.tool()+": "+strings.Join(parts, "; "),
		fmt.Sprintf("one version, as %s on %s", versions[0], c.hosts(by[versions[0]])),
		"have all nodes use one environment, on the share or in one container image"), ranks)}
}

// tool is the name of the framework's program.
func (c scene) tool() string {
	for _, f := range c.Facts {
		if f.Tool != nil && f.Tool.Version != "" {
			return f.Tool.Name
		}
	}
	return ""
}

// judgeAlike compares what should be the same on all nodes.
func judgeAlike(c scene) (lines []Finding) {
	if !c.several() {
		return nil
	}
	var groups []check.Group
	for _, f := range c.Facts {
		if f.Report != nil {
			groups = append(groups, check.Group{Traits: f.Report.Traits, Ranks: []int{f.Rank}})
		}
	}
	for _, d := range check.Compare(groups, c.hosts) {
		lines = append(lines, c.about(d.Finding, d.Odd))
	}
	if len(lines) == 0 && len(groups) > 1 {
		lines = whole(line("x.alike").pass(fmt.Sprintf("%d nodes have the same kernel, processors, GPUs and bringupd", len(groups))))
	}
	kinds, by := c.by(func(f Facts) string { return f.Share.FileSystem })
	if len(kinds) < 2 {
		return lines
	}
	for i, kind := range kinds {
		kinds[i] = kind + " on " + c.hosts(by[kind])
	}
	return append(lines, whole(line("share.kind").warn(check.Node, strings.Join(kinds, "; "), "one file system",
		"see whether "+c.LogDir+" is mounted in the same way there: findmnt -T "+c.LogDir))...)
}

// judgeGPUs sums up what GPUs there are.
func judgeGPUs(c scene) []Finding {
	if !c.Checked {
		return nil
	}
	counts, by := c.by(func(f Facts) string {
		switch {
		case f.Report == nil:
			return ""
		case f.Report.Trait(check.GPUModel) == "":
			return "none"
		}
		return f.Report.Trait(check.GPUCount) + " × " + f.Report.Trait(check.GPUModel)
	})
	if len(counts) == 0 {
		return nil
	}
	for i, what := range counts {
		counts[i] = what + c.on(by[what], len(counts) == 1)
	}
	return whole(line("gpus").pass(strings.Join(counts, "; ")))
}
