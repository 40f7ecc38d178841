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

	"github.com/bringupd/bringupd/pkg/pause"
)

// Dir is the run directory of one attempt, as used by one node.
type Dir struct {
	path  string
	run   string
	nonce string
	rank  int
	size  int
	host  string
	kind  FileSystem
	via   Access
	pulse pulse
}

// Path returns the run directory's absolute path.
func (d *Dir) Path() string { return d.path }

// Name returns the run directory's name in the log directory.
func (d *Dir) Name() string { return d.run }

// Nonce returns the random value that the head chose for this attempt.
func (d *Dir) Nonce() string { return d.nonce }

// Secret returns 32 bytes that only readers of the run directory can derive: the same in all
// daemons of this attempt, different for each purpose, and not derivable from each other. They are
// derived from the nonce by HKDF (RFC 5869, with SHA-256).
func (d *Dir) Secret(purpose string) []byte {
	secret, err := hkdf.Key(sha256.New, []byte(d.nonce), nil, "bringupd "+purpose, sha256.Size)
	if err != nil {
		panic(fmt.Sprintf("internal error: %v", err)) // the length is always valid for HKDF
	}
	return secret
}

// FileSystem returns the file system of the run directory, as its head saw it.
func (d *Dir) FileSystem() FileSystem { return d.kind }

// As returns the same run directory for use by another node.
func (d *Dir) As(rank int) *Dir {
	other := *d
	other.rank, other.pulse = rank, newPulse()
	return &other
}

// Deaf returns the same run directory without hints of the kernel: if many processes watch one
// directory, each name would wake all of them.
func (d *Dir) Deaf() *Dir {
	deaf := d.As(d.rank)
	deaf.via.Deaf = true
	return deaf
}

// NodeName returns the name in Nodes for a node's state.
func (d *Dir) NodeName(rank int, state string) string { return NodeName(rank, d.size, state) }

func (p Place) dir(run string) *Dir {
	return &Dir{
		path: filepath.Join(p.LogDir, run), run: run,
		rank: p.Rank, size: p.Size, host: p.Host, via: p.Access, pulse: newPulse(),
	}
}

// Create atomically makes the run directory with the job's record in it, and returns it. It fills
// in the record's Run, Key, Size and FileSystem. If an earlier run has the name (job numbers start
// again on a new cluster), it uses a name with the same beginning. Its error is a *DirError or a
// *StallError, or reports that the record cannot be encoded.
func Create(ctx context.Context, p Place, job Job) (*Dir, error) {
	p.Access = p.ready()
	names, kind, err := p.survey(ctx)
	if err != nil {
		return nil, err
	}
	// The nonce is in no name: only readers of the run directory know it, and any user may list the
	// log directory.
	run, nonce := p.Run, newTag()+newTag() // 256 bits, from which secrets are derived
	if slices.Contains(names, run) {
		if err := p.refuseOwn(ctx); err != nil {
			return nil, err
		}
		run += "+" + newTag()[:8]
	}
	// The job record is written before the directory gets its name.
	d := p.dir(run)
	d.nonce, d.kind = nonce, kind
	job.Run, job.Key, job.Size, job.FileSystem = run, p.Key, p.Size, kind.Name
	data, err := d.encode(&job)
	if err != nil {
		return nil, err
	}
	err = do(ctx, d.via.Meter, "make", d.path, func() error { return d.build(p.LogDir, data) })
	if taken(err) && run == p.Run {
		err = cmp.Or(p.refuseOwn(ctx), err) // made by another head at the same time
	}
	if err != nil {
		return nil, p.explainBuild(d.path, err)
	}
	return d, nil
}

// survey lists the log directory and determines its file system.
func (p Place) survey(ctx context.Context) (names []string, kind FileSystem, err error) {
	err = p.again(func() error {
		names, err = p.look(ctx, false)
		if err == nil {
			kind, err = p.fileSystem(ctx)
		}
		return err
	})
	if passing(err) {
		err = p.unread(p.LogDir, err)
	}
	return names, kind, err
}

// refuseOwn refuses a name whose run has the same launch facts, because peers could not distinguish
// the two. It also refuses names with which peers would fail.
func (p Place) refuseOwn(ctx context.Context) error {
	const mend = "give another --job-id, or another --log-dir"
	d, job, err := p.open(ctx, p.Run)
	var refused *DirError
	switch {
	case errors.Is(err, errAbsent):
		return nil
	case errors.As(err, &refused), Stalled(err):
		return err
	case err != nil:
		return p.refuse(p.LogDir, mend, "a run of the same name has been there before, and it can't be told whose: %v", err)
	case job.Key == p.Key:
		return cmp.Or(d.twin(job.Header, job.PID), p.refuse(p.LogDir, mend, "a run of the same name, %s, has been there before", p.Run))
	default:
		return nil
	}
}

