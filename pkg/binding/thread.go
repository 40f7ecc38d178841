package binding

import (
	"errors"
	"fmt"
	"slices"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Prepare binds the calling thread, which must be locked to its goroutine, to the CPUs and memory
// nodes of p. Child processes of the thread inherit both. restore undoes the binding; if it fails,
// nothing else may run on the thread. skipped describes what this system does not permit to bind,
// which is not an error. If anything else cannot be bound, Prepare returns an error and changes
// nothing.
func (p Place) Prepare() (restore func() error, skipped []string, err error) {
	undoCPUs, err := p.bindCPUs()
	if err != nil {
		return nil, nil, err
	}
	undoMems, skip, err := p.bindMems()
	if err != nil {
		return nil, nil, errors.Join(err, undoCPUs())
	}
	if skip != "" {
		skipped = append(skipped, skip)
	}
	return func() error { return errors.Join(undoMems(), undoCPUs()) }, skipped, nil
}

// nothing is a restore function for a thread that has not been changed.
func nothing() error { return nil }

// bindCPUs binds the calling thread to the CPUs of p. The kernel ignores CPUs that are not in the
// cpuset, and binds to the rest. Therefore the result is verified.
func (p Place) bindCPUs() (undo func() error, err error) {
	if len(p.CPUs) == 0 {
		return nothing, nil
	}
	before, err := affinity(0)
	if err != nil {
		return nil, fmt.Errorf("cannot bind to CPUs %v: %w", p.CPUs, err)
	}
	undo = func() error { return setAffinity(before) }
	if err := setAffinity(p.CPUs); err != nil {
		return nil, err
	}
	if now, err := affinity(0); err != nil || !slices.Equal(now, p.CPUs) {
		return nil, errors.Join(fmt.Errorf("cannot bind to CPUs %v: the kernel has made it %v; the cpuset lacks the others, or they are offline", p.CPUs, now), err, undo())
	}
	return undo, nil
}

// affinity returns the CPUs on which a thread may run. Thread 0 is the calling thread.
func affinity(thread int) (Set, error) {
	mask := unix.NewCPUSet(mostNumber + 1)
	if err := unix.SchedGetaffinityDynamic(thread, mask); err != nil {
		return nil, fmt.Errorf("sched_getaffinity: %w", err)
	}
	var cpus Set
	for cpu := range mostNumber + 1 {
		if mask.IsSet(cpu) {
			cpus = append(cpus, cpu)
		}
	}
	return cpus, nil
}

// setAffinity binds the calling thread to these CPUs.
func setAffinity(cpus Set) error {
	mask := unix.NewCPUSet(mostNumber + 1)
	for _, cpu := range cpus {
		mask.Set(cpu)
	}
	if err := unix.SchedSetaffinityDynamic(0, mask); err != nil {
		return fmt.Errorf("cannot bind to CPUs %v: sched_setaffinity: %w", cpus, err)
	}
	return nil
}

// mostNodes is the maximum number of memory nodes of the kernel (CONFIG_NODES_SHIFT of 10).
const mostNodes = 1024

// memory is the memory policy of a thread.
type memory struct {
	mode  int                    // MPOL_…, with flags
	nodes [mostNodes / 64]uint64 // bit mask
}

// bindTo returns the policy that permits only these memory nodes.
func bindTo(mems Set) (m memory) {
	m.mode = unix.MPOL_BIND
	for _, node := range mems {
		if node < mostNodes {
			m.nodes[node/64] |= 1 << (node % 64)
		}
	}
	return m
}

// set returns the memory nodes of the policy.
func (m memory) set() (mems Set) {
	for node := range mostNodes {
		if m.nodes[node/64]&(1<<(node%64)) != 0 {
			mems = append(mems, node)
		}
	}
	return mems
}

// bindMems binds memory that the calling thread allocates to the memory nodes of p. Most containers
// do not permit this, and some kernels do not support it.
func (p Place) bindMems() (undo func() error, skipped string, err error) {
	if len(p.Mems) == 0 {
		return nothing, "", nil
	}
	before, err := policy(0)
	if err != nil {
		return skipOr(err)
	}
	allowed, err := policy(unix.MPOL_F_MEMS_ALLOWED)
	if err != nil {
		return skipOr(err)
	}
	if outside := p.Mems.without(allowed.set()); len(outside) > 0 {
		return nothing, fmt.Sprintf("memory is not bound to %v: this process may not use %v, but %v", p.Mems, outside, allowed.set()), nil
	}
	if err := setPolicy(bindTo(p.Mems)); err != nil {
		return skipOr(err)
	}
	return func() error { return setPolicy(before) }, "", nil
}

// skipOr returns the results of bindMems after an error. If this system does not permit binding
// memory at all, the binding is skipped.
func skipOr(err error) (undo func() error, skipped string, failed error) {
	if err = orUnavailable(err); errors.Is(err, ErrUnavailable) {
		return nothing, err.Error(), nil
	}
	return nil, "", err
}

// ErrUnavailable is returned if this system does not permit binding memory at all. It was skipped,
// and nothing is wrong.
var ErrUnavailable = errors.New("memory is not bound")

// orUnavailable wraps [ErrUnavailable] if err, an error of a memory-policy system call, means that
// memory cannot be bound. Otherwise it returns err unchanged.
func orUnavailable(err error) error {
	switch {
	case errors.Is(err, unix.EPERM):
		return fmt.Errorf("%w: the system does not permit it, as in most containers (EPERM)", ErrUnavailable)
	case errors.Is(err, unix.ENOSYS):
		return fmt.Errorf("%w: the kernel knows no NUMA nodes (ENOSYS)", ErrUnavailable)
	}
	return err
}

// policy returns the memory policy of the calling thread. With the flag MPOL_F_MEMS_ALLOWED, it
// returns the nodes that the thread may use.
func policy(flags uintptr) (m memory, err error) {
	var mode int32
	// The kernel subtracts 1 from the number of bits.
	_, _, errno := unix.RawSyscall6(unix.SYS_GET_MEMPOLICY, uintptr(unsafe.Pointer(&mode)), uintptr(unsafe.Pointer(&m.nodes)), mostNodes+1, 0, flags, 0)
	if errno != 0 {
		return m, fmt.Errorf("cannot read the memory policy: get_mempolicy: %w", errno)
	}
	m.mode = int(mode)
	return m, nil
}

// setPolicy sets the memory policy of the calling thread.
func setPolicy(m memory) error {
	_, _, errno := unix.RawSyscall(unix.SYS_SET_MEMPOLICY, uintptr(m.mode), uintptr(unsafe.Pointer(&m.nodes)), mostNodes+1)
	if errno != 0 {
		return fmt.Errorf("cannot bind memory to %v: set_mempolicy: %w", m.set(), errno)
	}
	return nil
}
