package signal

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
)

// outsider is the node index in records from outside of the job.
const outsider = -1

// Latest is the link in the log directory to the newest run.
const Latest = "latest"

// OpenExisting opens the run directory at path from outside the job. Its errors state what was
// found there and what would be accepted.
func OpenExisting(ctx context.Context, path, host string) (*Dir, Job, error) {
	return Access{}.OpenExisting(ctx, path, host)
}

// OpenExisting is like the function OpenExisting, but uses this access.
func (a Access) OpenExisting(ctx context.Context, path, host string) (*Dir, Job, error) {
	absolute, err := filepath.Abs(path)
	if err != nil {
		return nil, Job{}, fmt.Errorf("cannot use %s: %v", path, err)
	}
	return Place{LogDir: absolute, Rank: outsider, Host: host, Access: a}.openExisting(ctx)
}

// openExisting opens the run directory at p.LogDir.
func (p Place) openExisting(ctx context.Context) (*Dir, Job, error) {
	var job Job
	p.Access = p.ready()
	_, err := asked(ctx, p.Access, "look into", p.LogDir, func() ([]string, error) { return p.Share.Hold(p.LogDir, p.vetting(p.LogDir)) })
	switch err := classify(err); {
	case errors.Is(err, errAbsent):
		return nil, job, fmt.Errorf("cannot find a run directory at %s: %s", p.LogDir, outsideMend)
	case errors.Is(err, errNotDir):
		return nil, job, p.refuse(p.LogDir, outsideMend, "it is not a directory")
	case err != nil:
		return nil, job, err
	}
	logDir, run := filepath.Split(p.LogDir)
	d := Place{LogDir: logDir, Rank: p.Rank, Host: p.Host, Access: p.Access}.dir(run)
	err = p.again(func() (err error) {
		job, err = d.adopt(ctx)
		return err
	})
	if errors.Is(err, errAbsent) {
		err = fmt.Errorf("cannot find a run in %s: it has no job record: %s", d.path, outsideMend)
	}
	return d, job, err
}

const outsideMend = "give <log-dir>/<job>.<step>, or a log directory with a run in it"

// PointLatest makes the log directory's link point to this run. No daemon follows it.
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

// RequestStop requests the orderly end from the run's head, from outside the job. A second request
// has no effect.
func (d *Dir) RequestStop(ctx context.Context) error {
	err := d.PublishOnce(ctx, filepath.Join(Control, NameStop), &State{})
	if errors.Is(err, ErrTaken) {
		return nil
	}
	return err
}

// Names returns the sorted names of one listing of a subdirectory, for readers outside of the job.
func (d *Dir) Names(ctx context.Context, sub string) ([]string, error) {
	return d.via.names(ctx, filepath.Join(d.path, sub), nil)
}

// Make makes a subdirectory, if it does not exist.
func (d *Dir) Make(ctx context.Context, sub string) error {
	path := filepath.Join(d.path, sub)
	return d.change(ctx, "make", path, func() error { return d.via.makeOwn(path) })
}

// OwnedNames returns the sorted names of one listing of a subdirectory. It returns a *DirError if
// other users can write to the subdirectory.
func (d *Dir) OwnedNames(ctx context.Context, sub string) ([]string, error) {
	path := filepath.Join(d.path, sub)
	return d.via.names(ctx, path, Place{Host: d.host}.vetting(path))
}

// ReadOwned reads once a record that another user might have created: it must be a file of this
// user to which no other user can write. Absent reports which of its errors may be temporary.
func (d *Dir) ReadOwned(ctx context.Context, sub, name string, rec Record) error {
	path := filepath.Join(d.path, sub, name)
	file, err := asked(ctx, d.via, "read", path, func() (ownedFile, error) { return d.via.openOwned(path) })
	if err != nil {
		return fmt.Errorf("cannot read %s: %w", path, err)
	}
	return d.use(file, path, rec)
}

// ownedFile is the content of a file, and the attributes of the opened file.
type ownedFile struct {
	data  []byte
	facts Facts
}

func (a Access) openOwned(path string) (file ownedFile, err error) {
	file.data, file.facts, err = a.Share.Part(path, 0, maxRecord+1)
	return file, err
}

// use decodes the record in a file. It returns an error if another user may have written the file.
func (d *Dir) use(file ownedFile, path string, rec Record) (err error) {
	switch mode := file.facts.Mode; {
	case !mode.IsRegular():
		err = errors.New("it is no file")
	case file.facts.Owner != os.Geteuid():
		err = fmt.Errorf("it belongs to %s, and the run to %s", userName(file.facts.Owner), userName(os.Geteuid()))
	case mode.Perm()&0o022 != 0:
		err = fmt.Errorf("its mode is %04o: others could have written it", mode.Perm())
	case len(file.data) > maxRecord:
		err = errors.New("it is larger than any record")
	default:
		err = decode(file.data, d.nonce, rec)
	}
	if err != nil {
		return fmt.Errorf("cannot use %s: %w", path, err)
	}
	return nil
}

// Absent reports whether an error of ReadOwned may be temporary: this client does not know the file
// yet, or it is incomplete, or from another attempt.
func Absent(err error) bool { return passing(err) }

// Discard removes names that are not needed any more.
func (d *Dir) Discard(ctx context.Context, sub string, names ...string) error {
	for _, name := range names {
		path := filepath.Join(d.path, sub, name)
		err := do(ctx, d.via.Meter, "remove", path, func() error { return d.via.change(Remove, "", path) })
		if err != nil && !passing(err) {
			return err
		}
	}
	return nil
}
