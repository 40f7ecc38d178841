package process

import (
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// RunsSameProgram reports whether pid is another process, visible to this user, that runs the same
// executable as this process and has done so since before the given time of this host's clock.
func RunsSameProgram(pid int, before time.Time) bool {
	stat, err := readStat(pid)
	if err != nil || stat.dead || pid == unix.Getpid() {
		return false
	}
	const tick = time.Second / ticksPerSecond
	age := time.Duration(bootTicks()-stat.start) * tick // both values are truncated to whole ticks
	if time.Now().Add(-age - tick).After(before) {
		return false // the PID was reused after that time
	}
	own, err := os.Stat("/proc/self/exe")
	if err != nil {
		return false
	}
	other, err := os.Stat(fmt.Sprintf("/proc/%d/exe", pid))
	return err == nil && os.SameFile(own, other)
}
