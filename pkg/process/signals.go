package process

import (
	"fmt"
	"syscall"

	"golang.org/x/sys/unix"
)

// The real-time signals, as glibc numbers them: it keeps the kernel's first two for itself.
const (
	firstRealTime = 34
	lastRealTime  = 64
)

// SignalName returns a signal's name as kill -l has it: SIGTERM, SIGRTMIN+6.
func SignalName(sig syscall.Signal) string {
	name := unix.SignalName(sig)
	switch n := int(sig); {
	case name != "":
		return name
	case n == firstRealTime:
		return "SIGRTMIN"
	case firstRealTime < n && n <= lastRealTime:
		return fmt.Sprintf("SIGRTMIN+%d", n-firstRealTime)
	default:
		return fmt.Sprintf("signal %d", n)
	}
}

// SignalNumber returns the signal that SignalName calls so; 0 where it calls none so.
func SignalNumber(name string) syscall.Signal {
	for sig := syscall.Signal(1); sig <= lastRealTime; sig++ {
		if SignalName(sig) == name {
			return sig
		}
	}
	return 0
}
