package signal

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/bringupd/bringupd/pkg/signal/record"
)

// site is an empty directory, in which the location's log directory does not exist.
type site struct {
	*testing.T
	base string
	p    *Location
}

// obstacle is a problem with the log directory or with the entry that has the run directory's name.
type obstacle struct {
	name string
	lay  func(s site) string // creates the obstacle, and returns the path that the error must name
	head bool                // only the head is affected: a worker continues to poll
}

func mkdir(t testing.TB, path string, mode os.FileMode) string {
	t.Helper()
	must(t, errors.Join(os.Mkdir(path, dirMode), os.Chmod(path, mode)))
	return path
}

func put(t *testing.T, path, data string) string {
	t.Helper()
	must(t, os.WriteFile(path, []byte(data), fileMode))
	return path
}

func point(t *testing.T, path, target string) string {
	t.Helper()
	must(t, os.Symlink(target, path))
	return path
}

// run creates a run directory with that job record, and returns its path.
func run(t *testing.T, p *Location, job string) string {
	t.Helper()
	path := mkdir(t, filepath.Join(mkdir(t, p.LogDir, dirMode), p.Run), dirMode)
	put(t, filepath.Join(mkdir(t, filepath.Join(path, ControlDir), dirMode), NameJob), job)
	return path
}

// disown gives a directory to another user. Without the permission to do so, it returns a directory
// of root instead.
func disown(t *testing.T, path string) string {
	t.Helper()
	if os.Geteuid() != 0 {
		return "/usr"
	}
	must(t, os.Chown(path, 65534, 65534))
	return path
}

var obstacles = []obstacle{
	{name: "the parent is missing", lay: func(s site) string {
		s.p.LogDir = filepath.Join(s.base, "missing", "logs")
		return s.p.LogDir
	}},
	{name: "the parent is a file", lay: func(s site) string {
		s.p.LogDir = filepath.Join(put(s.T, filepath.Join(s.base, "file"), ""), "logs")
		return s.p.LogDir
	}},
	{name: "a file", lay: func(s site) string { return put(s.T, s.p.LogDir, "") }},
	{name: "a symbolic link", lay: func(s site) string {
		return point(s.T, s.p.LogDir, mkdir(s.T, filepath.Join(s.base, "real"), dirMode))
	}},
	{name: "a link to nothing", lay: func(s site) string { return point(s.T, s.p.LogDir, "nothing") }},
	{name: "writable by the group", lay: func(s site) string { return mkdir(s.T, s.p.LogDir, 0o770) }},
	{name: "writable by all", lay: func(s site) string { return mkdir(s.T, s.p.LogDir, 0o777|os.ModeSticky) }},
	{name: "another owner's", lay: func(s site) string {
		s.p.LogDir = disown(s.T, mkdir(s.T, s.p.LogDir, dirMode))
		return s.p.LogDir
	}},
	{name: "the name is too long", lay: func(s site) string {
		s.p.LogDir = filepath.Join(s.base, strings.Repeat("x", 300))
		return s.p.LogDir
	}},
	{name: "the run directory is a file", lay: func(s site) string {
		return put(s.T, filepath.Join(mkdir(s.T, s.p.LogDir, dirMode), s.p.Run), "")
	}},
	{name: "the run directory is a symbolic link", lay: func(s site) string {
		real := mkdir(s.T, filepath.Join(s.base, "real"), dirMode)
		return point(s.T, filepath.Join(mkdir(s.T, s.p.LogDir, dirMode), s.p.Run), real)
	}},
	{name: "the run directory is writable by the group", lay: func(s site) string {
		path := run(s.T, s.p, "")
		must(s.T, os.Chmod(path, 0o770))
		return path
	}},
	{name: "the run directory is of a run with the same facts", head: true, lay: func(s site) string {
		run(s.T, s.p, `{"v":2,"nonce":"theirs","key":"facts"}`+"\n")
		return s.p.LogDir
	}},
	{name: "the run directory is of the same launch in another version", head: true, lay: func(s site) string {
		run(s.T, s.p, `{"v":1,"nonce":"theirs","key":"facts"}`+"\n")
		return s.p.LogDir
	}},
}

// mended checks that an error states the path, the owner, what was found and what to do, in its own
// words.
func mended(t *testing.T, err error, path string, seen map[string]string) *DirError {
	t.Helper()
	var refused *DirError
	if !errors.As(err, &refused) {
		t.Fatalf("got %v, want a *DirError", err)
	}
	if refused.Path != path || refused.Host != "n0" || refused.Problem == "" || refused.Remedy == "" {
		t.Errorf("got %#v, want one of %s on n0", refused, path)
	}
	said := strings.TrimPrefix(path, filepath.Dir(path)) + refused.Problem + refused.Remedy
	if before, ok := seen[said]; ok {
		t.Errorf("%q is said of %q as well", said, before)
	}
	seen[said] = t.Name()
	return refused
}

