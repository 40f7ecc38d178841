package hostile

import (
	"errors"
	"fmt"
	"os"
)

// Available returns nil if a mount is possible here. Otherwise the error is the reason.
func Available() error {
	if os.Geteuid() != 0 {
		return errors.New("cannot mount a file system of ours: that needs root")
	}
	if _, err := os.Stat("/dev/fuse"); err != nil {
		return fmt.Errorf("cannot mount a file system of ours: %v", err)
	}
	return nil
}
