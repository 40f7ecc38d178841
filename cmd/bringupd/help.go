package main

import (
	"embed"
	"fmt"
	"io"
	"slices"
	"strconv"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/bringupd/bringupd/pkg/config"
	"github.com/bringupd/bringupd/pkg/health"
)

const (
	helpWidth       = 80 // columns
	flagColumnWidth = 26 // columns for the flag
)

// textFiles are the completion scripts, and the overview, the topics and the templates of "bringupd
// help".
//
//go:embed completion topics templates overview.txt
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

// fillTemplate fills one of the templates, which have the library's functions and those of helpText.
func fillTemplate(name string, data any) string {
	text, _ := textFiles.ReadFile("templates/" + name) // it is embedded
	var b strings.Builder
	cli.HelpPrinterCustom(&b, string(text), data, map[string]any{
		"wrapAt": func() int { return helpWidth }, "settings": visibleSettings, "sources": describeSources,
		"column": flagColumn, "meaning": flagMeaning,
	})
	return b.String()
}

func helpText(command *cli.Command) string { return fillTemplate("command", command) }

func exitCodeTable() string {
	return fillTemplate(codesTopic, map[string]any{"Table": health.OutcomeTable(), "Title": codesTitle})
}

const codesTitle = "Exit codes: that of the driver if it ran and ended, or of the first rank that failed " +
	"(128+n if signal n ended it); otherwise:"

// visibleSettings returns the flags of a subcommand without those that help does not show.
func visibleSettings(command *cli.Command) (all config.List) {
	for _, flag := range command.Flags {
		if s, is := flag.(*config.Setting); is && !s.Hidden && !s.IsUnlisted {
			all = append(all, s)
		}
	}
	return all
}

func describeSources(flags config.List) string {
	switch {
	case flags.FindSetting("config") != nil:
		return "A flag has precedence over its environment variable (BRINGUPD_LOG_DIR for --log-dir), " +
			"which has precedence over a line of the --config file, and that over a line of " + config.SitePath + "."
	case slices.ContainsFunc(flags, (*config.Setting).HasEnvVariable):
		return "A flag has precedence over its environment variable (in brackets)."
	}
	return "These flags can only be given on the command line."
}

// flagMeaning returns the usage of one of the flags. With a file, the variable follows from the name.
func flagMeaning(flags config.List, s *config.Setting) string {
	switch {
	case flags.FindSetting("config") == nil:
		return s.HelpText()
	case s.HasEnvVariable():
		return s.UsageText()
	}
	return s.UsageText() + " (no variable)"
}

// flagColumn returns the column with a flag. A long flag has a line of its own.
func flagColumn(flag string) string {
	if len(flag)+2 > flagColumnWidth {
		return flag + "\n" + strings.Repeat(" ", flagColumnWidth+2)
	}
	return fmt.Sprintf("%-*s", flagColumnWidth, flag)
}
