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

	"github.com/bringupd/bringupd/pkg/console"
	"github.com/bringupd/bringupd/pkg/health"
	"github.com/bringupd/bringupd/pkg/process"
	"github.com/bringupd/bringupd/pkg/roles/launcher"
)

// Job describes the daemons of one run.
type Job struct {
	Specs   []process.Spec // the commands of the daemons, by node
	Signals <-chan os.Signal
	// Output is the console output of the daemons. [Job.Run] closes it after their end. It may be nil.
	Output *console.Mux
	// SendSignal sends a signal to a node's daemon. If it is nil, the signal is sent to the child
	// process.
	SendSignal func(node int, child process.Handle, sig syscall.Signal)
	// OnExit is called after the end of each daemon, by one goroutine. It returns the exit to report
	// for the daemon, and a signal to send to all others, or 0. If it is nil, the exit of the child
	// process is reported.
	OnExit func(node int, child process.Handle) (process.Exit, syscall.Signal)
	// RunDir is where the head learns that a daemon has ended before it joined.
	RunDir RunDir
	// EndTimeout is how long the other daemons may take to end after that of the head, and that of the
	// head after the others have lost it. Those that take longer are killed, which OnKill is told of.
	EndTimeout time.Duration
	OnKill     func(node int)
}

// Run starts the daemons, and returns their exits, by node, when all have ended. If a daemon cannot
// be started, Run ends the others.
func (j Job) Run() (exits []process.Exit, err error) {
	super, err := process.NewSupervisor(launcher.JobVariables())
	if err != nil {
		return nil, err
	}
	super.AdoptOrphans()
	var daemons []process.Handle
	for _, spec := range j.Specs {
		child, err := super.Start(context.Background(), spec)
		if err != nil {
			return nil, errors.Join(err, j.stopAll(super, daemons))
		}
		daemons = append(daemons, child)
	}
	exits = j.awaitExits(super, daemons)
	return exits, j.stopAll(super, daemons)
}

// awaitExits forwards signals to all daemons until all have ended, and returns their exits.
func (j Job) awaitExits(super *process.Supervisor, daemons []process.Handle) []process.Exit {
	var passing sync.WaitGroup
	ctx, cancel := context.WithCancel(context.Background())
	defer passing.Wait()
	defer cancel()
	over := make(chan int, len(daemons))
	for node, child := range daemons {
		go func() { // ends with the child process, which is awaited below
			<-child.Done()
			over <- node
		}()
	}
	// Handle the daemons' ends and this process's signals.
	exits, ended, signalled := make([]process.Exit, len(daemons)), make([]bool, len(daemons)), false
	var deadline <-chan time.Time
	for left := len(daemons); left > 0; {
		select {
		case <-deadline:
			j.killRest(daemons, ended)
		case node := <-over:
			left--
			exits[node], ended[node] = daemons[node].Exit(), true
			if deadline == nil && isOver(exits, ended) {
				deadline = time.After(j.EndTimeout)
			}
			if j.OnExit != nil {
				var sig syscall.Signal
				if exits[node], sig = j.OnExit(node, daemons[node]); sig != 0 {
					signalled = true
					j.forwardSignal(daemons, sig)
				}
			}
			if !signalled && node > 0 && node < len(j.RunDir.Hosts) {
				exit := exits[node]
				passing.Go(func() { _ = j.RunDir.ReportUnjoined(ctx, node, exit) }) // the head waits otherwise
			}
		case got := <-j.Signals:
			sig := got.(syscall.Signal)
			signalled = true
			// If the launcher signals all processes, the daemons receive the signal without our help.
			// Forward it only if it has not reached them.
			if !j.mayReachAll(sig) {
				j.forwardSignal(daemons, sig)
				continue
			}
			passing.Go(func() {
				if !super.SignalReachedGuard(ctx, sig) {
					j.forwardSignal(daemons, sig)
				}
			})
		}
	}
	return exits
}

// isOver reports whether the remaining daemons should end soon: the head has ended, or all others
// have, because they have lost it. With spares, the head may go on without daemons that were killed.
func isOver(exits []process.Exit, ended []bool) bool {
	lostCode := health.OutcomeOfKind(health.PeerLost).Code
	isLost := func(exit process.Exit) bool { return exit.ShellStatus() == lostCode }
	return ended[0] || !slices.Contains(ended[1:], false) && slices.ContainsFunc(exits[1:], isLost)
}

// killRest kills the daemons that have not ended. Their guards end the processes of each.
func (j Job) killRest(daemons []process.Handle, ended []bool) {
	for node, child := range daemons {
		if !ended[node] {
			if j.OnKill != nil {
				j.OnKill(node)
			}
			_ = child.Signal(syscall.SIGKILL)
		}
	}
}

// mayReachAll reports whether the launcher of the surrounding job may have sent a signal to all
// processes of the job.
func (j Job) mayReachAll(sig syscall.Signal) bool {
	return j.SendSignal == nil && slices.Contains(process.ForwardedSignals, sig) && launcher.MaySignalAll(os.Environ())
}

// forwardSignal sends a signal to all daemons. It has no effect on a daemon that has ended.
func (j Job) forwardSignal(daemons []process.Handle, sig syscall.Signal) {
	for node, child := range daemons {
		if j.SendSignal != nil {
			j.SendSignal(node, child, sig)
			continue
		}
		_ = child.Signal(sig)
	}
}

// ExitCode returns the exit code of a job from the exits of its daemons. It is the head's exit
// code. If a signal has killed the head, it is the highest exit code of the others, if that is not
// 0.
func ExitCode(exits []process.Exit) int {
	code := exits[0].ShellStatus()
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

// shutdownTimeout is the maximum time for the end of the daemons. A daemon needs less for its own
// end.
const shutdownTimeout = 25 * time.Second

var errShutdownTimeout = errors.New("the daemons took too long to end")

// stopAll stops all remaining processes of the daemons, and closes the console output.
func (j Job) stopAll(super *process.Supervisor, daemons []process.Handle) error {
	ctx, cancel := context.WithTimeoutCause(context.Background(), shutdownTimeout, errShutdownTimeout)
	defer cancel()
	var stops sync.WaitGroup
	for _, child := range daemons {
		stops.Go(func() { child.Stop(ctx, shutdownTimeout, syscall.SIGTERM) })
	}
	stops.Wait()
	err := super.Close(ctx)
	if j.Output != nil {
		err = errors.Join(err, j.Output.Close(ctx))
	}
	return err
}
