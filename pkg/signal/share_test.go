package signal

import (
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

func TestDiskList(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"b", "a", ".a.tmp", ".hidden"} {
		if err := os.WriteFile(filepath.Join(dir, name), nil, fileMode); err != nil {
			t.Fatal(err)
		}
	}
	got, err := plain.List(dir, nil)
	slices.Sort(got)
	if err != nil || !slices.Equal(got, []string{"a", "b"}) {
		t.Errorf("got %v, %v", got, err)
	}
	refused := errors.New("refused")
	if got, err := plain.List(dir, func(Facts) error { return refused }); got != nil || !errors.Is(err, refused) {
		t.Errorf("a check that refuses: got %v, %v", got, err)
	}
	if err := os.Symlink(dir, dir+"-link"); err != nil {
		t.Fatal(err)
	}
	if _, err := plain.List(dir+"-link", nil); !errors.Is(classify(err), errNotDir) {
		t.Errorf("a link: got %v", err)
	}
}

func TestDiskRead(t *testing.T) {
	dir := t.TempDir()
	path := func(name string) string { return filepath.Join(dir, name) }
	for name, data := range map[string]string{
		"empty": "", "small": "hello\n", "largest": strings.Repeat("x", maxRecord), "too-large": strings.Repeat("x", maxRecord+1),
	} {
		if err := os.WriteFile(path(name), []byte(data), fileMode); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(os.Symlink("small", path("link")), os.Mkdir(path("directory"), dirMode), syscall.Mkfifo(path("fifo"), fileMode)); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		name string
		size int // -1 for an error
	}{
		{"empty", 0}, {"small", 6}, {"largest", maxRecord}, {"too-large", -1},
		{"link", -1}, {"directory", -1}, {"missing", -1},
		{"fifo", 0}, // nobody writes to it, and nobody waits
	} {
		t.Run(tc.name, func(t *testing.T) {
			data, err := plain.Read(path(tc.name))
			if (err != nil) != (tc.size < 0) || err == nil && len(data) != tc.size {
				t.Errorf("got %d bytes, %v", len(data), err)
			}
		})
	}
}

// What the disk tells of itself is the kernel's word.
func TestDiskTells(t *testing.T) {
	dir := t.TempDir()
	kind, err := plain.Kind(dir)
	if want, wantErr := fileSystemOf(dir); err != nil || wantErr != nil || kind != want || kind.Name == "" {
		t.Errorf("it is %+v (%v), not %+v", kind, err, want)
	}
	if space, err := plain.Space(dir); err != nil || space.Size == 0 || space.Free > space.Size {
		t.Errorf("it has %+v, %v", space, err)
	}
	link := filepath.Join(dir, "link")
	if err := plain.Change(Symlink, "elsewhere", link); err != nil {
		t.Fatal(err)
	}
	if target, err := plain.Target(link); err != nil || target != "elsewhere" {
		t.Errorf("the link points at %q, %v", target, err)
	}
	for _, err := range []error{
		func() error { _, err := plain.Kind(dir + "/missing"); return err }(),
		func() error { _, err := plain.Space(dir + "/missing"); return err }(),
		func() error { _, err := plain.Target(dir + "/missing"); return err }(),
		func() error { _, err := plain.Look(dir + "/missing"); return err }(),
	} {
		if !errors.Is(err, os.ErrNotExist) {
			t.Errorf("got %v", err)
		}
	}
}

func TestDiskWriteFollowsNoLink(t *testing.T) {
	dir := t.TempDir()
	if err := os.Symlink("elsewhere", filepath.Join(dir, "name")); err != nil {
		t.Fatal(err)
	}
	if err := plain.Write(filepath.Join(dir, "name"), []byte("x"), false); !errors.Is(err, os.ErrExist) {
		t.Errorf("write: %v", err)
	}
	if err := plain.Write(filepath.Join(dir, "name"), nil, false); !errors.Is(err, syscall.ELOOP) {
		t.Errorf("mark: %v", err)
	}
	if file, err := plain.Extend(filepath.Join(dir, "name")); !errors.Is(err, syscall.ELOOP) {
		t.Errorf("extend: %v, %v", file, err)
	}
	if got := names(t, dir); !slices.Equal(got, []string{"name"}) {
		t.Errorf("left %v", got)
	}
}

