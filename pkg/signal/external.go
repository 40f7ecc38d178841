package signal

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"

	"github.com/bringupd/bringupd/pkg/signal/record"
)

// outsideIndex is the node index in records from outside of the job.
const outsideIndex = -1

// LatestLink is the link in the log directory to the newest run.
const LatestLink = "latest"

// OpenExisting opens the run directory at path from outside the job. Its errors state what was
// found there and what would be accepted.
func OpenExisting(ctx context.Context, path, host string) (*Dir, record.Job, error) {
	return Access{}.OpenExisting(ctx, path, host)
}

// OpenExisting is like the function OpenExisting, but uses this access.
func (a Access) OpenExisting(ctx context.Context, path, host string) (*Dir, record.Job, error) {
	absolute, err := filepath.Abs(path)
	if err != nil {
		return nil, record.Job{}, fmt.Errorf("cannot use %s: %v", path, err)
	}
	return Location{LogDir: absolute, NodeIndex: outsideIndex, Host: host, Access: a}.openExistingRun(ctx)
}

func (p Location) openExistingRun(ctx context.Context) (*Dir, record.Job, error) {
	var job record.Job
	p.Access = p.withDefaults()
	hold := func(path string) ([]string, error) { return p.FS.HoldDir(path, p.ownerCheck(path)) }
	_, err := guardedQuery(ctx, p.Access, "inspect", p.LogDir, hold)
	switch err := classifyListError(err); {
	case errors.Is(err, errAbsent):
		return nil, job, fmt.Errorf("cannot find a run directory at %s: %s", p.LogDir, outsideRemedy)
	case errors.Is(err, errNotDir):
		return nil, job, p.newDirError(p.LogDir, outsideRemedy, "it is not a directory")
	case err != nil:
		return nil, job, err
	}
	logDir, run := filepath.Split(p.LogDir)
	d := Location{LogDir: logDir, NodeIndex: p.NodeIndex, Host: p.Host, Access: p.Access}.newDir(run)
	err = p.retryTransient(func() (err error) {
		job, err = d.loadJob(ctx)
		return err
	})
	if errors.Is(err, errAbsent) {
		err = fmt.Errorf("cannot find a run in %s: it has no job record: %s", d.path, outsideRemedy)
	}
	return d, job, err
}

const outsideRemedy = "give <log-dir>/<job>.<step>, or a log directory that contains a run"

// UpdateLatestLink makes the log directory's link point to this run. No daemon follows it.
func (d *Dir) UpdateLatestLink(ctx context.Context) error {
	parent := filepath.Dir(d.path)
	path, temporary := filepath.Join(parent, LatestLink), filepath.Join(parent, "."+LatestLink+"-"+randomTag())
	return d.access.guardedDo(ctx, "link", path, func() error {
		if _, err := d.access.FS.ReadLink(path); errors.Is(err, syscall.EINVAL) {
			return fmt.Errorf("cannot create the link %s: a file or directory with this name exists", path)
		}
		err := d.access.FS.ChangeName(OpSymlink, d.name, temporary)
		if err == nil {
			err = d.access.FS.ChangeName(OpRename, temporary, path)
		}
		if err != nil {
			_ = d.access.FS.ChangeName(OpRemove, "", temporary)
			return fmt.Errorf("cannot create the link %s: %v", path, bareErrno(err))
		}
		return nil
	})
}

// RequestStop requests the orderly end from the run's head, from outside the job. A second request
// has no effect.
func (d *Dir) RequestStop(ctx context.Context) error {
	stop := new(record.StopRequest)
	var err error
	if stop.LastChange, err = d.NewReader().lastChangeTime(ctx); IsStalled(err) {
		return err
	}
	err = d.PublishOnce(ctx, filepath.Join(ControlDir, NameStop), stop)
	if errors.Is(err, ErrAlreadyPublished) {
		return nil
	}
	return err
}

// ListNames returns the sorted names of one listing of a subdirectory, for readers outside of the
// job.
func (d *Dir) ListNames(ctx context.Context, sub string) ([]string, error) {
	return d.access.listNames(ctx, filepath.Join(d.path, sub), nil)
}

// EnsureSubdir makes a subdirectory, if it does not exist.
func (d *Dir) EnsureSubdir(ctx context.Context, sub string) error {
	path := filepath.Join(d.path, sub)
	return d.changePath(ctx, "make", path, func() error { return d.access.ensureDir(path) })
}

// ListOwnedNames returns the sorted names of one listing of a subdirectory. It returns a *DirError
// if other users can write to the subdirectory.
func (d *Dir) ListOwnedNames(ctx context.Context, sub string) ([]string, error) {
	path := filepath.Join(d.path, sub)
	return d.access.listNames(ctx, path, Location{Host: d.host}.ownerCheck(path))
}

// ReadOwnedRecord reads once a record that another user might have created: it must be a file of
// this user to which no other user can write. [IsTransient] reports which of its errors may be
// temporary.
func (d *Dir) ReadOwnedRecord(ctx context.Context, sub, name string, rec record.Record) error {
	path := filepath.Join(d.path, sub, name)
	file, err := guardedQuery(ctx, d.access, "read", path, d.access.readOwnedFile)
	if err != nil {
		return callError("read", path, err)
	}
	return d.decodeOwned(file, path, rec)
}

// ownedFile is the content of a file, and the attributes of the opened file.
type ownedFile struct {
	data       []byte
	attributes FileAttributes
}

func (a Access) readOwnedFile(path string) (file ownedFile, err error) {
	file.data, file.attributes, err = a.FS.ReadRange(path, 0, maxRecordSize+1)
	return file, err
}

// decodeOwned decodes the record in a file. It returns an error if another user may have written
// the file.
func (d *Dir) decodeOwned(file ownedFile, path string, rec record.Record) (err error) {
	switch mode := file.attributes.Mode; {
	case !mode.IsRegular():
		err = errors.New("it is not a regular file")
	case file.attributes.Owner != os.Geteuid():
		err = fmt.Errorf("it belongs to %s, and the run to %s",
			describeUser(file.attributes.Owner), describeUser(os.Geteuid()))
	case mode.Perm()&0o022 != 0:
		err = fmt.Errorf("its mode is %04o: other users could have written it", mode.Perm())
	case len(file.data) > maxRecordSize:
		err = errors.New("it is too large for a record")
	default:
		err = decodeRecord(file.data, d.nonce, rec)
	}
	if err != nil {
		return fmt.Errorf("cannot use %s: %w", path, err)
	}
	return nil
}

// IsTransient reports whether an error of ReadOwnedRecord may be temporary: this client does not
// know the file yet, or it is incomplete, or from another attempt.
func IsTransient(err error) bool { return isTransient(err) }

// RemoveNames removes names that are not needed any more.
func (d *Dir) RemoveNames(ctx context.Context, sub string, names ...string) error {
	for _, name := range names {
		err := d.access.removeGuarded(ctx, filepath.Join(d.path, sub, name))
		if err != nil && !isTransient(err) {
			return err
		}
	}
	return nil
}

// RemoveAll removes the run directory and everything in it.
func (d *Dir) RemoveAll(ctx context.Context) error {
	err := d.access.removeGuarded(ctx, d.path)
	if err == nil || IsStalled(err) {
		return err
	}
	return fmt.Errorf("cannot remove %s: %v", d.path, bareErrno(err))
}
