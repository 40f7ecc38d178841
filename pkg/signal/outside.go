package signal

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"syscall"
)

// outsider is the rank in the records of somebody who has none.
const outsider = -1

// Latest is the link in the log directory to the newest run.
const Latest = "latest"

// OpenExisting opens the run directory at path from outside the job. Its errors
// tell what was found there and what would be accepted.
func OpenExisting(ctx context.Context, path, host string) (*Dir, Job, error) {
	absolute, err := filepath.Abs(path)
	if err != nil {
		return nil, Job{}, fmt.Errorf("cannot use %s: %v", path, err)
	}
	return Place{LogDir: absolute, Rank: outsider, Host: host}.openExisting(ctx)
}

// openExisting opens the run directory that the log directory is.
func (p Place) openExisting(ctx context.Context) (*Dir, Job, error) {
	var job Job
	p.Access = p.ready()
	_, err := asked(ctx, p.Access, "look into", p.LogDir, func() ([]string, error) { return p.list(p.LogDir, false) })
	switch err := classify(err); {
	case errors.Is(err, errAbsent):
		return nil, job, fmt.Errorf("cannot find a run directory at %s: %s", p.LogDir, outsideMend)
	case errors.Is(err, errNotDir):
		return nil, job, p.refuse(p.LogDir, outsideMend, "it is not a directory")
	case err != nil:
		return nil, job, err
	}
	logDir, run := filepath.Split(p.LogDir)
	d := Place{LogDir: logDir, Rank: p.Rank, Host: p.Host, Access: p.Access}.dir(run, "", FileSystem{})
	err = p.again(func() error { return d.read(ctx, Control, NameJob, &job) })
	if errors.Is(err, errAbsent) {
		err = fmt.Errorf("cannot find a run in %s: it has no job record: %s", d.path, outsideMend)
	}
	if err != nil {
		return nil, job, err
	}
	d.nonce, d.size, d.kind = job.Nonce, job.Size, named(job.FileSystem)
	return d, job, nil
}

const outsideMend = "give <log-dir>/<job>.<step>, or a log directory with a run in it"

// PointLatest makes the log directory's link point at this run. It is for
// people and tools only: no daemon follows it.
func (d *Dir) PointLatest(ctx context.Context) error {
	parent := filepath.Dir(d.path)
	path, temporary := filepath.Join(parent, Latest), filepath.Join(parent, "."+Latest+"-"+newTag())
	return do(ctx, d.via.Meter, "link", path, func() error {
		if _, err := d.via.Share.Target(path); errors.Is(err, syscall.EINVAL) {
			return fmt.Errorf("cannot link %s: something that is not a link has that name", path)
		}
		err := d.via.Share.Change(Symlink, d.run, temporary)
		if err == nil {
			err = d.via.Share.Change(Rename, temporary, path)
		}
		if err != nil {
			_ = d.via.Share.Change(Remove, "", temporary)
			return fmt.Errorf("cannot link %s: %v", path, errno(err))
		}
		return nil
	})
}

// RequestStop asks the run's head, from outside the job, for the orderly end.
// Asking twice is asking once.
func (d *Dir) RequestStop(ctx context.Context) error {
	err := d.PublishOnce(ctx, filepath.Join(Control, NameStop), &State{})
	if errors.Is(err, ErrTaken) {
		return nil
	}
	return err
}

// Names returns, in order, the names that one look at a subdirectory shows. It
// is for who reads a run from outside.
func (d *Dir) Names(ctx context.Context, sub string) ([]string, error) {
	return d.list(ctx, filepath.Join(d.path, sub), nil)
}

func (d *Dir) list(ctx context.Context, path string, check func(Facts) error) ([]string, error) {
	names, err := asked(ctx, d.via, "list", path, func() ([]string, error) { return d.via.Share.List(path, check) })
	slices.Sort(names)
	return names, err
}
