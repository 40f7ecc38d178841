package main

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/urfave/cli/v2"
	"golang.org/x/sys/unix"

	"github.com/bringupd/bringupd/pkg/pause"
	"github.com/bringupd/bringupd/pkg/setting"
	"github.com/bringupd/bringupd/pkg/signal"
	"github.com/bringupd/bringupd/pkg/timeline"
)

// statusing is one execution of bringupd status.
type statusing struct {
	*invocation
	which   whichRun
	watch   bool
	json    bool
	verbose bool

	path   string        // of the run directory
	seen   string        // the variable part of a live run at the last poll
	at     time.Time     // when that changed last, by this machine's clock
	before time.Duration // duration of the last poll
}

func (inv *invocation) statusCommand() *cli.Command {
	s := &statusing{invocation: inv}
	own := setting.List{
		s.which.setting(),
		setting.Yes("watch", &s.watch, "look again and again until the run is over: drawn anew on a terminal, and the changes elsewhere").Not(setting.ByVariable).Short("w"),
		setting.Yes("json", &s.json, "print it as JSON, for programs; with --watch, a line for each change").Not(setting.ByVariable),
		setting.Yes("verbose", &s.verbose, "show all nodes").Not(setting.ByVariable).Short("v"),
	}
	return inv.command(cli.Command{
		Name: "status", Usage: "show how a run is: what it waits for, who is late, how it ended",
		UsageText: "bringupd status [flags]                     (the newest run)\nbringupd status [flags] RUN | LOG-DIRECTORY",
		Description: aRun + " Reads the run directory alone, from wherever it is seen, and changes nothing there. " +
			"Exits with 0 if the run is up or has ended with 0, 1 if it has failed, 2 if it is on its way or gives no sign of life, " +
			"3 if there is no such run, and 64 if the command line is wrong.",
	}, setting.Under(resultFlags, own...), s.do)
}

func (s *statusing) do(args []string) error {
	return s.heeding(func(ctx context.Context, _ <-chan struct{}) error {
		err := s.tell(ctx, args)
		if err == nil || setting.IsUsage(err) || signal.Stalled(err) || ctx.Err() != nil {
			return err
		}
		s.say("%v", err)
		s.code = timeline.StatusNoRun
		return nil
	})
}

// tell shows the status of the run, once or until it is over.
func (s *statusing) tell(ctx context.Context, args []string) (err error) {
	finding, cancel := inTime(ctx)
	defer cancel()
	if s.path, err = s.which.find(finding, args); err != nil {
		return err
	}
	status, err := s.look(ctx)
	if err != nil {
		return err
	}
	show := s.shower()
	for {
		s.code = status.Code
		if err := show(status); err != nil || !s.watch || status.Over() {
			return err
		}
		if !pause.For(ctx, max(lookPace, 10*s.before)) {
			return context.Cause(ctx)
		}
		next, err := s.look(ctx)
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if err != nil { // the error may be temporary
			next = status
			next.Problems = []string{err.Error()}
		}
		status = next
	}
}

// lookPace is the interval between two polls: as often as people can read, and at most a tenth of
// the time.
const lookPace = time.Second

// manyNodes is the number of nodes from which on only the head's timeline is read.
const manyNodes = 256

// look reads the run.
func (s *statusing) look(ctx context.Context) (status timeline.Status, err error) {
	ctx, cancel := inTime(ctx)
	defer cancel()
	began := time.Now()
	run, err := timeline.Read(ctx, s.path, timeline.Options{Depth: timeline.Quick})
	if err == nil && run.Size() <= manyNodes {
		run, err = timeline.Read(ctx, s.path, timeline.Options{Depth: timeline.Full})
	}
	if err != nil {
		return status, err
	}
	look := timeline.Look{Now: time.Now(), Verbose: s.verbose}
	if look.LastSign, err = signal.LastChange(ctx, s.path); err != nil {
		run.Problems = append(run.Problems, err.Error())
	}
	s.before = time.Since(began)
	look.Unchanged = s.unchanged(run, look)
	return timeline.Summarize(run, look), nil
}

// unchanged returns the time since the last change.
func (s *statusing) unchanged(run *timeline.Run, look timeline.Look) time.Duration {
	signs := []int64{look.LastSign.UnixNano(), run.Control.Beat, int64(len(run.Events))}
	for i := range run.Nodes {
		signs = append(signs, run.Nodes[i].Beat, int64(len(run.Nodes[i].States)))
	}
	if seen := fmt.Sprint(signs); seen != s.seen {
		s.seen, s.at = seen, time.Now()
	}
	return time.Since(s.at)
}

// shower returns a function that shows a status, and remembers what it has shown.
func (s *statusing) shower() func(timeline.Status) error {
	out := s.files.Out
	style := timeline.Style{Colour: showsColour(out)}
	last := make(map[string]bool)
	drawn := 0
	switch width, height := terminalSize(out); {
	case s.json:
		return s.jsonShower()
	case !s.watch:
		return func(status timeline.Status) error {
			_, err := io.WriteString(out, status.Text(style))
			return err
		}
	case height > 0:
		return func(status timeline.Status) error {
			style.Width, height = terminalSize(out)
			if status.Over() {
				style.Width = 0
			}
			lines := strings.Split(strings.TrimSuffix(status.Text(style), "\n"), "\n")
			if !status.Over() {
				lines = lines[:min(len(lines), max(1, height-1))]
			}
			_, err := io.WriteString(out, redrawn(lines, drawn))
			drawn = len(lines)
			return err
		}
	default:
		style.Width = width
		return func(status timeline.Status) error {
			var changed strings.Builder
			for _, line := range status.Changes(style, last) {
				changed.WriteString(status.At.Format(time.TimeOnly) + " " + line + "\n")
			}
			_, err := io.WriteString(out, changed.String())
			return err
		}
	}
}

// redrawn returns lines that overwrite those drawn before.
func redrawn(lines []string, drawn int) string {
	var b strings.Builder
	if drawn > 0 {
		fmt.Fprintf(&b, "\x1b[%dA\r", drawn)
	}
	for _, line := range lines {
		b.WriteString(line + "\x1b[K\n")
	}
	b.WriteString("\x1b[J")
	return b.String()
}

// jsonShower returns a function that writes JSON: one object, or one line for each change.
func (s *statusing) jsonShower() func(timeline.Status) error {
	var last []byte
	return func(status timeline.Status) error {
		if !s.watch {
			return writeJSON(s.files.Out, status)
		}
		still, err := json.Marshal(status.Still())
		if err != nil || bytes.Equal(still, last) {
			return err
		}
		last = still
		return json.NewEncoder(s.files.Out).Encode(status)
	}
}

// terminalSize returns the size of the terminal, or zeroes if file is not a terminal.
func terminalSize(file *os.File) (width, height int) {
	size, err := unix.IoctlGetWinsize(int(file.Fd()), unix.TIOCGWINSZ)
	if err != nil {
		return 0, 0
	}
	return int(size.Col), cmp.Or(int(size.Row), 24)
}
