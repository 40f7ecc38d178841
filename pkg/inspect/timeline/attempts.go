package timeline

import (
	"cmp"
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"time"

	"github.com/bringupd/bringupd/pkg/roles/launcher"
	"github.com/bringupd/bringupd/pkg/signal"
)

// Attempt is a run of the same job step: its launch may have been restarted, and its job requeued.
type Attempt struct {
	Number    int       `json:"number"` // from 1
	Run       string    `json:"run"`
	IsThis    bool      `json:"is_this,omitempty"` // it is the run that was read
	Path      string    `json:"path"`              // of its directory or, in a report, of its own report
	StartedAt time.Time `json:"started_at"`        // zero if unknown
	Code      *int      `json:"code,omitempty"`    // nil if it has not ended, or its end is unknown
	Reason    string    `json:"reason,omitempty"`
}

// ReadAttempts reads the other runs of the same job step in the log directory, and returns them with
// this one in their order: those before it, and the newest ones up to a number. It returns nil if there
// are no others.
func ReadAttempts(ctx context.Context, run *Run, newest int) (attempts []Attempt) {
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
	own := slices.Index(names, run.Name)
	for i, name := range names {
		if i < len(names)-newest && i != own && i != own-1 {
			continue
		}
		attempt := Attempt{Number: i + 1, Run: name, IsThis: i == own, Path: filepath.Join(logDir, name)}
		attempt.read(ctx)
		attempts = append(attempts, attempt)
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
	run, err := Read(ctx, a.Path, DepthQuick)
	if err != nil {
		a.Reason = "cannot be read"
		return
	}
	a.StartedAt = run.Control.Job.At
	if verdict := run.Verdict(); verdict != nil {
		a.Code, a.Reason = &verdict.Code, verdict.Reason
	}
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

// AttemptText returns "attempt 2 of 3" for the run that was read, or "attempt 3" if it is the newest one. It
// is empty if there are no other attempts.
func AttemptText(attempts []Attempt) string {
	own := slices.IndexFunc(attempts, func(a Attempt) bool { return a.IsThis })
	if own < 0 {
		return ""
	}
	text := fmt.Sprintf("attempt %d", attempts[own].Number)
	if last := attempts[len(attempts)-1].Number; last > attempts[own].Number {
		text += fmt.Sprintf(" of %d", last)
	}
	return text
}
