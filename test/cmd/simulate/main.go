// Command simulate simulates jobs in one process, and prints what it takes to bring them up.
//
//	go run ./test/cmd/simulate --nodes=64,256,1024 --op-latency=1ms --dir=/dev/shm
package main

import (
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"github.com/bringupd/bringupd/pkg/config"
	"github.com/bringupd/bringupd/test/simulate"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	err := run(ctx, os.Args[1:])
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, "simulate:", err)
		os.Exit(1)
	}
}

// run runs the simulations until one fails, because larger ones would fail, too.
func run(ctx context.Context, args []string) error {
	times := config.DefaultTimeouts()
	cfg := simulate.Config{JoinTimeout: times.Join}
	set := flag.NewFlagSet("simulate", flag.ContinueOnError)
	nodes := set.String("nodes", "4,64", "numbers of nodes")
	dir := set.String("dir", os.TempDir(), "directory on the shared file system")
	roleFile := set.String("config", "", "file with the roles of the job")
	asJSON := set.Bool("json", false, "print the results as JSON")
	set.DurationVar(&cfg.Latency, "op-latency", 0, "latency that is added to each file system call")
	set.BoolVar(&cfg.DriverAlone, "driver-alone", false, "a job without services")
	set.IntVar(&cfg.Ranks, "ranks", 0, "ranks per node, which call fences")
	set.IntVar(&cfg.Fences, "fences", 4, "number of fences")
	set.IntVar(&cfg.GPUs, "gpus-per-node", 0, "GPUs of each node, for the roles")
	set.StringVar((*string)(&cfg.LinkMode), "lifeline", "auto", "peer links: auto or off")
	set.DurationVar(&cfg.Peer, "peer-timeout", times.Peer, "as of a job")
	set.BoolVar(&cfg.Trace, "trace", false, "list the calls that waited for each other")
	if err := set.Parse(args); err != nil {
		return err
	}
	if *roleFile != "" {
		text, err := os.ReadFile(*roleFile)
		if err != nil {
			return err
		}
		if cfg.Roles, err = simulate.ParseRoles(text); err != nil {
			return err
		}
	}
	var results []simulate.Result
	for number := range strings.SplitSeq(*nodes, ",") {
		var err error
		if cfg.Nodes, err = strconv.Atoi(number); err != nil {
			return err
		}
		result, err := runIn(ctx, *dir, cfg)
		if err != nil {
			return err
		}
		if results = append(results, result); result.Failure != "" {
			break
		}
	}
	if *asJSON {
		encoder := json.NewEncoder(os.Stdout)
		encoder.SetIndent("", "  ")
		return encoder.Encode(results)
	}
	return printResults(results)
}

// runIn runs a simulation in a new directory in dir.
func runIn(ctx context.Context, dir string, cfg simulate.Config) (result simulate.Result, err error) {
	own, err := os.MkdirTemp(dir, "simulate-")
	if err != nil {
		return result, err
	}
	result, err = simulate.Run(ctx, own, cfg)
	if removeErr := os.RemoveAll(own); err == nil {
		err = removeErr
	}
	return result, err
}

// printResults prints a table with a row for each simulation, and the chains of calls.
func printResults(results []simulate.Result) error {
	table := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(table, "nodes\tgate\tup p50\tup max\tworker p50\tworker max\thead\tall\tper second\t"+
		"end\tfence p50\tfence p99\tMiB\tcores\t")
	for _, r := range results {
		var world simulate.WorldTiming
		if r.World != nil {
			world = *r.World
		}
		fmt.Fprint(table, r.Nodes, "\t", round(r.Gate), "\t", round(r.Up.P50), "\t", round(r.Up.Max), "\t",
			r.Calls.WorkerToGate.P50, "\t", r.Calls.WorkerToGate.Max, "\t", r.Calls.Head.Calls, "\t",
			r.Calls.All.Calls, "\t", r.Calls.Peak, "\t", round(r.End), "\t",
			round(world.Fence.P50), "\t", round(world.Fence.P99), "\t",
			fmt.Sprintf("%d\t%.0f %%\t\n", r.Machine.Memory>>20, 100*r.Machine.Busy))
	}
	if err := table.Flush(); err != nil {
		return err
	}
	for _, r := range results {
		printChain("to the gate", r.ChainToGate)
		printChain("to the end", r.ChainToEnd)
		if r.Failure != "" {
			return fmt.Errorf("cannot run %d nodes: %s", r.Nodes, r.Failure)
		}
	}
	return nil
}

// round rounds a time to a tenth of a millisecond.
func round(d time.Duration) time.Duration { return d.Round(100 * time.Microsecond) }

// printChain prints calls that waited for each other, with the time of each.
func printChain(title string, chain []simulate.TracedCall) {
	if len(chain) == 0 {
		return
	}
	fmt.Printf("%s: %d calls that waited for each other\n", title, len(chain))
	for i, c := range chain {
		fmt.Printf("  %2d  %9s  node %d  %-8s  %s\n", i+1, round(c.From), c.Node, c.Op, c.Path)
	}
}
