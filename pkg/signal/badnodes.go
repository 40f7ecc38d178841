package signal

import (
	"context"
	"errors"
	"path/filepath"
	"strings"
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
		if err := d.via.makeOwn(dir); err != nil {
			return err
		}
		return d.via.writeFirst(dir, d.run, []byte(strings.Join(hosts, "\n")+"\n"), true)
	})
	if errors.Is(err, ErrTaken) {
		return path, nil
	}
	return path, err
}
