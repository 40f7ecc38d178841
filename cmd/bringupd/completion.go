package main

import (
	"embed"
	"io"
	"slices"
	"strings"
	"text/template"

	"github.com/urfave/cli/v2"

	"github.com/bringupd/bringupd/pkg/prose"
	"github.com/bringupd/bringupd/pkg/setting"
)

// completionFiles are the constant parts of the completion scripts.
//
//go:embed completion
var completionFiles embed.FS

var shells = []string{"bash", "fish", "zsh"}

func (inv *invocation) completionCommand() *cli.Command {
	return &cli.Command{
		Name: "completion", Usage: "print the script by which a shell completes this program's command lines",
		UsageText: "source <(bringupd completion bash)   (in ~/.bashrc)\n" +
			"bringupd completion zsh > \"${fpath[1]}/_bringupd\"\n" +
			"bringupd completion fish > ~/.config/fish/completions/bringupd.fish",
		Action: func(c *cli.Context) error {
			if inv.dashed || c.NArg() != 1 {
				return usage("cannot print a completion: give one of %s", strings.Join(shells, ", "))
			}
			text, err := completion(c.App, c.Args().First())
			if err == nil {
				_, err = io.WriteString(inv.files.Out, text)
			}
			return err
		},
	}
}

// completable is a subcommand as described to a shell.
type completable struct {
	Name, Usage string
	Flags       []completableFlag
	// Words are the arguments of the subcommand besides flags. If it is nil, the argument is a path.
	Words []string
}

type completableFlag struct {
	Name, Usage string
	Shape       string // of its value; empty: a switch
	Words       []string
	Repeats     bool
}

// Dir and File report whether the value is the path of a directory or of a file.
func (f completableFlag) Dir() bool  { return f.Shape == "DIR" }
func (f completableFlag) File() bool { return f.Shape == "FILE" || f.Shape == "PROGRAM" }

// completables returns all subcommands that --help shows.
func completables(app *cli.App) (all []completable) {
	words := map[string][]string{"completion": shells, "help": commandNames(app)}
	for _, command := range app.VisibleCommands() {
		one := completable{Name: command.Name, Usage: command.Usage, Words: words[command.Name]}
		for _, flag := range command.Flags {
			if s, ours := flag.(*setting.Setting); ours && !s.Hidden {
				one.Flags = append(one.Flags, completableFlag{
					Name: s.Name, Usage: strings.ReplaceAll(s.Usage, setting.Unbroken, " "), Shape: s.Shape, Words: s.Accepted, Repeats: s.Repeats,
				})
			}
		}
		all = append(all, one)
	}
	return all
}

// completion returns the completion script for a shell.
func completion(app *cli.App, shell string) (string, error) {
	if !slices.Contains(shells, shell) {
		return "", usage("cannot complete in %q: give one of %s%s", shell, strings.Join(shells, ", "), setting.Suggestion("", shell, shells))
	}
	script, err := template.New(shell).Funcs(template.FuncMap{
		"join": func(words []string) string { return strings.Join(words, " ") }, "quote": prose.QuoteShell, "bracket": bracketed, "brief": brief,
	}).ParseFS(completionFiles, "completion/"+shell)
	if err != nil {
		return "", err
	}
	var b strings.Builder
	err = script.ExecuteTemplate(&b, shell, completables(app))
	return b.String(), err
}

// brief returns the first part of a usage text, which fits beside a flag.
func brief(text string) string {
	for _, end := range []string{"; ", " (", ": "} {
		if first, _, _ := strings.Cut(text, end); strings.Contains(first, " ") {
			text = first
		}
	}
	return text
}

// bracketed escapes a text for the brackets of a zsh specification.
func bracketed(text string) string {
	return strings.NewReplacer(`\`, `\\`, `[`, `\[`, `]`, `\]`, `:`, `\:`).Replace(text)
}