// build makes the tree under a hidden name, and then renames it into place.
func (d *Dir) build(logDir string, job []byte) error {
	hidden := filepath.Join(logDir, ".new-"+newTag())
	err := d.via.makeOwn(hidden)
	for _, sub := range []string{Control, Nodes, Logs, Events} {
		if err == nil {
			err = d.via.makeOwn(filepath.Join(hidden, sub))
		}
	}
	if err == nil {
		err = d.via.write(filepath.Join(hidden, Control, NameJob), job, false)
	}
	if err == nil {
		err = d.via.renameOwn(hidden, d.path)
	}
	if err != nil {
		d.via.tidy(hidden)
	}
	return err
}

// taken reports whether a run directory could not be made because its name is taken.
func taken(err error) bool {
	return errors.Is(err, syscall.ENOTEMPTY) || errors.Is(err, os.ErrExist) || errors.Is(err, syscall.ENOTDIR)
}

func (p Place) explainBuild(path string, err error) error {
	var refused *DirError
	var twin *TwinError
	switch {
	case Stalled(err), errors.As(err, &refused), errors.As(err, &twin):
		return err
	case taken(err):
		return p.refuse(p.LogDir, "give another --job-id, or another --log-dir",
			"another run has made %s at the same moment", filepath.Base(path))
	default:
		return p.refuse(p.LogDir, mendFor(err), "cannot make the run directory in it: %v", errno(err))
	}
}

// newTag returns a random name.
func newTag() string {
	var raw [16]byte
	_, _ = rand.Read(raw[:]) // it never fails: see crypto/rand
	return fmt.Sprintf("%x", raw)
}

// open opens the run directory with the given name, which may belong to another run. It returns
// errOther if the name is not a directory, because Slurm's own output is often named like the job.
// If it is the name of this run, the error is a *DirError instead.
func (p Place) open(ctx context.Context, name string) (*Dir, Job, error) {
	d := p.dir(name)
	err := d.inspect(ctx, p)
	switch {
	case err == errNotDir && name == p.Run:
		return d, Job{}, p.explainInTheWay(ctx, d.path)
	case err == errNotDir:
		return d, Job{}, errOther
	case err != nil:
		return d, Job{}, err
	}
	job, err := d.adopt(ctx)
	return d, job, err
}

// adopt initialises d from its job record, and returns the record. The secrets of the attempt are
// derived from this record, so it must belong to this user.
func (d *Dir) adopt(ctx context.Context) (job Job, err error) {
	path := filepath.Join(d.path, Control, NameJob)
	file, err := guarded(ctx, d.via.Meter, "read", path, func() (ownedFile, error) { return d.via.openOwned(path) })
	switch {
	case err == nil:
		err = d.use(file, path, &job)
	case !passing(err):
		err = fmt.Errorf("cannot read %s: %w", path, err)
	}
	if passing(err) {
		return job, errAbsent
	}
	if err == nil {
		d.nonce, d.size, d.kind = job.Nonce, job.Size, named(job.FileSystem)
	}
	return job, err
}

// inspect refuses a run directory that another user has made. It returns errAbsent if this client
// does not know it yet, and errNotDir if it is not a directory.
func (d *Dir) inspect(ctx context.Context, p Place) error {
	facts, err := guarded(ctx, d.via.Meter, "inspect", d.path, func() (Facts, error) { return d.via.Share.Look(d.path) })
	if err == nil && facts.Mode.IsDir() {
		return p.trust(d.path, facts)
	}
	if err == nil {
		return errNotDir
	}
	err = classify(err)
	if err == errAbsent || err == errNotDir || Stalled(err) {
		return err
	}
	return p.unread(d.path, err)
}

// Publish makes the record appear as name in the subdirectory sub, completely or not at all.
// Durable records (causes and results) survive a crash of the server. Each name must be published
// only once. The first record of this node determines Offset.
func (d *Dir) Publish(ctx context.Context, sub, name string, rec Record, durable bool) error {
	return d.publish(ctx, sub, name, rec, durable, d.via.writeWhole)
}

// Claim is like Publish for a record that is not durable and that another process may publish, too:
// the first one wins, if the file system has links, and the others get ErrTaken.
func (d *Dir) Claim(ctx context.Context, sub, name string, rec Record) error {
	return d.publish(ctx, sub, name, rec, false, d.via.writeFirst)
}

// PublishOnce publishes a durable record that several nodes may want to write (a result if the head
// is lost): the first one wins and the others get ErrTaken. The name is relative to the run
// directory.
func (d *Dir) PublishOnce(ctx context.Context, name string, rec Record) error {
	sub, name := filepath.Split(name)
	return d.publish(ctx, sub, name, rec, true, d.via.writeFirst)
}

// publish encodes a record and writes it by calling the parameter write.
func (d *Dir) publish(
	ctx context.Context, sub, name string, rec Record, durable bool, write func(dir, name string, data []byte, durable bool) error,
) error {
	data, err := d.encode(rec)
	if err != nil {
		return err
	}
	dir := filepath.Join(d.path, sub)
	return d.change(ctx, "publish", filepath.Join(dir, name), func() error { return write(dir, name, data, durable) })
}

// change makes a call that changes path, and explains its error.
func (d *Dir) change(ctx context.Context, op, path string, call func() error) error {
	return d.explainWrite(path, do(ctx, d.via.Meter, op, path, call))
}

