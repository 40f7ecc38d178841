package runs

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/bringupd/bringupd/internal/ctxutil"
	"github.com/bringupd/bringupd/internal/textutil"
	"github.com/bringupd/bringupd/pkg/console"
	"github.com/bringupd/bringupd/pkg/signal"
	"github.com/bringupd/bringupd/pkg/signal/record"
)

const (
	// followPollInterval is the interval between two polls of logs that grow.
	followPollInterval = 250 * time.Millisecond
	// lastLinesTimeout is the time after the end of a run within which its last lines are written.
	lastLinesTimeout = 10 * time.Second
	// maxReadBytes is the number of bytes of a log that are read at once.
	maxReadBytes = 64 << 10
	// maxNameLength is the maximum number of characters of a name that are shown. File systems have no
	// longer names.
	maxNameLength = 255
)

const (
	driverLogName  = "driver.log"
	allRanksWord   = "ranks"
	rankWordPrefix = "rank-" // followed by the rank's number; without the dash it is accepted, too
)

// SelectionError reports that a word selects no log, or more than one.
type SelectionError struct{ message string }

func (e *SelectionError) Error() string { return e.message }

// IsKindWord reports whether a word selects logs by kind instead of naming a node.
func IsKindWord(word string) bool {
	return word == "driver" || word == "head" || word == allRanksWord || isRankWord(word)
}

// isRankWord reports whether a word selects a rank: rank-0, which is accepted without the dash,
// too.
func isRankWord(word string) bool {
	rest, is := strings.CutPrefix(word, strings.TrimSuffix(rankWordPrefix, "-"))
	_, err := strconv.Atoi(rest)
	return strings.HasPrefix(word, rankWordPrefix) || is && err == nil
}

// DescribePrinters describes the processes that print to the logs selected by a word, in a run with
// this plan. It returns an empty string if, according to the plan, the run has no such logs.
func DescribePrinters(word string, plan *record.Plan) string {
	switch {
	case plan == nil:
		return ""
	case word == "driver" && plan.Driver != "" && !plan.HasRanks:
		return "the driver"
	case word == allRanksWord && plan.HasRanks:
		return "the ranks"
	}
	return ""
}

// NodeFinder returns the index of the node that a word names.
type NodeFinder = func(ctx context.Context, word string) (int, error)

// LogFilter selects logs by their names, and the indices in them.
type LogFilter func(name string, index int) bool

func isDriverLog(name string, _ int) bool { return name == driverLogName }

// isHeadLog reports whether a log belongs to the head's service, or is another log of its node.
func isHeadLog(name string, node int) bool {
	return name != driverLogName && node <= 0 && !isRankLog(name, 0)
}

func isRankLog(name string, _ int) bool {
	what, _, ok := signal.ParseLogName(name)
	return ok && what == signal.RankLogPrefix
}

// SelectLogs selects logs of a run with this plan by a word: driver, head, ranks, rank-N, a role, or a
// node, whose index is returned by node. An empty word selects the driver's log, or those of all ranks,
// or the head's if there is neither. The error is a *SelectionError, an error of node, or one of the
// file system.
func SelectLogs(
	ctx context.Context, run *signal.Dir, plan *record.Plan, word string, node NodeFinder,
) (LogFilter, error) {
	if plan != nil && len(plan.Roles) > 0 {
		return roleLogFilter(ctx, run, plan, word, node)
	}
	switch word {
	case "":
		names, err := run.ListNames(ctx, signal.LogsDir)
		for _, filter := range []LogFilter{isDriverLog, isRankLog} {
			if slices.ContainsFunc(names, func(name string) bool { return filter(name, 0) }) {
				return filter, nil
			}
		}
		return isHeadLog, err
	case allRanksWord:
		return isRankLog, nil
	case "driver":
		return isDriverLog, nil
	case "head":
		return isHeadLog, nil
	}
	if isRankWord(word) {
		number := strings.TrimPrefix(strings.TrimPrefix(word, "rank"), "-")
		one, err := strconv.Atoi(number)
		if err != nil || one < 0 {
			return nil, &SelectionError{fmt.Sprintf("cannot show %s: give %sN, the number of a rank",
				textutil.SingleLine(word, maxNameLength), rankWordPrefix)}
		}
		return func(name string, rank int) bool { return rank == one && isRankLog(name, rank) }, nil
	}
	of, err := node(ctx, word)
	if err != nil {
		return nil, err
	}
	return func(name string, rank int) bool {
		return !isRankLog(name, rank) && (rank == of || of == 0 && isHeadLog(name, rank))
	}, nil
}

