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

// BadNodesDir is the name of the directory in which RecordBadNodes writes, beside the run
// directories.
const BadNodesDir = "bad-nodes"

// RecordBadNodes records the nodes that caused the end of the run, or are not fit for another one,
// one host per line, and returns the path of the file. The file has the run's name, so that those
// of a job's attempts are side by side. It is for scripts that start the job again. The first
// record for a run wins.
func (d *Dir) RecordBadNodes(ctx context.Context, hosts []string) (path string, err error) {
	dir := filepath.Join(filepath.Dir(d.path), BadNodesDir)
	path = filepath.Join(dir, d.name)
	err = d.changePath(ctx, "publish", path, func() error {
		err := d.access.changeName(OpMkdir, "", dir)
		if errors.Is(err, os.ErrExist) {
			err = d.verifyExisting(dir)
		}
		if err != nil {
			return err
		}
		return d.access.publishFirst(dir, d.name, []byte(strings.Join(hosts, "\n")+"\n"), true)
	})
	if errors.Is(err, ErrAlreadyPublished) {
		return path, nil
	}
	return path, err
}

// verifyExisting refuses a directory beside the runs that another user may have made while others
// could write to the log directory. A directory that a listing does not show yet was made by a peer
// just now.
func (d *Dir) verifyExisting(dir string) error {
	names, err := d.access.FS.ListDir(filepath.Dir(dir), nil)
	if err != nil || !slices.Contains(names, filepath.Base(dir)) {
		return nil
	}
	facts, err := d.access.FS.Stat(dir)
	switch {
	case err != nil:
		return nil // the write that follows reports the error
	case !facts.Mode.IsDir():
		return syscall.ENOTDIR
	default:
		return Location{Host: d.host}.checkOwner(dir, facts)
	}
}
