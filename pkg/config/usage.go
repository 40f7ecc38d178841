package config

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/urfave/cli/v2"

	"github.com/bringupd/bringupd/internal/textutil"
)

type usageError struct {
	message string
	ofNode  bool // other nodes may not have it
}

func (e *usageError) Error() string { return e.message }

// UsageErrorf returns an error in the user's settings.
func UsageErrorf(format string, args ...any) error {
	return &usageError{message: fmt.Sprintf(format, args...)}
}

// NodeUsageErrorf returns an error in the user's settings that only some nodes may have.
func NodeUsageErrorf(format string, args ...any) error {
	return &usageError{message: fmt.Sprintf(format, args...), ofNode: true}
}

// IsSameUsageError reports whether err was made by UsageErrorf, and so is the same on all nodes.
func IsSameUsageError(err error) bool {
	wrong, is := errors.AsType[*usageError](err)
	return is && !wrong.ofNode
}

// IsUsageError reports whether err was made by UsageErrorf or NodeUsageErrorf.
func IsUsageError(err error) bool {
	var wrong *usageError
	return errors.As(err, &wrong)
}

// TypedFlag returns a flag with the dashes with which it is among the arguments.
func TypedFlag(args []string, name string) string {
	for _, arg := range args {
		flag, _, _ := strings.Cut(arg, "=")
		if strings.HasPrefix(arg, "-") && strings.TrimLeft(flag, "-") == name {
			return flag
		}
	}
	return "--" + name
}

// ReplaceUsageError replaces an error of the flag parser for the arguments of a subcommand by our
// own message.
func ReplaceUsageError(command *cli.Command, err error, args []string) error {
	text := err.Error()
	if name, ok := strings.CutPrefix(text, "flag provided but not defined: -"); ok {
		name = strings.TrimLeft(name, "-")
		return UsageErrorf(
			"cannot use %s: there is no such flag%s", TypedFlag(args, name),
			SuggestNearest("--", name, flagNames(command)))
	}
	if name, ok := strings.CutPrefix(text, "flag needs an argument: -"); ok {
		return UsageErrorf("cannot use %s: it needs a value", TypedFlag(args, name))
	}
	return UsageErrorf("cannot understand the command line: %s", text)
}

func flagNames(command *cli.Command) (names []string) {
	for _, flag := range command.Flags {
		if s, is := flag.(*Setting); is && s.Hidden {
			continue
		}
		names = append(names, flag.Names()...)
	}
	return names
}

// SuggestNearest returns a clause with the known word that is nearest to an unknown one: the first one
// that continues it after a hyphen, or else the most similar one. It returns an empty string if none
// is near.
func SuggestNearest(prefix, word string, known []string) string {
	best := textutil.NearestWord(word, known, min(len(word), max(3, len(word)/3)))
	isLonger := func(name string) bool { return strings.HasPrefix(name, word+"-") }
	if at := slices.IndexFunc(known, isLonger); at >= 0 && !strings.HasPrefix(best, word) {
		best = known[at]
	}
	if best == "" {
		return ""
	}
	return "; did you mean " + prefix + best + "?"
}

// FlagsFirst moves the flags of a subcommand before its arguments, because the parser stops at the
// first argument.
func FlagsFirst(command *cli.Command, args []string) []string {
	var flags, others []string
	for at := 0; at < len(args); at++ {
		if arg := args[at]; len(arg) < 2 || arg[0] != '-' {
			others = append(others, arg)
			continue
		}
		flags = append(flags, args[at])
		if TakesNextArg(command, args[at]) && at+1 < len(args) {
			at++
			flags = append(flags, args[at])
		}
	}
	return append(flags, others...)
}

// TakesNextArg reports whether an argument is a flag of a subcommand whose value is the next one.
func TakesNextArg(command *cli.Command, arg string) bool {
	name := strings.TrimLeft(arg, "-")
	for _, flag := range command.Flags {
		if s, is := flag.(*Setting); is && s.Placeholder != "" && slices.Contains(s.Names(), name) {
			return true
		}
	}
	return false
}
