package report

import (
	"context"
	"html/template"
	"net/url"
	"path/filepath"
	"slices"

	"github.com/bringupd/bringupd/pkg/inspect/timeline"
	"github.com/bringupd/bringupd/pkg/signal"
)

// maxAttempts is the number of attempts that are read: the newest ones. reportName is the name of
// the report of a run in its directory.
const maxAttempts, reportName = 20, "report.html"

// readAttempts reads the attempts of the job of a run, with the paths of their reports if they have any.
func readAttempts(ctx context.Context, run *timeline.Run) []timeline.Attempt {
	attempts := timeline.ReadAttempts(ctx, run, maxAttempts)
	for i := range attempts {
		reader, err := signal.OpenReader(ctx, attempts[i].Path)
		if err != nil {
			continue
		}
		if folder, err := reader.ListDir(ctx, ""); err == nil && slices.Contains(folder.Names, reportName) {
			attempts[i].Path = filepath.Join(attempts[i].Path, reportName)
		}
	}
	return attempts
}

// fileLink returns the address of a file or a directory of this machine.
func fileLink(path string) template.URL {
	address := url.URL{Scheme: "file", Path: path}
	return template.URL(address.String()) //nolint:gosec // it is escaped
}

// AttemptText returns "attempt 2 of 3", or an empty string if there are no other attempts.
func (v *View) AttemptText() string { return timeline.AttemptText(v.Attempts) }
