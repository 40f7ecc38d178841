package daemon

import (
	"golang.org/x/sys/unix"
	"syscall"
)

// signalName is a signal as people know it: SIGTERM.
func signalName(sig syscall.Signal) string {
	if name := unix.SignalName(sig); name != "" {
		return name
	}
	return sig.String()
}
