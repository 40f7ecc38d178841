package check

import (
	"errors"
	"os"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/bringupd/bringupd/pkg/signal"
)

// Limit is a limit of a process.
type Limit struct {
	Soft, Hard uint64 // unlimited: unix.RLIM_INFINITY
}

// machine is the machine itself.
type machine struct{}

var _ kernel = machine{}

func (machine) Space(path string) (signal.Space, error) { return signal.SpaceOf(path) }

// Prove removes the file before it writes, so that nothing stays behind where the write never returns.
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
