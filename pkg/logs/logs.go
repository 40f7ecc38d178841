// Package logs is what people read of a run's logs: which are meant by a word, and what comes in them until the
// run is over.
package logs

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

	"github.com/bringupd/bringupd/pkg/pause"
	"github.com/bringupd/bringupd/pkg/prose"
	"github.com/bringupd/bringupd/pkg/signal"
	"github.com/bringupd/bringupd/pkg/voice"
)

const (
	// followPace is the pause between two looks at logs that grow.
	followPace = 250 * time.Millisecond
	// lastLogs is for how long what is written at the end of a run is waited for.
	lastLogs = 10 * time.Second
	// atOnce is how many bytes of a log are read at once.
	atOnce = 64 << 10
	// mostName is how many characters of a name are shown: file systems have no longer ones.
	mostName = 255
)

const (
	driverLog = "driver.log"
	everyRank = "ranks"
	oneRank   = "rank-" // and its number
)

// WordError says that a word means no log, or more than one.
type WordError struct{ what string }

func (e *WordError) Error() string { return e.what }

// IsWord tells whether a word means logs that are no node's.
func IsWord(word string) bool {
	return word == "driver" || word == "head" || word == everyRank || strings.HasPrefix(word, oneRank)
}

// Printer returns what prints to the logs that a word means, in a run of this plan. It returns an
// empty string if the plan does not say that the run has such logs.
func Printer(word string, plan *signal.Plan) string {
	switch {
	case plan == nil:
		return ""
	case word == "driver" && plan.Driver != "" && !plan.World:
		return "the driver"
	case word == everyRank && plan.World:
		return "the ranks"
	}
	return ""
}

// Meant returns the logs that are meant, as far as they are there now.
type Meant func(ctx context.Context) ([]Log, error)

// Log is a log as a listing has shown it.
type Log struct {
	name string
	in   *signal.Folder
	id   string // tells it from all others of the run
}

// Named returns the logs that a word means: driver, head, ranks, rank-N, or else a node, whose rank node returns;
// nothing means the driver's, or those of all ranks, or the head's if there is neither. Its error is a *WordError,
// one of node's, or the share's.
func Named(ctx context.Context, run *signal.Dir, word string, node func(ctx context.Context, name string) (int, error)) (Meant, error) {
	wanted, err := wantedBy(ctx, run, word, node)
	if err != nil {
		return nil, err
	}
	return func(ctx context.Context) (logs []Log, err error) {
		folder, err := run.Reader().Folder(ctx, signal.Logs)
		if err != nil {
			return nil, err
		}
		for _, name := range folder.Names {
			if _, rank, ok := signal.ParseLogName(name); ok && wanted(name, rank) {
				logs = append(logs, Log{name: name, in: folder, id: name})
			}
		}
		return logs, nil
	}, nil
}

// ofHead tells whether a log is the head's service's, or another one of its node.
func ofHead(name string, rank int) bool { return name != driverLog && rank <= 0 && !ofRank(name, 0) }

// ofRank tells whether a log is that of a rank of the job's world.
func ofRank(name string, _ int) bool {
	what, _, ok := signal.ParseLogName(name)
	return ok && what == signal.OfRank
}

// wantedBy returns which logs a word means, by their names and the ranks in them.
func wantedBy(ctx context.Context, run *signal.Dir, word string, node func(context.Context, string) (int, error)) (func(name string, rank int) bool, error) {
	ofDriver := func(name string, _ int) bool { return name == driverLog }
	switch word {
	case "":
		names, err := run.Names(ctx, signal.Logs)
		switch {
		case err == nil && slices.Contains(names, driverLog):
			return ofDriver, nil
		case err == nil && slices.ContainsFunc(names, func(name string) bool { return ofRank(name, 0) }):
			return ofRank, nil
		}
		return ofHead, err
	case everyRank:
		return ofRank, nil
	case "driver":
		return ofDriver, nil
	case "head":
		return ofHead, nil
	}
	if number, is := strings.CutPrefix(word, oneRank); is {
		one, err := strconv.Atoi(number)
		if err != nil || one < 0 {
			return nil, &WordError{fmt.Sprintf("cannot show %s: give %sN, the number of a rank", prose.Line(word, mostName), oneRank)}
		}
		return func(name string, rank int) bool { return rank == one && ofRank(name, rank) }, nil
	}
	of, err := node(ctx, word)
	if err != nil {
		return nil, err
	}
	return func(name string, rank int) bool {
		return !ofRank(name, rank) && (rank == of || of == 0 && ofHead(name, rank))
	}, nil
}

