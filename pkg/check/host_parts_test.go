package check

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/bringupd/bringupd/internal/files"
	"github.com/bringupd/bringupd/pkg/signal"
)

func TestDisk(t *testing.T) {
	type disk struct {
		space              files.Space
		spaceErr, proveErr error
	}
	roomy := files.Space{Size: 1000 * gib, Free: 500 * gib, Files: 1e6, FreeFiles: 9e5}
	change := func(how func(*files.Space)) files.Space { s := roomy; how(&s); return s }
	for _, tc := range []struct {
		name  string
		disk  disk
		want  Verdict
		class Class
		hint  string // how it begins; not compared if it is empty
	}{
		{"room", disk{space: roomy}, Pass, "", ""},
		{"less than a tenth", disk{space: change(func(s *files.Space) { s.Free = 99 * gib })}, Warn, ClassEnvironment,
			"remove files"},
		{"less than 500 MiB", disk{space: files.Space{Size: gib, Free: 499 << 20}}, Fail, ClassEnvironment,
			"remove files"},
		{"a container's own, empty", disk{space: files.Space{Size: 16 << 20, Free: 16 << 20}}, Fail, ClassEnvironment,
			"use a larger directory"},
		{"the same, full", disk{space: files.Space{Size: 16 << 20}, proveErr: syscall.ENOSPC}, Fail, ClassEnvironment,
			"use a larger directory"},
		{"no inodes", disk{space: change(func(s *files.Space) { s.FreeFiles = 3 })}, Fail, ClassEnvironment, ""},
		{"a file system that does not count inodes",
			disk{space: change(func(s *files.Space) { s.Files, s.FreeFiles = 0, 0 })}, Pass, "", ""},
		{"read-only", disk{space: roomy, proveErr: &os.PathError{Op: "open", Path: "/tmp/x",
			Err: syscall.EROFS}}, Fail, ClassEnvironment, ""},
		{"over quota", disk{space: roomy, proveErr: syscall.EDQUOT}, Fail, ClassEnvironment, ""},
		{"not there", disk{spaceErr: syscall.ENOENT, proveErr: syscall.ENOENT}, Fail, ClassEnvironment, ""},
		{"not ours", disk{space: roomy, proveErr: syscall.EACCES}, Fail, ClassEnvironment, ""},
		{"can't be asked", disk{spaceErr: syscall.EIO}, Unknown, ClassEnvironment, ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			h := &Host{TempDir: "/tmp", system: node{
				space: map[string]files.Space{"/tmp": tc.disk.space}, err: tc.disk.spaceErr,
				prove: func(string) error { return tc.disk.proveErr },
			}}
			f := only(t, found(h, idDisk))
			if f.Verdict != tc.want || f.Class != tc.class || f.Strict != (tc.want == Warn) ||
				!strings.HasPrefix(f.Hint, tc.hint) {
				t.Errorf("got %+v", f)
			}
		})
	}
}

// TestTempDirIsNamed verifies that an unusable temporary directory is reported with the setting
// that names it (N3).
func TestTempDirIsNamed(t *testing.T) {
	for _, tc := range []struct{ variable, dir, want string }{
		{"/scratch/login", "", "TMPDIR=/scratch/login: a test write failed: no such file or directory"},
		{"/scratch/login", "/scratch/login", "TMPDIR=/scratch/login: a test write failed: no such file or directory"},
		{"/tmp", "/scratch/x", "--temp-dir=/scratch/x: a test write failed: no such file or directory"},
		{"", "", "a test write failed: no such file or directory"},
	} {
		t.Setenv("TMPDIR", tc.variable)
		h := &Host{TempDir: tc.dir, system: node{prove: func(string) error { return syscall.ENOENT }}}
		if f := only(t, found(h, idDisk)); f.Observed != tc.want || f.Verdict != Fail || f.Class != ClassEnvironment {
			t.Errorf("with TMPDIR=%s and --temp-dir=%s: %+v", tc.variable, tc.dir, f)
		}
	}
}

