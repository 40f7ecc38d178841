package process

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// ticksPerSecond is the unit of times in /proc (USER_HZ): 100 on all architectures that Go
// supports.
const ticksPerSecond = 100

// kernelThread is PF_KTHREAD in the flags of /proc/PID/stat.
const kernelThread = 0x00200000

// procStat is one process as seen by one read of /proc.
type procStat struct {
	pid, ppid, pgid, sid int
	start                uint64 // ticks since boot; with pid, the identity of the process
	name                 string
	state                byte
	dead                 bool // a zombie without running threads: nothing is left to kill
	kernel               bool
	// ticks of processor time: its own, and that of children it has reaped
	cpuTicks, reapedCPUTicks uint64
	marks                    []string        // marks in its environment, if it has been read
	readMarks                func() []string // reads marks, once for all users of the same scan
}

func (p procStat) String() string {
	return fmt.Sprintf("pid %d (%s, state %c)", p.pid, p.name, p.state)
}

// bootTicks returns the present time on the clock of procStat.start.
func bootTicks() uint64 {
	var now unix.Timespec
	// ClockGettime fails only for unknown clocks, and all kernels that Go supports have this one.
	_ = unix.ClockGettime(unix.CLOCK_BOOTTIME, &now)
	return uint64(now.Nano()) / uint64(time.Second/ticksPerSecond)
}

// parseStat parses the content of /proc/PID/stat. It is called for each process of a node, so it
// allocates nothing but the name.
func parseStat(text []byte) (procStat, error) {
	// The name may contain blanks and parentheses: it ends at the last closing one.
	open, shut := bytes.IndexByte(text, '('), bytes.LastIndexByte(text, ')')
	if open < 1 || shut < open {
		return procStat{}, fmt.Errorf("cannot read %q as /proc/PID/stat: no name in brackets", string(text))
	}
	const wanted = 20
	var numbers [wanted]int64
	var state byte
	found := 0
	for field := range bytes.FieldsSeq(text[shut+1:]) {
		switch found {
		case 0:
			state = field[0]
		case 1, 2, 3, 6, 11, 12, 13, 14, 17, 19:
			// The numbers are signed: process group and session are -1 while a process is being reaped.
			n, err := strconv.ParseInt(string(field), 10, 64)
			if err != nil {
				return procStat{}, fmt.Errorf("cannot read field %d of /proc/PID/stat: %v", found+3, err)
			}
			numbers[found] = n
		}
		if found++; found == wanted {
			break
		}
	}
	if found < wanted {
		return procStat{}, fmt.Errorf("cannot read %q as /proc/PID/stat: %d fields after the name, at least %d expected",
			string(text), found, wanted)
	}
	pid, err := strconv.Atoi(string(bytes.TrimSpace(text[:open])))
	if err != nil {
		return procStat{}, fmt.Errorf("cannot read the pid in /proc/PID/stat: %v", err)
	}
	return procStat{
		pid:   pid,
		ppid:  int(numbers[1]),
		pgid:  int(numbers[2]),
		sid:   int(numbers[3]),
		start: uint64(numbers[19]),
		name:  string(text[open+1 : shut]),
		state: state,
		// After the end of its main thread, a process is shown as a zombie while other threads run.
		dead:           (state == 'Z' || state == 'X') && numbers[17] <= 1,
		kernel:         numbers[6]&kernelThread != 0,
		cpuTicks:       uint64(numbers[11] + numbers[12]),
		reapedCPUTicks: uint64(numbers[13] + numbers[14]),
	}, nil
}

// readStat inspects one process. The error is os.ErrNotExist if it does not exist.
func readStat(pid int) (procStat, error) {
	// Plain system calls: os.ReadFile makes twice as many, and readStat is called for each process of
	// a node.
	fd, err := unix.Open("/proc/"+strconv.Itoa(pid)+"/stat", unix.O_RDONLY|unix.O_CLOEXEC, 0)
	if err != nil {
		return procStat{}, normalizeAbsent(err)
	}
	defer unix.Close(fd)
	var text [2048]byte
	n, err := unix.Read(fd, text[:])
	if err != nil {
		return procStat{}, normalizeAbsent(err)
	}
	return parseStat(text[:n])
}

// verifySelf inspects this process, pid, and verifies /proc (link is /proc/self). If /proc belongs
// to another PID namespace, it shows other processes under PIDs that cannot be used to signal them.
func verifySelf(link string, pid int) (procStat, error) {
	number, err := os.Readlink(link)
	if err != nil {
		return procStat{}, err
	}
	if number != strconv.Itoa(pid) {
		return procStat{}, fmt.Errorf("%s reports this process as %s, but it is process %d: mount a proc file system inside", link, number, pid)
	}
	return readStat(pid)
}

// normalizeAbsent converts ESRCH to os.ErrNotExist: /proc reports a missing process by either
// error.
func normalizeAbsent(err error) error {
	if errors.Is(err, unix.ESRCH) {
		return os.ErrNotExist
	}
	return err
}
