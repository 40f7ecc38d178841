package stackdump

import (
	"context"
	"time"

	"github.com/bringupd/bringupd/internal/ctxutil"
	"github.com/bringupd/bringupd/internal/textutil"
	"github.com/bringupd/bringupd/pkg/process"
)

// RankProcess is a rank that runs on a node.
type RankProcess struct {
	Rank    int
	PID     int
	Printed int64 // total output in bytes
}

// HangDetector detects that no rank of a node, or of an instance of a role there, has shown a sign of
// activity for the timeout.
type HangDetector struct {
	// time without a sign of activity after which the ranks count as idle; 0 disables detection. If
	// steps take long, it is longer.
	Timeout time.Duration
	// RunningRanks returns the ranks that are running, and CountSteps the number of changes of their
	// steps.
	RunningRanks func() []RankProcess
	CountSteps   func() int64
	// OnChange is called with true when no rank has shown a sign for the timeout, and with false when a
	// rank shows one again.
	OnChange func(idle bool)
	// CPUTimes returns the processor times of process trees; nil: as [SumCPUTimes].
	CPUTimes func(children []int) (map[int]time.Duration, error)
}

// The interval between samples is a tenth of the timeout, within these limits.
const (
	minSampleInterval = time.Second
	maxSampleInterval = 5 * time.Second
)

// Run watches the ranks until ctx ends. It ignores samples with errors, because they show nothing
// about the ranks.
func (v HangDetector) Run(ctx context.Context) {
	if v.CPUTimes == nil {
		scanner := process.NewFamilyScanner()
		v.CPUTimes = func(children []int) (map[int]time.Duration, error) { return SumCPUTimes(scanner, children) }
	}
	idle, reported := idleTracker{}, false
	for ctxutil.SleepContext(ctx, min(max(v.Timeout/10, minSampleInterval), maxSampleInterval)) {
		usage, ok := v.sampleUsage()
		if !ok {
			continue
		}
		now := time.Now()
		since := idle.addSample(now, usage, v.CountSteps())
		if is := len(usage) > 0 && now.Sub(since) >= max(v.Timeout, idle.minTimeout()); is != reported {
			reported = is
			v.OnChange(is)
		}
	}
}

// sampleUsage returns the usage of each running rank, and reports whether the sample is complete. A
// rank that has just ended is left out.
func (v HangDetector) sampleUsage() (map[int]rankUsage, bool) {
	ranks := v.RunningRanks()
	pids := textutil.MapSlice(ranks, func(rank RankProcess) int { return rank.PID })
	used, err := v.CPUTimes(pids)
	usage := make(map[int]rankUsage, len(ranks))
	for _, rank := range ranks {
		if spent, there := used[rank.PID]; there {
			usage[rank.Rank] = rankUsage{CPUTime: spent, Printed: rank.Printed}
		}
	}
	return usage, err == nil
}

// SumCPUTimes returns the total processor time of each child's process tree, from one pass over
// /proc. The tree of a child that has ended is left out. The time grows monotonically, unless a
// process of the tree ends without another process of the tree waiting for it. An error means that
// some processes could not be read; the map is incomplete then.
func SumCPUTimes(scanner *process.FamilyScanner, children []int) (map[int]time.Duration, error) {
	families, err := scanner.ScanFamilies(children)
	used := make(map[int]time.Duration, len(families))
	for pid, family := range families {
		for _, member := range family {
			used[pid] += member.CPUTime + member.ReapedCPUTime
		}
	}
	return used, err
}
