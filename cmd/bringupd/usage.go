package main

import (
	"slices"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/bringupd/bringupd/pkg/prose"
)

// onUsageError turns what the flag parser says into our own sentence.
func onUsageError(c *cli.Context, err error, _ bool) error {
	said := err.Error()
	if name, ok := strings.CutPrefix(said, "flag provided but not defined: -"); ok {
		name = strings.TrimLeft(name, "-")
		return usage("cannot use --%s: there is no such flag%s", name, suggestion("--", name, flagNames(c.Command)))
	}
	if name, ok := strings.CutPrefix(said, "flag needs an argument: -"); ok {
		return usage("cannot use --%s: it takes a value", name)
	}
	return usage("cannot understand the command line: %s", said)
}

func flagNames(command *cli.Command) (names []string) {
	for _, flag := range command.Flags {
		if s, ours := flag.(*setting); ours && s.hidden {
			continue
		}
		names = append(names, flag.Names()...)
	}
	return names
}

// noPositional refuses what stands before "--" and is no flag.
func noPositional(c *cli.Context) error {
	first := c.Args().First()
	switch {
	case first == "":
		return nil
	case c.App.Command(first) != nil:
		return usage("cannot take %q there: a subcommand comes first, as in: bringupd %s [flags]", first, first)
	}
	return usage("cannot take %q: put the driver and its arguments behind --, as in: bringupd [flags] -- %s%s",
		first, first, suggestion("subcommand ", first, commandNames(c.App)))
}

// suggestion names the known word that is nearest to one that isn't, if any is
// near.
func suggestion(prefix, word string, known []string) string {
	best := prose.Nearest(word, known, min(len(word), max(3, len(word)/3)))
	if best == "" {
		return ""
	}
	return "; the nearest is " + prefix + best
}

// flagsFirst puts the flags of a subcommand before its arguments, where people
// write them behind, too: the parser ends at the first argument.
func flagsFirst(command *cli.Command, args []string) []string {
	var flags, others []string
	for at := 0; at < len(args); at++ {
		if arg := args[at]; len(arg) < 2 || arg[0] != '-' {
			others = append(others, arg)
			continue
		}
		flags = append(flags, args[at])
		if takesNext(command, args[at]) && at+1 < len(args) {
			at++
			flags = append(flags, args[at])
		}
	}
	return append(flags, others...)
}

// takesNext tells whether the value of a flag is the next argument.
func takesNext(command *cli.Command, arg string) bool {
	name := strings.TrimLeft(arg, "-")
	for _, flag := range command.Flags {
		if s, ours := flag.(*setting); ours && s.shape != "" && slices.Contains(s.Names(), name) {
			return true
		}
	}
	return false
}
