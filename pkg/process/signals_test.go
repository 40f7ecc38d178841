package process

import (
	"syscall"
	"testing"
)

func TestSignalNumber(t *testing.T) {
	for sig := syscall.Signal(1); sig <= lastRealTime; sig++ {
		if got := SignalNumber(SignalName(sig)); got != sig {
			t.Errorf("SignalNumber(%q) = %d, want %d", SignalName(sig), got, sig)
		}
	}
	for _, none := range []string{"", "SIG", "TERM", "SIGRTMIN+31", "signal 65"} {
		if got := SignalNumber(none); got != 0 {
			t.Errorf("SignalNumber(%q) = %d", none, got)
		}
	}
}
