package process

import (
	"os"
	"os/signal"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// keeperName is the argument by which this binary recognises that it must run as a keeper.
const keeperName = "family-keeper"

// keeperGracePeriod is the time between SIGTERM and SIGKILL for processes that a command leaves
// behind.
const keeperGracePeriod = 2 * time.Second

// WithKeeper returns a command that runs argv under a keeper. The keeper ends when no process of
// argv is left: after argv has ended, the remaining processes get SIGTERM and, after two seconds,
// SIGKILL. Orphans become children of the keeper, so none can escape it, as they can escape the
// periodic scans of a daemon. An example are the processes of an MPI proxy, which gives them new
// sessions and the environment of another node.
func WithKeeper(argv ...string) []string { return append([]string{OwnBinary, keeperName}, argv...) }

func init() {
	if len(os.Args) > 2 && os.Args[0] == OwnBinary && os.Args[1] == keeperName {
		os.Exit(keeperMain(os.Args[2:]))
	}
}

// keeperMain is the main function of a keeper. It returns the command's exit code as a shell
// reports it.
func keeperMain(argv []string) int {
	// Signals are caught, not ignored, because a started program inherits ignored signals.
	signal.Notify(make(chan os.Signal, 1), unix.SIGTERM, unix.SIGINT, unix.SIGHUP, unix.SIGQUIT,
		unix.SIGUSR1, unix.SIGUSR2, unix.SIGPIPE)
	_ = unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0) // does not fail since Linux 3.4
	pid, err := syscall.ForkExec(argv[0], argv, &syscall.ProcAttr{Env: os.Environ(), Files: []uintptr{0, 1, 2}})
	if err != nil {
		_, _ = os.Stderr.WriteString("cannot start " + argv[0] + ": " + err.Error() + "\n")
		return 127
	}
	// Reap all children until the command itself has ended.
	for {
		var status unix.WaitStatus
		switch reaped, err := unix.Wait4(-1, &status, 0, nil); {
		case err == unix.EINTR, err == nil && reaped != pid:
		case err != nil:
			return 127 // no children: this cannot happen
		default:
			killDescendants(keeperGracePeriod)
			if status.Signaled() {
				return 128 + int(status.Signal())
			}
			return status.ExitStatus()
		}
	}
}

// killDescendants ends all descendants of this process. It gives up on processes that cannot be
// ended.
func killDescendants(grace time.Duration) {
	asked := make(map[int]bool)
	for began := time.Now(); time.Since(began) < grace+time.Second; time.Sleep(5 * time.Millisecond) {
		for reaped := 1; reaped > 0; {
			var err error
			if reaped, err = unix.Wait4(-1, nil, unix.WNOHANG, nil); err == unix.ECHILD {
				return
			}
		}
		insist := time.Since(began) > grace
		for _, p := range ProcessTree(os.Getpid()) {
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
