package main

import (
	"fmt"
	"io"
	"os"
	"syscall"
)

// mostLaunchFile bounds in bytes what is read of a launcher's file: a million hosts of the longest name that is usual.
const mostLaunchFile = 64 << 20

// readLaunchFile reads a file that a launcher has made, such as PBS_NODEFILE. What else the variable may name is not
// waited for.
func readLaunchFile(path string) ([]byte, error) {
	file, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer func() { _ = file.Close() }() // nothing was written
	switch info, err := file.Stat(); {
	case err != nil:
		return nil, err
	case !info.Mode().IsRegular():
		return nil, fmt.Errorf("it is no file, but %s", info.Mode().Type())
	case info.Size() > mostLaunchFile:
		return nil, fmt.Errorf("it has %d bytes, and %d are the most", info.Size(), mostLaunchFile)
	}
	return io.ReadAll(io.LimitReader(file, mostLaunchFile))
}