func TestObstacles(t *testing.T) {
	head, worker := make(map[string]string), make(map[string]string)
	for _, tc := range obstacles {
		t.Run(tc.name, func(t *testing.T) {
			base := t.TempDir()
			p := Location{LogDir: filepath.Join(base, "logs"), Run: "123.0", Key: "facts", Size: 4, Host: "n0"}
			path := tc.lay(site{t, base, &p})
			t.Run("head", func(t *testing.T) {
				_, err := CreateRun(within(t), p, record.Job{})
				mended(t, err, path, head)
			})
			if tc.head {
				return
			}
			t.Run("worker", func(t *testing.T) {
				_, _, err := NewFinder(p).AwaitRun(within(t))
				mended(t, err, path, worker)
			})
		})
	}
}

// TestServerThatRefusesToMakeWhatIsThere simulates servers that answer "permission denied" to a
// mkdir of an existing directory.
func TestServerThatRefusesToMakeWhatIsThere(t *testing.T) {
	for _, answer := range []error{syscall.EACCES, syscall.EROFS, syscall.EPERM} {
		t.Run(answer.Error(), func(t *testing.T) {
			p := newPlace(t)
			p.FS = &faulty{onChange: func(how Op, from, to string) error {
				if how == OpMkdir && to == p.LogDir {
					return answer
				}
				return plain.ChangeName(how, from, to)
			}}
			create(t, p)
			p.LogDir += "-missing"
			_, err := CreateRun(within(t), p, record.Job{})
			mended(t, err, p.LogDir, map[string]string{})
		})
	}
}

// mountsChild is set if the test binary runs in a mount namespace of its own.
const mountsChild = "SIGNAL_TEST_MOUNTS"

// TestMounts runs itself in a mount namespace of its own: its mounts are invisible outside and
// disappear with it.
func TestMounts(t *testing.T) {
	if os.Getenv(mountsChild) == "" {
		inNamespace(t)
		return
	}
	must(t, syscall.Mount("", "/", "", syscall.MS_REC|syscall.MS_PRIVATE, ""))
	t.Run("read-only", testReadOnly)
	t.Run("full", testFull)
	t.Run("without room for a name", testNoInodes)
}

func inNamespace(t *testing.T) {
	child := exec.CommandContext(within(t), "/proc/self/exe", "-test.run=^TestMounts$", "-test.v")
	child.Env = append(os.Environ(), mountsChild+"=1")
	child.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNS, Pdeathsig: syscall.SIGKILL}
	if uid := os.Geteuid(); uid != 0 {
		child.SysProcAttr.Cloneflags |= syscall.CLONE_NEWUSER
		child.SysProcAttr.UidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: uid, Size: 1}}
		child.SysProcAttr.GidMappings = []syscall.SysProcIDMap{{ContainerID: 0, HostID: os.Getegid(), Size: 1}}
	}
	out, err := child.CombinedOutput()
	if err != nil || !strings.Contains(string(out), "--- PASS: TestMounts") {
		t.Errorf("in a mount namespace: %v\n%s", err, out)
	}
}

// mounted returns a location in a file system of its own.
func mounted(t *testing.T, options string) Location {
	t.Helper()
	p := newPlace(t)
	p.LogDir = mkdir(t, filepath.Join(t.TempDir(), "mount"), dirMode)
	must(t, syscall.Mount("none", p.LogDir, "tmpfs", 0, "mode=0700,"+options))
	t.Cleanup(func() {
		// The location keeps its directory open.
		if err := syscall.Unmount(p.LogDir, syscall.MNT_DETACH); err != nil {
			t.Error(err)
		}
	})
	return p
}

func testReadOnly(t *testing.T) {
	p := mounted(t, "size=1m")
	d := create(t, p)
	must(t, syscall.Mount("", p.LogDir, "", syscall.MS_REMOUNT|syscall.MS_RDONLY, ""))
	seen := make(map[string]string)
	t.Run("publish", func(t *testing.T) {
		mended(t, d.PublishRecord(within(t), NodesDir, NodeName(0, 4, record.StateJoined),
			&record.Mark{}, false), d.Path(), seen)
	})
	t.Run("publish once", func(t *testing.T) {
		mended(t, d.PublishOnce(within(t), NameResult, &record.Result{}), d.Path(), seen)
	})
	t.Run("beat", func(t *testing.T) {
		mended(t, d.WriteHeartbeat(within(t), NodesDir), d.Path(), seen)
	})
	t.Run("find", func(t *testing.T) {
		if _, job, err := NewFinder(p).AwaitRun(within(t)); err != nil || job.Nonce != d.Nonce() {
			t.Errorf("got %+v, %v", job, err)
		}
	})
	p.Run = "124.0"
	t.Run("create", func(t *testing.T) {
		_, err := CreateRun(within(t), p, record.Job{})
		mended(t, err, p.LogDir, seen)
	})
	p.LogDir += "/deeper"
	t.Run("create with the log directory", func(t *testing.T) {
		_, err := CreateRun(within(t), p, record.Job{})
		mended(t, err, p.LogDir, seen)
	})
}

