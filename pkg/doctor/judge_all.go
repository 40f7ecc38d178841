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
)

// judgeNames finds nodes that share a name, or an address.
func judgeNames(c Case) []Finding {
	if !c.several() || !c.Launcher.Traits().NamesNodes {
		return nil // plain ranks may well be on one machine
	}
	var lines []Finding
	for _, kind := range []struct {
		what string
		of   func(Facts) string
	}{{"the host name", func(f Facts) string { return f.Hostname }}, {"the address", func(f Facts) string { return f.Address }}} {
		byValue := make(map[string][]int)
		for _, f := range c.Facts {
			if value := kind.of(f); value != "" {
				byValue[value] = append(byValue[value], f.Rank)
			}
		}
		for _, value := range slices.Sorted(maps.Keys(byValue)) {
			if ranks := byValue[value]; len(ranks) > 1 {
				lines = append(lines, c.about(check.Finding{
					ID: "node.twins", Verdict: check.Fail, Class: check.Node,
					Observed: fmt.Sprintf("%s have %s %s", c.hosts(ranks), kind.what, value), Expected: "one for each node",
					Hint: "frameworks take them for one node: set the host name, or name the interface with --interface",
				}, ranks))
			}
		}
	}
	return lines
}

const (
	// wrongClock misleads who reads the logs of two nodes side by side.
	wrongClock = 2 * time.Second
	// worseClock has credentials refused: those of munge live for 5 minutes.
	worseClock = time.Minute
)

// judgeClocks compares the clocks of the nodes with the middle one of them: it
// may be the head's that is wrong.
func judgeClocks(c Case) []Finding {
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
	byVerdict := make(map[check.Verdict][]int)
	parts := make(map[check.Verdict][]string)
	for _, rank := range slices.Sorted(maps.Keys(ahead)) {
		off := ahead[rank] - middle
		verdict := check.Pass
		switch {
		case off.Abs() > worseClock:
			verdict = check.Fail
		case off.Abs() > wrongClock:
			verdict = check.Warn
		}
		way := "ahead"
		if off < 0 {
			way = "behind"
		}
		byVerdict[verdict] = append(byVerdict[verdict], rank)
		parts[verdict] = append(parts[verdict], fmt.Sprintf("%s is %s %s", c.host(rank), off.Abs().Round(time.Second/10), way))
	}
	var lines []Finding
	for _, verdict := range []check.Verdict{check.Fail, check.Warn} {
		ranks := byVerdict[verdict]
		if len(ranks) == 0 {
			continue
		}
		lines = append(lines, c.about(check.Finding{
			ID: "clock", Verdict: verdict, Class: check.Node,
			Observed: "of the other nodes' clocks " + prose.List(parts[verdict], mostSaid, "; "),
			Expected: fmt.Sprintf("within %s of them", wrongClock),
			Hint:     "see whether chronyd or ntpd runs there: chronyc tracking",
		}, ranks))
	}
	if len(lines) == 0 {
		return []Finding{{Finding: check.Finding{
			ID: "clock", Verdict: check.Pass, Observed: fmt.Sprintf("%d nodes within %s of each other", len(ahead), wrongClock),
		}}}
	}
	return lines
}

// aheadOfHead returns by how much a node's clock is ahead of the head's: as the
// head has told over the network, or else as the share's clock shows.
func (c Case) aheadOfHead(f Facts) (time.Duration, bool) {
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
func judgeTools(c Case) []Finding {
	byVersion := make(map[string][]int)
	name := ""
	for _, f := range c.Facts {
		if f.Tool != nil && f.Tool.Version != "" {
			name = f.Tool.Name
			byVersion[f.Tool.Version] = append(byVersion[f.Tool.Version], f.Rank)
		}
	}
	versions := slices.SortedFunc(maps.Keys(byVersion), func(a, b string) int {
		return cmp.Or(len(byVersion[b])-len(byVersion[a]), cmp.Compare(a, b))
	})
	if len(versions) < 2 {
		return nil
	}
	odd := versions
	if len(byVersion[versions[0]]) > len(byVersion[versions[1]]) {
		odd = versions[1:]
	}
	var parts []string
	var ranks []int
	for _, version := range odd {
		parts = append(parts, version+" on "+c.hosts(byVersion[version]))
		ranks = append(ranks, byVersion[version]...)
	}
	slices.Sort(ranks)
	return []Finding{c.about(check.Finding{
		ID: "framework.version", Verdict: check.Fail, Class: check.User,
		Observed: fmt.Sprintf("%s: %s", name, strings.Join(parts, "; ")),
		Expected: fmt.Sprintf("one version, as %s on %s", versions[0], c.hosts(byVersion[versions[0]])),
		Hint:     "have all nodes use one environment, on the share or in one container image",
	}, ranks)}
}

// judgeAlike compares what should be the same on all nodes.
func judgeAlike(c Case) []Finding {
	if !c.several() {
		return nil
	}
	var groups []check.Group
	kinds := make(map[string][]int)
	for _, f := range c.Facts {
		if f.Share.FileSystem != "" {
			kinds[f.Share.FileSystem] = append(kinds[f.Share.FileSystem], f.Rank)
		}
		if f.Report != nil {
			groups = append(groups, check.Group{Traits: f.Report.Traits, Ranks: []int{f.Rank}})
		}
	}
	var lines []Finding
	for _, d := range check.Compare(groups, c.hosts) {
		lines = append(lines, c.about(d.Finding, d.Odd))
	}
	if len(lines) == 0 && len(groups) > 1 {
		lines = append(lines, Finding{Finding: check.Finding{
			ID: "x.alike", Verdict: check.Pass, Observed: fmt.Sprintf("%d nodes have the same kernel, processors, GPUs and bringupd", len(groups)),
		}})
	}
	if len(kinds) > 1 {
		var parts []string
		for _, kind := range slices.Sorted(maps.Keys(kinds)) {
			parts = append(parts, kind+" on "+c.hosts(kinds[kind]))
		}
		lines = append(lines, Finding{Finding: check.Finding{
			ID: "share.kind", Verdict: check.Warn, Class: check.Node, Observed: strings.Join(parts, "; "),
			Expected: "one file system", Hint: "see whether " + c.LogDir + " is mounted in the same way there: findmnt -T " + c.LogDir,
		}})
	}
	return lines
}

// judgeGPUs sums up what GPUs there are.
func judgeGPUs(c Case) []Finding {
	if !c.Checked {
		return nil
	}
	counts := make(map[string][]int)
	for _, f := range c.Facts {
		if f.Report == nil {
			continue
		}
		model, count := "", ""
		for _, t := range f.Report.Traits {
			switch t.ID {
			case check.GPUModel:
				model = t.Value
			case check.GPUCount:
				count = t.Value
			}
		}
		what := "none"
		if model != "" {
			what = count + " × " + model
		}
		counts[what] = append(counts[what], f.Rank)
	}
	var parts []string
	for _, what := range slices.Sorted(maps.Keys(counts)) {
		parts = append(parts, what+c.on(counts[what], len(counts) == 1))
	}
	if len(parts) == 0 {
		return nil
	}
	return []Finding{{Finding: check.Finding{ID: "gpus", Verdict: check.Pass, Observed: strings.Join(parts, "; ")}}}
}