// TestTasks compares the number of further processes and threads allowed with the number that the
// services need (N4).
func TestTasks(t *testing.T) {
	root := t.TempDir()
	for name, text := range map[string]string{
		"proc/self/cgroup": "0::/job\n", "proc/self/mountinfo": "30 24 0:26 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n",
		"sys/fs/cgroup/job/pids.max": "300\n", "sys/fs/cgroup/job/pids.current": "60\n",
	} {
		path := filepath.Join(root, name)
		if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755),
			os.WriteFile(path, []byte(text), 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	for tasks, want := range map[uint64]Verdict{0: Pass, 240: Pass, 241: Fail} {
		f := only(t, found(&Host{Root: root, Tasks: tasks, system: node{}}, idLimits))
		if f.Verdict != want || want == Fail &&
			(f.Class != ClassEnvironment || !strings.Contains(f.Observed, "allows 300 processes and threads")) {
			t.Errorf("%d tasks: %+v", tasks, f)
		}
	}
}

// only returns the only finding of a check, which must be complete.
func only(t *testing.T, all []Finding) Finding {
	t.Helper()
	if len(all) != 1 {
		t.Fatalf("got %+v", all)
	}
	complete(t, all[0])
	return all[0]
}

func TestProve(t *testing.T) {
	dir := t.TempDir()
	if err := (localSystem{}).TestWrite(dir); err != nil {
		t.Error(err)
	}
	if left, err := os.ReadDir(dir); err != nil || len(left) > 0 {
		t.Errorf("left %v, %v", left, err)
	}
	if err := (localSystem{}).TestWrite(dir + "/missing"); err == nil {
		t.Error("no error where there is no directory")
	}
}

func TestShm(t *testing.T) {
	const mib = 1 << 20
	for _, tc := range []struct {
		name              string
		size, free, store uint64
		err               error
		want              Verdict
		class             Class
	}{
		{"large", 512 * gib, 512 * gib, 0, nil, Pass, ""},
		{"what Docker gives, and the store fits", 64 * mib, 64 * mib, 10 * mib, nil, Warn, ClassEnvironment},
		{"too small for the store", 64 * gib, 64 * gib, 100 * gib, nil, Fail, ClassEnvironment},
		{"full of what dead jobs left", 512 * gib, 100 * gib, 0, nil, Warn, ClassEnvironment},
		{"no room for the store", 512 * gib, 200 * gib, 300 * gib, nil, Fail, ClassEnvironment},
		{"not there", 0, 0, 0, syscall.ENOENT, Warn, ClassEnvironment},
		{"not there for the store", 0, 0, gib, syscall.ENOENT, Fail, ClassEnvironment},
		{"can't be asked", 0, 0, 0, syscall.EACCES, Unknown, ClassEnvironment},
	} {
		t.Run(tc.name, func(t *testing.T) {
			root := t.TempDir()
			f := only(t, found(&Host{Root: root, ObjectStore: int64(tc.store), system: node{
				space: map[string]files.Space{root + shmDir: {Size: tc.size, Free: tc.free}}, err: tc.err,
			}}, idShm))
			if f.Verdict != tc.want || f.Class != tc.class {
				t.Errorf("got %+v", f)
			}
		})
	}
}

func TestLimits(t *testing.T) {
	for _, tc := range []struct {
		name string
		node node
		rdma bool
		want []string
	}{
		{"all is well", node{}, true, []string{"PASS 1048576 open files, unlimited locked memory"}},
		{"few files", node{files: 4096}, true, []string{"WARN at most 4096 open files"}},
		{"just enough files", node{files: 8192}, false, []string{"PASS 8192 open files, unlimited locked memory"}},
		{"unlimited files", node{files: unix.RLIM_INFINITY}, false,
			[]string{"PASS unlimited open files, unlimited locked memory"}},
		{"memory can't be locked", node{locked: 8 << 20}, true, []string{"WARN 8.0 MiB of locked memory"}},
		{"memory need not be locked", node{locked: 8 << 20}, false,
			[]string{"PASS 1048576 open files, 8.0 MiB locked memory"}},
		{"both", node{files: 1024, locked: 64 << 10}, true,
			[]string{"WARN at most 1024 open files", "WARN 64 KiB of locked memory"}},
		{"can't be asked", node{err: syscall.EPERM}, true,
			[]string{"UNKNOWN cannot be read: operation not permitted",
				"UNKNOWN cannot be read: operation not permitted"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			h := &Host{Root: tree(t, nil), system: tc.node}
			if tc.rdma {
				grow(t, h.Root, cards(card{}))
			}
			var got []string
			for _, f := range found(h, idLimits) {
				complete(t, f)
				got = append(got, fmt.Sprintf("%s %s", f.Verdict, f.Observed))
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("want (-), got (+):\n%s", diff)
			}
		})
	}
}

func TestJudgeShare(t *testing.T) {
	room := &files.Space{Size: 1000 * gib, Free: 10 * gib}
	offset := func(d time.Duration) *time.Duration { return &d }
	for _, tc := range []struct {
		name  string
		share ShareFacts
		want  []string // ! marks a failure in strict mode
	}{
		{"nothing is known", ShareFacts{}, nil},
		{"all is well", ShareFacts{Space: room, Offset: offset(300 * time.Millisecond)},
			[]string{"PASS 10 GiB of 1000 GiB free (1 %)", "PASS within 2s of the shared file system's clock"}},
		{"another user can replace it", ShareFacts{Exposure: signal.Exposure{Reason: "seen",
			Remedy: "mend"}}, []string{"WARN seen"}},
		{"nearly full", ShareFacts{Space: &files.Space{Size: 1000 * gib, Free: 100 << 20}},
			[]string{"WARN! 100 MiB of 1000 GiB free (0 %)"}},
		{"no inodes", ShareFacts{Space: &files.Space{Size: gib, Free: gib, Files: 1e6}},
			[]string{"WARN! 0 of 1000000 inodes free"}},
		{"the space is not told", ShareFacts{SpaceErr: syscall.EIO},
			[]string{"UNKNOWN cannot be read: input/output error"}},
		{"behind", ShareFacts{Offset: offset(2100 * time.Millisecond)},
			[]string{"WARN 2.1s behind the shared file system's clock"}},
		{"an hour behind", ShareFacts{Offset: offset(time.Hour)},
			[]string{"WARN! 1h0m0s behind the shared file system's clock"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			tc.share.Path = "/scratch/me"
			var got []string
			for _, f := range CheckShare(tc.share) {
				complete(t, f)
				strict := ""
				if f.Strict {
					strict = "!"
				}
				got = append(got, fmt.Sprintf("%s%s %s", f.Verdict, strict, f.Observed))
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("want (-), got (+):\n%s", diff)
			}
		})
	}
}

func TestHostTraits(t *testing.T) {
	const x86 = "processor\t: 0\nvendor_id\t: GenuineIntel\nmodel name\t: Intel(R) Xeon(R) Platinum 8480C\n\n"
	for _, tc := range []struct {
		name  string
		files map[string]string
		want  []Attribute
	}{
		{"nothing can be read", nil, nil},
		{"a server", map[string]string{"proc/sys/kernel/osrelease": "6.8.0-45-generic\n",
			"sys/devices/system/cpu/online": "0-223\n", "proc/cpuinfo": x86},
			[]Attribute{{"x.kernel", "6.8.0-45-generic"}, {"x.cpu", "224 Intel(R) Xeon(R) Platinum 8480C"}}},
		{"ARM", map[string]string{"sys/devices/system/cpu/online": "0-3,8,10-11\n",
			"proc/cpuinfo": "processor\t: 0\nBogoMIPS\t: 2000.00\n"},
			[]Attribute{{"x.cpu", "7"}}},
		{"nonsense", map[string]string{"sys/devices/system/cpu/online": "3-0\n"}, nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if diff := cmp.Diff(tc.want, (&Host{Root: tree(t, tc.files)}).Attributes()); diff != "" {
				t.Errorf("want (-), got (+):\n%s", diff)
			}
		})
	}
}

