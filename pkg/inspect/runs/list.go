package runs

import (
	"cmp"
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/bringupd/bringupd/internal/textutil"
	"github.com/bringupd/bringupd/pkg/inspect/timeline"
	"github.com/bringupd/bringupd/pkg/progress"
	"github.com/bringupd/bringupd/pkg/roles/launcher"
	"github.com/bringupd/bringupd/pkg/signal"
)

// ListVersion is the version of a List as JSON. It increases if a field is removed or changes its
// meaning.
const ListVersion = 1

// maxConcurrentReads is the number of runs that are read concurrently: a shared file system answers
// many requests as fast as one.
const maxConcurrentReads = 8

// List has the runs of a log directory, as --json prints them: the one that began last is the last.
type List struct {
	Version int       `json:"v"`
	LogDir  string    `json:"log_dir"`
	Runs    []Summary `json:"runs"`
}

// Summary describes one run. Its texts are short single lines without control characters.
type Summary struct {
	Run   string            `json:"run"`
	State timeline.RunState `json:"state"`
	// Silent reports that a run that is not over gives no sign of life.
	Silent    bool          `json:"silent,omitempty"`
	Nodes     int           `json:"nodes"`
	StartedAt time.Time     `json:"started_at"` // by the head's clock; zero if unknown
	EndedAt   *time.Time    `json:"ended_at,omitempty"`
	Duration  time.Duration `json:"duration_ns"` // so far, or in all
	outcome
	// Restarts is how often the job had been requeued or restarted before this run.
	Restarts int `json:"restarts,omitempty"`
	// Goodput is that of the job up to this run; nil if its program reports no steps.
	Goodput *float64 `json:"goodput,omitempty"`
	Driver  string   `json:"driver,omitempty"`
	Roles   string   `json:"roles,omitempty"` // their names in a sentence
	// Requeued reports that the run has asked for a requeue of its job, and NextAttempt is the
	// number of the attempt that follows within its launch, or 0 if none does.
	Requeued    bool `json:"requeued,omitempty"`
	NextAttempt int  `json:"next_attempt,omitempty"`
	// Problem says why only the result of the run is known; empty if its records can be read.
	Problem string `json:"problem,omitempty"`
}

// outcome is how a run has ended, or is about to end.
type outcome struct {
	Code     *int   `json:"code,omitempty"`
	Word     string `json:"word,omitempty"`      // the code as a word
	Error    string `json:"error,omitempty"`     // the line of the log that says why it has failed
	BadNodes string `json:"bad_nodes,omitempty"` // nodes to avoid
}

// IsDirectory reports whether arg, which names a log directory or a job, is a directory.
func IsDirectory(ctx context.Context, arg string) bool {
	path, err := filepath.Abs(arg)
	return err != nil || strings.Contains(arg, "/") || isListed(ctx, filepath.Dir(path), filepath.Base(path))
}

// ListRuns returns the runs of a log directory, or those of one of its jobs if job, as find accepts
// it, is not empty. If there are none of the job, or no such directory, the error is a *NoRunError.
func ListRuns(ctx context.Context, logDir, job string) (list List, err error) {
	list = List{Version: ListVersion, LogDir: logDir, Runs: []Summary{}}
	folder, err := listLogDir(ctx, logDir)
	if err != nil {
		return list, noRun(err, &NoRunError{Name: job, LogDir: logDir})
	}
	names, err := runsByAge(ctx, logDir, folder)
	if err != nil {
		return list, err
	}
	if job != "" {
		newest := append([]string{}, names[:min(len(names), maxNamedRuns)]...)
		names = slices.DeleteFunc(names, func(run string) bool { return !isOfJob(ctx, logDir, run, job) })
		if len(names) == 0 {
			return list, &NoRunError{Name: job, LogDir: logDir, Newest: newest}
		}
	}
	all := make([]Summary, len(names))
	reads, reading := errgroup.WithContext(ctx)
	reads.SetLimit(maxConcurrentReads)
	for i, name := range names {
		reads.Go(func() (err error) {
			all[i], err = summarize(reading, filepath.Join(logDir, name))
			return err
		})
	}
	if err := reads.Wait(); err != nil {
		return list, err
	}
	// A run that has disappeared meanwhile has no name.
	list.Runs = append(list.Runs, slices.DeleteFunc(all, func(s Summary) bool { return s.Run == "" })...)
	slices.SortStableFunc(list.Runs, func(a, b Summary) int {
		return cmp.Or(a.StartedAt.Compare(b.StartedAt), cmp.Compare(a.Run, b.Run))
	})
	return list, nil
}

