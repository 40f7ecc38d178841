package report

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/bringupd/bringupd/pkg/signal/record"
)

// formatCalls formats a table of the calls that the head and the workers that have reported theirs
// have made to the shared file system: a row for each type of call, then totals.
func formatCalls(share *record.FileSystemReport, workers []record.CallStats) string {
	var text strings.Builder
	table := tabwriter.NewWriter(&text, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintf(table, "calls\thead\tworkers: least\tmedian\tmost\tall %d\t\n", len(workers))
	row := func(call string, of func(record.CallStats) int64) {
		counts, sum := []int64{}, int64(0)
		for _, worker := range workers {
			counts, sum = append(counts, of(worker)), sum+of(worker)
		}
		if of(share.Head)+sum == 0 {
			return
		}
		if len(counts) == 0 {
			counts = []int64{0}
		}
		slices.Sort(counts)
		fmt.Fprintf(table, "%s\t%d\t%d\t%d\t%d\t%d\t\n", call, of(share.Head),
			counts[0], counts[len(counts)/2], counts[len(counts)-1], sum)
	}
	kinds := make(map[string]bool)
	for _, s := range append(workers, share.Head) {
		for kind := range s.ByKind {
			kinds[kind] = true
		}
	}
	for _, kind := range slices.Sorted(maps.Keys(kinds)) {
		row(kind, func(s record.CallStats) int64 { return s.ByKind[kind] })
	}
	row("all", func(s record.CallStats) int64 { return s.Calls })
	row("recreated", func(s record.CallStats) int64 { return s.Retries })
	_ = table.Flush() // writes to memory
	slowest := share.Head.Slowest
	for _, worker := range workers {
		if worker.Slowest.Took > slowest.Took {
			slowest = worker.Slowest
		}
	}
	fmt.Fprintf(&text, "the slowest: %s of %s, %s", slowest.Op, slowest.Path, slowest.Took.Round(time.Microsecond))
	return text.String()
}
