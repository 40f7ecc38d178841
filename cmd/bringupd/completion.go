package main

import (
	"fmt"
	"io"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/bringupd/bringupd/pkg/config"
)

// completionFlag is the last argument of a call by a completion script: see cli.App.
const completionFlag = "--generate-bash-completion"

var supportedShells = []string{"bash", "fish", "zsh"}

func (inv *invocation) completionCommand() *cli.Command {
	return &cli.Command{
		Name: "completion", Usage: "print a completion script for bash, zsh or fish",
		UsageText: "source <(bringupd completion bash)   (in ~/.bashrc)\n" +
			"bringupd completion zsh > \"${fpath[1]}/_bringupd\"\n" +
			"bringupd completion fish > ~/.config/fish/completions/bringupd.fish",
		BashComplete: completeWords(supportedShells...),
		Action: func(c *cli.Context) error {
			if inv.hasDashes || c.NArg() != 1 {
				return usageErrorf(
					"cannot print a completion script: give one of %s", strings.Join(supportedShells, ", "))
			}
			shell := c.Args().First()
			script, err := textFiles.ReadFile("completion/" + shell)
			if err != nil {
				return usageErrorf("cannot print a completion script for %q: give one of %s%s",
					shell, strings.Join(supportedShells, ", "), config.SuggestNearest("", shell, supportedShells))
			}
			_, err = inv.streams.Out.Write(script)
			return err
		},
	}
}

// completeWords returns a function that prints the words that may follow a subcommand.
func completeWords(words ...string) cli.BashCompleteFunc {
	return func(c *cli.Context) { _, _ = io.WriteString(c.App.Writer, strings.Join(words, "\n")+"\n") }
}

// completeFlags prints the flags of a subcommand that begin with partial, or the values of a flag.
// The library's own function prints hidden flags, but no values.
func completeFlags(command *cli.Command, partial string) cli.BashCompleteFunc {
	return func(c *cli.Context) {
		for _, s := range visibleSettings(command) {
			texts := []string{"--" + s.Name}
			if s.Placeholder != "" {
				texts[0] += "="
			}
			for _, word := range s.AcceptedWords {
				texts = append(texts, texts[0]+word)
			}
			isValue := strings.HasPrefix(partial, texts[0])
			for i, text := range texts {
				if strings.HasPrefix(partial, "-") && strings.HasPrefix(text, partial) && (i > 0) == isValue {
					_, _ = fmt.Fprintln(c.App.Writer, text)
				}
			}
		}
	}
}
