// Package pipe provides pipes for tests.
package pipe

import (
	"bytes"
	"os"
	"testing"

	"golang.org/x/sys/unix"
)

// Unread returns the ends of a full pipe without a reader. They are closed when the test ends.
func Unread(t testing.TB) (from, to *os.File) {
	t.Helper()
	var ends [2]int
	if err := unix.Pipe2(ends[:], unix.O_CLOEXEC|unix.O_NONBLOCK); err != nil {
		t.Fatal(err)
	}
	full := bytes.Repeat([]byte("#"), 1<<20)
	for _, size := range []int{4096, 1} {
		for {
			if _, err := unix.Write(ends[1], full[:size]); err != nil {
				break
			}
		}
	}
	// Make it blocking, like the pipe of a launcher.
	for _, end := range ends {
		if err := unix.SetNonblock(end, false); err != nil {
			t.Fatal(err)
		}
	}
	from, to = os.NewFile(uintptr(ends[0]), "unread, to read"),
		os.NewFile(uintptr(ends[1]), "unread")
	t.Cleanup(func() { _, _ = from.Close(), to.Close() })
	return from, to
}