// TestGPUHostTraits verifies that the host requirements of GPUs are traits of nodes with GPUs only,
// and that an unmet requirement is a trait, too.
func TestGPUHostTraits(t *testing.T) {
	const driver = "sys/module/nvidia/version"
	const channel, other = "dev/nvidia-caps-imex-channels/channel0", "dev/nvidia-caps-imex-channels/channel7"
	const unit = "system.slice/nvidia-imex.service/cgroup.procs"
	for _, tc := range []struct {
		name  string
		gpus  bool
		cards []card
		files []string
		want  []Attribute
	}{
		{"no driver", true, []card{{}}, []string{channel}, nil},
		{"no GPU for the job", false, []card{{}}, []string{driver, channel}, nil},
		{"no network card", true, nil, []string{driver}, []Attribute{{"x.imex", "none"}}},
		{"nothing", true, []card{{}}, []string{driver}, []Attribute{{"x.imex", "none"}}},
		{"all", true, []card{{}}, []string{driver, channel, "sys/fs/cgroup/" + unit},
			[]Attribute{{"x.imex", "channels and service"}}},
		{"channels alone", true, nil, []string{driver, channel}, []Attribute{{"x.imex", "channels"}}},
		{"the service alone, by cgroup v1", true, nil,
			[]string{driver, "sys/fs/cgroup/systemd/" + unit}, []Attribute{{"x.imex", "service"}}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			files := cards(tc.cards...)
			for _, name := range tc.files {
				files[name] = "\n"
			}
			if diff := cmp.Diff(tc.want, (&Host{Root: tree(t, files), GPUs: tc.gpus}).Attributes()); diff != "" {
				t.Errorf("want (-), got (+):\n%s", diff)
			}
		})
	}
}
