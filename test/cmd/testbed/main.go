// Command testbed runs a Slurm cluster of several nodes on this machine until Ctrl-C.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	ossignal "os/signal"
	"strings"
	"syscall"

	"github.com/bringupd/bringupd/test/testbed"
)

func main() {
	ctx, stop := ossignal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	context.AfterFunc(ctx, stop) // a second signal ends it at once; the watchdog then cleans up
	if err := run(ctx, os.Args[1:], os.Stdout, os.Stderr); err != nil {
		fmt.Fprintln(os.Stderr, "testbed:", err)
		os.Exit(1)
	}
}

// run keeps a testbed running until ctx is done, or only cleans the machine.
func run(ctx context.Context, args []string, stdout, stderr io.Writer) error {
	cfg := testbed.Config{Log: stderr}
	flags := flag.NewFlagSet("testbed", flag.ContinueOnError)
	flags.SetOutput(stderr)
	sweep := flags.Bool("sweep", false,
		"only remove the testbeds that killed processes left behind")
	flags.IntVar(&cfg.Nodes, "nodes", 4, "how many nodes")
	flags.IntVar(&cfg.CPUs, "cpus", 8, "CPUs that Slurm believes a node has")
	flags.IntVar(&cfg.GPUs, "gpus", 0, "GPUs that Slurm believes a node has")
	flags.BoolVar(&cfg.Site, "site", false, "nodes are shared by jobs: memory, devices and /tmp are limited")
	flags.StringVar(&cfg.User, "user", "", "user of this machine who runs the clients; empty means root")
	share := flags.String("share", string(testbed.SSHFS),
		fmt.Sprintf("how the nodes see the share: one of %v", testbed.Shares))
	if err := flags.Parse(args); errors.Is(err, flag.ErrHelp) {
		return nil
	} else if err != nil {
		return err
	}
	if *sweep {
		return testbed.Sweep(ctx)
	}
	cfg.Share = testbed.Share(*share)
	bed, err := testbed.Start(ctx, cfg)
	if err != nil {
		return err
	}
	if err := describe(bed, stdout); err != nil {
		return errors.Join(err, bed.Close())
	}
	<-ctx.Done()
	return bed.Close()
}

// describe writes instructions for using the testbed from another terminal.
func describe(bed *testbed.Bed, w io.Writer) error {
	login, err := bed.Enter("ctl")
	if err != nil {
		return err
	}
	node, err := bed.Enter(bed.Node(0))
	if err != nil {
		return err
	}
	_, err = fmt.Fprintf(w, `A Slurm of %[1]d nodes. In another terminal, as root:

export %[2]s
cd %[3]s                                  # the share
srun -N%[1]d hostname
sbatch -N%[1]d --wrap 'srun hostname'

%[4]s    # a shell on the login node
%[5]s    # a shell on %[6]s
ls %[7]s                                  # Slurm's logs
Put programs into %[8]s, which every node sees; /tmp is each node's own.

Ctrl-C ends it.
`, bed.Nodes(), strings.Join(bed.Env(), " "), bed.Share(), login, node, bed.Node(0), bed.Logs(), bed.Bin())
	return err
}
