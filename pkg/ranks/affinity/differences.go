package affinity

import (
	"bufio"
	"errors"
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// CompareProcess reads the actual binding of a process, of its first thread, and describes each
// difference from p in a sentence. A process that uses only a part of its CPUs is no difference,
// because programs bind their own threads. The error describes what could not be read; both results
// may be returned. The error is [ErrUnavailable] if this system does not permit binding memory at
// all.
func (p Affinity) CompareProcess(pid int) (differences []string, err error) {
	if len(p.CPUs) > 0 {
		cpus, e := threadAffinity(pid)
		if e != nil {
			return nil, fmt.Errorf("cannot read the CPU affinity of process %d: %w", pid, e)
		}
		if outside := cpus.subtract(p.CPUs); len(outside) > 0 {
			differences = append(differences, fmt.Sprintf("it may also run on CPUs %v; its own CPUs are %v",
				outside, p.CPUs))
		}
	}
	if len(p.Mems) == 0 {
		return differences, nil
	}
	if _, err := memoryPolicyOf(0); errors.Is(wrapUnavailable(err), ErrUnavailable) {
		return differences, wrapUnavailable(err)
	}
	difference, err := p.compareMemoryPolicy(pid)
	if difference != "" {
		differences = append(differences, difference)
	}
	return differences, err
}

// maxAreasRead is the maximum number of areas of a process's memory that are read. The kernel walks
// all pages of each area, which takes seconds for a large process. The first areas belong to the
// program's file and have no policy other than the process's.
const maxAreasRead = 16

// compareMemoryPolicy compares the memory policy of the process with p. It reads the policy from
// the areas in /proc/PID/numa_maps. The node on which a page or a thread happens to be does not
// show the policy.
func (p Affinity) compareMemoryPolicy(pid int) (difference string, err error) {
	file, err := os.Open(fmt.Sprintf("/proc/%d/numa_maps", pid))
	if err != nil {
		return "", fmt.Errorf("cannot read the memory policy of process %d: %w", pid, err)
	}
	defer file.Close()
	// The binding is correct if one of the first areas has the expected policy.
	lines := bufio.NewScanner(file)
	seen := ""
	for n := 0; n < maxAreasRead && lines.Scan(); n++ {
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
		return fmt.Sprintf("its memory policy is %s; expected bind:%v", seen, p.Mems), nil
	case errors.Is(lines.Err(), unix.ESRCH), lines.Err() == nil:
		return "", fmt.Errorf("cannot read the memory policy of process %d: it has ended", pid)
	}
	return "", fmt.Errorf("cannot read the memory policy of process %d: %w", pid, lines.Err())
}

// isBoundTo reports whether a policy binds memory to exactly these nodes. The kernel writes it as
// bind:0-1 or bind=static:0-1.
func isBoundTo(policy string, mems IDSet) bool {
	mode, list, _ := strings.Cut(policy, ":")
	nodes, err := ParseIDSet(list)
	return err == nil && strings.HasPrefix(mode, "bind") && nodes.String() == mems.String()
}
