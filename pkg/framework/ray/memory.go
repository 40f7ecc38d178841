package ray

import (
	"strconv"

	"golang.org/x/sys/unix"

	"github.com/bringupd/bringupd/pkg/framework"
)

// objectStoreFlag is the flag for the size of a node's object store, in bytes.
const objectStoreFlag = "--object-store-memory"

// memoryFlags returns the flags for Ray's memory on a node whose job may use only a part of it. Ray
// itself considers the limit of a container, at the root of the cgroups, but not that of a step
// below it.
func memoryFlags(node framework.Node, extra framework.Arguments) framework.Arguments {
	if node.MaxMemory <= 0 {
		return nil
	}
	var shm unix.Statfs_t
	_ = unix.Statfs("/dev/shm", &shm) // on failure, the size is 0
	store := storeSize(node.MaxMemory, int64(shm.Blocks)*shm.Bsize)
	flags := framework.Arguments{objectStoreFlag + "=" + strconv.FormatInt(store, 10)}
	if given, has := extra.LastValue(objectStoreFlag); has {
		store, _ = strconv.ParseInt(given, 10, 64) // Ray reports an invalid number
	}
	if left := node.MaxMemory - store; left > 0 {
		flags = append(flags, "--memory="+strconv.FormatInt(left, 10))
	}
	return flags
}

// The constants of Ray's own rule for the size of an object store
// (ray._private.utils.resolve_object_store_memory of 2.60).
const (
	storeFraction     = 0.3
	maxStoreBytes     = 200e9
	minStoreBytes     = 75 << 20 // Ray refuses less
	shmFraction       = 0.95
	minSlowStoreBytes = 10e9 // up to this size Ray accepts a store that does not fit into /dev/shm
)

// storeSize returns the size of the object store that Ray would choose by default with so much
// memory, with a /dev/shm of shm bytes.
func storeSize(memory, shm int64) int64 {
	size := min(storeFraction*float64(memory), maxStoreBytes, max(minSlowStoreBytes, shmFraction*float64(shm)))
	return max(int64(size), minStoreBytes)
}
