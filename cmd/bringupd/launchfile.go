package main

import (
	"fmt"
	"io"
	"os"
	"syscall"
)

// maxLaunchFileBytes is the maximum size in bytes of a launcher's file: a million hosts with long
// names.
const maxLaunchFileBytes = 64 << 20

// readLaunchFile reads a file that a launcher has made, such as PBS_NODEFILE. It does not wait for
// anything else that the variable may name, such as a pipe.
func readLaunchFile(path string) ([]byte, error) {
	file, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
	if err != nil {
		return nil, err
	}
	defer func() { _ = file.Close() }() // it was only read
	switch info, err := file.Stat(); {
	case err != nil:
		return nil, err
	case !info.Mode().IsRegular():
		return nil, fmt.Errorf("it is not a regular file (%s)", info.Mode().Type())
	case info.Size() > maxLaunchFileBytes:
		return nil, fmt.Errorf("it has %d bytes; the maximum is %d", info.Size(), maxLaunchFileBytes)
	}
	return io.ReadAll(io.LimitReader(file, maxLaunchFileBytes))
}
