package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/urfave/cli/v2"
	"golang.org/x/sys/unix"

	"github.com/bringupd/bringupd/pkg/pause"
	"github.com/bringupd/bringupd/pkg/prose"
	"github.com/bringupd/bringupd/pkg/roles"
	"github.com/bringupd/bringupd/pkg/signal"
	"github.com/bringupd/bringupd/pkg/voice"
)

const (
	// followPace is the pause between two looks at logs that grow.
	followPace = 250 * time.Millisecond
	// lastLogs is for how long what is written at the end of a run is waited for.
	lastLogs = 10 * time.Second
)

// reading is one call of bringupd logs.
type reading struct {
	*invocation
	which  whichRun
	follow bool
	raw    bool

	run   openRun
	out   io.Writer
	files map[string]*logView
	shown string // the file whose lines came last
}

func (inv *invocation) logsCommand() *cli.Command {
	r := &reading{invocation: inv, files: make(map[string]*logView)}
	own := settings{
		yes("follow", &r.follow, "go on until the run is over").not(byVariable).short("f"),
		yes("raw", &r.raw, "show what a log has as it is, on a terminal, too").not(byVariable),
		r.which.setting(),
	}
	return inv.command(cli.Command{
		Name: "logs", Usage: "show what the driver, a rank, the head's service or a node has said",
		UsageText: "bringupd logs [flags] [driver | head | ranks | rank-N | NODE] [RUN | LOG-DIR]",
		Description: "A node is its number, or a host where no node has that number; ranks are all of the job's world. " + aRun +
			" Where none of these is named it shows the driver's log, or those of all ranks, or the head's if there is neither. " +
			"On a terminal control characters are shown, not obeyed; elsewhere logs come as they are.",
	}, under(otherFlags, own...), r.do)
}

func (r *reading) do(args []string) error {
	err := r.heeding(func(ctx context.Context, _ <-chan struct{}) error {
		wanted, err := r.open(ctx, args)
		if err != nil {
			return err
		}
		return r.show(ctx, wanted)
	})
	if errors.Is(err, unix.EPIPE) {
		return nil // who reads has seen enough
	}
	return err
}

// open opens the run, and returns which logs are meant, by their names and the ranks
// in them.
func (r *reading) open(ctx context.Context, args []string) (wanted func(name string, rank int) bool, err error) {
	ctx, cancel := inTime(ctx)
	defer cancel()
	what := ""
	if what, r.run, err = r.which.openNode(ctx, args, false); err != nil {
		return nil, err
	}
	if r.out = r.invocation.files.Out; isTerminal(r.invocation.files.Out) && !r.raw {
		r.out = &prose.Inert{To: r.out}
	}
	return r.wanted(ctx, what)
}

const (
	driverLog = "driver.log"
	everyRank = "ranks"
	oneRank   = "rank-" // and its number
)

// ofHead tells whether a log is the head's service's, or another one of its node.
func ofHead(name string, rank int) bool { return name != driverLog && rank <= 0 && !ofRank(name, 0) }

// ofRank tells whether a log is that of a rank of the job's world.
func ofRank(name string, _ int) bool {
	what, _, ok := signal.ParseLogName(name)
	return ok && what == signal.OfRank
}

