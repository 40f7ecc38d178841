package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/bringupd/bringupd/pkg/config"
	"github.com/bringupd/bringupd/pkg/inspect/report"
)

type reportCmd struct {
	*invocation
	outputSetting *config.Setting
	selector      runSelector
	outputPath    string // output file; "-": standard output
	formatName    string
}

// reportReadTimeout is the timeout for reading a run from a file system that may be unresponsive.
const reportReadTimeout = 2 * time.Minute

func (inv *invocation) reportCommand() *cli.Command {
	r := &reportCmd{invocation: inv, outputPath: "report.html", formatName: string(report.FormatHTML)}
	r.outputSetting = config.NewText("output", "FILE", &r.outputPath,
		"output file (-o for short); - is standard output, the default of json").WithShortName("o")
	own := r.selector.settings(outputHeading,
		r.outputSetting,
		r.formatSetting(),
	)
	return inv.completeCommand(cli.Command{
		Name: "report", Usage: "write a report of a run, with the cause of its failure",
		UsageText: "bringupd report [RUN] [flags]\nbringupd report LOG-DIRECTORY -o bringup.html   (newest " +
			"run)\nbringupd report --format=json [RUN]",
		Description: runArgHelp + " The command only needs the run directory, during the job or later. " +
			"The HTML page is a single file without external resources. Exits with 0 if the report was " +
			"written, and 64 if there is no such run.",
	}, append(own, removedSettings("report")...), r.runReport)
}

func (r *reportCmd) formatSetting() *config.Setting {
	formats := []string{string(report.FormatHTML), string(report.FormatJSON)}
	s := config.NewChoice("format", formats, &r.formatName, "html, or json for programs")
	return s.WithCheck(func(value string) error {
		for _, removed := range removedFrom(removedFormat) {
			if removed.name == value {
				return errors.New("this format was removed: " + removed.instead)
			}
		}
		return nil
	})
}

func (r *reportCmd) runReport(args []string) error {
	if len(args) > 1 {
		return usageErrorf("cannot report %d runs: give one run directory", len(args))
	}
	ctx, cancel := context.WithTimeoutCause(context.Background(), reportReadTimeout, errRequestTimeout)
	defer cancel()
	path, err := r.selector.findRun(ctx, args)
	if err != nil {
		return runArgError(err)
	}
	view, err := report.ReadView(ctx, path)
	if err != nil {
		return runArgError(err)
	}
	format, fallbackDir := report.Format(r.formatName), ""
	switch given := r.outputSetting.IsSet(); {
	case given && r.outputPath == "-", !given && format != report.FormatHTML:
		buffered := bufio.NewWriter(r.streams.Out)
		return errors.Join(view.Write(buffered, format), buffered.Flush())
	case !given:
		fallbackDir = path // as in the working directory of a pod
	}
	at, err := view.WriteFile(r.outputPath, fallbackDir, format)
	if err != nil {
		return usageErrorf("%v; give another file by -o", err)
	}
	_, err = fmt.Fprintf(r.streams.Err,
		"bringupd: %s: %s\n  the report is in %s\n", view.Banner.Word, view.Banner.Title, at)
	return err
}
