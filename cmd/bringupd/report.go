package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/bringupd/bringupd/pkg/files"
	"github.com/bringupd/bringupd/pkg/setting"
	"github.com/bringupd/bringupd/pkg/signal"
	"github.com/bringupd/bringupd/pkg/timeline"
	"github.com/bringupd/bringupd/pkg/timeline/report"
)

// reporting is one execution of bringupd report.
type reporting struct {
	*invocation
	output *setting.Setting
	which  whichRun
	to     string // output file; "-": standard output
	format string
}

// readTimeout is the timeout for reading a run from a file system that may be unresponsive.
const readTimeout = 2 * time.Minute

var errReadTimeout = errors.New("the time for it is over")

func (inv *invocation) reportCommand() *cli.Command {
	r := &reporting{invocation: inv, to: "report.html", format: string(report.HTML)}
	r.output = setting.Text("output", "FILE", &r.to, "where to write it, -o for short; - is standard output, where all other formats than html go anyway").Short("o")
	own := setting.List{
		r.output.Not(setting.ByVariable),
		setting.Choice("format", report.Formats(), &r.format, "html (a page), json, text, md or chrome-trace (for Perfetto)").Not(setting.ByVariable),
		setting.Removed("compare", "DIR",
			"run bringupd report --format=json for each of the two runs, and compare these by jq or diff").Not(setting.ByVariable),
		r.which.setting(),
	}
	return inv.command(cli.Command{
		Name: "report", Usage: "show what happened in a run, as one page: who did what when, and the first cause of a failure",
		UsageText: "bringupd report [RUN] [flags]\nbringupd report LOG-DIRECTORY -o bringup.html   (its newest run)\nbringupd report --format=text [RUN]",
		Description: aRun + " Reads the run directory alone, during the job or a year later, on any machine that sees it. " +
			"The page is one file that needs no network. Exits with 0 if there is a report, however the job has ended, and with 64 if there is no run.",
	}, setting.Under(resultFlags, own...), r.do)
}

// do reads the run and writes the report.
func (r *reporting) do(args []string) error {
	if len(args) > 1 {
		return usage("cannot report %d runs: give one run directory", len(args))
	}
	format := report.Format(r.format)
	if format != report.HTML && !r.output.IsSet() {
		r.to = "-"
	}
	ctx, cancel := context.WithTimeoutCause(context.Background(), readTimeout, errReadTimeout)
	defer cancel()
	view, err := r.look(ctx, args)
	if err != nil {
		return err
	}
	return r.write(view, format)
}

// look finds a run and reads it.
func (r *reporting) look(ctx context.Context, args []string) (*report.View, error) {
	path, err := r.which.find(ctx, args)
	if err != nil {
		return nil, wrongRun(err)
	}
	run, err := timeline.Read(ctx, path, timeline.Options{Depth: timeline.Full})
	if err != nil {
		return nil, wrongRun(err)
	}
	touched, err := signal.LastChange(ctx, path)
	if err != nil {
		touched = time.Time{} // unknown for a run that was read in part
	}
	return report.Look(run, report.ReadLogs(ctx, run), touched), nil
}

// write writes the report and prints its path. Other users cannot read it, because it quotes logs
// that they cannot read.
func (r *reporting) write(view *report.View, format report.Format) error {
	if r.to == "-" {
		buffered := bufio.NewWriter(r.files.Out)
		return errors.Join(view.Write(buffered, format), buffered.Flush())
	}
	var b strings.Builder
	if err := view.Write(&b, format); err != nil {
		return fmt.Errorf("cannot write the report: %v", err)
	}
	if err := files.Replace(r.to, []byte(b.String()), 0o600); err != nil {
		return usage("cannot write the report: %v; give another file by -o", err)
	}
	at, err := filepath.Abs(r.to)
	if err != nil {
		at = r.to
	}
	_, err = fmt.Fprintf(r.files.Err, "bringupd: %s: %s\n  the report is in %s\n", view.Banner.Word, view.Banner.Title, at)
	return err
}
