package check

import (
	"errors"
	"os"
	"syscall"

	"golang.org/x/sys/unix"
)

// Space is the room on a file system, in bytes and in files.
type Space struct {
	Size      uint64
	Free      uint64 // for those who are not root
	Files     uint64 // how many it can hold; 0 where there is no such number
	FreeFiles uint64
}

// Limit is a limit of a process.
type Limit struct {
	Soft, Hard uint64 // unlimited: unix.RLIM_INFINITY
}

// machine is the machine itself.
type machine struct{}

var _ kernel = machine{}

func (machine) Space(path string) (Space, error) {
	var stat unix.Statfs_t
	if err := unix.Statfs(path, &stat); err != nil {
		return Space{}, err
	}
	unit := uint64(stat.Bsize)
	return Space{Size: stat.Blocks * unit, Free: stat.Bavail * unit, Files: stat.Files, FreeFiles: stat.Ffree}, nil
}

// Prove removes the file before it writes, so that nothing stays behind where
// the write never returns.
func (machine) Prove(dir string) error {
	file, err := os.CreateTemp(dir, ".bringupd-check-*")
	if err != nil {
		return err
	}
	err = os.Remove(file.Name())
	if err == nil {
		_, err = file.Write([]byte{'.'})
	}
	if err == nil {
		err = file.Sync()
	}
	// Some file systems have nothing to sync, and say so.
	if errors.Is(err, syscall.EINVAL) || errors.Is(err, syscall.ENOTSUP) {
		err = nil
	}
	return errors.Join(err, file.Close())
}

func (machine) Limit(resource int) (Limit, error) {
	var limit unix.Rlimit
	err := unix.Getrlimit(resource, &limit)
	return Limit{Soft: limit.Cur, Hard: limit.Max}, err
}
