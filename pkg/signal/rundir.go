package signal

import (
	"cmp"
	"context"
	"crypto/hkdf"
	"crypto/rand"
	"crypto/sha256"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/bringupd/bringupd/internal/ctxutil"
	"github.com/bringupd/bringupd/internal/files"
	"github.com/bringupd/bringupd/pkg/signal/record"
)

// Dir is the run directory of one attempt, as used by one node.
type Dir struct {
	path       string
	name       string
	nonce      string
	nodeIndex  int // a member index
	size       int
	host       string
	fileSystem files.FileSystem
	access     Access
	heartbeats heartbeatCount
	reports    map[string]*reportStore // keyed by subdirectory, for all nodes
}

// Path returns the run directory's absolute path.
func (d *Dir) Path() string { return d.path }

// FS returns the shared file system.
func (d *Dir) FS() SharedFS { return d.access.FS }

// Name returns the run directory's name in the log directory.
func (d *Dir) Name() string { return d.name }

// Nonce returns the random value that the head chose for this attempt.
func (d *Dir) Nonce() string { return d.nonce }

// DeriveSecret returns 32 bytes that only readers of the run directory can derive: the same in all
// daemons of this attempt, different for each purpose, and not derivable from each other. They are
// derived from the nonce by HKDF (RFC 5869, with SHA-256).
func (d *Dir) DeriveSecret(purpose string) []byte {
	secret, err := hkdf.Key(sha256.New, []byte(d.nonce), nil, "bringupd "+purpose, sha256.Size)
	if err != nil {
		panic(fmt.Sprintf("internal error: %v", err)) // the length is always valid for HKDF
	}
	return secret
}

// FileSystem returns the file system of the run directory, as its head saw it.
func (d *Dir) FileSystem() files.FileSystem { return d.fileSystem }

// QuerySpace returns the size and the free space of the shared file system. It is one call with the
// same result on all nodes, so only the head makes it.
func (d *Dir) QuerySpace(ctx context.Context) (files.Space, error) {
	return guardedCall(ctx, d.access, "query the free space of", d.path, d.access.FS.SpaceOf)
}

// ForNode returns the same run directory for use by another node, or another member.
func (d *Dir) ForNode(node int) *Dir {
	other := *d
	other.nodeIndex, other.heartbeats = node, newHeartbeatCount()
	return &other
}

// NodeName returns the name in NodesDir for the state of a node, or of another member.
func (d *Dir) NodeName(member int, state record.State) string { return NodeName(member, d.size, state) }

func (p Location) newDir(run string) *Dir {
	return &Dir{
		path: filepath.Join(p.LogDir, run), name: run,
		nodeIndex: p.NodeIndex, size: p.Size, host: p.Host, access: p.Access, heartbeats: newHeartbeatCount(),
		reports: map[string]*reportStore{NodesDir: newReportStore(), ControlDir: newReportStore()},
	}
}

// ControlRecord is a record in ControlDir.
type ControlRecord struct {
	Name string
	record.Record
}

// CreateRun atomically makes the run directory with the job's record and others in it, and returns
// it. It fills in the job's Run, Key, Size and FileSystem. If an earlier run has the name (job
// numbers start again on a new cluster), it uses a name with the same beginning. Its error is a
// *DirError or a *StallError, or reports that a record cannot be encoded.
func CreateRun(ctx context.Context, p Location, job record.Job, others ...ControlRecord) (*Dir, error) {
	p.Access = p.withDefaults()
	names, err := p.listVerified(ctx)
	if isTransient(err) {
		err = p.unreadableError(p.LogDir, err)
	}
	if err != nil {
		return nil, err
	}
	// The nonce is in no name: only readers of the run directory know it, and any user may list the
	// log directory.
	run, nonce := p.Run, randomTag()+randomTag() // 256 bits, from which secrets are derived
	if slices.Contains(names, run) {
		if err := p.refuseExistingRun(ctx); err != nil {
			return nil, err
		}
		run += "+" + randomTag()[:8]
	}
	// The job record is written before the directory gets its name.
	d := p.newDir(run)
	d.nonce = nonce
	job.Run, job.Key, job.Size = run, p.Key, p.Size
	for _, rec := range append(others, ControlRecord{NameJob, &job}) {
		if _, err := d.encodeRecord(rec.Record); err != nil {
			return nil, err
		}
	}
	err = d.access.guardedDo(ctx, "make", d.path, func() error { return d.buildTree(p.LogDir, job, others) })
	if isNameTaken(err) && run == p.Run {
		err = cmp.Or(p.refuseExistingRun(ctx), err) // made by another head at the same time
	}
	if err != nil {
		return nil, p.explainBuild(d.path, err)
	}
	return d, nil
}

