package process

import (
	"fmt"
	"os"
	"time"

	"golang.org/x/sys/unix"
)

// RunsProgram reports whether another process that this user may inspect has the number pid, runs the
// executable of this process, and has done so since before a time of this host's clock.
func RunsProgram(pid int, before time.Time) bool {
	stat, err := readStat(pid)
	if err != nil || stat.dead || pid == unix.Getpid() {
		return false
	}
	const tick = time.Second / ticksPerSecond
	age := time.Duration(bootTicks()-stat.start) * tick // both are cut to whole ticks
	if time.Now().Add(-age - tick).After(before) {
		return false // a later process has got the number
	}
	own, err := os.Stat("/proc/self/exe")
	if err != nil {
		return false
	}
	other, err := os.Stat(fmt.Sprintf("/proc/%d/exe", pid))
	return err == nil && os.SameFile(own, other)
}
