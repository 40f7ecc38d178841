package process

import (
	"fmt"
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
	// Err is what went wrong around the end: processes that can't be ended, output that could not be passed on or
	// logged. It does not change what Status returns.
	Err error
}

// Status returns the exit code as a shell would have it: 128+n where signal n ended the child.
func (e Exit) Status() int {
	if e.Signal != 0 {
		return 128 + int(e.Signal)
	}
	return e.Code
}

// String says how the child ended, in the words of an error message: "exit code 3", "killed by SIGKILL".
func (e Exit) String() string {
	switch {
	case e.Signal == 0 && e.Code < 0:
		return "not ended"
	case e.Signal == 0:
		return fmt.Sprintf("exit code %d", e.Code)
	case e.CoreDumped:
		return fmt.Sprintf("killed by %s (core dumped)", signalName(e.Signal))
	case e.Signal == unix.SIGKILL && !e.Asked:
		return "killed by SIGKILL (perhaps out of memory)"
	}
	return "killed by " + signalName(e.Signal)
}

func signalName(sig syscall.Signal) string {
	if name := unix.SignalName(sig); name != "" {
		return name
	}
	return fmt.Sprintf("signal %d", int(sig)) // a real-time signal
}

// awaitExit waits for the end of our child pid. It stays a zombie, and its number its own, until takeExit: who holds
// the lock under which signals are sent can call that.
func awaitExit(pid int) {
	for unix.Waitid(unix.P_PID, pid, nil, unix.WEXITED|unix.WNOWAIT, nil) == unix.EINTR {
	}
}

// takeExit reaps our child pid, which has ended.
func takeExit(pid int) Exit {
	var status unix.WaitStatus
	for {
		_, err := unix.Wait4(pid, &status, 0, nil)
		if err == nil {
			return exitOf(status)
		}
		if err != unix.EINTR {
			return Exit{Code: -1, Err: fmt.Errorf("cannot learn how pid %d ended (did another part reap it?): %v", pid, err)}
		}
	}
}

// exitOf reads what wait4 returned.
func exitOf(status unix.WaitStatus) Exit {
	if status.Signaled() {
		return Exit{Code: -1, Signal: status.Signal(), CoreDumped: status.CoreDump()}
	}
	return Exit{Code: status.ExitStatus()}
}

// wasAsked decides on Exit.Asked: stopping says that Stop was called while the child ran, sent holds the signals that
// it was sent. A signal that only tells a child something (USR1, say) asks for nothing unless it was the end of it.
func wasAsked(exit Exit, stopping bool, sent map[syscall.Signal]bool) bool {
	if stopping || exit.Signal != 0 && sent[exit.Signal] {
		return true
	}
	for sig := range sent {
		if wakes(sig) {
			return true
		}
	}
	return false
}
