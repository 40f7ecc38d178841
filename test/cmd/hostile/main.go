// Command hostile mounts a folder through a file system that behaves like a network file system at
// its worst, for tests: see package test/hostile. It needs root.
//
//	hostile -from FOLDER -at MOUNTPOINT -knobs '{"stale": 0.05}'
//
// It serves the mount until its standard input ends. Each input line contains knobs as JSON, with
// times in nanoseconds, which replace the previous knobs.
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"

	"github.com/bringupd/bringupd/test/hostile"
)

func main() {
	if err := run(); err != nil {
		fmt.Fprintf(os.Stderr, "hostile: %v\n", err)
		os.Exit(1)
	}
}

func run() error {
	from := flag.String("from", "", "the folder to show")
	at := flag.String("at", "", "the folder to show it at")
	set := flag.String("knobs", "{}", "what is wrong with it, as JSON")
	flag.Parse()
	if *from == "" || *at == "" || flag.NArg() > 0 {
		return fmt.Errorf("cannot tell what to show where: give -from FOLDER -at FOLDER")
	}
	var knobs hostile.Knobs
	if err := json.Unmarshal([]byte(*set), &knobs); err != nil {
		return fmt.Errorf("cannot read the knobs %q: %v", *set, err)
	}
	return hostile.Serve(*from, *at, knobs, os.Stdin, os.Stdout)
}
