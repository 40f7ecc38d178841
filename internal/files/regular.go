package files

import (
	"fmt"
	"io"
	"os"
	"syscall"
)

// ReadRegular reads a regular file of at most maxBytes bytes. It does not wait for anything else
// that the path may name, such as a pipe: that is an error.
func ReadRegular(path string, maxBytes int64) ([]byte, error) {
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
	case info.Size() > maxBytes:
		return nil, fmt.Errorf("it has %d bytes; the maximum is %d", info.Size(), maxBytes)
	}
	return io.ReadAll(io.LimitReader(file, maxBytes))
}
