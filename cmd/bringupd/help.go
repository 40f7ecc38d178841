package main

import (
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/bringupd/bringupd/pkg/config/setting"
	"github.com/bringupd/bringupd/pkg/health"
)

const (
	helpWidth       = 80 // columns
	flagColumnWidth = 28 // columns for the flag
)

// helpExamples returns the end of --help, with a framework that has its own services.
func helpExamples() string { return strings.ReplaceAll(exampleLines, "FRAMEWORK", frameworkNames()[1]) }

const exampleLines = `Examples:
  On every node of a Slurm allocation:
    srun --kill-on-bad-exit=1 --wait=0 bringupd --framework=FRAMEWORK -- ./train.py
  The same on this machine alone:
    bringupd local --nodes=4 --framework=FRAMEWORK -- ./train.py
  A sandbox on each node, which the driver waits for:
    srun bringupd --sandbox-cmd=./serve --sandbox-ready=tcp:6000 -- ./driver.sh
  Something on all nodes of the newest run there, without another srun:
    bringupd exec --all bringupd-logs -- nvidia-smi
  Whether this node would do:
    bringupd check --gpu-check=require --gpus-per-node=8
  Whether a whole allocation would do, before the big job:
    srun --ntasks-per-node=1 bringupd doctor --framework=FRAMEWORK
  How a run is, from wherever its log directory is seen:
    bringupd status -w
  What happened, as a page that explains a failed job:
    bringupd report bringupd-logs -o report.html
  What would be done, and where each value comes from:
    srun bringupd --config=job.yaml --dry-run
`

func (inv *invocation) helpCommand() *cli.Command {
	return &cli.Command{
		Name: "help", Usage: "print this, or what a subcommand takes",
		UsageText: "bringupd help [SUBCOMMAND]",
		Action: func(c *cli.Context) error {
			topic := "run"
			if c.Args().Present() {
				topic = c.Args().First()
			}
			command := c.App.Command(topic)
			if command == nil || c.NArg() > 1 {
				return usageErrorf("cannot help with %q: there is no such subcommand%s",
					strings.Join(c.Args().Slice(), " "), setting.SuggestNearest("", topic, commandNames(c.App)))
			}
			_, err := io.WriteString(inv.streams.Out, helpText(c.App, command))
			return err
		},
	}
}

func commandNames(app *cli.App) (names []string) {
	for _, command := range app.VisibleCommands() {
		names = append(names, command.Name)
	}
	return names
}

// verbatimTemplate returns a template that yields the text unchanged.
func verbatimTemplate(text string) string { return "{{" + strconv.Quote(text) + "}}" }

// helpText returns the text of --help for a subcommand. The text of run describes the whole
// program, because run is the default subcommand.
func helpText(app *cli.App, command *cli.Command) string {
	var b strings.Builder
	main := command.Name == "run"
	if main {
		b.WriteString("bringupd: bring up a cluster inside a batch allocation, and run a driver on it\n")
	} else {
		b.WriteString(wrapText(fmt.Sprintf("bringupd %s: %s", command.Name, command.Usage), ""))
	}
	fmt.Fprintf(&b, "\nUsage:\n  %s\n", strings.ReplaceAll(command.UsageText, "\n", "\n  "))
	if command.Description != "" {
		b.WriteString("\n" + wrapText(command.Description, ""))
	}
	if main {
		b.WriteString("\nSubcommands:\n")
		for _, c := range app.VisibleCommands() {
			writeEntry(&b, c.Name, c.Usage)
		}
	}
	writeFlagHelp(&b, command.Flags)
	if main {
		b.WriteString("\n" + exitCodeTable() + "\n" + helpExamples())
	}
	return b.String()
}

// writeFlagHelp lists flags under their headings.
func writeFlagHelp(b *strings.Builder, flags []cli.Flag) {
	heading := ""
	for _, flag := range flags {
		s, ours := flag.(*setting.Setting)
		if !ours || s.Hidden {
			continue
		}
		if heading == "" && slices.ContainsFunc(flags, hasEnvVariable) {
			fmt.Fprintf(b, "\n%s", wrapText(describeOtherSources(flags), ""))
		}
		if s.Category != heading {
			heading = s.Category
			fmt.Fprintf(b, "\n%s:\n", heading)
		}
		writeEntry(b, s.HelpSyntax(), s.Usage+s.DefaultText())
	}
}

// writeEntry writes a name, and its meaning beside it.
func writeEntry(b *strings.Builder, name, meaning string) {
	indent := strings.Repeat(" ", flagColumnWidth)
	lines := wrapText(meaning, indent)
	if len(name)+4 > flagColumnWidth {
		fmt.Fprintf(b, "  %s\n%s", name, lines)
		return
	}
	fmt.Fprintf(b, "  %-*s%s", flagColumnWidth-2, name, strings.TrimPrefix(lines, indent))
}

// wrapText breaks a text into indented lines.
func wrapText(text, indent string) string {
	var b strings.Builder
	column := helpWidth
	for word := range strings.SplitSeq(text, " ") {
		length := len([]rune(word))
		switch {
		case b.Len() == 0:
			b.WriteString(indent)
			column = len(indent)
		case column+1+length > helpWidth:
			b.WriteString("\n" + indent)
			column = len(indent)
		default:
			b.WriteString(" ")
			column++
		}
		b.WriteString(word)
		column += length
	}
	return strings.ReplaceAll(b.String(), setting.NonBreakingSpace, " ") + "\n"
}

// exitCodeTable returns the table of exit codes.
func exitCodeTable() string {
	var b strings.Builder
	b.WriteString(wrapText("Exit codes: the driver's own where it ran and ended, or that of the first rank to fail (128+n where signal n ended it), otherwise", ""))
	for _, o := range health.OutcomeTable() {
		meaning := wrapText(fmt.Sprintf("%s (requeue: %s)", o.Meaning, o.Requeue), "       ")
		fmt.Fprintf(&b, "  %3d  %s", o.Code, strings.TrimLeft(meaning, " "))
	}
	return b.String()
}

func hasEnvVariable(flag cli.Flag) bool {
	s, ours := flag.(*setting.Setting)
	return ours && !s.Hidden && s.HasEnvVariable()
}

// describeOtherSources describes how flags can be given other than on the command line.
func describeOtherSources(flags []cli.Flag) string {
	has := func(name string) bool {
		return slices.ContainsFunc(flags, func(flag cli.Flag) bool { return flag.Names()[0] == name })
	}
	if has("config") {
		return "A flag can also be given by a variable, as --log-dir by BRINGUPD_LOG_DIR, " +
			"and by a line of the --config file. A flag outranks a variable, and a variable the file."
	}
	if has("log-dir") {
		return "--log-dir can also be given by BRINGUPD_LOG_DIR, which the flag outranks."
	}
	return "A flag can also be given by a variable, as --peer-timeout by BRINGUPD_PEER_TIMEOUT, which a flag outranks."
}
