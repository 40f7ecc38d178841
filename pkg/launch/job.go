// Package launch starts all daemons of one run from one process, like a launcher: on this machine,
// or on other machines by the user's own ssh. It forwards signals, waits for all daemons, and
// leaves no process behind.
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

// Job describes the daemons of one run.
type Job struct {
	Specs   []process.Spec // the commands of the daemons, by node
	Signals <-chan os.Signal
	// Chorus is the console output of the daemons. [Job.Run] closes it after their end. It may be nil.
	Chorus *output.Chorus
	// Signal sends a signal to a node's daemon. If it is nil, the signal is sent to the child process.
	Signal func(rank int, child *process.Child, sig syscall.Signal)
	// Ended is called after the end of each daemon, by one goroutine. It returns the exit to report
	// for the daemon, and a signal to send to all others, or 0. If it is nil, the exit of the child
	// process is reported.
	Ended func(rank int, child *process.Child) (process.Exit, syscall.Signal)
}

// Run starts the daemons, and returns their exits, by node, when all have ended. If a daemon cannot
// be started, Run ends the others.
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

// await forwards signals to all daemons until all have ended, and returns their exits.
func (j Job) await(super *process.Supervisor, daemons []*process.Child) []process.Exit {
	var passing sync.WaitGroup
	ctx, cancel := context.WithCancel(context.Background())
	defer passing.Wait()
	defer cancel()
	over := make(chan int, len(daemons))
	for rank, child := range daemons {
		go func() { // ends with the child process, which is awaited below
			<-child.Done()
			over <- rank
		}()
	}
	// Handle the daemons' ends and this process's signals.
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
			// If the launcher signals all processes, the daemons receive the signal without our help.
			// Forward it only if it has not reached them.
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

// shared reports whether the launcher of the surrounding job may have sent a signal to all
// processes of the job.
func (j Job) shared(sig syscall.Signal) bool {
	return j.Signal == nil && slices.Contains(process.Relayed, sig) && roles.SignalsAll(os.Environ())
}

// pass sends a signal to all daemons. It has no effect on a daemon that has ended.
func (j Job) pass(daemons []*process.Child, sig syscall.Signal) {
	for rank, child := range daemons {
		if j.Signal != nil {
			j.Signal(rank, child, sig)
			continue
		}
		_ = child.Signal(sig)
	}
}

// Code returns the exit code of a job from the exits of its daemons. It is the head's exit code. If
// a signal has killed the head, it is the highest exit code of the others, if that is not 0.
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

// endGrace is the maximum time for the end of the daemons. A daemon needs less for its own end.
const endGrace = 25 * time.Second

var errLeft = errors.New("the daemons took too long to end")

// end stops all remaining processes of the daemons, and closes the console output.
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
