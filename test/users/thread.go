package users

import (
	"runtime"
	"sync"
	"testing"

	"golang.org/x/sys/unix"
)

// Do runs f as the user, on a separate thread: system calls of f itself, for example to connect to
// a socket, use the user's credentials. Goroutines that f starts, and the rest of this process,
// remain root.
func (u User) Do(t testing.TB, f func()) {
	t.Helper()
	if err := u.do(f); err != nil {
		t.Fatalf("cannot become user %d: %v", u.ID, err)
	}
}

func (u User) do(f func()) (err error) {
	var thread sync.WaitGroup
	thread.Go(func() {
		runtime.LockOSThread() // never unlocked, so the thread ends with the goroutine
		if unix.Gettid() == unix.Getpid() {
			// The main thread never ends, and /proc shows its user as that of the process.
			defer runtime.UnlockOSThread()
			err = u.do(f)
			return
		}
		for _, call := range [][4]uintptr{
			{unix.SYS_SETGROUPS, 0, 0, 0},
			{unix.SYS_SETRESGID, uintptr(u.ID), uintptr(u.ID), uintptr(u.ID)},
			{unix.SYS_SETRESUID, uintptr(u.ID), uintptr(u.ID), uintptr(u.ID)},
		} {
			if _, _, errno := unix.RawSyscall(call[0], call[1], call[2], call[3]); errno != 0 {
				err = errno
				return
			}
		}
		f()
	})
	thread.Wait()
	return err
}

// Open makes a socket and its directory accessible to all users. They are never accessible in a
// run, but the tests check that the socket itself rejects other users.
func Open(t testing.TB, paths ...string) {
	t.Helper()
	for _, path := range paths {
		if err := unix.Chmod(path, 0o777); err != nil {
			t.Fatalf("cannot open %s to all users: %v", path, err)
		}
	}
}
