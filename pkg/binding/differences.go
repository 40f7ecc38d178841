package binding

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// Differences reads back where the kernel has a process, by its first thread, and tells in sentences what is not as in
// the place. A process that has narrowed itself within its place is no difference: programs bind their own threads. The
// error says what could not be read back, which is no difference, nor is it none: both may be returned. It is
// ErrUnavailable where no memory can be bound here at all.
func (p Place) Differences(pid int) (differences []string, err error) {
	if len(p.CPUs) > 0 {
		cpus, e := affinity(pid)
		if e != nil {
			return nil, fmt.Errorf("cannot read back the CPUs of process %d: %w", pid, e)
		}
		if outside := cpus.without(p.CPUs); len(outside) > 0 {
			differences = append(differences, fmt.Sprintf("it may run on CPUs %v, which are not its own: these are %v", outside, p.CPUs))
		}
	}
	if len(p.Mems) == 0 {
		return differences, nil
	}
	if _, err := policy(0); errors.Is(orUnavailable(err), ErrUnavailable) {
		return differences, orUnavailable(err)
	}
	difference, err := p.memoryDifference(pid)
	if difference != "" {
		differences = append(differences, difference)
	}
	return differences, err
}

// lookedAt is how many areas of a process's memory are looked at. For each the kernel walks all of its pages: of a large
// process, that takes seconds. The first ones are of its program's file, and have no policy but the process's.
const lookedAt = 16

// memoryDifference compares the memory policy, as /proc tells it of each area that has none of its own. The node that a
// page or a thread happens to be on says nothing of the policy.
func (p Place) memoryDifference(pid int) (difference string, err error) {
	file, err := os.Open(fmt.Sprintf("/proc/%d/numa_maps", pid))
	if err != nil {
		return "", fmt.Errorf("cannot read back the memory policy of process %d: %w", pid, err)
	}
	defer file.Close()
	lines := bufio.NewScanner(file)
	seen := ""
	for n := 0; n < lookedAt && lines.Scan(); n++ {
		fields := strings.Fields(lines.Text()) // 55eddd219000 bind:0 file=…
		if len(fields) < 2 {
			continue
		}
		if isBoundTo(fields[1], p.Mems) {
			return "", nil
		}
		if seen == "" {
			seen = fields[1]
		}
	}
	switch {
	case seen != "":
		return fmt.Sprintf("its memory policy is %s, and should be bind:%v", seen, p.Mems), nil
	case errors.Is(lines.Err(), unix.ESRCH), lines.Err() == nil:
		return "", fmt.Errorf("cannot read back the memory policy of process %d: it has ended", pid)
	}
	return "", fmt.Errorf("cannot read back the memory policy of process %d: %w", pid, lines.Err())
}

// isBoundTo reads a policy as the kernel writes it: bind:0-1, or bind=static:0-1.
func isBoundTo(policy string, mems Set) bool {
	mode, list, _ := strings.Cut(policy, ":")
	nodes, err := ParseSet(list)
	return err == nil && strings.HasPrefix(mode, "bind") && nodes.String() == mems.String()
}
