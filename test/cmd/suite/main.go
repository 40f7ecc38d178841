// Command suite runs the tests in parts, for make test, make test-all and make unit. It installs
// the missing requirements of the parts, runs parts that mostly wait concurrently with parts that
// compute, and prints a table of all results at the end.
//
//	go run ./test/cmd/suite [-list] [-gate] [GROUP...]
//
// Without -gate or a group it runs every part. It exits with 1 if a part failed or, if CI=true,
// could not run.
package main

import (
	"context"
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
	gate := flags.Bool("gate", false, "only the parts of make test")
	if err := flags.Parse(args); err != nil {
		return err
	}
	parts, err := selectParts(allParts, *gate, flags.Args())
	if err != nil {
		return err
	}
	if *list {
		for _, p := range parts {
			fmt.Fprintf(stdout, "%-7s  %-60s  %s\n", p.group, p.name, p.command)
		}
		return nil
	}
	strict := os.Getenv("CI") == "true"
	s := &suite{parts: parts, setup: ". test/setup.sh && ", stdout: stdout, strict: strict,
		before: describe(parts, *gate, flags.Args())}
	return s.run(ctx)
}

// describe says what runs and, for the sets of parts that were measured, how long it takes besides
// the installation.
func describe(parts []part, gate bool, groups []string) string {
	text := fmt.Sprintf("%d parts of the tests run now; a table of the results follows at the end.", len(parts))
	switch {
	case len(groups) > 0:
		return text
	case gate:
		return text + " They take 15 to 20 minutes on two cores."
	}
	return text + " They take up to an hour on two cores."
}

// selectParts returns the parts of these groups, or of all groups if none is named, and only those
// of the gate if gate is set.
func selectParts(parts []part, gate bool, groups []string) ([]part, error) {
	var known []string
	for _, p := range parts {
		known = append(known, p.group)
	}
	known = slices.Compact(slices.Sorted(slices.Values(known)))
	for _, g := range groups {
		if !slices.Contains(known, g) {
			return nil, fmt.Errorf("cannot run group %s: give one of %s", g,
				strings.Join(known, ", "))
		}
	}
	return slices.DeleteFunc(slices.Clone(parts), func(p part) bool {
		return gate && !p.gate || len(groups) > 0 && !slices.Contains(groups, p.group)
	}), nil
}
