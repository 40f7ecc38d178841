package affinity

import (
	"errors"
	"fmt"
	"slices"
	"unsafe"

	"golang.org/x/sys/unix"
)

// BindThread binds the calling thread, which must be locked to its goroutine, to the CPUs and the
// memory nodes of p. Child processes of the thread inherit that. restore undoes the binding; if it
// fails, nothing else may run on the thread. After an error nothing is bound. note says why memory is
// not bound, which is no error.
func (p Affinity) BindThread() (restore func() error, note string, err error) {
	undoCPUs, err := p.bindCPUs()
	if err != nil {
		return nil, "", err
	}
	undoMemory, note := p.bindMemory()
	return func() error { return errors.Join(undoMemory(), undoCPUs()) }, note, nil
}

func noRestore() error { return nil }

// bindMemory sets the memory policy of the calling thread. A policy that the launcher has set stays.
// Most containers permit none (EPERM), some kernels have none (ENOSYS), and a cpuset may have become
// smaller (EINVAL).
func (p Affinity) bindMemory() (undo func() error, note string) {
	if len(p.Mems) == 0 {
		return noRestore, ""
	}
	var mode int32
	_, _, errno := unix.RawSyscall6(unix.SYS_GET_MEMPOLICY, uintptr(unsafe.Pointer(&mode)), 0, 0, 0, 0, 0)
	if errno == 0 && mode != unix.MPOL_DEFAULT {
		return noRestore, ""
	}
	var nodes unix.CPUSet
	for _, node := range p.Mems {
		nodes.Set(node)
	}
	if err := unix.SetMemPolicy(unix.MPOL_BIND, &nodes); err != nil {
		return noRestore, fmt.Sprintf("memory is not bound to NUMA nodes %v: set_mempolicy: %v", p.Mems, err)
	}
	return func() error { return unix.SetMemPolicy(unix.MPOL_DEFAULT, nil) }, ""
}

// bindCPUs binds the calling thread to the CPUs of p. The kernel ignores CPUs that are not in the
// cpuset, and binds to the rest. Therefore the result is verified.
func (p Affinity) bindCPUs() (restore func() error, err error) {
	if len(p.CPUs) == 0 {
		return noRestore, nil
	}
	before, err := threadAffinity(0)
	if err != nil {
		return nil, fmt.Errorf("cannot bind to CPUs %v: %w", p.CPUs, err)
	}
	restore = func() error { return setThreadAffinity(before) }
	if err := setThreadAffinity(p.CPUs); err != nil {
		return nil, err
	}
	if now, err := threadAffinity(0); err != nil || !slices.Equal(now, p.CPUs) {
		return nil, errors.Join(fmt.Errorf("cannot bind to CPUs %v: the kernel allowed only %v; the other CPUs "+
			"are offline or not in the cpuset", p.CPUs, now), err, restore())
	}
	return restore, nil
}

// threadAffinity returns the CPUs on which a thread may run. Thread 0 is the calling thread.
func threadAffinity(thread int) (IDSet, error) {
	mask := unix.NewCPUSet(maxID + 1)
	if err := unix.SchedGetaffinityDynamic(thread, mask); err != nil {
		return nil, fmt.Errorf("sched_getaffinity: %w", err)
	}
	var cpus IDSet
	for cpu := range maxID + 1 {
		if mask.IsSet(cpu) {
			cpus = append(cpus, cpu)
		}
	}
	return cpus, nil
}

func setThreadAffinity(cpus IDSet) error {
	mask := unix.NewCPUSet(maxID + 1)
	for _, cpu := range cpus {
		mask.Set(cpu)
	}
	if err := unix.SchedSetaffinityDynamic(0, mask); err != nil {
		return fmt.Errorf("cannot bind to CPUs %v: sched_setaffinity: %w", cpus, err)
	}
	return nil
}

// CompareProcess reads the CPUs of a process, of its first thread, and describes in what way they
// differ from p; empty if they do not. A process that uses only a part of its CPUs is no difference,
// because programs bind their own threads.
func (p Affinity) CompareProcess(pid int) (difference string, err error) {
	if len(p.CPUs) == 0 {
		return "", nil
	}
	cpus, err := threadAffinity(pid)
	if err != nil {
		return "", fmt.Errorf("cannot read the CPU affinity of process %d: %w", pid, err)
	}
	if outside := cpus.subtract(p.CPUs); len(outside) > 0 {
		return fmt.Sprintf("it may also run on CPUs %v; its own CPUs are %v", outside, p.CPUs), nil
	}
	return "", nil
}