// wanted returns which logs are meant, by their names and the ranks in them.
func (r *reading) wanted(ctx context.Context, what string) (func(name string, rank int) bool, error) {
	ofDriver := func(name string, _ int) bool { return name == driverLog }
	switch what {
	case "":
		names, err := r.run.Names(ctx, signal.Logs)
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
	if number, is := strings.CutPrefix(what, oneRank); is {
		one, err := strconv.Atoi(number)
		if err != nil || one < 0 {
			return nil, usage("cannot show %s: give %sN, the number of a rank", oneLine(what), oneRank)
		}
		return func(name string, rank int) bool { return rank == one && ofRank(name, rank) }, nil
	}
	node, _, err := r.run.node(ctx, what)
	if err != nil {
		return nil, err
	}
	return func(name string, rank int) bool {
		return !ofRank(name, rank) && (rank == node || node == 0 && ofHead(name, rank))
	}, nil
}

// node returns the rank and the host of a node that is named by either; the host
// is empty where it has not joined.
func (run openRun) node(ctx context.Context, name string) (int, string, error) {
	hosts, err := run.Reader().Hosts(ctx, run.job.Size)
	if err != nil {
		return 0, "", err
	}
	rank, err := roles.RankNamed(name, run.job.Size, func(rank int) string { return hosts[rank] })
	if err != nil {
		return 0, "", usage("cannot use run %s: %v", run.Name(), err)
	}
	return rank, hosts[rank], nil
}

// show shows what there is, and what comes until the run is over where that is
// asked for.
func (r *reading) show(ctx context.Context, wanted func(string, int) bool) error {
	var last time.Time // until which what is written last may come
	for {
		over, err := r.over(ctx)
		if err != nil {
			return err
		}
		if err := r.look(ctx, wanted); err != nil {
			return err
		}
		if over && last.IsZero() {
			last = time.Now().Add(lastLogs)
		}
		if !r.follow || over && (r.finished(ctx) || time.Now().After(last)) {
			return r.finish(ctx, wanted)
		}
		if !pause.For(ctx, followPace) {
			return context.Cause(ctx)
		}
	}
}

func (r *reading) over(ctx context.Context) (bool, error) {
	if !r.follow {
		return true, nil
	}
	return r.run.Ended(ctx)
}

// finished tells whether the head has said for good how it ended.
func (r *reading) finished(ctx context.Context) bool {
	names, err := r.run.Names(ctx, "")
	return err == nil && slices.Contains(names, signal.NameResult)
}

// finish shows what came with the end, and lines that have none.
func (r *reading) finish(ctx context.Context, wanted func(string, int) bool) error {
	if err := r.look(ctx, wanted); err != nil {
		return err
	}
	for name, view := range r.files {
		if view.ear == nil {
			continue
		}
		if err := r.write(name, view.ear.Rest()); err != nil {
			return err
		}
	}
	if len(r.files) == 0 {
		r.say("cannot show that log: nothing was printed to it, or %s has none of that name", filepath.Join(r.run.Path(), signal.Logs))
		r.code = 1
	}
	return nil
}

// look shows what has been added to the logs since the last look.
func (r *reading) look(ctx context.Context, wanted func(string, int) bool) error {
	logs, err := r.run.Reader().Folder(ctx, signal.Logs)
	if err != nil {
		return err
	}
	for _, name := range logs.Names {
		if _, rank, ok := signal.ParseLogName(name); !ok || !wanted(name, rank) {
			continue
		}
		view := r.files[name]
		if view == nil {
			view = new(logView)
			if strings.HasPrefix(name, "daemon-") || strings.HasPrefix(name, "sandbox-daemon-") {
				view.ear = voice.NewEar()
			}
			r.files[name] = view
		}
		for {
			data, err := logs.From(ctx, name, view.offset, atOnce)
			if err != nil && !errors.Is(err, os.ErrNotExist) {
				return err
			}
			if len(data) == 0 {
				break
			}
			view.offset += int64(len(data))
			if view.ear != nil {
				data = view.ear.Hear(data)
			}
			if err := r.write(name, data); err != nil {
				return err
			}
		}
	}
	return nil
}

// atOnce is how many bytes of a log are read at once.
const atOnce = 64 << 10

// write writes what came of one log, with a heading where another one came
// before it.
func (r *reading) write(name string, text []byte) error {
	if len(text) == 0 {
		return nil
	}
	heading := ""
	switch {
	case r.shown != "" && r.shown != name:
		heading = fmt.Sprintf("\n==> %s <==\n", name)
	case r.shown == "" && len(r.files) > 1:
		heading = fmt.Sprintf("==> %s <==\n", name)
	}
	r.shown = name
	_, err := r.out.Write(append([]byte(heading), text...))
	return err
}

// logView is how far a log has been shown.
type logView struct {
	offset int64
	ear    *voice.Ear // of a daemon's own log; nil: of another, which is shown as it is
}
