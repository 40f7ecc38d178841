package main

import (
	"embed"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/urfave/cli/v2"

	"github.com/bringupd/bringupd/pkg/config"
	"github.com/bringupd/bringupd/pkg/health"
)

const (
	helpWidth       = 80 // columns
	flagColumnWidth = 28 // columns for the flag
)

// textFiles are the completion scripts, and the overview and the topics of "bringupd help".
//
//go:embed completion topics overview.txt
var textFiles embed.FS

// codesTopic is the topic that is generated from the table of exit codes.
const codesTopic = "codes"

var helpTopics = []string{codesTopic, "probes", "env", "ray"}

func (inv *invocation) helpCommand() *cli.Command {
	return &cli.Command{
		Name: "help", Usage: "print help for a subcommand or a topic",
		UsageText: "bringupd help [SUBCOMMAND | " + strings.Join(helpTopics, " | ") + "]",
		BashComplete: func(c *cli.Context) {
			completeWords(append(commandNames(c.App), helpTopics...)...)(c)
		},
		Action: func(c *cli.Context) error {
			name := c.Args().First()
			command := c.App.Command(name)
			topic, err := textFiles.ReadFile("topics/" + name)
			text := string(topic)
			switch {
			case c.NArg() == 0:
				text = overviewText(c.App)
			case c.NArg() > 1 || err != nil && command == nil && name != codesTopic:
				return usageErrorf(
					"cannot help with %q: there is no such subcommand or topic%s",
					strings.Join(c.Args().Slice(), " "),
					config.SuggestNearest("", name, append(commandNames(c.App), helpTopics...)))
			case name == codesTopic:
				text = exitCodeTable()
			case command != nil:
				text = helpText(command)
			}
			_, err = io.WriteString(inv.streams.Out, text)
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

// overviewText returns the output of "bringupd help". The last lines of the text explain help.
func overviewText(app *cli.App) string {
	text, _ := textFiles.ReadFile("overview.txt") // it is embedded
	var b strings.Builder
	group := ""
	for _, command := range app.VisibleCommands() {
		if command.Category != group {
			group = command.Category
			fmt.Fprintf(&b, "\n%s:\n", group)
		}
		if command.Name != "help" {
			fmt.Fprintf(&b, "  %-11s %s\n", command.Name, command.Usage)
		}
	}
	return strings.Replace(string(text), "COMMANDS", b.String(), 1)
}

// helpText returns the help for a subcommand.
func helpText(command *cli.Command) string {
	var b strings.Builder
	b.WriteString(wrapText(fmt.Sprintf("bringupd %s: %s", command.Name, command.Usage), ""))
	fmt.Fprintf(&b, "\nUsage:\n  %s\n", strings.ReplaceAll(command.UsageText, "\n", "\n  "))
	if command.Description != "" {
		b.WriteString("\n" + wrapText(command.Description, ""))
	}
	if flags := visibleSettings(command); len(flags) > 0 {
		b.WriteString("\n" + wrapText(describeSources(flags), ""))
		heading, hasFile := "", flags.FindSetting("config") != nil
		for _, s := range flags {
			if s.Category != heading {
				heading = s.Category
				fmt.Fprintf(&b, "\n%s:\n", heading)
			}
			text := s.HelpText()
			if hasFile && s.HasEnvVariable() {
				text = s.UsageText() // the variable follows from the name
			} else if hasFile {
				text += " (no variable)"
			}
			writeEntry(&b, s.HelpSyntax(), text)
		}
	}
	return b.String()
}

// visibleSettings returns the flags of a subcommand without the hidden ones.
func visibleSettings(command *cli.Command) (all config.List) {
	for _, flag := range command.Flags {
		if s, ours := flag.(*config.Setting); ours && !s.Hidden {
			all = append(all, s)
		}
	}
	return all
}

// describeSources describes how flags can be set, and which source has precedence.
func describeSources(flags config.List) string {
	switch {
	case flags.FindSetting("config") != nil:
		return "A flag has precedence over its environment variable (BRINGUPD_LOG_DIR for --log-dir), " +
			"which has precedence over a line of the --config file."
	case slices.ContainsFunc(flags, (*config.Setting).HasEnvVariable):
		return "A flag has precedence over its environment variable (in brackets)."
	}
	return "These flags can only be given on the command line."
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
	line := indent
	for word := range strings.FieldsSeq(text) {
		if line != indent && utf8.RuneCountInString(line+" "+word) > helpWidth {
			b.WriteString(line + "\n")
			line = indent
		}
		if line != indent {
			line += " "
		}
		line += word
	}
	return b.String() + line + "\n"
}

// exitCodeTable returns the table of exit codes.
func exitCodeTable() string {
	var b strings.Builder
	b.WriteString(wrapText(
		"Exit codes: that of the driver if it ran and ended, or of the first rank that failed (128+n if "+
			"signal n ended it); otherwise:", ""))
	for _, o := range health.OutcomeTable() {
		meaning := wrapText(fmt.Sprintf("%s (requeue: %s)", o.Meaning, o.Requeue), "       ")
		fmt.Fprintf(&b, "  %3d  %s", o.Code, strings.TrimLeft(meaning, " "))
	}
	return b.String()
}
