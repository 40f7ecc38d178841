package config

import (
	"fmt"
	"strings"
	"time"

	"github.com/bringupd/bringupd/pkg/binding"
	"github.com/bringupd/bringupd/pkg/mpi"
	"github.com/bringupd/bringupd/pkg/output"
	"github.com/bringupd/bringupd/pkg/ranks"
)

// World is what was told of the ranks that all nodes run in place of one driver; the
// zero value: there are none.
type World struct {
	ranks.Wish
	// NoMPIRun leaves the driver's own mpirun as it is.
	NoMPIRun bool
	// AllowLauncher lets the driver, or what each rank runs, be a launcher of one node's processes.
	AllowLauncher bool
	// Env are variables for the ranks, NAME=VALUE, on top of what they are told.
	Env []string
	// Bind is what each rank is bound to, and BindStrict makes a rank that is not
	// where it should be a failed check.
	Bind       binding.Kinds
	BindStrict bool
	// Output is whose output is passed on, Tag has each line say whose it is, and Stdin
	// is the rank that is given standard input; -1: none.
	Output output.Mode
	Tag    bool
	Stdin  int
	// Merge has lines that several ranks of a node print alike shown once.
	Merge bool
	// GoOn has the other ranks run on where one has failed.
	GoOn bool
	// Hang is for how long no rank may do anything, until the job is ended; 0: as long as
	// they like. What they use of the processor is no sign of life where HangOutput is set,
	// only what they print.
	Hang       time.Duration
	HangOutput bool
	// PMIx is whether ranks are served PMIx: auto, on, off, or the path of the libpmix.
	PMIx string
}

// validate returns an error for the first rule that it breaks.
func (w World) validate(driver []string) error {
	if !w.Wanted() {
		return nil
	}
	if len(driver) == 0 {
		return fmt.Errorf("cannot run ranks of nothing: give their command behind --, as in: bringupd --ranks-per-node=4 -- ./app")
	}
	if w.Hang != 0 && w.Hang < time.Second {
		return fmt.Errorf("cannot use --hang-timeout=%s: give at least 1s, or 0 for none", w.Hang)
	}
	return mpi.Ranked(driver, w.Total)
}

// plan tells what a daemon would run of it.
func (w World) plan(driver []string) []string {
	many := fmt.Sprintf("%d ranks in all, node by node", w.Total)
	switch {
	case w.Total == 0 && w.Counted():
		many = "a rank for each " + w.PerNode
	case w.Total == 0:
		many = w.PerNode + " ranks"
	}
	lines := []string{fmt.Sprintf("ranks: every node runs %s of %s, bound to %s; the code of the first to fail is the job's", many, strings.Join(driver, " "), w.Bind)}
	if w.GoOn {
		lines[0] = fmt.Sprintf("ranks: every node runs %s of %s, bound to %s; where one fails the others go on", many, strings.Join(driver, " "), w.Bind)
	}
	if w.Hang > 0 {
		lines = append(lines, fmt.Sprintf("hang: when no rank does anything for %s, tell why and end", w.Hang))
	}
	return lines
}
