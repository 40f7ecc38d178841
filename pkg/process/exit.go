package process

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/bringupd/bringupd/pkg/signal/record"
)

// Exit describes how a child ended.
type Exit struct {
	// Code is the exit code; -1 if a signal ended the child or it has not ended.
	Code int
	// Signal is the signal that ended the child; 0 if it exited by itself.
	Signal syscall.Signal
	// CoreDumped is set if the kernel wrote a core file.
	CoreDumped bool
	// Requested is set if the daemon requested the end: Stop was called while the child ran, or the
	// child was sent a termination signal or the very signal that ended it.
	Requested bool
	// OOM describes processes that the kernel killed because memory ran out, while the child ran; nil
	// if there were none.
	OOM *record.OOMReport
	// Err describes problems around the end: processes that cannot be ended, output that could not be
	// passed on. It does not affect [Exit.ShellStatus].
	Err error
}

// ShellStatus returns the exit code as a shell reports it: 128+n if signal n ended the child.
func (e Exit) ShellStatus() int {
	if e.Signal != 0 {
		return 128 + int(e.Signal)
	}
	return e.Code
}

// String describes the end for an error message: "exit code 3", "killed by SIGKILL (perhaps out of
// memory: see dmesg)". If the kernel has counted OOM kills, they replace the guess.
func (e Exit) String() string {
	how := fmt.Sprintf("exit code %d", e.Code)
	switch {
	case e.CoreDumped:
		how = fmt.Sprintf("killed by %s (core dumped)", SignalName(e.Signal))
	case e.Signal != 0:
		how = "killed by " + SignalName(e.Signal)
	case e.Code < 0:
		how = "not ended"
	case e.wasKilled():
		how += " (killed by SIGKILL)"
	}
	switch {
	case e.OOM != nil:
		how += ": " + describeKills(e.OOM)
	case e.wasKilled() && !e.Requested:
		how += " (perhaps out of memory)"
	}
	return how
}

// shellKilledCode is the exit code of a shell after SIGKILL has ended its command.
const shellKilledCode = 128 + int(unix.SIGKILL)

// wasKilled reports whether SIGKILL ended the child, or another process, of which the child
// returned the exit code.
func (e Exit) wasKilled() bool { return e.Signal == unix.SIGKILL || e.Code == shellKilledCode }

// awaitExit waits until the child pid has ended, without reaping it: it stays a zombie and keeps
// its PID until reapExit. This lets the caller reap it under the lock under which signals are sent.
func awaitExit(pid int) {
	for unix.Waitid(unix.P_PID, pid, nil, unix.WEXITED|unix.WNOWAIT, nil) == unix.EINTR {
	}
}

func reapExit(child *os.Process) Exit {
	state, err := child.Wait()
	if err != nil {
		err = fmt.Errorf("cannot learn how pid %d ended (was it reaped elsewhere?): %v", child.Pid, err)
		return Exit{Code: -1, Err: err}
	}
	return ExitFromState(state)
}

// ExitFromState returns the Exit of a command, from its process state.
func ExitFromState(state *os.ProcessState) Exit {
	status, _ := state.Sys().(syscall.WaitStatus)
	if status.Signaled() {
		return Exit{Code: -1, Signal: status.Signal(), CoreDumped: status.CoreDump()}
	}
	return Exit{Code: status.ExitStatus()}
}

// isRequestedExit computes Exit.Requested. stopping is set if Stop was called while the child ran; sent
// holds the signals that the child was sent. Signals that merely notify, such as SIGUSR1, count
// only if they ended the child.
func isRequestedExit(exit Exit, stopping bool, sent map[syscall.Signal]bool) bool {
	wanted := slices.ContainsFunc(slices.Collect(maps.Keys(sent)), isTermination)
	return stopping || wanted || exit.Signal != 0 && sent[exit.Signal]
}

// Real-time signals as glibc numbers them: it reserves the kernel's first two.
const (
	firstRealTime = 34
	lastRealTime  = 64
)

// SignalName returns a signal's name as in kill -l, such as SIGTERM or SIGRTMIN+6.
func SignalName(sig syscall.Signal) string {
	name := unix.SignalName(sig)
	switch n := int(sig); {
	case name != "":
		return name
	case n == firstRealTime:
		return "SIGRTMIN"
	case firstRealTime < n && n <= lastRealTime:
		return fmt.Sprintf("SIGRTMIN+%d", n-firstRealTime)
	default:
		return fmt.Sprintf("signal %d", n)
	}
}

// SignalNumber returns the signal with the name that SignalName returns; 0 if there is none.
func SignalNumber(name string) syscall.Signal {
	for sig := syscall.Signal(1); sig <= lastRealTime; sig++ {
		if SignalName(sig) == name {
			return sig
		}
	}
	return 0
}
