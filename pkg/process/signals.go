package process

import (
	"fmt"
	"syscall"

	"golang.org/x/sys/unix"
)

// Real-time signals as glibc numbers them: it reserves the kernel's first two.
const (
	firstRealTime = 34
	lastRealTime  = 64
)

// SignalName returns a signal's name as in kill -l, such as SIGTERM or SIGRTMIN+6.
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

// SignalNumber returns the signal with the name that SignalName returns; 0 if there is none.
func SignalNumber(name string) syscall.Signal {
	for sig := syscall.Signal(1); sig <= lastRealTime; sig++ {
		if SignalName(sig) == name {
			return sig
		}
	}
	return 0
}
