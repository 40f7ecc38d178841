package flightrecorder

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/sync/errgroup"

	"github.com/bringupd/bringupd/internal/textutil"
	"github.com/bringupd/bringupd/pkg/signal"
)

const (
	// maxDumps is the maximum number of dumps that are read, and maxDumpBytes the maximum size of each.
	maxDumps     = 1024
	maxDumpBytes = 32 << 20
	// maxConcurrentReads is the number of dumps that are read concurrently.
	maxConcurrentReads = 8
	// maxFindings is the maximum number of findings in a description.
	maxFindings = 3
)

// Describe returns sentences about the dumps in a run directory, or nil if there are none.
func Describe(ctx context.Context, runDir string) (sentences []string) {
	reader, err := signal.OpenReader(ctx, runDir)
	if err != nil {
		return nil
	}
	folder, err := reader.ListDir(ctx, signal.LogsDir)
	if err != nil {
		return nil
	}
	names := selectDumps(folder.Names)
	if len(names) == 0 {
		return nil
	}
	dumps, problems := readDumps(ctx, folder, names[:min(len(names), maxDumps)])
	for _, f := range Analyze(dumps) {
		sentences = append(sentences, f.String())
	}
	if more := len(sentences) - maxFindings; more > 0 {
		sentences = append(sentences[:maxFindings], fmt.Sprintf("and %d more groups in which ranks differ", more))
	}
	if len(sentences) == 0 && len(dumps) > 0 {
		sentences = append(sentences, fmt.Sprintf("all %d ranks with a dump have entered the same collectives", len(dumps)))
	}
	if more := len(names) - maxDumps; more > 0 {
		problems = append(problems, fmt.Sprintf("%d further dumps were not read", more))
	}
	return append(sentences, problems...)
}

// selectDumps returns the names of dumps: the prefix, and the rank. torch may add a dot or an
// underscore and more.
func selectDumps(names []string) (dumps []string) {
	for _, name := range names {
		if rankOf(name) >= 0 {
			dumps = append(dumps, name)
		}
	}
	slices.SortFunc(dumps, func(a, b string) int { return rankOf(a) - rankOf(b) })
	return dumps
}

// rankOf returns the rank that has written a dump, or -1 if the name is not that of a dump.
func rankOf(name string) int {
	rest, is := strings.CutPrefix(name, signal.FlightRecorderPrefix)
	digits, _, _ := strings.Cut(strings.ReplaceAll(rest, ".", "_"), "_")
	rank, err := strconv.Atoi(digits)
	if !is || err != nil || rank < 0 {
		return -1
	}
	return rank
}

// readDumps reads dumps. A dump that cannot be read is a problem.
func readDumps(ctx context.Context, folder *signal.DirSnapshot, names []string) (dumps []Dump, problems []string) {
	all, failed := make([]*Dump, len(names)), make([]error, len(names))
	var reads errgroup.Group
	reads.SetLimit(maxConcurrentReads)
	for i, name := range names {
		reads.Go(func() error {
			content, err := folder.ReadFile(ctx, name, maxDumpBytes)
			if err == nil && len(content.Tail) > 0 {
				err = fmt.Errorf("it is larger than %s", textutil.FormatRoundSize(maxDumpBytes))
			}
			var d Dump
			if err == nil {
				d, err = parseDump(rankOf(name), content.Data)
			}
			if failed[i] = err; err == nil {
				all[i] = &d
			}
			return nil
		})
	}
	_ = reads.Wait() // the functions return no error
	for i, name := range names {
		if failed[i] != nil {
			problems = append(problems, fmt.Sprintf("cannot read the dump %s: %s", textutil.SingleLine(name, 100), clean(failed[i].Error())))
			continue
		}
		if n := len(dumps); n > 0 && dumps[n-1].Rank == all[i].Rank {
			dumps[n-1] = *all[i] // a later dump of the same rank
			continue
		}
		dumps = append(dumps, *all[i])
	}
	const maxProblems = 2
	if more := len(problems) - maxProblems; more > 0 {
		problems = append(problems[:maxProblems], fmt.Sprintf("and %d more dumps cannot be read", more))
	}
	return dumps, problems
}
