package check

import (
	"errors"
	"os"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/bringupd/bringupd/pkg/signal"
)

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

func (machine) Limit(resource int) (limit unix.Rlimit, err error) {
	return limit, unix.Getrlimit(resource, &limit)
}