func TestDiskWriteMode(t *testing.T) {
	path := filepath.Join(t.TempDir(), "name")
	if err := plain.Write(path, []byte("x"), true); err != nil {
		t.Fatal(err)
	}
	info, err := os.Stat(path)
	if err != nil || info.Mode().Perm()&^fileMode != 0 {
		t.Errorf("mode %v, %v", info.Mode(), err)
	}
}

// A network file system may say only at the close that it did not take what was
// written.
func TestDiskClose(t *testing.T) {
	failed := errors.New("failed")
	for _, tc := range []struct {
		name string
		do   func(d disk, path string) error
	}{
		{"write", func(d disk, path string) error { return d.Write(path+draftName("", "new")[1:], []byte("x"), false) }},
		{"write for good", func(d disk, path string) error { return d.Write(path+draftName("", "new")[1:], []byte("x"), true) }},
		{"mark", func(d disk, path string) error { return d.Write(path, nil, false) }},
		{"read", func(d disk, path string) error { _, err := d.Read(path); return err }},
		{"list", func(d disk, path string) error { _, err := d.List(filepath.Dir(path), nil); return err }},
		{"settle", func(d disk, path string) error { return d.Change(Settle, "", filepath.Dir(path)) }},
		{"extend", func(d disk, path string) error {
			file, err := d.Extend(path)
			if err == nil {
				_, err = file.Write([]byte("x"))
			}
			return errors.Join(err, file.Close())
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "name")
			if err := plain.Write(path, []byte("x"), false); err != nil {
				t.Fatal(err)
			}
			calls, closes, last := 0, 0, -1
			d := Disk(before(func(op Op, _ string) error {
				if calls++; calls == last {
					return failed
				}
				if op == OpClose {
					closes++
				}
				return nil
			})).(disk)
			if err := tc.do(d, path); err != nil {
				t.Fatal(err)
			}
			calls, last = 0, calls
			if err := tc.do(d, path); !errors.Is(err, failed) || calls != last || closes != 1 {
				t.Errorf("got %v after %d calls of %d", err, calls, last)
			}
		})
	}
}

func TestDiskChangeUnknown(t *testing.T) {
	if err := plain.Change("paint", "", ""); err == nil {
		t.Error("no error")
	}
}

// What passes is asked for again, after pauses that grow; nothing else is.
func TestAgain(t *testing.T) {
	for _, tc := range []struct {
		name  string
		err   error
		fails int
		tries int
		took  time.Duration
	}{
		{"well", nil, 0, 1, 0},
		{"refused", syscall.EACCES, 99, 1, 0},
		{"passing", syscall.ESTALE, 2, 3, 30 * time.Millisecond},
		{"passing at the last try", syscall.EIO, 8, 9, 320 * time.Millisecond},
		{"not passing after all", syscall.EIO, 99, 9, 320 * time.Millisecond},
	} {
		t.Run(tc.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				a, began, tries := Access{}.ready(), time.Now(), 0
				err := a.again(func() error {
					if tries++; tries <= tc.fails {
						return tc.err
					}
					return nil
				})
				if failed := tc.fails >= tc.tries; (err != nil) != failed || tries != tc.tries || time.Since(began) != tc.took {
					t.Errorf("%v after %d tries in %s, want %d in %s", err, tries, time.Since(began), tc.tries, tc.took)
				}
				if got := a.Meter.Stats().Retries; got != int64(tc.tries-1) {
					t.Errorf("%d were counted as made again", got)
				}
			})
		})
	}
}

