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

	"github.com/bringupd/bringupd/internal/ctxutil"
	"github.com/bringupd/bringupd/pkg/config/setting"
	"github.com/bringupd/bringupd/pkg/inspect/timeline"
	"github.com/bringupd/bringupd/pkg/signal"
)

// statusCmd is one execution of bringupd status.
type statusCmd struct {
	*invocation
	selector     runSelector
	keepWatching bool
	asJSON       bool
	isVerbose    bool

	runPath          string        // of the run directory
	lastSeen         string        // the variable part of a live run at the last poll
	changedAt        time.Time     // when that changed last, by this machine's clock
	lastPollDuration time.Duration // duration of the last poll
}

func (inv *invocation) statusCommand() *cli.Command {
	s := &statusCmd{invocation: inv}
	own := setting.List{
		s.selector.newLogDirSetting(),
		setting.NewSwitch("watch", &s.keepWatching, "update until the run ends: the whole view on a terminal, otherwise only changes").ExcludeSources(setting.SourceVariable).WithShortName("w"),
		setting.NewSwitch("json", &s.asJSON, "print JSON; with --watch, one line for each change").ExcludeSources(setting.SourceVariable),
		setting.NewSwitch("verbose", &s.isVerbose, "show all nodes").ExcludeSources(setting.SourceVariable).WithShortName("v"),
	}
	return inv.completeCommand(cli.Command{
		Name: "status", Usage: "show the state of a run, and what it waits for",
		UsageText: "bringupd status [flags]                     (the newest run)\nbringupd status [flags] RUN | LOG-DIRECTORY",
		Description: runArgHelp + " The command only reads the run directory. " +
			"Exits with 0 if the job is running or has ended with 0, 1 if it has failed, 2 if it is starting or gives no sign of life, " +
			"and 64 if there is no such run.",
	}, setting.AssignCategory(outputHeading, own...), s.runStatus)
}

func (s *statusCmd) runStatus(args []string) error {
	return s.withSignals(func(ctx context.Context, _ <-chan struct{}) error {
		return s.showStatus(ctx, args)
	})
}

// showStatus shows the status of the run, once or until it is over.
func (s *statusCmd) showStatus(ctx context.Context, args []string) (err error) {
	finding, cancel := withRequestTimeout(ctx)
	defer cancel()
	if s.runPath, err = s.selector.findRun(finding, args); err != nil {
		return runArgError(err)
	}
	status, err := s.readStatus(ctx)
	if err != nil {
		return runArgError(err)
	}
	show := s.statusWriter()
	for {
		s.exitCode = status.Code
		if err := show(status); err != nil || !s.keepWatching || status.Over() {
			return err
		}
		if !ctxutil.SleepContext(ctx, max(minPollInterval, 10*s.lastPollDuration)) {
			return context.Cause(ctx)
		}
		next, err := s.readStatus(ctx)
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

// minPollInterval is the interval between two polls: as often as people can read, and at most a
// tenth of the time.
const minPollInterval = time.Second

// maxFullReadNodes is the number of nodes from which on only the head's timeline is read.
const maxFullReadNodes = 256

// readStatus reads the run.
func (s *statusCmd) readStatus(ctx context.Context) (status timeline.Status, err error) {
	ctx, cancel := withRequestTimeout(ctx)
	defer cancel()
	began := time.Now()
	run, err := timeline.Read(ctx, s.runPath, timeline.Options{Depth: timeline.DepthQuick})
	if err == nil && run.Size() <= maxFullReadNodes {
		run, err = timeline.Read(ctx, s.runPath, timeline.Options{Depth: timeline.DepthFull})
	}
	if err != nil {
		return status, err
	}
	look := timeline.Observation{Now: time.Now(), Verbose: s.isVerbose}
	if look.LastSign, err = signal.LastChangeTime(ctx, s.runPath); err != nil {
		run.Problems = append(run.Problems, err.Error())
	}
	s.lastPollDuration = time.Since(began)
	look.Unchanged = s.unchangedFor(run, look)
	return timeline.SummarizeRun(run, look), nil
}

// unchangedFor returns the time since the last change.
func (s *statusCmd) unchangedFor(run *timeline.Run, look timeline.Observation) time.Duration {
	signs := []int64{look.LastSign.UnixNano(), run.Control.Heartbeat, int64(len(run.Events))}
	for i := range run.Nodes {
		signs = append(signs, run.Nodes[i].Heartbeat, int64(len(run.Nodes[i].States)))
	}
	if seen := fmt.Sprint(signs); seen != s.lastSeen {
		s.lastSeen, s.changedAt = seen, time.Now()
	}
	return time.Since(s.changedAt)
}

// statusWriter returns a function that shows a status, and remembers what it has shown.
func (s *statusCmd) statusWriter() func(timeline.Status) error {
	out := s.streams.Out
	style := timeline.TextStyle{Colour: showsColour(out)}
	last := make(map[string]bool)
	drawn := 0
	switch width, height := terminalSize(out); {
	case s.asJSON:
		return s.jsonStatusWriter()
	case !s.keepWatching:
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
			_, err := io.WriteString(out, redrawLines(lines, drawn))
			drawn = len(lines)
			return err
		}
	default:
		style.Width = width
		return func(status timeline.Status) error {
			var changed strings.Builder
			for _, line := range status.ChangedLines(style, last) {
				changed.WriteString(status.At.Format(time.TimeOnly) + " " + line + "\n")
			}
			_, err := io.WriteString(out, changed.String())
			return err
		}
	}
}

// redrawLines returns lines that overwrite those drawn before.
func redrawLines(lines []string, drawn int) string {
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

// jsonStatusWriter returns a function that writes JSON: one object, or one line for each change.
func (s *statusCmd) jsonStatusWriter() func(timeline.Status) error {
	var last []byte
	return func(status timeline.Status) error {
		if !s.keepWatching {
			return writeJSON(s.streams.Out, status)
		}
		still, err := json.Marshal(status.WithoutTimes())
		if err != nil || bytes.Equal(still, last) {
			return err
		}
		last = still
		return json.NewEncoder(s.streams.Out).Encode(status)
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
