package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/urfave/cli/v2"
	"golang.org/x/sys/unix"

	"github.com/bringupd/bringupd/pkg/pause"
	"github.com/bringupd/bringupd/pkg/roles"
	"github.com/bringupd/bringupd/pkg/signal"
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
	own    settings
	which  whichRun
	follow bool
	raw    bool

	dir   *signal.Dir
	size  int
	out   io.Writer
	files map[string]*logView
	shown string // the file whose lines came last
}

func (inv *invocation) logsCommand() *cli.Command {
	r := &reading{invocation: inv, files: make(map[string]*logView)}
	r.own = under(otherFlags, settings{
		short("f", notByVariable(yes("follow", &r.follow, "go on until the run is over"))),
		notByVariable(yes("raw", &r.raw, "show what a log has as it is, on a terminal, too")),
		r.which.setting(),
	})
	return &cli.Command{
		Name: "logs", Usage: "show what the driver, the head's service or a node has said",
		UsageText: "bringupd logs [flags] [driver | head | NODE] [RUN | LOG-DIRECTORY]",
		Description: "A node is a rank, or a host where no node has that rank. " + aRun + " Without a node it shows the driver's log, or the head's if there is no driver. " +
			"On a terminal control characters are shown, not obeyed; elsewhere logs come as they are.",
		Flags:  r.own.flags(func(*setting) bool { return true }),
		Action: r.action,
	}
}

func (r *reading) action(c *cli.Context) error {
	if r.dashed {
		return usage("cannot take a driver: bringupd logs runs none")
	}
	if _, err := r.own.gather(os.LookupEnv); err != nil {
		return err
	}
	ctx, _, stop := r.heed()
	defer stop()
	opening, cancel := context.WithTimeoutCause(ctx, stopTimeout, errStopTimeout)
	defer cancel()
	what, path, err := r.which.whoAndWhich(opening, c.Args().Slice())
	if err != nil {
		return wrongRun(err)
	}
	dir, job, _, err := openRun(opening, path)
	if err != nil {
		return err
	}
	r.dir, r.size, r.out = dir, job.Size, r.invocation.files.Out
	if isTerminal(r.invocation.files.Out) && !r.raw {
		r.out = &inert{to: r.out}
	}
	wanted, err := r.wanted(opening, what)
	if err != nil {
		return err
	}
	err = r.show(ctx, wanted)
	if sig, ok := errors.AsType[*stopped](context.Cause(ctx)); ok {
		r.code = sig.code()
		return nil
	}
	if errors.Is(err, unix.EPIPE) {
		return nil // who reads has seen enough
	}
	return err
}

func isTerminal(file *os.File) bool {
	_, err := unix.IoctlGetTermios(int(file.Fd()), unix.TCGETS)
	return err == nil
}

const driverLog = "driver.log"

// ofHead tells whether a log is the head's service's, or another one of rank 0.
func ofHead(name string, rank int) bool { return name != driverLog && rank <= 0 }

// wanted returns which logs are meant, by their names and the ranks in them.
func (r *reading) wanted(ctx context.Context, what string) (func(name string, rank int) bool, error) {
	ofDriver := func(name string, _ int) bool { return name == driverLog }
	switch what {
	case "":
		names, err := r.dir.Names(ctx, signal.Logs)
		if err != nil || !slices.Contains(names, driverLog) {
			return ofHead, err
		}
		return ofDriver, nil
	case "driver":
		return ofDriver, nil
	case "head":
		return ofHead, nil
	}
	node, _, err := nodeOf(ctx, r.dir, r.size, what)
	if err != nil {
		return nil, err
	}
	return func(name string, rank int) bool { return rank == node || node == 0 && ofHead(name, rank) }, nil
}

// nodeOf returns the rank and the host of a node that is named by either; the host
// is empty where it has not joined.
func nodeOf(ctx context.Context, dir *signal.Dir, size int, name string) (int, string, error) {
	hosts, err := dir.Reader().Hosts(ctx, size)
	if err != nil {
		return 0, "", err
	}
	rank, err := roles.RankNamed(name, size, func(rank int) string { return hosts[rank] })
	if err != nil {
		return 0, "", usage("cannot use run %s: %v", dir.Name(), err)
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
	return r.dir.Ended(ctx)
}

// finished tells whether the head has said for good how it ended.
func (r *reading) finished(ctx context.Context) bool {
	names, err := r.dir.Names(ctx, "")
	return err == nil && slices.Contains(names, signal.NameResult)
}

// finish shows what came with the end, and lines that have none.
func (r *reading) finish(ctx context.Context, wanted func(string, int) bool) error {
	if err := r.look(ctx, wanted); err != nil {
		return err
	}
	for name, view := range r.files {
		if err := r.write(name, view.rest()); err != nil {
			return err
		}
	}
	if len(r.files) == 0 {
		r.say("there is no such log in %s", filepath.Join(r.dir.Path(), signal.Logs))
		r.code = 1
	}
	return nil
}

// look shows what has been added to the logs since the last look.
func (r *reading) look(ctx context.Context, wanted func(string, int) bool) error {
	logs, err := r.dir.Reader().Folder(ctx, signal.Logs)
	if err != nil {
		return err
	}
	for _, name := range logs.Names {
		if _, rank, ok := signal.ParseLogName(name); !ok || !wanted(name, rank) {
			continue
		}
		view := r.files[name]
		if view == nil {
			view = newLogView(name)
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
			if err := r.write(name, view.take(data)); err != nil {
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
	if r.shown != "" && r.shown != name {
		if _, err := fmt.Fprintf(r.out, "\n==> %s <==\n", name); err != nil {
			return err
		}
	} else if r.shown == "" && len(r.files) > 1 {
		if _, err := fmt.Fprintf(r.out, "==> %s <==\n", name); err != nil {
			return err
		}
	}
	r.shown = name
	_, err := r.out.Write(text)
	return err
}