// LogPrinter prints logs of a run, and optionally follows them.
type LogPrinter struct {
	RunDir *signal.Dir
	Out    io.Writer
	Wanted LogFilter
	Follow bool // until the run is over
	LogRange

	positions   map[string]*logPosition // keyed by the names of the logs
	lastPrinted string                  // name of the log whose lines were printed last
}

type logPosition struct {
	offset int64
	// formats a daemon's own log; nil for other logs, which are printed unchanged
	formatter *console.LogFormatter
}

// PrintLogs prints the logs and, if Follow is set, new lines until the run is over. It returns the
// number of logs.
func (r *LogPrinter) PrintLogs(ctx context.Context) (int, error) {
	r.positions = nil
	var last time.Time // deadline for the last lines after the end of the run
	for {
		isLast, err := r.isLastPass(ctx, &last)
		if err == nil {
			err = r.printNew(ctx)
		}
		switch {
		case err != nil:
			return 0, err
		case isLast:
			return len(r.positions), r.printRest(ctx)
		case !ctxutil.SleepContext(ctx, followPollInterval):
			return 0, context.Cause(ctx)
		}
	}
}

// isLastPass reports whether all lines that are expected are written: without Follow, or if the run
// is over and has a result, or had time for it.
func (r *LogPrinter) isLastPass(ctx context.Context, last *time.Time) (bool, error) {
	if !r.Follow {
		return true, nil
	}
	over, err := r.RunDir.HasEnded(ctx)
	if err != nil || !over {
		return false, err
	}
	if last.IsZero() {
		*last = time.Now().Add(lastLinesTimeout)
	}
	names, err := r.RunDir.ListNames(ctx, "")
	return err == nil && slices.Contains(names, signal.NameResult) || time.Now().After(*last), nil
}

// printRest prints the lines that came with the end, and unfinished lines.
func (r *LogPrinter) printRest(ctx context.Context) error {
	if err := r.printNew(ctx); err != nil {
		return err
	}
	for name, at := range r.positions {
		if at.formatter == nil {
			continue
		}
		if err := r.writeText(name, at.formatter.FormatRest()); err != nil {
			return err
		}
	}
	return nil
}

func (r *LogPrinter) printNew(ctx context.Context) error {
	folder, err := r.RunDir.NewReader().ListDir(ctx, signal.LogsDir)
	if err != nil {
		return err
	}
	var names []string
	for _, name := range folder.Names {
		if _, index, ok := signal.ParseLogName(name); !ok || !r.Wanted(name, index) {
			continue
		}
		names = append(names, name)
	}
	if err := r.startLogs(ctx, folder, names); err != nil {
		return err
	}
	for _, name := range names {
		if err := r.printLog(ctx, folder, name); err != nil {
			return err
		}
	}
	return nil
}

func (r *LogPrinter) printLog(ctx context.Context, folder *signal.DirSnapshot, name string) error {
	at := r.positions[name]
	for {
		data, err := folder.ReadRange(ctx, name, at.offset, maxReadBytes)
		if err != nil && !errors.Is(err, os.ErrNotExist) {
			return err
		}
		if len(data) == 0 {
			return nil
		}
		at.offset += int64(len(data))
		if at.formatter != nil {
			data = at.formatter.FormatNext(data)
		}
		if err := r.writeText(name, data); err != nil {
			return err
		}
	}
}

// writeText writes new text of one log, with a heading if another log was printed before it.
func (r *LogPrinter) writeText(name string, text []byte) error {
	if len(text) == 0 {
		return nil
	}
	heading := ""
	if r.lastPrinted != name && (r.lastPrinted != "" || len(r.positions) > 1) {
		heading = fmt.Sprintf("==> %s <==\n", textutil.SingleLine(name, maxNameLength))
		if r.lastPrinted != "" {
			heading = "\n" + heading
		}
	}
	r.lastPrinted = name
	_, err := r.Out.Write(append([]byte(heading), text...))
	return err
}
