// Package launch starts all daemons of one run from one process, as a launcher does: on this machine, or on others by
// the user's own ssh. It passes signals on, waits for all, and leaves nothing behind.
package launch

import (
	"cmp"
	"context"
	"errors"
	"os"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/bringupd/bringupd/pkg/output"
	"github.com/bringupd/bringupd/pkg/process"
	"github.com/bringupd/bringupd/pkg/roles"
)

// Job is the daemons of one run.
type Job struct {
	Specs   []process.Spec // what starts the daemon of each rank
	Signals <-chan os.Signal
	// Chorus is closed when nothing is printed to it any more; nil: there is none.
	Chorus *output.Chorus
	// Signal has a rank's daemon get a signal. nil: that of its process.
	Signal func(rank int, child *process.Child, sig syscall.Signal)
	// Ended hears of each daemon's end, one after the other, and returns how it is to be counted, and a signal for all
	// others; 0: none. nil: all is as it seems.
	Ended func(rank int, child *process.Child) (process.Exit, syscall.Signal)
}

// Run starts the daemons, and returns how each has ended when all have. Where one could not be started, it ends those
// that were.
func (j Job) Run() (exits []process.Exit, err error) {
	super, err := process.NewSupervisor(roles.JobVariables())
	if err != nil {
		return nil, err
	}
	super.AdoptOrphans()
	var daemons []*process.Child
	for _, spec := range j.Specs {
		child, err := super.Start(context.Background(), spec)
		if err != nil {
			return nil, errors.Join(err, j.end(super, daemons))
		}
		daemons = append(daemons, child)
	}
	exits = j.await(super, daemons)
	return exits, j.end(super, daemons)
}

// await gives signals to all daemons until they have ended.
func (j Job) await(super *process.Supervisor, daemons []*process.Child) []process.Exit {
	var passing sync.WaitGroup
	ctx, cancel := context.WithCancel(context.Background())
	defer passing.Wait()
	defer cancel()
	over := make(chan int, len(daemons))
	for rank, child := range daemons {
		go func() { // it ends with the child, which is waited for below
			<-child.Done()
			over <- rank
		}()
	}
	exits := make([]process.Exit, len(daemons))
	for left := len(daemons); left > 0; {
		select {
		case rank := <-over:
			left--
			exits[rank] = daemons[rank].Exit()
			if j.Ended != nil {
				var sig syscall.Signal
				if exits[rank], sig = j.Ended(rank, daemons[rank]); sig != 0 {
					j.pass(daemons, sig)
				}
			}
		case got := <-j.Signals:
			sig := got.(syscall.Signal)
			if !j.shared(sig) {
				j.pass(daemons, sig)
				continue
			}
			passing.Go(func() {
				if !super.Reached(ctx, sig) {
					j.pass(daemons, sig)
				}
			})
		}
	}
	return exits
}

// shared reports whether the launcher of the job around may have sent a signal to all processes here.
func (j Job) shared(sig syscall.Signal) bool {
	return j.Signal == nil && slices.Contains(process.Relayed, sig) && roles.SignalsAll(os.Environ())
}

// pass gives all daemons a signal. One that has ended needs none.
func (j Job) pass(daemons []*process.Child, sig syscall.Signal) {
	for rank, child := range daemons {
		if j.Signal != nil {
			j.Signal(rank, child, sig)
			continue
		}
		_ = child.Signal(sig)
	}
}

// Code is the code of a job by the ends of its daemons: the head's, unless it was killed and the others came to a
// verdict.
func Code(exits []process.Exit) int {
	code := exits[0].Status()
	if exits[0].Signal == 0 {
		return code
	}
	verdict := 0
	for _, exit := range exits[1:] {
		if exit.Signal == 0 {
			verdict = max(verdict, exit.Code)
		}
	}
	return cmp.Or(verdict, code)
}

// endGrace is more than a daemon takes for its own end.
const endGrace = 25 * time.Second

var errLeft = errors.New("the daemons took too long to end")

// end sees to it that nothing of the daemons is left.
func (j Job) end(super *process.Supervisor, daemons []*process.Child) error {
	ctx, cancel := context.WithTimeoutCause(context.Background(), endGrace, errLeft)
	defer cancel()
	var stops sync.WaitGroup
	for _, child := range daemons {
		stops.Go(func() { child.Stop(ctx, endGrace, syscall.SIGTERM) })
	}
	stops.Wait()
	err := super.Close(ctx)
	if j.Chorus != nil {
		err = errors.Join(err, j.Chorus.Close(ctx))
	}
	return err
}
