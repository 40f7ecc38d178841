package process

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"syscall"

	"golang.org/x/sys/unix"
)

// Exit tells how a child ended.
type Exit struct {
	// Code is the exit code; -1 where a signal ended the child or it has not ended.
	Code int
	// Signal ended the child; 0 where it ended by itself.
	Signal syscall.Signal
	// CoreDumped is whether the kernel wrote a core file.
	CoreDumped bool
	// Asked is whether we wanted the end: Stop was called while the child ran, or it was sent the signal that ended it
	// or one that asks for an end.
	Asked bool
	// OOM tells of processes that the kernel ended for want of memory while the child ran.
	OOM OOM
	// Err is what went wrong around the end: processes that can't be ended, output that could not be passed on. It does
	// not change what Status returns.
	Err error
}

// Status returns the exit code as a shell would have it: 128+n where signal n ended the child.
func (e Exit) Status() int {
	if e.Signal != 0 {
		return 128 + int(e.Signal)
	}
	return e.Code
}

// String says how the child ended, in the words of an error message: "exit code 3", "killed by SIGKILL (perhaps out of
// memory: see dmesg)". What the kernel's own count says takes the guess's place.
func (e Exit) String() string {
	how := fmt.Sprintf("exit code %d", e.Code)
	switch {
	case e.CoreDumped:
		how = fmt.Sprintf("killed by %s (core dumped)", SignalName(e.Signal))
	case e.Signal != 0:
		how = "killed by " + SignalName(e.Signal)
	case e.Code < 0:
		how = "not ended"
	case e.killed():
		how += ", as of a process killed by SIGKILL"
	}
	switch {
	case e.OOM.Kills > 0:
		how += ": " + e.OOM.String()
	case e.killed() && !e.Asked:
		how += " (perhaps out of memory: see dmesg)"
	}
	return how
}

// shellKilled is the code of a shell whose command was killed.
const shellKilled = 128 + int(unix.SIGKILL)

// killed tells whether KILL has ended the child, or a process that it passes on the end of.
func (e Exit) killed() bool { return e.Signal == unix.SIGKILL || e.Code == shellKilled }

// awaitExit waits for the end of our child pid. It stays a zombie, and its number its own, until takeExit: who holds
// the lock under which signals are sent can call that.
func awaitExit(pid int) {
	for unix.Waitid(unix.P_PID, pid, nil, unix.WEXITED|unix.WNOWAIT, nil) == unix.EINTR {
	}
}

// takeExit reaps a child of ours, which has ended.
func takeExit(child *os.Process) Exit {
	state, err := child.Wait()
	if err != nil {
		return Exit{Code: -1, Err: fmt.Errorf("cannot learn how pid %d ended (did another part reap it?): %v", child.Pid, err)}
	}
	return ExitOf(state)
}

// ExitOf tells how a command ended.
func ExitOf(state *os.ProcessState) Exit {
	status, _ := state.Sys().(syscall.WaitStatus)
	if status.Signaled() {
		return Exit{Code: -1, Signal: status.Signal(), CoreDumped: status.CoreDump()}
	}
	return Exit{Code: status.ExitStatus()}
}

// wasAsked decides on Exit.Asked: stopping says that Stop was called while the child ran, sent holds the signals that
// it was sent. A signal that only tells a child something (USR1, say) asks for nothing unless it was the end of it.
func wasAsked(exit Exit, stopping bool, sent map[syscall.Signal]bool) bool {
	wanted := slices.ContainsFunc(slices.Collect(maps.Keys(sent)), wakes)
	return stopping || wanted || exit.Signal != 0 && sent[exit.Signal]
}
