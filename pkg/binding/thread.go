package binding

import (
	"errors"
	"fmt"
	"slices"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Prepare binds the calling thread, which must be locked to its goroutine, to the CPUs and the memory of the place:
// what it forks inherits both. Restore undoes it; where that fails, nothing else should run on the thread. Skipped are
// words on what this system does not let us bind, which is no error. Any other that can't be bound is, and then nothing
// is.
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

func nothing() error { return nil }

// bindCPUs binds the calling thread. The kernel is silent about CPUs that are not in the cpuset, and binds to the rest:
// so what it has done is read back.
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

// affinity returns the CPUs that a thread may run on; 0: the calling one.
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

// setAffinity binds the calling thread.
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

// mostNodes is how many memory nodes the kernel knows at most (CONFIG_NODES_SHIFT of 10).
const mostNodes = 1024

// memory is a thread's memory policy.
type memory struct {
	mode  int                    // MPOL_…, and its flags
	nodes [mostNodes / 64]uint64 // bits
}

func bindTo(mems Set) (m memory) {
	m.mode = unix.MPOL_BIND
	for _, node := range mems {
		if node < mostNodes {
			m.nodes[node/64] |= 1 << (node % 64)
		}
	}
	return m
}

func (m memory) set() (mems Set) {
	for node := range mostNodes {
		if m.nodes[node/64]&(1<<(node%64)) != 0 {
			mems = append(mems, node)
		}
	}
	return mems
}

// bindMems binds what the calling thread allocates. Containers mostly do not permit it, and not every kernel has it.
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

// skipOr is how a thread is left whose memory could not be bound: it is skipped where nobody can.
func skipOr(err error) (undo func() error, skipped string, failed error) {
	if err = orUnavailable(err); errors.Is(err, ErrUnavailable) {
		return nothing, err.Error(), nil
	}
	return nil, "", err
}

// ErrUnavailable is that this system lets nobody bind memory: it was skipped, and nothing is wrong.
var ErrUnavailable = errors.New("memory is not bound")

// orUnavailable is ErrUnavailable, with the reason, where that is what an error of these calls means.
func orUnavailable(err error) error {
	switch {
	case errors.Is(err, unix.EPERM):
		return fmt.Errorf("%w: the system does not permit it, as in most containers (EPERM)", ErrUnavailable)
	case errors.Is(err, unix.ENOSYS):
		return fmt.Errorf("%w: the kernel knows no NUMA nodes (ENOSYS)", ErrUnavailable)
	}
	return err
}

// policy returns the memory policy of the calling thread or, by the flag MPOL_F_MEMS_ALLOWED, the nodes it may use.
func policy(flags uintptr) (m memory, err error) {
	var mode int32
	// One bit more than there are: the kernel takes one off.
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