// refuseExistingRun refuses a name whose run has the same launch facts, because peers could not
// distinguish the two. It also refuses names with which peers would fail.
func (p Location) refuseExistingRun(ctx context.Context) error {
	remedy := p.OtherNameAdvice()
	d, job, err := p.openRun(ctx, p.Run)
	var refused *DirError
	switch {
	case errors.Is(err, errAbsent), errors.Is(err, errOtherAttempt):
		return nil
	case errors.As(err, &refused), IsStalled(err):
		return err
	case err != nil:
		return p.newDirError(p.LogDir, remedy,
			"it already contains a run of the same name, which cannot be identified: %v", err)
	case job.Key == p.Key:
		return cmp.Or(d.duplicateError(job.Header, job.PID), p.newDirError(p.LogDir, remedy,
			"it already contains a run of the same name, %s", p.Run))
	default:
		return nil
	}
}

// buildTree makes the tree under a hidden name, and then renames it into place. All nodes wait for
// it, so calls that do not depend on each other are made at the same time. The file system is added
// to the job's record.
func (d *Dir) buildTree(logDir string, job record.Job, others []ControlRecord) error {
	hidden := filepath.Join(logDir, ".new-"+randomTag())
	var parts errgroup.Group
	parts.Go(func() error {
		return d.access.retryTransient(func() (err error) {
			d.fileSystem, err = d.access.FS.FileSystemOf(logDir)
			return err
		})
	})
	err := errors.Join(d.access.ensureDir(hidden), parts.Wait())
	if err == nil {
		for _, sub := range []string{NodesDir, LogsDir, EventsDir} {
			parts.Go(func() error { return d.access.ensureDir(filepath.Join(hidden, sub)) })
		}
		parts.Go(func() error {
			job.FileSystem = d.fileSystem.Name
			if err := d.access.ensureDir(filepath.Join(hidden, ControlDir)); err != nil {
				return err
			}
			var records errgroup.Group
			for _, rec := range append([]ControlRecord{{NameJob, &job}}, others...) {
				records.Go(func() error {
					data, err := d.encodeRecord(rec.Record)
					if err != nil {
						return err
					}
					return d.access.writeNew(filepath.Join(hidden, ControlDir, rec.Name), data, false)
				})
			}
			return records.Wait()
		})
		err = parts.Wait()
	}
	if err == nil {
		err = d.access.renamePrivate(hidden, d.path)
	}
	if err != nil {
		d.access.removeQuietly(hidden)
	}
	return err
}

// isNameTaken reports whether a run directory could not be made because its name is taken.
func isNameTaken(err error) bool {
	return errors.Is(err, syscall.ENOTEMPTY) || errors.Is(err, os.ErrExist) || errors.Is(err, syscall.ENOTDIR)
}

func (p Location) explainBuild(path string, err error) error {
	var refused *DirError
	var duplicate *DuplicateDaemonError
	switch {
	case IsStalled(err), errors.As(err, &refused), errors.As(err, &duplicate):
		return err
	case isNameTaken(err):
		return p.newDirError(p.LogDir, p.OtherNameAdvice(),
			"another run created %s at the same time", filepath.Base(path))
	default:
		return p.newDirError(p.LogDir, remedyFor(err), "cannot create the run directory in it: %v", bareErrno(err))
	}
}

func randomTag() string {
	var raw [16]byte
	_, _ = rand.Read(raw[:]) // it never fails: see crypto/rand
	return fmt.Sprintf("%x", raw)
}

// openRun opens the run directory with the given name, which may belong to another run. It returns
// errOtherAttempt if the name is not a directory, because Slurm's own output is often named like
// the job. If it is the name of this run, the error is a *DirError instead.
func (p Location) openRun(ctx context.Context, name string) (*Dir, record.Job, error) {
	// Inspect the directory and read the record at the same time; the record counts only if the
	// directory can be trusted.
	d := p.newDir(name)
	var job record.Job
	var loading errgroup.Group
	loading.Go(func() (err error) {
		job, err = d.loadJob(ctx)
		return err
	})
	err := d.checkDir(ctx, p)
	loadErr := loading.Wait()
	switch {
	case err == errNotDir && name == p.Run:
		what := "it is a file"
		target, err := guardedCall(ctx, p.Access, "follow", d.path, p.FS.ReadLink)
		if err == nil {
			what = "it is a symbolic link to " + target
		}
		return d, record.Job{}, p.newDirError(d.path, "remove it, or give another --log-dir",
			"%s, but the run directory must be created there", what)
	case err == errNotDir:
		return d, record.Job{}, errOtherAttempt
	case err != nil:
		return d, record.Job{}, err
	}
	// A run of another launch may have another version; its key has the same name in all versions.
	if _, is := errors.AsType[*record.VersionError](loadErr); is && p.Run != "" && job.Key != p.Key {
		return d, job, errOtherAttempt
	}
	return d, job, loadErr
}

