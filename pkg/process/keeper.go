package process

import (
	"os"
	"os/signal"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// keeperName is by what argument this binary knows that it is to be a keeper.
const keeperName = "family-keeper"

// keeperGrace is how long what a command has left has after TERM.
const keeperGrace = 2 * time.Second

// Kept returns the command that runs another one, and ends when nothing of that is left: what its end leaves behind gets
// TERM and, after two seconds, KILL. Orphans become the children of a keeper and can hide from it nowhere, as they can
// from a daemon that looks now and then: those of an MPI's proxy, say, which has given them sessions of their own and the
// environment of another node.
func Kept(argv ...string) []string { return append([]string{OwnBinary, keeperName}, argv...) }

func init() {
	if len(os.Args) > 2 && os.Args[0] == OwnBinary && os.Args[1] == keeperName {
		os.Exit(keep(os.Args[2:]))
	}
}

// keep is the life of a keeper. It returns the command's code, as a shell has it.
func keep(argv []string) int {
	// They are caught, not ignored, for what is started here would ignore them, too.
	signal.Notify(make(chan os.Signal, 1), unix.SIGTERM, unix.SIGINT, unix.SIGHUP, unix.SIGQUIT, unix.SIGUSR1, unix.SIGUSR2, unix.SIGPIPE)
	_ = unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) // it fails on no kernel since 3.4
	pid, err := syscall.ForkExec(argv[0], argv, &syscall.ProcAttr{Env: os.Environ(), Files: []uintptr{0, 1, 2}})
	if err != nil {
		_, _ = os.Stderr.WriteString("cannot start " + argv[0] + ": " + err.Error() + "\n")
		return 127
	}
	for {
		var status unix.WaitStatus
		switch reaped, err := unix.Wait4(-1, &status, 0, nil); {
		case err == unix.EINTR, err == nil && reaped != pid:
		case err != nil:
			return 127 // it has no children, which can't be
		default:
			endOrphans(keeperGrace)
			if status.Signaled() {
				return 128 + int(status.Signal())
			}
			return status.ExitStatus()
		}
	}
}

// endOrphans ends all that is below this process, and gives up what can't be ended.
func endOrphans(grace time.Duration) {
	asked := make(map[int]bool)
	for began := time.Now(); time.Since(began) < grace+time.Second; time.Sleep(5 * time.Millisecond) {
		for reaped := 1; reaped > 0; {
			var err error
			if reaped, err = unix.Wait4(-1, nil, unix.WNOHANG, nil); err == unix.ECHILD {
				return
			}
		}
		insist := time.Since(began) > grace
		for _, p := range Tree(os.Getpid()) {
			switch {
			case p.PID == os.Getpid():
			case insist:
				_ = unix.Kill(p.PID, unix.SIGKILL)
			case !asked[p.PID]:
				_ = unix.Kill(p.PID, unix.SIGTERM)
			}
			asked[p.PID] = true
		}
	}
}
