package main

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/bringupd/bringupd/deploy"
	"github.com/bringupd/bringupd/internal/textutil"
	"github.com/bringupd/bringupd/pkg/config"
	"github.com/bringupd/bringupd/pkg/inspect/runs"
)

// completionFlag is the last argument of a call by a completion script: see cli.App.
const completionFlag = "--generate-bash-completion"

var supportedShells = []string{"bash", "fish", "zsh"}

func (inv *invocation) completionCommand() *cli.Command {
	return inv.printCommand(cli.Command{
		Name: "completion", Usage: "print a completion script for bash, zsh or fish",
		UsageText: "source <(bringupd completion bash)   (in ~/.bashrc)\n" +
			"bringupd completion zsh > \"${fpath[1]}/_bringupd\"\n" +
			"bringupd completion fish > ~/.config/fish/completions/bringupd.fish",
	}, "completion script", supportedShells, "", func(at int) []byte {
		script, _ := textFiles.ReadFile("completion/" + supportedShells[at]) // it is embedded
		return script
	})
}

func (inv *invocation) scriptCommand() *cli.Command {
	scripts := deploy.Scripts()
	var names []string
	var list strings.Builder
	for _, script := range scripts {
		names = append(names, script.Name)
		fmt.Fprintf(&list, "  %-16s %s\n", script.Name, script.Summary)
	}
	list.WriteString("\nFor example: bringupd script ray > ray.sbatch\n")
	return inv.printCommand(cli.Command{
		Name: "script", Usage: "print a job script to adapt, for Slurm and others",
		UsageText: "bringupd script   (lists the scripts)\nbringupd script ray > ray.sbatch\n" +
			"bringupd script ray | sbatch /dev/stdin python train.py",
		Description: "Adapt the lines below \"Your site\" in the script (account, partition, GPUs, " +
			"modules, virtual environment), and submit it as its first comment shows; or pipe it as it is, " +
			"with flags of sbatch such as --nodes=2 before /dev/stdin. " +
			"The scripts are: " + strings.Join(names, ", ") + ".",
	}, "script", names, list.String(), func(at int) []byte { return scripts[at].Text() })
}

// printCommand completes a subcommand that prints one of several texts. Without an argument it prints
// the list, or is refused if there is none. what describes a text.
func (inv *invocation) printCommand(
	c cli.Command, what string, names []string, list string, text func(at int) []byte,
) *cli.Command {
	c.BashComplete = completeWords(names...)
	c.Action = func(ctx *cli.Context) error {
		name := ctx.Args().First()
		at := slices.Index(names, name)
		printed := []byte(list)
		switch {
		case inv.hasDashes || ctx.NArg() > 1 || name == "" && list == "":
			return usageErrorf("cannot print a %s: give one of %s", what, strings.Join(names, ", "))
		case name != "" && at < 0:
			return usageErrorf("cannot print the %s %q: give one of %s%s", what, name,
				strings.Join(names, ", "), config.SuggestNearest("", name, names))
		case name != "":
			printed = text(at)
		}
		_, err := inv.streams.Out.Write(printed)
		return err
	}
	return &c
}

func completeWords(words ...string) cli.BashCompleteFunc {
	return func(c *cli.Context) { _, _ = io.WriteString(c.App.Writer, strings.Join(words, "\n")+"\n") }
}

// completedArgs are the kinds of names that each argument of a subcommand can be.
var completedArgs = map[string][][]runs.NameKind{
	"status": {{runs.RunNames}}, "report": {{runs.RunNames}}, "wait": {{runs.RunNames}},
	"why": {{runs.RunNames}}, "exec": {{runs.RunNames}}, "stop": {{runs.RunNames}}, "list": {{runs.RunNames}},
	"logs":  {{runs.LogNames, runs.RoleNames, runs.NodeNames, runs.RunNames}, {runs.RunNames}},
	"roles": {{runs.RoleNames, runs.RunNames}, {runs.RunNames}},
}

// completedFlags are the kinds of names that the values of these flags can be, in the subcommands of
// completedArgs.
var completedFlags = map[string]runs.NameKind{
	"node": runs.NodeNames, "role": runs.RoleNames, "instance": runs.InstanceNames,
}

// complete prints what the last of the words after a subcommand can become: a flag, a value of one, or
// the name of a run or of something in it. It prints nothing else, also no error.
func (inv *invocation) complete(app *cli.App, command *cli.Command, words []string) {
	partial, flag := "", ""
	if last := len(words) - 1; last >= 0 {
		partial, words = words[last], words[:last]
	}
	isFlag := strings.HasPrefix(partial, "-")
	if last := len(words) - 1; last >= 0 && !isFlag && config.TakesNextArg(command, words[last]) {
		flag, words, isFlag = words[last]+"=", words[:last], true
	}
	name, value, isValue := strings.Cut(flag+partial, "=")
	kind, isName := completedFlags[strings.TrimLeft(name, "-")]
	args := completedArgs[command.Name]
	if isFlag && (!isValue || !isName || args == nil) {
		for _, text := range matchingFlags(command, flag+partial) {
			_, _ = fmt.Fprintln(app.Writer, strings.TrimPrefix(text, flag))
		}
		return
	}
	if args == nil || slices.ContainsFunc(words, isHelpFlag) {
		return // others have no such names: their action would start a job
	}
	inv.completes = func(all config.List, given []string) {
		which := runSelector{logDirSetting: all.FindSetting("log-dir")}
		which.logDir, _ = which.logDirSetting.CurrentValue().(string)
		kinds, before, prefix := []runs.NameKind{kind}, strings.TrimPrefix(name+"=", flag), value
		if !isFlag && len(given) < len(args) {
			kinds, before, prefix, given = args[len(given)], "", partial, nil
		} else if !isFlag {
			return
		}
		logDir, err := which.listedDir(nil)
		if err != nil {
			return
		}
		for _, found := range runs.Finder(which.findRun).Complete(
			context.Background(), logDir, given, prefix, kinds...) {
			_, _ = fmt.Fprintln(app.Writer, before+found)
		}
	}
	words = textutil.MapSlice(words, runs.UnquoteWord)
	app.ErrWriter = io.Discard
	_ = app.Run(slices.Concat([]string{app.Name, command.Name}, config.FlagsFirst(command, words)))
}

// matchingFlags returns the flags of a subcommand that begin with partial, or the values of a flag. The
// library's own function prints hidden flags, but no values.
func matchingFlags(command *cli.Command, partial string) (matching []string) {
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
			if strings.HasPrefix(text, partial) && (i > 0) == isValue {
				matching = append(matching, text)
			}
		}
	}
	return matching
}