const spaceMend = "free space or quota there, or give another --log-dir"

func testFull(t *testing.T) {
	p := mounted(t, "size=64k")
	d := create(t, p)
	if err := os.WriteFile(filepath.Join(p.LogDir, "filler"), make([]byte, 1<<20),
		fileMode); !errors.Is(err, syscall.ENOSPC) {
		t.Fatalf("cannot fill the file system: %v", err)
	}
	seen := make(map[string]string)
	t.Run("publish", func(t *testing.T) {
		refused := mended(t, d.PublishRecord(within(t), NodesDir,
			NodeName(0, 4, record.StateJoined), &record.Mark{}, false), d.Path(), seen)
		if refused.Remedy != spaceMend {
			t.Errorf("a full file system is mended by %q", refused.Remedy)
		}
		if left := names(t, filepath.Join(d.Path(), NodesDir)); len(left) != 0 {
			t.Errorf("left %v", left)
		}
	})
	// A heartbeat has no content, so heartbeats continue.
	t.Run("beat", func(t *testing.T) {
		for range 3 {
			if err := d.WriteHeartbeat(within(t), NodesDir); err != nil {
				t.Error(err)
			}
		}
	})
	t.Run("create", func(t *testing.T) {
		p.Run = "124.0"
		_, err := CreateRun(within(t), p, record.Job{})
		if refused := mended(t, err, p.LogDir, seen); refused.Remedy != spaceMend {
			t.Errorf("a full file system is mended by %q", refused.Remedy)
		}
		if left := names(t, p.LogDir); len(left) != 2 {
			t.Errorf("left %v", left)
		}
	})
}

func testNoInodes(t *testing.T) {
	p := mounted(t, "size=1m,nr_inodes=4")
	_, err := CreateRun(within(t), p, record.Job{})
	mended(t, err, p.LogDir, map[string]string{})
	if left := names(t, p.LogDir); len(left) != 0 {
		t.Errorf("left %v", left)
	}
}

// TestStalledShare verifies that every call abandons an operation that hangs. Time passes only
// while all calls hang.
func TestStalledShare(t *testing.T) {
	for _, tc := range []struct {
		name string
		call func(ctx context.Context, p Location, d *Dir) error
	}{
		{"create", func(ctx context.Context, p Location, _ *Dir) error {
			_, err := CreateRun(ctx, p, record.Job{})
			return err
		}},
		{"find", func(ctx context.Context, p Location, _ *Dir) error {
			_, _, err := NewFinder(p).AwaitRun(ctx)
			return err
		}},
		{"open", func(ctx context.Context, p Location, _ *Dir) error {
			_, _, err := p.openExistingRun(ctx)
			return err
		}},
		{"publish", func(ctx context.Context, _ Location, d *Dir) error {
			return d.PublishRecord(ctx, NodesDir, "0000.up", &record.Mark{}, true)
		}},
		{"publish once", func(ctx context.Context, _ Location, d *Dir) error {
			return d.PublishOnce(ctx, NameResult, &record.Result{})
		}},
		{"beat", func(ctx context.Context, _ Location, d *Dir) error {
			return d.WriteHeartbeat(ctx, NodesDir)
		}},
		{"read", func(ctx context.Context, _ Location, d *Dir) error {
			return d.ReadRecord(ctx, ControlDir, NameJob, &record.Job{})
		}},
		{"point at the newest", func(ctx context.Context, _ Location, d *Dir) error { return d.UpdateLatestLink(ctx) }},
		{"ask for a stop", func(ctx context.Context, _ Location, d *Dir) error { return d.RequestStop(ctx) }},
	} {
		t.Run(tc.name, func(t *testing.T) {
			p := newPlace(t)
			synctest.Test(t, func(t *testing.T) {
				stall := make(chan struct{})
				defer synctest.Wait() // for the abandoned calls
				defer close(stall)
				hang := func() error { <-stall; return errors.New("stalled") }
				fs := &faulty{}
				p.FS = fs
				d := create(t, p)
				fs.onList = func(string) ([]string, error) { return nil, hang() }
				fs.onRead = func(string) error { return hang() }
				fs.onWrite = func(string, []byte) error { return hang() }
				fs.onChange = func(Op, string, string) error { return hang() }
				over := errors.New("over")
				ctx, cancel := context.WithTimeoutCause(t.Context(), 20*time.Millisecond, over)
				defer cancel()
				err := tc.call(ctx, p, d)
				var stalled *StallError
				if !errors.As(err, &stalled) || !errors.Is(err, over) || stalled.Path == "" || stalled.Elapsed == 0 {
					t.Errorf("got %v", err)
				}
			})
		})
	}
}
