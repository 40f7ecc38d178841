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

func TestSignalName(t *testing.T) {
	for sig, want := range map[syscall.Signal]string{
		1: "SIGHUP", 9: "SIGKILL", 15: "SIGTERM", 31: "SIGSYS", 33: "signal 33", 34: "SIGRTMIN",
		40: "SIGRTMIN+6", 64: "SIGRTMIN+30", 65: "signal 65",
	} {
		if got := SignalName(sig); got != want {
			t.Errorf("signal %d is %q, want %q", int(sig), got, want)
		}
	}
}
