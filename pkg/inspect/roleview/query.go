package roleview

import (
	"context"
	"encoding/json"
	"io"
	"path/filepath"
	"strings"

	"github.com/bringupd/bringupd/pkg/roles"
	"github.com/bringupd/bringupd/pkg/signal"
	"github.com/bringupd/bringupd/pkg/signal/record"
)

// Query is a question about the roles of a run.
type Query struct {
	Path   string // of the run directory
	Role   string // name of the only role that is shown; empty: all
	Format Format // of endpoints; empty: none
	AsJSON bool
	Watch  bool // print the endpoints that are ready, whenever they change, until the run ends
	// EndpointsFile is the node's file of the endpoints that are ready, for a process of the run;
	// empty if there is none.
	EndpointsFile string
	Out           io.Writer
}

// source reads a run directory.
type source struct {
	reader *signal.Reader
	job    record.Job
}

// openRun opens the run directory.
func openRun(ctx context.Context, path string) (s source, err error) {
	if s.reader, err = signal.OpenReader(ctx, path); err != nil {
		return s, err
	}
	control, err := s.reader.ListDir(ctx, signal.ControlDir)
	if err == nil {
		_, err = control.ReadRecord(ctx, signal.NameJob, "", &s.job)
	}
	return s, err
}

// maxExits is the number of records of exits that are read at most.
const maxExits = 1000

// list lists the directories of the run.
func (s source) list(ctx context.Context) (f Files, err error) {
	f = Files{Size: s.job.Size, Nonce: s.job.Nonce, MaxExits: maxExits}
	if f.Control, err = s.reader.ListDir(ctx, signal.ControlDir); err != nil {
		return f, err
	}
	f.Nodes, err = s.reader.ListDir(ctx, signal.NodesDir)
	return f, err
}

// Print answers the query.
func (q Query) Print(ctx context.Context) error {
	if q.Watch {
		run, err := openRun(ctx, q.Path)
		if err != nil {
			return err
		}
		return q.watch(ctx, run)
	}
	view, err := ReadRun(ctx, q.Path)
	if err != nil {
		return err
	}
	if q.Format != "" {
		return q.printEndpoints(view)
	}
	report, err := view.Report(filepath.Base(q.Path), q.Role)
	if err != nil {
		return err
	}
	if !q.AsJSON {
		_, err := io.WriteString(q.Out, report.FormatText())
		return err
	}
	encoder := json.NewEncoder(q.Out)
	encoder.SetIndent("", "  ")
	return encoder.Encode(report)
}

// printEndpoints prints the planned endpoints, one a line.
func (q Query) printEndpoints(view *View) error {
	endpoints, err := view.PlannedEndpoints(q.Role)
	if err != nil {
		return err
	}
	var lines strings.Builder
	for _, endpoint := range endpoints {
		lines.WriteString(q.Format.Of(endpoint) + "\n")
	}
	_, err = io.WriteString(q.Out, lines.String())
	return err
}

// joinEndpoints returns a line with endpoints, separated by spaces.
func (q Query) joinEndpoints(endpoints []roles.Endpoint) string {
	format := q.Format
	if format == "" {
		format = AddressFormat
	}
	texts := make([]string, len(endpoints))
	for i, endpoint := range endpoints {
		texts[i] = format.Of(endpoint)
	}
	return strings.Join(texts, " ")
}
