package main

import (
	"embed"
	"io"
	"slices"
	"strings"
	"text/template"

	"github.com/urfave/cli/v2"

	"github.com/bringupd/bringupd/internal/textutil"
	"github.com/bringupd/bringupd/pkg/config/setting"
)

// completionFiles are the constant parts of the completion scripts.
//
//go:embed completion
var completionFiles embed.FS

var supportedShells = []string{"bash", "fish", "zsh"}

func (inv *invocation) completionCommand() *cli.Command {
	return &cli.Command{
		Name: "completion", Usage: "print the script by which a shell completes this program's command lines",
		UsageText: "source <(bringupd completion bash)   (in ~/.bashrc)\n" +
			"bringupd completion zsh > \"${fpath[1]}/_bringupd\"\n" +
			"bringupd completion fish > ~/.config/fish/completions/bringupd.fish",
		Action: func(c *cli.Context) error {
			if inv.hasDashes || c.NArg() != 1 {
				return usageErrorf("cannot print a completion: give one of %s", strings.Join(supportedShells, ", "))
			}
			text, err := completionScript(c.App, c.Args().First())
			if err == nil {
				_, err = io.WriteString(inv.streams.Out, text)
			}
			return err
		},
	}
}

// commandCompletion is a subcommand as described to a shell.
type commandCompletion struct {
	Name, Usage string
	Flags       []flagCompletion
	// Words are the arguments of the subcommand besides flags. If it is nil, the argument is a path.
	Words []string
}

type flagCompletion struct {
	Name, Usage string
	Shape       string // of its value; empty: a switch
	Words       []string
	Repeats     bool
}

// Dir and File report whether the value is the path of a directory or of a file.
func (f flagCompletion) Dir() bool  { return f.Shape == "DIR" }
func (f flagCompletion) File() bool { return f.Shape == "FILE" || f.Shape == "PROGRAM" }

// listCompletions returns all subcommands that --help shows.
func listCompletions(app *cli.App) (all []commandCompletion) {
	words := map[string][]string{"completion": supportedShells, "help": commandNames(app)}
	for _, command := range app.VisibleCommands() {
		one := commandCompletion{Name: command.Name, Usage: command.Usage, Words: words[command.Name]}
		for _, flag := range command.Flags {
			if s, ours := flag.(*setting.Setting); ours && !s.Hidden {
				one.Flags = append(one.Flags, flagCompletion{
					Name: s.Name, Usage: strings.ReplaceAll(s.Usage, setting.NonBreakingSpace, " "), Shape: s.Placeholder, Words: s.AcceptedWords, Repeats: s.IsRepeatable,
				})
			}
		}
		all = append(all, one)
	}
	return all
}

// completionScript returns the completion script for a shell.
func completionScript(app *cli.App, shell string) (string, error) {
	if !slices.Contains(supportedShells, shell) {
		return "", usageErrorf("cannot complete in %q: give one of %s%s", shell, strings.Join(supportedShells, ", "), setting.SuggestNearest("", shell, supportedShells))
	}
	script, err := template.New(shell).Funcs(template.FuncMap{
		"join": func(words []string) string { return strings.Join(words, " ") }, "quote": textutil.EscapeSingleQuotes, "bracket": escapeBrackets, "brief": shortenUsage,
	}).ParseFS(completionFiles, "completion/"+shell)
	if err != nil {
		return "", err
	}
	var b strings.Builder
	err = script.ExecuteTemplate(&b, shell, listCompletions(app))
	return b.String(), err
}

// shortenUsage returns the first part of a usage text, which fits beside a flag.
func shortenUsage(text string) string {
	for _, end := range []string{"; ", " (", ": "} {
		if first, _, _ := strings.Cut(text, end); strings.Contains(first, " ") {
			text = first
		}
	}
	return text
}

// escapeBrackets escapes a text for the brackets of a zsh specification.
func escapeBrackets(text string) string {
	return strings.NewReplacer(`\`, `\\`, `[`, `\[`, `]`, `\]`, `:`, `\:`).Replace(text)
}
