package report

import (
	"cmp"
	"context"
	"fmt"
	"html/template"
	"net/url"
	"path/filepath"
	"slices"
	"time"

	"github.com/bringupd/bringupd/pkg/inspect/timeline"
	"github.com/bringupd/bringupd/pkg/roles/launcher"
	"github.com/bringupd/bringupd/pkg/signal"
)

// Attempt is a run of the same job step: its launch may have been restarted, and its job requeued.
type Attempt struct {
	Number    int       `json:"number"` // from 1
	Run       string    `json:"run"`
	IsThis    bool      `json:"is_this,omitempty"` // it is the run of the report
	Path      string    `json:"path"`              // of its report or, without one, of its directory
	StartedAt time.Time `json:"started_at"`        // zero if unknown
	Code      *int      `json:"code,omitempty"`    // nil if it has not ended, or its end is unknown
	Reason    string    `json:"reason,omitempty"`
}

// maxAttempts is the number of attempts that are read: the newest ones. reportName is the name of
// the report of a run in its directory.
const maxAttempts, reportName = 20, "report.html"

// ReadAttempts reads the other runs of the same job step in the log directory, and returns all in
// their order. It returns nil if there are no others.
func ReadAttempts(ctx context.Context, run *timeline.Run) (attempts []Attempt) {
	if run.Job == nil {
		return nil
	}
	logDir := filepath.Dir(run.Path)
	reader, err := signal.OpenReader(ctx, logDir)
	if err != nil {
		return nil // the run directory was copied elsewhere, for example
	}
	folder, err := reader.ListDir(ctx, "")
	if err != nil {
		return nil
	}
	names := attemptNames(run.Name, run.Job.LaunchID, folder.Names)
	if len(names) < 2 {
		return nil
	}
	for i, name := range names {
		attempt := Attempt{Number: i + 1, Run: name, IsThis: name == run.Name, Path: filepath.Join(logDir, name)}
		if i >= len(names)-maxAttempts || attempt.IsThis {
			attempt.read(ctx)
			attempts = append(attempts, attempt)
		}
	}
	return attempts
}

// attemptNames returns those of the names that are runs of the same step of a job as run, in their
// order. launchID is the name of the job in the names of its runs.
func attemptNames(run, launchID string, names []string) (attempts []string) {
	own, isOfJob := launcher.OrderInJob(run, launchID)
	if !isOfJob {
		return nil
	}
	orders := make(map[string][]int)
	for _, name := range names {
		order, is := launcher.OrderInJob(name, launchID)
		if is && order[1] == own[1] { // the same step
			orders[name] = order
			attempts = append(attempts, name)
		}
	}
	slices.SortFunc(attempts, func(a, b string) int {
		return cmp.Or(slices.Compare(orders[a], orders[b]), cmp.Compare(a, b))
	})
	return attempts
}

// read reads how the attempt has ended.
func (a *Attempt) read(ctx context.Context) {
	run, err := timeline.Read(ctx, a.Path, timeline.DepthQuick)
	if err != nil {
		a.Reason = "cannot be read"
		return
	}
	a.StartedAt = run.Control.Job.At
	if verdict := run.Verdict(); verdict != nil {
		a.Code, a.Reason = &verdict.Code, verdict.Reason
	}
	if reader, err := signal.OpenReader(ctx, a.Path); err == nil {
		folder, err := reader.ListDir(ctx, "")
		if err == nil && slices.Contains(folder.Names, reportName) {
			a.Path = filepath.Join(a.Path, reportName)
		}
	}
}

// Link returns the address of the report or the directory of the attempt.
func (a Attempt) Link() template.URL {
	address := url.URL{Scheme: "file", Path: a.Path}
	return template.URL(address.String()) //nolint:gosec // it is escaped
}

// Ended describes how the attempt has ended.
func (a Attempt) Ended() string {
	switch {
	case a.Code == nil && a.Reason == "":
		return "has no result"
	case a.Code == nil:
		return a.Reason
	default:
		return fmt.Sprintf("ended with %d: %s", *a.Code, a.Reason)
	}
}

// AttemptText returns "attempt 2 of 3", or an empty string if there are no other attempts.
func (v *View) AttemptText() string {
	at := slices.IndexFunc(v.Attempts, func(a Attempt) bool { return a.IsThis })
	if at < 0 {
		return ""
	}
	return fmt.Sprintf("attempt %d of %d", v.Attempts[at].Number, v.Attempts[len(v.Attempts)-1].Number)
}
