package limits

import (
	"fmt"
	"syscall"
)

// maxOpenFiles is the limit that RaiseFileLimit does not exceed. Some machines allow a billion
// files, and some programs close every possible descriptor, one by one, when they start another
// program.
const maxOpenFiles = 1 << 20

// RaiseFileLimit raises the limit of open files that children of this process inherit to the hard
// limit, but at most to maxOpenFiles. The usual 1024 is too low: a head of many nodes needs tens of
// thousands. Go raises the limit for itself but restores the original one for children, unless the
// program has set it explicitly.
func RaiseFileLimit() error {
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		return fmt.Errorf("cannot read the limit of open files: %w", err)
	}
	if limit.Cur == limit.Max { // set by the user: Go's own increase stops one below the maximum
		return nil
	}
	limit.Cur = min(limit.Max, maxOpenFiles)
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		return fmt.Errorf("cannot raise the limit of open files to %d: %w", limit.Cur, err)
	}
	return nil
}
