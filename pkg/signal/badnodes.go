package signal

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
)

// BadNodes is the directory, beside the runs, of what NoteBadNodes writes.
const BadNodes = "bad-nodes"

// NoteBadNodes writes down, a host a line, which nodes were to blame for the
// end of the run or are not fit for another, and returns where: in a file of the
// run's name, so that those of a job's attempts stand side by side. It is for who
// starts the job again.
// The first one who notes them for a run is right.
func (d *Dir) NoteBadNodes(ctx context.Context, hosts []string) (path string, err error) {
	dir := filepath.Join(filepath.Dir(d.path), BadNodes)
	path = filepath.Join(dir, d.run)
	err = d.change(ctx, "publish", path, func() error {
		err := d.via.change(MakeDir, "", dir)
		if errors.Is(err, os.ErrExist) {
			err = d.trustOld(dir)
		}
		if err != nil {
			return err
		}
		return d.via.writeFirst(dir, d.run, []byte(strings.Join(hosts, "\n")+"\n"), true)
	})
	if errors.Is(err, ErrTaken) {
		return path, nil
	}
	return path, err
}

// trustOld refuses a directory beside the runs that a stranger may have made when others could still write to the log
// directory. One that a listing does not show yet is a peer's, made just now.
func (d *Dir) trustOld(dir string) error {
	names, err := d.via.Share.List(filepath.Dir(dir), nil)
	if err != nil || !slices.Contains(names, filepath.Base(dir)) {
		return nil
	}
	facts, err := d.via.Share.Look(dir)
	switch {
	case err != nil:
		return nil // the write that follows explains it
	case !facts.Mode.IsDir():
		return syscall.ENOTDIR
	default:
		return Place{Host: d.host}.trust(dir, facts)
	}
}
