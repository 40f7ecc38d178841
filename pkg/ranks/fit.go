package ranks

import (
	"fmt"
	"io"
	"os"
	"slices"
	"strings"

	"github.com/bringupd/bringupd/pkg/binding"
	"github.com/bringupd/bringupd/pkg/health"
	"github.com/bringupd/bringupd/pkg/process"
	"github.com/bringupd/bringupd/pkg/service"
)

// Fit describes how to start one rank.
type Fit struct {
	Argv  []string
	Dir   string // working directory; empty for the daemon's
	Env   []string
	Files []*os.File // the rank's file descriptors from 3 on; closed after the start
	Place binding.Place
	In    *os.File  // standard input; nil if the rank has none
	Out   io.Writer // standard output; see process.Spec
	Err   io.Writer
	Done  func() // called after all output of the rank has been processed
	// Parted is called after the rank has exited with code 0. It describes how the rank left MPI
	// without finalizing it, and returns an empty string if nothing is wrong. It is nil if the rank
	// has no MPI server.
	Parted func() string
	// Died is called when the rank has ended with an exit code other than 0. It must not block. It may
	// be nil.
	Died func(status int)
}

// Kit contains the common settings of the ranks of one node.
type Kit struct {
	Argv   []string
	Base   []string // environment on which those of the ranks are based
	Plan   Plan
	At     Meeting
	Places []binding.Place // bindings of the ranks, by local number
	Own    []string        // variables set by the user, NAME=VALUE; they take precedence
}

// Fit returns how to start one rank of the node. more contains the variables of its MPI servers.
func (k Kit) Fit(rank Rank, more map[string]string) Fit {
	place, own := k.Places[rank.Local], Told(k.Own)
	return Fit{Argv: k.Argv, Place: place, Env: Environ(k.Base, k.Plan, rank, k.At, placed(k.Base, place, own), more, own)}
}

// placed returns the variables that describe a binding. It leaves out the variables of network
// cards that the user or the launcher has set already.
func placed(base []string, place binding.Place, own map[string]string) map[string]string {
	return Told(place.Environ(func(name string) bool {
		_, set := own[name]
		return set || slices.ContainsFunc(base, func(entry string) bool { return strings.HasPrefix(entry, name+"=") })
	}))
}

// prepare returns the Prepare function of a rank's process.Spec. It binds the thread that forks the
// rank, so that the rank inherits the binding. It logs what this system does not permit to bind.
func (c *Crew) prepare(place binding.Place) func() (undo func(), err error) {
	return func() (undo func(), err error) {
		restore, skipped, err := place.Prepare()
		if err != nil {
			return nil, err
		}
		for _, word := range append(skipped, place.Note) {
			c.tellOnce(word)
		}
		return func() {
			if err := restore(); err != nil {
				c.tellOnce(fmt.Sprintf("what is started next may be bound as a rank was: %v", err))
			}
		}, nil
	}
}

// tellOnce logs a message that applies to all ranks of the node, once. It ignores an empty message.
func (c *Crew) tellOnce(word string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if word != "" && !slices.Contains(c.said, word) {
		c.said = append(c.said, word)
		c.Log.Info(word)
	}
}

// bound verifies the binding of a rank that has been started. A wrong binding is a failed check if
// Strict is set; otherwise it is logged.
func (c *Crew) bound(rank Rank, child process.Handle, place binding.Place) error {
	differences, err := place.Differences(child.Pid())
	if service.Ended(child) { // its binding may have been read too late
		return nil
	}
	if err != nil {
		c.tellOnce(err.Error())
	}
	if len(differences) == 0 {
		return nil
	}
	what := fmt.Sprintf("rank %d on %s is not where it should be: %s", rank.Rank, c.Node, strings.Join(differences, "; "))
	if c.Strict {
		return health.Failed(health.Check, "%s", what)
	}
	c.Log.Warn(what)
	return nil
}