// Reading shows logs of a run, and goes on with what comes in them.
type Reading struct {
	Run    *signal.Dir
	Out    io.Writer
	Follow bool // until the run is over

	views map[string]*view // by the logs' ids
	shown string           // the log whose lines came last
}

// view is how far a log has been shown.
type view struct {
	offset int64
	ear    *voice.Ear // of a daemon's own log; nil: of another, which is shown as it is
}

// Show shows what there is, and what comes until the run is over where that is asked
// for. It returns how many logs there were.
func (r *Reading) Show(ctx context.Context, meant Meant) (int, error) {
	r.views = make(map[string]*view)
	var last time.Time // until which what is written last may come
	for {
		over, err := r.over(ctx)
		if err != nil {
			return 0, err
		}
		if err := r.look(ctx, meant); err != nil {
			return 0, err
		}
		if over && last.IsZero() {
			last = time.Now().Add(lastLogs)
		}
		if !r.Follow || over && (r.finished(ctx) || time.Now().After(last)) {
			return len(r.views), r.finish(ctx, meant)
		}
		if !pause.For(ctx, followPace) {
			return 0, context.Cause(ctx)
		}
	}
}

func (r *Reading) over(ctx context.Context) (bool, error) {
	if !r.Follow {
		return true, nil
	}
	return r.Run.Ended(ctx)
}

// finished tells whether the head has said for good how it ended.
func (r *Reading) finished(ctx context.Context) bool {
	names, err := r.Run.Names(ctx, "")
	return err == nil && slices.Contains(names, signal.NameResult)
}

// finish shows what came with the end, and lines that have none.
func (r *Reading) finish(ctx context.Context, meant Meant) error {
	if err := r.look(ctx, meant); err != nil {
		return err
	}
	for id, view := range r.views {
		if view.ear == nil {
			continue
		}
		if err := r.write(id, view.ear.Rest()); err != nil {
			return err
		}
	}
	return nil
}

// look shows what has been added to the logs since the last look.
func (r *Reading) look(ctx context.Context, meant Meant) error {
	logs, err := meant(ctx)
	if err != nil {
		return err
	}
	for _, log := range logs {
		seen := r.views[log.id]
		if seen == nil {
			seen = new(view)
			if strings.HasPrefix(log.id, "daemon-") || strings.HasPrefix(log.id, "sandbox-daemon-") {
				seen.ear = voice.NewEar()
			}
			r.views[log.id] = seen
		}
		for {
			data, err := log.in.From(ctx, log.name, seen.offset, atOnce)
			if err != nil && !errors.Is(err, os.ErrNotExist) {
				return err
			}
			if len(data) == 0 {
				break
			}
			seen.offset += int64(len(data))
			if seen.ear != nil {
				data = seen.ear.Hear(data)
			}
			if err := r.write(log.id, data); err != nil {
				return err
			}
		}
	}
	return nil
}

// write writes what came of one log, with a heading where another one came
// before it.
func (r *Reading) write(id string, text []byte) error {
	if len(text) == 0 {
		return nil
	}
	heading := ""
	switch {
	case r.shown != "" && r.shown != id:
		heading = fmt.Sprintf("\n==> %s <==\n", prose.Line(id, mostName))
	case r.shown == "" && len(r.views) > 1:
		heading = fmt.Sprintf("==> %s <==\n", prose.Line(id, mostName))
	}
	r.shown = id
	_, err := r.Out.Write(append([]byte(heading), text...))
	return err
}
