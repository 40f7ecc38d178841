// Package logs selects the logs of a run by a word, and prints them until the run is over.
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
	// followPace is the interval between two polls of logs that grow.
	followPace = 250 * time.Millisecond
	// lastLogs is the time after the end of a run within which its last lines are written.
	lastLogs = 10 * time.Second
	// atOnce is the number of bytes of a log that are read at once.
	atOnce = 64 << 10
	// mostName is the maximum number of characters of a name that are shown. File systems have no
	// longer names.
	mostName = 255
)

const (
	driverLog = "driver.log"
	everyRank = "ranks"
	oneRank   = "rank-" // followed by the rank's number
)

// WordError reports that a word selects no log, or more than one.
type WordError struct{ what string }

func (e *WordError) Error() string { return e.what }

// IsWord reports whether a word selects logs by kind instead of naming a node.
func IsWord(word string) bool {
	return word == "driver" || word == "head" || word == everyRank || strings.HasPrefix(word, oneRank)
}

// Printer describes the processes that print to the logs selected by a word, in a run with this
// plan. It returns an empty string if, according to the plan, the run has no such logs.
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

// Meant returns the selected logs that exist at the time of the call.
type Meant func(ctx context.Context) ([]Log, error)

// Log is a log that a listing has shown.
type Log struct {
	name string
	in   *signal.Folder
	id   string // unique in the run
}

// Named selects logs by a word: driver, head, ranks, rank-N, or a node, whose index is returned by
// node. An empty word selects the driver's log, or those of all ranks, or the head's if there is
// neither. The error is a *WordError, an error of node, or one of the file system.
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

// ofHead reports whether a log belongs to the head's service, or is another log of its node.
func ofHead(name string, rank int) bool { return name != driverLog && rank <= 0 && !ofRank(name, 0) }

// ofRank reports whether a log belongs to a rank of the world.
func ofRank(name string, _ int) bool {
	what, _, ok := signal.ParseLogName(name)
	return ok && what == signal.OfRank
}

// wantedBy returns a function that selects the logs for a word, by their names and the indices in
// them.
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

// Reading prints logs of a run, and optionally follows them.
type Reading struct {
	Run    *signal.Dir
	Out    io.Writer
	Follow bool // until the run is over

	views map[string]*view // by the logs' ids
	shown string           // id of the log whose lines were printed last
}

// view is the position up to which a log has been printed.
type view struct {
	offset int64
	ear    *voice.Ear // formats a daemon's own log; nil for other logs, which are printed unchanged
}

// Show prints the logs and, if Follow is set, new lines until the run is over. It returns the
// number of logs.
func (r *Reading) Show(ctx context.Context, meant Meant) (int, error) {
	r.views = make(map[string]*view)
	var last time.Time // deadline for the last lines after the end of the run
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

// finished reports whether the final result of the run is published.
func (r *Reading) finished(ctx context.Context) bool {
	names, err := r.Run.Names(ctx, "")
	return err == nil && slices.Contains(names, signal.NameResult)
}

// finish prints the lines that came with the end, and unfinished lines.
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

// look prints what has been added to the logs since the last poll.
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

// write prints new text of one log, with a heading if another log was printed before it.
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
