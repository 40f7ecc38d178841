package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/bringupd/bringupd/pkg/signal"
	"github.com/bringupd/bringupd/pkg/timeline"
	"github.com/bringupd/bringupd/pkg/timeline/report"
)

// reporting is one call of bringupd report.
type reporting struct {
	*invocation
	all     settings
	which   whichRun
	output  string
	format  string
	compare string
}

// readTimeout bounds the reading of a run on a share that may hang.
const readTimeout = 2 * time.Minute

var errReadTimeout = errors.New("the time for it is over")

func (inv *invocation) reportCommand() *cli.Command {
	r := &reporting{invocation: inv, output: "report.html", format: string(report.HTML)}
	r.all = r.settings()
	return &cli.Command{
		Name: "report", Usage: "show what happened in a run, as one page: who did what when, and the first cause of a failure",
		UsageText: "bringupd report [RUN] [flags]\nbringupd report LOG-DIRECTORY -o bringup.html   (its newest run)\nbringupd report --format=text [RUN]",
		Description: aRun + " Reads the run directory alone, during the job or a year later, on any machine that sees it. " +
			"The page is one file that needs no network. Exits with 0 if there is a report, however the job has ended, and with 64 if there is no run.",
		Flags: r.all.flags(func(*setting) bool { return true }),
		Action: func(c *cli.Context) error {
			switch {
			case inv.dashed:
				return usage("cannot take a driver: bringupd report runs none")
			case c.NArg() > 1:
				return usage("cannot report %d runs: give one run directory; --compare=DIR sets another one beside it", c.NArg())
			}
			return r.run(c.Args().Slice())
		},
	}
}

func (r *reporting) settings() settings {
	all := under(resultFlags, settings{
		text("output", "FILE", &r.output, "where to write it, -o for short; - is standard output, where all other formats than html go anyway"),
		choice("format", report.Formats(), &r.format, "html (a page), json, text, md or chrome-trace (for Perfetto)"),
		text("compare", "DIR", &r.compare, "an earlier run to compare with: what got slower, by how much, on which nodes"),
		r.which.setting(),
	})
	short := text("o", "FILE", &r.output, "")
	short.hidden, short.show = true, func() any { return nil }
	all = append(all, short)
	for _, s := range all {
		s.noFile = true
		if s.name != "log-dir" {
			s.noVariable = true
		}
	}
	return all
}

// run reads, looks and writes.
func (r *reporting) run(args []string) error {
	if _, err := r.all.gather(os.LookupEnv); err != nil {
		return err
	}
	format := report.Format(r.format)
	if format != report.HTML && !r.all.find("output").IsSet() && !r.all.find("o").IsSet() {
		r.output = "-"
	}
	ctx, cancel := context.WithTimeoutCause(context.Background(), readTimeout, errReadTimeout)
	defer cancel()
	view, err := r.look(ctx, args)
	if err != nil {
		return err
	}
	if r.compare != "" {
		other, err := r.look(ctx, []string{r.compare})
		if err != nil {
			return err
		}
		view.Compare(other)
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
		touched = time.Time{} // of what is there in part, no more is known
	}
	return report.Look(run, report.ReadLogs(ctx, run), touched), nil
}

// write writes the report, and says where it is.
func (r *reporting) write(view *report.View, format report.Format) error {
	if r.output == "-" {
		buffered := bufio.NewWriter(r.files.Out)
		return errors.Join(view.Write(buffered, format), buffered.Flush())
	}
	var b strings.Builder
	if err := view.Write(&b, format); err != nil {
		return fmt.Errorf("cannot write the report: %v", err)
	}
	if err := os.WriteFile(r.output, []byte(b.String()), 0o644); err != nil {
		return usage("cannot write the report: %v; give another file by -o", err)
	}
	at, err := filepath.Abs(r.output)
	if err != nil {
		at = r.output
	}
	_, err = fmt.Fprintf(r.files.Err, "bringupd: %s: %s\n  the report is in %s\n", view.Banner.Word, view.Banner.Title, at)
	return err
}
