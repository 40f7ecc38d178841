package affinity

import (
	"errors"
	"fmt"
	"slices"
	"unsafe"

	"golang.org/x/sys/unix"
)

// BindThread binds the calling thread, which must be locked to its goroutine, to the CPUs and
// memory nodes of p. Child processes of the thread inherit both. restore undoes the binding; if it
// fails, nothing else may run on the thread. skipped describes what this system does not permit to
// bind, which is not an error. If anything else cannot be bound, BindThread returns an error and
// changes nothing.
func (p Affinity) BindThread() (restore func() error, skipped []string, err error) {
	undoCPUs, err := p.bindThreadCPUs()
	if err != nil {
		return nil, nil, err
	}
	undoMems, skip, err := p.bindThreadMemory()
	if err != nil {
		return nil, nil, errors.Join(err, undoCPUs())
	}
	if skip != "" {
		skipped = append(skipped, skip)
	}
	return func() error { return errors.Join(undoMems(), undoCPUs()) }, skipped, nil
}

func noRestore() error { return nil }

// bindThreadCPUs binds the calling thread to the CPUs of p. The kernel ignores CPUs that are not in
// the cpuset, and binds to the rest. Therefore the result is verified.
func (p Affinity) bindThreadCPUs() (undo func() error, err error) {
	if len(p.CPUs) == 0 {
		return noRestore, nil
	}
	before, err := threadAffinity(0)
	if err != nil {
		return nil, fmt.Errorf("cannot bind to CPUs %v: %w", p.CPUs, err)
	}
	undo = func() error { return setThreadAffinity(before) }
	if err := setThreadAffinity(p.CPUs); err != nil {
		return nil, err
	}
	if now, err := threadAffinity(0); err != nil || !slices.Equal(now, p.CPUs) {
		return nil, errors.Join(fmt.Errorf("cannot bind to CPUs %v: the kernel allowed only %v; the other CPUs "+
			"are offline or not in the cpuset", p.CPUs, now), err, undo())
	}
	return undo, nil
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

// maxMemoryNodes is the maximum number of memory nodes of the kernel (CONFIG_NODES_SHIFT of 10).
const maxMemoryNodes = 1024

type memoryPolicy struct {
	mode  int         // MPOL_…, with flags
	nodes unix.CPUSet // bit mask
}

func bindPolicy(mems IDSet) memoryPolicy {
	m := memoryPolicy{mode: unix.MPOL_BIND}
	for _, node := range mems {
		m.nodes.Set(node)
	}
	return m
}

func (m memoryPolicy) nodeSet() (mems IDSet) {
	for node := range maxMemoryNodes {
		if m.nodes.IsSet(node) {
			mems = append(mems, node)
		}
	}
	return mems
}

// bindThreadMemory binds memory that the calling thread allocates to the memory nodes of p. Most
// containers do not permit this, and some kernels do not support it.
func (p Affinity) bindThreadMemory() (undo func() error, skipped string, err error) {
	if len(p.Mems) == 0 {
		return noRestore, "", nil
	}
	before, err := memoryPolicyOf(0)
	if err != nil {
		return skipIfUnavailable(err)
	}
	allowed, err := memoryPolicyOf(unix.MPOL_F_MEMS_ALLOWED)
	if err != nil {
		return skipIfUnavailable(err)
	}
	if outside := p.Mems.subtract(allowed.nodeSet()); len(outside) > 0 {
		return noRestore, fmt.Sprintf("memory is not bound to NUMA nodes %v: this process may not use %v, only "+
			"%v", p.Mems, outside, allowed.nodeSet()), nil
	}
	if err := setMemoryPolicy(bindPolicy(p.Mems)); err != nil {
		return skipIfUnavailable(err)
	}
	return func() error { return setMemoryPolicy(before) }, "", nil
}

func skipIfUnavailable(err error) (undo func() error, skipped string, failed error) {
	if err = wrapUnavailable(err); errors.Is(err, ErrUnavailable) {
		return noRestore, err.Error(), nil
	}
	return nil, "", err
}

// ErrUnavailable is returned if this system does not permit binding memory at all. It was skipped,
// and nothing is wrong.
var ErrUnavailable = errors.New("memory is not bound")

// wrapUnavailable wraps [ErrUnavailable] if err, an error of a memory-policy system call, means
// that memory cannot be bound. Otherwise it returns err unchanged.
func wrapUnavailable(err error) error {
	switch {
	case errors.Is(err, unix.EPERM):
		return fmt.Errorf("%w: the system does not permit it, as in most containers (EPERM)", ErrUnavailable)
	case errors.Is(err, unix.ENOSYS):
		return fmt.Errorf("%w: the kernel does not support NUMA (ENOSYS)", ErrUnavailable)
	}
	return err
}

// memoryPolicyOf returns the memory policy of the calling thread. With the flag
// MPOL_F_MEMS_ALLOWED, it returns the nodes that the thread may use.
func memoryPolicyOf(flags uintptr) (m memoryPolicy, err error) {
	var mode int32
	// The kernel subtracts 1 from the number of bits.
	_, _, errno := unix.RawSyscall6(unix.SYS_GET_MEMPOLICY, uintptr(unsafe.Pointer(&mode)),
		uintptr(unsafe.Pointer(&m.nodes)), maxMemoryNodes+1, 0, flags, 0)
	if errno != 0 {
		return m, fmt.Errorf("cannot read the memory policy: get_mempolicy: %w", errno)
	}
	m.mode = int(mode)
	return m, nil
}

func setMemoryPolicy(m memoryPolicy) error {
	if err := unix.SetMemPolicy(m.mode, &m.nodes); err != nil {
		return fmt.Errorf("cannot bind memory to %v: set_mempolicy: %w", m.nodeSet(), err)
	}
	return nil
}