func TestWriteWhole(t *testing.T) {
	failed := errors.New("failed")
	for _, tc := range []struct {
		name    string
		fs      *faulty
		durable bool
		err     error
		left    []string
	}{
		{"well", &faulty{}, false, nil, []string{"name"}},
		{"well and durable", &faulty{}, true, nil, []string{"name"}},
		{"the share is full half-way", &faulty{onWrite: func(path string, data []byte) error {
			return errors.Join(os.WriteFile(path, data[:len(data)/2], fileMode), syscall.ENOSPC)
		}}, false, syscall.ENOSPC, []string{}},
		{"the rename fails", &faulty{onChange: func(how Change, from, to string) error {
			if how == Rename {
				return failed
			}
			return plain.Change(how, from, to)
		}}, false, failed, []string{}},
		{"the rename was done and its reply lost", &faulty{onChange: func(how Change, from, to string) error {
			err := plain.Change(how, from, to)
			if how == Rename {
				err = plain.Change(how, from, to)
			}
			return err
		}}, true, nil, []string{"name"}},
		{"the rename was not done and answers so", &faulty{onChange: func(how Change, from, to string) error {
			if how == Rename {
				return syscall.ENOENT
			}
			return plain.Change(how, from, to)
		}}, false, syscall.ENOENT, []string{}},
		{"every call is answered in vain at first", inVain(syscall.ESTALE), true, nil, []string{"name"}},
		{"every call fails once, and the rename was done", inVain(syscall.EIO), true, nil, []string{"name"}},
		{"the names are not settled", &faulty{onChange: func(how Change, from, to string) error {
			if how == Settle {
				return failed
			}
			return plain.Change(how, from, to)
		}}, true, failed, []string{"name"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			dir := t.TempDir()
			err := Access{Share: tc.fs}.ready().writeWhole(dir, "name", []byte("hello\n"), tc.durable)
			if !errors.Is(err, tc.err) {
				t.Errorf("got %v, want %v", err, tc.err)
			}
			left := names(t, dir)
			if !slices.Equal(left, tc.left) {
				t.Errorf("left %v, want %v", left, tc.left)
			}
			if len(left) == 1 {
				if data, err := os.ReadFile(filepath.Join(dir, left[0])); string(data) != "hello\n" {
					t.Errorf("left %q, %v", data, err)
				}
			}
		})
	}
}

// inVain answers every kind of change and the first writing with an error once,
// though the changes are made where that is EIO.
func inVain(answer error) *faulty {
	asked := make(map[string]bool)
	first := func(what string) bool {
		before := asked[what]
		asked[what] = true
		return !before
	}
	return &faulty{
		onWrite: func(string, []byte) error {
			if first("write") {
				return answer
			}
			return nil
		},
		onChange: func(how Change, from, to string) error {
			if !first(string(how)) {
				return plain.Change(how, from, to)
			}
			if errors.Is(answer, syscall.EIO) {
				_ = plain.Change(how, from, to)
			}
			return answer
		},
	}
}

