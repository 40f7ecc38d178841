package users

import (
	"runtime"
	"sync"
	"testing"

	"golang.org/x/sys/unix"
)

// Do runs f as the user, on a thread of its own: system calls that f makes itself, for example to
// connect to a socket, are the user's. Goroutines that f starts, and this process otherwise, remain
// root.
func (u User) Do(t testing.TB, f func()) {
	t.Helper()
	var failed error
	var thread sync.WaitGroup
	thread.Go(func() {
		runtime.LockOSThread() // and never unlocked: the thread ends with the goroutine
		for _, call := range [][4]uintptr{
			{unix.SYS_SETGROUPS, 0, 0, 0},
			{unix.SYS_SETRESGID, uintptr(u.ID), uintptr(u.ID), uintptr(u.ID)},
			{unix.SYS_SETRESUID, uintptr(u.ID), uintptr(u.ID), uintptr(u.ID)},
		} {
			if _, _, errno := unix.RawSyscall(call[0], call[1], call[2], call[3]); errno != 0 {
				failed = errno
				return
			}
		}
		f()
	})
	thread.Wait()
	if failed != nil {
		t.Fatalf("cannot become user %d: %v", u.ID, failed)
	}
}

// Open makes a socket's directory and the socket accessible to all users, as they never are in a
// run, so that what the socket itself does about strangers is seen.
func Open(t testing.TB, paths ...string) {
	t.Helper()
	for _, path := range paths {
		if err := unix.Chmod(path, 0o777); err != nil {
			t.Fatalf("cannot open %s to all users: %v", path, err)
		}
	}
}
