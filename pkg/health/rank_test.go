package health

import (
	"syscall"
	"testing"

	"github.com/bringupd/bringupd/pkg/process"
	"github.com/bringupd/bringupd/pkg/signal"
)

func TestRankSentences(t *testing.T) {
	ended := func(rank signal.WorldRank, exit process.Exit) *Failure { return RankDied(rank, "n3", exit) }
	for want, f := range map[string]*Failure{
		"rank 12 (n3, GPU 2) died: killed by SIGSEGV (core dumped)": ended(signal.WorldRank{Number: 12, GPUs: "2"}, process.Exit{Code: -1, Signal: syscall.SIGSEGV, CoreDumped: true}),
		"rank 12 (n3, GPUs 4-7) failed: exit code 3":                ended(signal.WorldRank{Number: 12, GPUs: "4-7"}, process.Exit{Code: 3}),
		"rank 0 (n3) failed: exit code 1":                           ended(signal.WorldRank{}, process.Exit{Code: 1}),
		"rank 7 (n3) has aborted the job with code 42: no data":     RankAsked(signal.WorldRank{Number: 7}, "n3", 42, "no data"),
		"rank 7 (n3) has aborted the job with code -1":              RankAsked(signal.WorldRank{Number: 7}, "n3", -1, ""),
	} {
		if f.What != want || f.WorldRank == nil || f.Seen.IsZero() {
			t.Errorf("got %+v, want %q", f.FailedRecord, want)
		}
	}
}
