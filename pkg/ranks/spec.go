package ranks

import (
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/bringupd/bringupd/pkg/health"
	"github.com/bringupd/bringupd/pkg/process"
	"github.com/bringupd/bringupd/pkg/ranks/affinity"
	"github.com/bringupd/bringupd/pkg/service"
)

// RankSpec describes how to start one rank.
type RankSpec struct {
	Name         string // the child's
	Argv         []string
	Dir          string // working directory; empty for the daemon's
	Env          []string
	Files        []*os.File // the rank's file descriptors from 3 on; closed after the start
	Affinity     affinity.Affinity
	Stdin        *os.File  // standard input; nil if the rank has none
	Stdout       io.Writer // standard output; see process.Spec
	Stderr       io.Writer
	OnOutputDone func() // called after all output of the rank has been processed
	// DescribeUnfinalized is called after the rank has exited with code 0. It describes how the rank
	// left MPI without finalizing it, and returns an empty string if nothing is wrong. It is nil if
	// the rank has no MPI server.
	DescribeUnfinalized func() string
	// OnFailed is called when the rank has ended with an exit code other than 0. It must not block. It
	// may be nil.
	OnFailed func(status int)
	// errorFile is the file to which torch writes the exception of the rank; empty if the rank has
	// none: see [RankSpec.UseErrorFile].
	errorFile string
}

// RankProgram is the program of a rank, before it gets what a rank of its world needs.
type RankProgram struct {
	Name     string // the child's
	Argv     []string
	BaseEnv  []string // environment on which that of the rank is based
	Affinity affinity.Affinity
	UserEnv  map[string]string // variables set by the user, which take precedence
}

// BuildSpec returns how to start a rank of a plan. more contains the variables of its MPI servers.
func (p RankProgram) BuildSpec(plan Plan, rank Rank, at Master, more map[string]string) RankSpec {
	bound := affinityVariables(p.BaseEnv, p.Affinity, p.UserEnv)
	return RankSpec{Name: p.Name, Argv: p.Argv, Affinity: p.Affinity,
		Env: RankEnviron(p.BaseEnv, plan, rank, at, bound, more, p.UserEnv)}
}

// affinityVariables returns the variables that describe a binding. It leaves out the variables of
// network cards that the user or the launcher has set already.
func affinityVariables(base []string, place affinity.Affinity, own map[string]string) map[string]string {
	return ParseVariables(place.Environ(func(name string) bool {
		_, set := own[name]
		return set || slices.ContainsFunc(base, func(entry string) bool { return strings.HasPrefix(entry, name+"=") })
	}))
}

// bindBeforeStart returns the Prepare function of a rank's process.Spec. It binds the thread that
// forks the rank, so that the rank inherits the binding. It logs what could not be bound.
func (c *LocalRanks) bindBeforeStart(place affinity.Affinity) func() (undo func(), err error) {
	return func() (undo func(), err error) {
		restore, note, err := place.BindThread()
		if err != nil {
			return nil, err
		}
		c.logOnce(note)
		c.logOnce(place.Note)
		return func() {
			if err := restore(); err != nil {
				c.logOnce(fmt.Sprintf("cannot undo a rank's binding in this daemon; processes started next may "+
					"have the same binding: %v", err))
			}
		}, nil
	}
}

// logOnce logs a message that applies to all ranks of the node, once. It ignores an empty message.
func (c *LocalRanks) logOnce(word string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if word != "" && !slices.Contains(c.logged, word) {
		c.logged = append(c.logged, word)
		c.Log.Info(word)
	}
}

// verifyBinding verifies the binding of a rank that has been started. A wrong binding is a failed
// check if StrictBinding is set; otherwise it is logged.
func (c *LocalRanks) verifyBinding(rank Rank, child process.Handle, place affinity.Affinity) error {
	difference, err := place.CompareProcess(child.PID())
	if service.HasEnded(child) { // its binding may have been read too late
		return nil
	}
	if err != nil {
		c.logOnce(err.Error())
	}
	if difference == "" {
		return nil
	}
	what := fmt.Sprintf("rank %d on %s is not bound as planned: %s", rank.Rank, c.Node, difference)
	if c.StrictBinding {
		return health.NewFailure(health.CheckFailed, "%s", what)
	}
	c.Log.Warn(what)
	return nil
}