// loadJob initialises d from its job record, and returns the record. The secrets of the attempt are
// derived from this record, so it must belong to this user.
func (d *Dir) loadJob(ctx context.Context) (job record.Job, err error) {
	path := filepath.Join(d.path, ControlDir, NameJob)
	file, err := guardedCall(ctx, d.access, "read", path, d.access.readOwnedFile)
	switch {
	case err == nil:
		err = d.decodeOwned(file, path, &job)
	case !isTransient(err):
		err = callError("read", path, err)
	}
	if isTransient(err) {
		return job, errAbsent
	}
	if err == nil {
		d.nonce, d.size, d.fileSystem = job.Nonce, job.Size, files.FileSystemNamed(job.FileSystem)
	}
	return job, err
}

// checkDir refuses a run directory that another user has made. It returns errAbsent if this client
// does not know it yet, and errNotDir if it is not a directory.
func (d *Dir) checkDir(ctx context.Context, p Location) error {
	facts, err := guardedCall(ctx, d.access, "inspect", d.path, d.access.FS.Stat)
	if err == nil && facts.Mode.IsDir() {
		return p.checkOwner(d.path, facts)
	}
	if err == nil {
		return errNotDir
	}
	err = classifyListError(err)
	if err == errAbsent || err == errNotDir || IsStalled(err) {
		return err
	}
	return p.unreadableError(d.path, err)
}

// PublishRecord makes the record appear as name in the subdirectory sub, completely or not at all.
// Durable records (causes and results) survive a crash of the server. Each name must be published
// only once. The first record of this node determines ClockOffset.
func (d *Dir) PublishRecord(ctx context.Context, sub, name string, rec record.Record, durable bool) error {
	return d.writeRecord(ctx, sub, name, rec, durable, d.access.publishFile)
}

// ClaimRecord is like PublishRecord for a record that is not durable and that another process may
// publish, too: the first one wins, if the file system has links, and the others get
// ErrAlreadyPublished.
func (d *Dir) ClaimRecord(ctx context.Context, sub, name string, rec record.Record) error {
	return d.writeRecord(ctx, sub, name, rec, false, d.access.publishFirst)
}

// PublishOnce publishes a durable record that several nodes may want to write (a result if the head
// is lost): the first one wins and the others get ErrAlreadyPublished. The name is relative to the
// run directory.
func (d *Dir) PublishOnce(ctx context.Context, name string, rec record.Record) error {
	sub, name := filepath.Split(name)
	return d.writeRecord(ctx, sub, name, rec, true, d.access.publishFirst)
}

// fileWriter writes a file, such as [Access.publishFile].
type fileWriter func(dir, name string, data []byte, durable bool) error

func (d *Dir) writeRecord(
	ctx context.Context, sub, name string, rec record.Record, durable bool, write fileWriter,
) error {
	data, err := d.encodeRecord(rec)
	if err != nil {
		return err
	}
	return d.writeData(ctx, sub, name, data, durable, write)
}

// writeData writes an encoded record by calling the parameter write.
func (d *Dir) writeData(
	ctx context.Context, sub, name string, data []byte, durable bool, write fileWriter,
) error {
	dir := filepath.Join(d.path, sub)
	return d.changePath(ctx, "publish", filepath.Join(dir, name), func() error {
		return write(dir, name, data, durable)
	})
}

func (d *Dir) changePath(ctx context.Context, op, path string, call func() error) error {
	return d.explainWrite(path, d.access.guardedDo(ctx, op, path, call))
}

func (d *Dir) explainWrite(path string, err error) error {
	var refused *DirError
	if err == nil || errors.Is(err, ErrAlreadyPublished) || IsStalled(err) || errors.As(err, &refused) {
		return err
	}
	problem := fmt.Sprintf("cannot write %s: %v", path, bareErrno(err))
	return &DirError{Path: d.path, Host: d.host, Problem: problem, Remedy: remedyFor(err), IsFull: isFull(err)}
}