// summarize reads a run. A run that cannot be read has a zero Summary.
func summarize(ctx context.Context, path string) (s Summary, err error) {
	run, err := timeline.Read(ctx, path, timeline.DepthQuick)
	if err != nil {
		return s, context.Cause(ctx)
	}
	seen := timeline.Observation{Now: time.Now()}
	if !run.HasEnded() {
		seen.LastSign, _ = signal.LastChangeTime(ctx, path) // zero if unknown
	}
	status := timeline.SummarizeRun(run, seen)
	s = Summary{
		Run: status.Run, State: status.State, Silent: status.Silent, Nodes: status.Nodes, StartedAt: run.Control.Job.At,
		EndedAt: status.EndedAt, Duration: status.Elapsed, Roles: status.RoleNames(),
		Driver: programName(status.Driver, status.Command), NextAttempt: status.NextAttempt,
	}
	s.Requeued = status.Requeued
	if run.Job != nil {
		s.Restarts = launcher.CountRestarts(status.Run, run.Job.LaunchID)
	}
	if r := run.Result; r != nil && r.History != nil {
		for _, at := range r.History.Times { // the ranks may have been started again in this run
			if at.After(run.Control.Job.At) {
				s.Restarts++
			}
		}
	}
	if status.OtherVersion {
		s.Problem = strings.Join(status.Problems, "; ")
	}
	if p := status.Progress; p != nil {
		s.Goodput = &p.Goodput
	}
	if end := status.End; end != nil {
		s.outcome = outcome{&end.Code, end.Word, end.Error, end.BadOn}
	}
	return s, nil
}

// interpreters are programs, without their versions, that run the one that a later word names.
var interpreters = []string{
	"python", "pypy", "perl", "julia", "Rscript", "sh", "bash", "dash", "zsh", "env", "uv", "run",
}

// programName returns the base name of the first word of a driver's command line that is no
// interpreter and no option of one, or driver, the first word, if there is none. The command may be
// cut.
func programName(driver, command string) string {
	for word := range strings.FieldsSeq(command) {
		isProgram := !strings.HasPrefix(word, "-") && !strings.Contains(word, "=")
		name := filepath.Base(word)
		switch {
		case strings.ContainsAny(word, `'"$`): // shell code, or a name with blanks
			return driver
		case isProgram && !slices.Contains(interpreters, strings.TrimRight(name, "0123456789.")):
			return name
		}
	}
	return driver
}

// Text formats the list as a table for people.
func (l List) Text(now time.Time) string {
	var b strings.Builder
	if len(l.Runs) > 0 {
		b.WriteString(textutil.FormatTable(l.rows(now)))
	}
	// One run stands for all that have the same problem.
	shown := make(map[string]bool)
	for _, s := range l.Runs {
		if s.Problem != "" && !shown[s.Problem] {
			fmt.Fprintf(&b, "run %s: %s\n", s.Run, s.Problem)
		}
		shown[s.Problem] = true
	}
	return b.String()
}

// withoutTimes returns the list without what changes merely because time passes.
func (l List) withoutTimes() List {
	l.Runs = slices.Clone(l.Runs)
	for i := range l.Runs {
		if run := &l.Runs[i]; run.EndedAt == nil {
			run.Duration = 0
		}
	}
	return l
}

// maxListedError is the maximum length in characters of an error in the table.
const maxListedError = 60

func (l List) rows(now time.Time) [][]string {
	rows := [][]string{{
		"RUN", "STATE", "NODES", "AGE", "DURATION", "EXIT", "VERDICT", "RESTARTS", "GOODPUT", "COMMAND", "BAD-NODES",
		"ERROR",
	}}
	for _, s := range l.Runs {
		age, code, restarts, goodput, state := "-", "-", "-", "-", string(s.State)
		switch {
		case s.Silent:
			state = "silent" // its daemons may be gone
		case s.NextAttempt > 0:
			state = "restarted"
		case s.Requeued:
			state = "requeued"
		}
		if !s.StartedAt.IsZero() {
			age = formatElapsed(now.Sub(s.StartedAt))
		}
		if s.Code != nil {
			code = fmt.Sprint(*s.Code)
		}
		if s.Restarts > 0 {
			restarts = fmt.Sprint(s.Restarts)
		}
		if s.Goodput != nil {
			goodput = progress.FormatGoodput(*s.Goodput)
		}
		rows = append(rows, []string{
			s.Run, state, fmt.Sprint(s.Nodes), age, formatElapsed(s.Duration), code, cmp.Or(s.Word, "-"),
			restarts, goodput, cmp.Or(s.Driver, s.Roles, "-"), cmp.Or(s.BadNodes, "-"),
			cmp.Or(textutil.TruncateText(s.Error, maxListedError), "-"),
		})
	}
	return rows
}

// formatElapsed formats a duration as squeue and sacct do: [D-]HH:MM:SS.
func formatElapsed(d time.Duration) string {
	d = max(0, d).Truncate(time.Second)
	text := fmt.Sprintf("%02d:%02d:%02d", d/time.Hour%24, d/time.Minute%60, d/time.Second%60)
	if days := d / (24 * time.Hour); days > 0 {
		text = fmt.Sprintf("%d-%s", days, text)
	}
	return text
}