func TestWriteFirst(t *testing.T) {
	without := func(answer error) *faulty {
		return &faulty{onChange: func(how Change, from, to string) error {
			if how == Link {
				return answer
			}
			return plain.Change(how, from, to)
		}}
	}
	for _, tc := range []struct {
		name  string
		fs    *faulty
		there bool
		err   error
	}{
		{"the first", &faulty{}, false, nil},
		{"the second", &faulty{}, true, ErrTaken},
		{"the link was made and its reply lost", &faulty{onChange: func(how Change, from, to string) error {
			err := plain.Change(how, from, to)
			if how == Link {
				err = plain.Change(how, from, to)
			}
			return err
		}}, false, nil},
		{"every call is answered in vain at first", inVain(syscall.ESTALE), false, nil},
		{"every call fails once, and the link was made", inVain(syscall.EIO), false, nil},
		{"the first without links", without(syscall.EPERM), false, nil},
		{"the second without links", without(syscall.ENOTSUP), true, ErrTaken},
		{"a share that fails", without(syscall.EIO), false, syscall.EIO},
		{"a full share", &faulty{onWrite: func(string, []byte) error { return syscall.ENOSPC }}, false, syscall.ENOSPC},
	} {
		t.Run(tc.name, func(t *testing.T) {
			dir, want := t.TempDir(), []string{"name"}
			if tc.there {
				if err := os.WriteFile(filepath.Join(dir, "name"), []byte("first\n"), fileMode); err != nil {
					t.Fatal(err)
				}
			} else if tc.err != nil {
				want = []string{}
			}
			err := Access{Share: tc.fs}.ready().writeFirst(dir, "name", []byte("ours\n"), true)
			if !errors.Is(err, tc.err) {
				t.Errorf("got %v, want %v", err, tc.err)
			}
			if got := names(t, dir); !slices.Equal(got, want) {
				t.Errorf("left %v, want %v", got, want)
			}
			data, _ := os.ReadFile(filepath.Join(dir, "name"))
			if tc.there && string(data) != "first\n" || !tc.there && tc.err == nil && string(data) != "ours\n" {
				t.Errorf("left %q", data)
			}
		})
	}
}

func TestClaim(t *testing.T) {
	without := func(answer error) *faulty {
		return &faulty{onChange: func(how Change, from, to string) error {
			if how == Link {
				return answer
			}
			return plain.Change(how, from, to)
		}}
	}
	for _, tc := range []struct {
		name   string
		fs     *faulty
		there  bool // by another
		err    error
		theirs bool
	}{
		{"the first", &faulty{}, false, nil, false},
		{"the second", &faulty{}, true, ErrTaken, true},
		{"the link was made and its reply lost", &faulty{onChange: func(how Change, from, to string) error {
			err := plain.Change(how, from, to)
			if how == Link {
				err = plain.Change(how, from, to)
			}
			return err
		}}, false, nil, false},
		{"every call is answered in vain at first", inVain(syscall.ESTALE), false, nil, false},
		{"every call fails once, and the link was made", inVain(syscall.EIO), false, nil, false},
		{"the first without links", without(syscall.EPERM), false, nil, false},
		{"the second without links, where nobody lists", without(syscall.ENOTSUP), true, nil, false},
		{"links fail for good", without(syscall.EIO), false, nil, false},
		{"a full share", &faulty{onWrite: func(string, []byte) error { return syscall.ENOSPC }}, false, syscall.ENOSPC, false},
	} {
		t.Run(tc.name, func(t *testing.T) {
			p := newPlace(t)
			d := create(t, p)
			theirs := &FailedRecord{What: "theirs"}
			if tc.there {
				publish(t, d, Nodes, "0001.joined", theirs)
			}
			tc.fs.lists.Store(0)
			d.via.Share = tc.fs
			if err := d.Claim(within(t), Nodes, "0001.joined", &FailedRecord{What: "ours"}); !errors.Is(err, tc.err) && !strings.Contains(err.Error(), tc.err.Error()) {
				t.Errorf("got %v, want %v", err, tc.err)
			}
			want := []string{"0001.joined"}
			if tc.err != nil && !tc.there {
				want = []string{}
			}
			if got := names(t, filepath.Join(d.Path(), Nodes)); !slices.Equal(got, want) || tc.fs.lists.Load() > 0 {
				t.Errorf("left %v after %d listings, want %v after none", got, tc.fs.lists.Load(), want)
			}
			var rec FailedRecord
			err := d.read(within(t), Nodes, "0001.joined", &rec)
			if len(want) > 0 && (err != nil || (rec.What == "theirs") != tc.theirs) {
				t.Errorf("it is %q (%v)", rec.What, err)
			}
		})
	}
}