// WriteMark makes name appear in the subdirectory sub as an empty file, which is complete from the
// beginning. Each name must be marked only once. If it exists already, from a PublishRecord whose
// reply was lost, its content stays.
func (d *Dir) WriteMark(ctx context.Context, sub, name string) error {
	path := filepath.Join(d.path, sub, name)
	return d.changePath(ctx, "publish", path, func() error { return d.access.writeNew(path, nil, false) })
}

// RenameMark renames a mark of this node, for a full file system: a rename needs no space. It does
// nothing if a listing shows the new name, from a PublishRecord whose reply was lost.
func (d *Dir) RenameMark(ctx context.Context, sub, from, to string) error {
	dir := filepath.Join(d.path, sub)
	return d.changePath(ctx, "publish", filepath.Join(dir, to), func() error {
		err := d.access.renameIfAbsent(dir, filepath.Join(dir, from), to)
		if errors.Is(err, os.ErrExist) {
			return nil
		}
		return err
	})
}

// ReadRecord reads the record name in sub, which a listing must have shown. It retries until ctx
// ends while this client does not see it yet. What was only reported is not read from the directory.
func (d *Dir) ReadRecord(ctx context.Context, sub, name string, rec record.Record) error {
	begin := time.Now()
	for {
		err := d.readRecordOnce(ctx, sub, name, rec)
		if !errors.Is(err, errAbsent) {
			return err
		}
		d.access.Meter.countRetry()
		if !ctxutil.SleepContext(ctx, HeadPace.nextPause(time.Since(begin), 0, d.access.Jitter())) {
			return fmt.Errorf("cannot read %s: a listing shows it, but this node's mount has not returned it "+
				"for %s: %w", filepath.Join(d.path, sub, name), time.Since(begin).Round(time.Millisecond),
				context.Cause(ctx))
		}
	}
}

func (d *Dir) readRecordOnce(ctx context.Context, sub, name string, rec record.Record) error {
	path := filepath.Join(d.path, sub, name)
	data, reported := d.reports[sub].content(name)
	var err error
	if !reported {
		data, err = guardedCall(ctx, d.access, "read", path, d.access.FS.ReadFile)
	}
	switch {
	case isTransient(err):
		return errAbsent
	case err != nil:
		return callError("read", path, err)
	}
	if err := decodeRecord(data, d.nonce, rec); err != nil {
		if errors.Is(err, errAbsent) {
			return err
		}
		return fmt.Errorf("cannot use %s: %w", path, err)
	}
	return nil
}

// heartbeatCount is a channel of capacity one that holds the number of a node's heartbeats so far.
// It is empty while a heartbeat is in progress, so that heartbeats are made one after the other.
type heartbeatCount chan int64

func newHeartbeatCount() heartbeatCount {
	p := make(heartbeatCount, 1)
	p <- 0
	return p
}

// WriteHeartbeat writes the next heartbeat of this node, a name and a number, in the subdirectory sub:
// it renames the last one to increase the number, so that a heartbeat is one call and leaves one name.
// A Dir has one sequence of heartbeats; ForNode returns a Dir with another one. Concurrent
// heartbeats wait for each other.
func (d *Dir) WriteHeartbeat(ctx context.Context, sub string) error {
	path := filepath.Join(d.path, sub, NodeName(d.nodeIndex, d.size, record.StateHeartbeat))
	var newest int64
	turn := d.heartbeats
	if ctx.Err() != nil {
		turn = nil // if both channels were ready, select could choose either
	}
	select {
	case newest = <-turn:
	case <-ctx.Done():
		return &StallError{Op: "beat", Path: path, Cause: context.Cause(ctx)}
	}
	// The call returns the turn, even if its caller does not wait for it any more.
	_, err := unconditionalCall(ctx, d.access, "beat", path, func(string) (struct{}, error) {
		err := d.renameHeartbeat(path, newest)
		if err == nil {
			newest++
		}
		d.heartbeats <- newest
		return struct{}{}, err
	})
	return d.explainWrite(path, err)
}

func (d *Dir) renameHeartbeat(path string, newest int64) error {
	err := os.ErrNotExist
	// The rename is tried twice if the error is temporary, because the old name would stay otherwise.
	for try := 1; newest > 0 && isTransient(err) && try <= 2; try++ {
		err = d.access.FS.ChangeName(OpRename, addNumber(path, newest), addNumber(path, newest+1))
	}
	if err != nil { // if only the reply was lost, this changes nothing
		err = d.access.writeNew(addNumber(path, newest+1), nil, false)
	}
	return err
}