func (d *Dir) explainWrite(path string, err error) error {
	var refused *DirError
	if err == nil || errors.Is(err, ErrTaken) || Stalled(err) || errors.As(err, &refused) {
		return err
	}
	return &DirError{Path: d.path, Host: d.host, Seen: fmt.Sprintf("cannot write %s: %v", path, errno(err)), Mend: mendFor(err)}
}

// Mark makes name appear in the subdirectory sub as an empty file, which is complete from the
// beginning. Each name must be marked only once. If it exists already, from a Publish whose reply
// was lost, its content stays.
func (d *Dir) Mark(ctx context.Context, sub, name string) error {
	path := filepath.Join(d.path, sub, name)
	return d.change(ctx, "publish", path, func() error { return d.via.write(path, nil, false) })
}

// Remark renames a mark of this node, for a full file system: a rename needs no space. It does
// nothing if a listing shows the new name, from a Publish whose reply was lost.
func (d *Dir) Remark(ctx context.Context, sub, from, to string) error {
	dir := filepath.Join(d.path, sub)
	return d.change(ctx, "publish", filepath.Join(dir, to), func() error {
		err := d.via.renameFirst(dir, filepath.Join(dir, from), to)
		if errors.Is(err, os.ErrExist) {
			return nil
		}
		return err
	})
}

// Read reads the record name in sub, which a listing must have shown. It retries until ctx ends
// while this client does not see it yet.
func (d *Dir) Read(ctx context.Context, sub, name string, rec Record) error {
	begin := time.Now()
	for {
		err := d.read(ctx, sub, name, rec)
		if !errors.Is(err, errAbsent) {
			return err
		}
		d.via.Meter.retry()
		if !pause.For(ctx, HeadPace.next(time.Since(begin), 0, d.via.Jitter())) {
			return fmt.Errorf("cannot read %s: a listing shows it but this node's mount has not given it for %s: %w",
				filepath.Join(d.path, sub, name), time.Since(begin).Round(time.Millisecond), context.Cause(ctx))
		}
	}
}

func (d *Dir) read(ctx context.Context, sub, name string, rec Record) error {
	path := filepath.Join(d.path, sub, name)
	data, err := guarded(ctx, d.via.Meter, "read", path, func() ([]byte, error) { return d.via.Share.Read(path) })
	switch {
	case passing(err):
		return errAbsent
	case err != nil:
		return fmt.Errorf("cannot read %s: %w", path, err)
	}
	if err := decode(data, d.nonce, rec); err != nil {
		if errors.Is(err, errAbsent) {
			return err
		}
		return fmt.Errorf("cannot use %s: %v", path, err)
	}
	return nil
}

// pulse is a channel of capacity one that holds the number of a node's heartbeats so far. It is
// empty while a heartbeat is in progress, so that heartbeats are made one after the other.
type pulse chan int64

func newPulse() pulse {
	p := make(pulse, 1)
	p <- 0
	return p
}

// Beat writes the next heartbeat of this node as state: see BeatAs.
func (d *Dir) Beat(ctx context.Context, sub, state string) error {
	return d.BeatAs(ctx, sub, NodeName(d.rank, d.size, state))
}

// BeatAs writes the next heartbeat, a name and a number, in the subdirectory sub: it renames the
// last one to increase the number, so that a heartbeat is one call and leaves one name. A Dir has
// one sequence of heartbeats; As returns a Dir with another one. Concurrent heartbeats wait for
// each other.
func (d *Dir) BeatAs(ctx context.Context, sub, name string) error {
	path := filepath.Join(d.path, sub, name)
	newest, ok := d.pulse.turn(ctx)
	if !ok {
		return &StallError{Op: "beat", Path: path, Cause: context.Cause(ctx)}
	}
	// The call returns the turn, even if its caller does not wait for it any more.
	_, err := begun(ctx, d.via.Meter, "beat", path, func() (struct{}, error) {
		err := d.beat(path, newest)
		if err == nil {
			newest++
		}
		d.pulse <- newest
		return struct{}{}, err
	})
	return d.explainWrite(path, err)
}

func (d *Dir) beat(path string, newest int64) error {
	name := func(count int64) string { return fmt.Sprintf("%s.%06d", path, count) }
	err := os.ErrNotExist
	// The rename is tried twice if the error is temporary, because the old name would stay otherwise.
	for try := 1; newest > 0 && passing(err) && try <= 2; try++ {
		err = d.via.Share.Change(Rename, name(newest), name(newest+1))
	}
	if err != nil { // if only the reply was lost, this changes nothing
		err = d.via.write(name(newest+1), nil, false)
	}
	return err
}

// turn waits for the turn to write a heartbeat, and reports whether it came in time.
func (p pulse) turn(ctx context.Context) (newest int64, ok bool) {
	if ctx.Err() != nil { // if both channels are ready, select chooses either
		return 0, false
	}
	select {
	case newest = <-p:
		return newest, true
	case <-ctx.Done():
		return 0, false
	}
}
