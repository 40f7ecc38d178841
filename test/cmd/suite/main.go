// Command suite runs the tests by their groups, as make test, make unit and
// their like do: it installs what they need and this machine lacks, has parts
// that mostly wait run beside parts that compute, and tells at the end how each
// part went.
//
//	go run ./test/cmd/suite [-list] [GROUP...]
//
// Without a group it runs everything. It exits with 1 if a part has failed and,
// where CI is true, if one could not run.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	ossignal "os/signal"
	"slices"
	"strings"
	"syscall"
)

func main() {
	ctx, stop := ossignal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop) // a second signal ends it at once
	if err := run(ctx, os.Args[1:], os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, "suite:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, args []string, stdout io.Writer) error {
	flags := flag.NewFlagSet("suite", flag.ContinueOnError)
	list := flags.Bool("list", false, "only list the parts, with their groups and commands")
	if err := flags.Parse(args); err != nil {
		return err
	}
	chosen, err := choose(all, flags.Args())
	if err != nil {
		return err
	}
	if *list {
		for _, p := range chosen {
			fmt.Fprintf(stdout, "%-7s  %-44s  %s\n", p.group, p.name, p.command)
		}
		return nil
	}
	s := &suite{parts: chosen, setup: ". test/setup.sh && ", stdout: stdout, strict: os.Getenv("CI") == "true"}
	return s.run(ctx)
}

// choose returns the parts of these groups, or all of them where none is named.
func choose(parts []part, groups []string) ([]part, error) {
	if len(groups) == 0 {
		return parts, nil
	}
	var known []string
	for _, p := range parts {
		known = append(known, p.group)
	}
	known = slices.Compact(slices.Sorted(slices.Values(known)))
	for _, g := range groups {
		if !slices.Contains(known, g) {
			return nil, errors.New("there is no group " + g + ": there are " + strings.Join(known, ", "))
		}
	}
	return slices.DeleteFunc(slices.Clone(parts), func(p part) bool { return !slices.Contains(groups, p.group) }), nil
}
