package process

import (
	"fmt"
	"syscall"
)

// mostFiles is up to where RaiseFiles raises. Some machines allow a billion, and some programs close every file that
// they might have, one by one, when they start another.
const mostFiles = 1 << 20

// RaiseFiles raises the limit of open files that the children of this process begin with, as far as it may be raised.
// The usual 1024 is for programs of old; a head of many nodes needs tens of thousands. Go raises the limit for
// itself and gives its children the old one, until somebody has set it.
func RaiseFiles() error {
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		return fmt.Errorf("cannot read the limit of open files: %w", err)
	}
	if limit.Cur == limit.Max { // as somebody wanted it: Go stops one short
		return nil
	}
	limit.Cur = min(limit.Max, mostFiles)
	if err := syscall.Setrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil {
		return fmt.Errorf("cannot raise the limit of open files to %d: %w", limit.Cur, err)
	}
	return nil
}
