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

// Fit is what one rank is given.
type Fit struct {
	Argv  []string
	Dir   string // empty: the daemon's
	Env   []string
	Files []*os.File // its descriptors from 3 on
	Place binding.Place
	In    *os.File  // nil: it has no standard input
	Out   io.Writer // see process.Spec
	Err   io.Writer
	Done  func() // called when all that it has printed was passed on
	// Parted says what is wrong with how the rank has left who serves it MPI, once it has ended with code 0; nil: nothing can be.
	Parted func() string
	// Died is told that the rank has ended with another code than 0, and must not wait; nil: nobody wants to know.
	Died func(status int)
}

// Kit is what the ranks of one node are told, and what they have of it.
type Kit struct {
	Argv   []string
	Base   []string // the environment that theirs is made on top of
	Plan   Plan
	At     Meeting
	Places []binding.Place // by local number
	Own    []string        // the user's own variables, NAME=VALUE, which win
}

// Fit is what one rank of the node is told, with more by who serves it.
func (k Kit) Fit(rank Rank, more map[string]string) Fit {
	place, own := k.Places[rank.Local], Told(k.Own)
	return Fit{Argv: k.Argv, Place: place, Env: Environ(k.Base, k.Plan, rank, k.At, placed(k.Base, place, own), more, own)}
}

// placed are the variables of a place. What the launch or the user has set for the ranks
// is not to be replaced by what we would.
func placed(base []string, place binding.Place, own map[string]string) map[string]string {
	return Told(place.Environ(func(name string) bool {
		_, set := own[name]
		return set || slices.ContainsFunc(base, func(entry string) bool { return strings.HasPrefix(entry, name+"=") })
	}))
}

// prepare binds the thread that forks the rank. What this system does not let us bind
// is told.
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

// tellOnce says what is the same for all ranks of the node once.
func (c *Crew) tellOnce(word string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if word != "" && !slices.Contains(c.said, word) {
		c.said = append(c.said, word)
		c.Log.Info(word)
	}
}

// bound sees whether a rank is where it should be. Its error is a failed check, where
// a difference is to be one.
func (c *Crew) bound(rank Rank, child process.Handle, place binding.Place) error {
	differences, err := place.Differences(child.Pid())
	if service.Ended(child) { // before it was looked at, perhaps
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
