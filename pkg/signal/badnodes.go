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

// BadNodes is the name of the directory in which NoteBadNodes writes, beside the run directories.
const BadNodes = "bad-nodes"

// NoteBadNodes records the nodes that caused the end of the run, or are not fit for another one,
// one host per line, and returns the path of the file. The file has the run's name, so that those
// of a job's attempts are side by side. It is for scripts that start the job again. The first
// record for a run wins.
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

// trustOld refuses a directory beside the runs that another user may have made while others could
// write to the log directory. A directory that a listing does not show yet was made by a peer just
// now.
func (d *Dir) trustOld(dir string) error {
	names, err := d.via.Share.List(filepath.Dir(dir), nil)
	if err != nil || !slices.Contains(names, filepath.Base(dir)) {
		return nil
	}
	facts, err := d.via.Share.Look(dir)
	switch {
	case err != nil:
		return nil // the write that follows reports the error
	case !facts.Mode.IsDir():
		return syscall.ENOTDIR
	default:
		return Place{Host: d.host}.trust(dir, facts)
	}
}
