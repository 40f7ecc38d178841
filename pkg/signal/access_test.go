package signal

import (
	"errors"
	"fmt"
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
		must(t, os.WriteFile(filepath.Join(dir, name), nil, fileMode))
	}
	got, err := plain.ListDir(dir, nil)
	slices.Sort(got)
	if err != nil || !slices.Equal(got, []string{"a", "b"}) {
		t.Errorf("got %v, %v", got, err)
	}
	refused := errors.New("refused")
	if got, err := plain.ListDir(dir, func(FileAttributes) error { return refused }); got != nil ||
		!errors.Is(err, refused) {
		t.Errorf("a check that refuses: got %v, %v", got, err)
	}
	must(t, os.Symlink(dir, dir+"-link"))
	if _, err := plain.ListDir(dir+"-link", nil); !errors.Is(classifyListError(err), errNotDir) {
		t.Errorf("a link: got %v", err)
	}
}

func TestDiskRead(t *testing.T) {
	dir := t.TempDir()
	path := func(name string) string { return filepath.Join(dir, name) }
	for name, data := range map[string]string{
		"empty": "", "small": "hello\n", "largest": strings.Repeat("x", maxRecordSize),
		"too-large": strings.Repeat("x", maxRecordSize+1),
	} {
		must(t, os.WriteFile(path(name), []byte(data), fileMode))
	}
	must(t, errors.Join(os.Symlink("small", path("link")), os.Mkdir(path("directory"), dirMode),
		syscall.Mkfifo(path("fifo"), fileMode)))
	for _, tc := range []struct {
		name string
		size int // -1 for an error
	}{
		{"empty", 0}, {"small", 6}, {"largest", maxRecordSize}, {"too-large", -1},
		{"link", -1}, {"directory", -1}, {"missing", -1},
		{"fifo", 0}, // it has no writer, and the read does not wait for one
	} {
		t.Run(tc.name, func(t *testing.T) {
			data, err := plain.ReadFile(path(tc.name))
			if (err != nil) != (tc.size < 0) || err == nil && len(data) != tc.size {
				t.Errorf("got %d bytes, %v", len(data), err)
			}
		})
	}
}

func TestDiskWriteFollowsNoLink(t *testing.T) {
	dir := t.TempDir()
	must(t, os.Symlink("elsewhere", filepath.Join(dir, "name")))
	if err := plain.WriteFile(filepath.Join(dir, "name"), []byte("x"), false); !errors.Is(err, os.ErrExist) {
		t.Errorf("write: %v", err)
	}
	if err := plain.WriteFile(filepath.Join(dir, "name"), nil, false); !errors.Is(err, syscall.ELOOP) {
		t.Errorf("mark: %v", err)
	}
	if file, err := plain.OpenAppend(filepath.Join(dir, "name")); !errors.Is(err, syscall.ELOOP) {
		t.Errorf("extend: %v, %v", file, err)
	}
	if got := names(t, dir); !slices.Equal(got, []string{"name"}) {
		t.Errorf("left %v", got)
	}
}

// TestDiskClose verifies that an error at close is returned: a network file system may report only
// then that data was not written.
func TestDiskClose(t *testing.T) {
	failed := errors.New("failed")
	for _, tc := range []struct {
		name string
		do   func(d diskFS, path string) error
	}{
		{"write", func(d diskFS, path string) error {
			return d.WriteFile(path+draftName("", "new")[1:], []byte("x"), false)
		}},
		{"write for good", func(d diskFS, path string) error {
			return d.WriteFile(path+draftName("", "new")[1:], []byte("x"), true)
		}},
		{"settle", func(d diskFS, path string) error { return d.ChangeName(OpSync, "", filepath.Dir(path)) }},
		{"extend", func(d diskFS, path string) error {
			file, err := d.OpenAppend(path)
			if err == nil {
				_, err = file.Write([]byte("x"))
			}
			return errors.Join(err, file.Close())
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "name")
			must(t, plain.WriteFile(path, []byte("x"), false))
			calls, closes, last := 0, 0, -1
			d := NewDiskFS(before(func(op Op, _ string) error {
				if calls++; calls == last {
					return failed
				}
				if op == OpClose {
					closes++
				}
				return nil
			})).(diskFS)
			must(t, tc.do(d, path))
			calls, last = 0, calls
			if err := tc.do(d, path); !errors.Is(err, failed) || calls != last || closes != 1 {
				t.Errorf("got %v after %d calls of %d", err, calls, last)
			}
		})
	}
}

// TestDiskCloseLater verifies that a file to which nothing was written is closed, and that neither a
// close that fails nor one that hangs is awaited.
func TestDiskCloseLater(t *testing.T) {
	for name, do := range map[string]func(d SharedFS, path string) error{
		"mark":       func(d SharedFS, path string) error { return d.WriteFile(path, nil, false) },
		"read":       func(d SharedFS, path string) error { _, err := d.ReadFile(path); return err },
		"read range": func(d SharedFS, path string) error { _, _, err := d.ReadRange(path, 0, 1); return err },
		"list":       func(d SharedFS, path string) error { _, err := d.ListDir(filepath.Dir(path), nil); return err },
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "name")
			must(t, plain.WriteFile(path, []byte("x"), false))
			closing, release := make(chan struct{}), make(chan struct{})
			d := NewDiskFS(before(func(op Op, _ string) error {
				if op == OpClose {
					close(closing)
					<-release
					return errors.New("failed")
				}
				return nil
			}))
			if err := do(d, path); err != nil {
				t.Error(err)
			}
			select {
			case <-closing:
			case <-time.After(ceiling):
				t.Error("it is never closed")
			}
			close(release)
		})
	}
}

// TestAgain verifies that operations are repeated after temporary errors only, with growing pauses.
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
				a, began, tries := Access{}.withDefaults(), time.Now(), 0
				err := a.retryTransient(func() error {
					if tries++; tries <= tc.fails {
						return tc.err
					}
					return nil
				})
				if failed := tc.fails >= tc.tries; (err != nil) != failed || tries != tc.tries ||
					time.Since(began) != tc.took {
					t.Errorf("%v after %d tries in %s, want %d in %s", err, tries, time.Since(began), tc.tries, tc.took)
				}
				if got := a.Meter.CallStats().Retries; got != int64(tc.tries-1) {
					t.Errorf("%d were counted as recreated", got)
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
		{"the rename fails", refusing(OpRename, failed), false, failed, []string{}},
		{"the rename was done and its reply lost", repeating(OpRename), true, nil, []string{"name"}},
		{"the rename was not done and answers so", refusing(OpRename, syscall.ENOENT), false,
			syscall.ENOENT, []string{}},
		{"every call is answered in vain at first", inVain(syscall.ESTALE), true, nil, []string{"name"}},
		{"every call fails once, and the rename was done", inVain(syscall.EIO), true, nil, []string{"name"}},
		{"the names are not settled", refusing(OpSync, failed), true, failed, []string{"name"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			dir := t.TempDir()
			err := Access{FS: tc.fs}.withDefaults().publishFile(dir, "name", []byte("hello\n"), tc.durable)
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

// inVain returns a file system in which the first change of each kind and the first write fail once
// with an error; if it is EIO, the changes are made nevertheless.
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
		onChange: func(how Op, from, to string) error {
			if !first(string(how)) {
				return plain.ChangeName(how, from, to)
			}
			if errors.Is(answer, syscall.EIO) {
				_ = plain.ChangeName(how, from, to)
			}
			return answer
		},
	}
}

// TestWriteFirst publishes a name that another process may publish, too, durably or as a claim.
func TestWriteFirst(t *testing.T) {
	disk := func() *faulty { return &faulty{} }
	without := func(answer error) func() *faulty {
		return func() *faulty { return refusing(OpLink, answer) }
	}
	full := func() *faulty {
		return &faulty{onWrite: func(string, []byte) error { return syscall.ENOSPC }}
	}
	for _, tc := range []struct {
		name     string
		fs       func() *faulty
		there    bool // made by another process
		err      error
		replaced bool // by a claim, which lists nothing
	}{
		{"the first", disk, false, nil, false},
		{"the second", disk, true, ErrAlreadyPublished, false},
		{"the link was made and its reply lost", func() *faulty { return repeating(OpLink) }, false, nil, false},
		{"every call fails at first", func() *faulty { return inVain(syscall.ESTALE) }, false, nil, false},
		{"every call fails once, and is made", func() *faulty { return inVain(syscall.EIO) }, false, nil, false},
		{"the first without links", without(syscall.EPERM), false, nil, false},
		{"the second without links", without(syscall.ENOTSUP), true, ErrAlreadyPublished, true},
		{"a share that fails", without(syscall.EIO), false, syscall.EIO, false},
		{"a full share", full, false, syscall.ENOSPC, false},
	} {
		for _, isClaim := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s, claim: %t", tc.name, isClaim), func(t *testing.T) {
				dir, wantErr, want := t.TempDir(), tc.err, "own\n"
				if tc.there {
					put(t, filepath.Join(dir, "name"), "first\n")
					want = "first\n"
				}
				if isClaim && tc.replaced {
					wantErr, want = nil, "own\n"
				}
				fs := tc.fs()
				a := Access{FS: fs}.withDefaults()
				if err := a.publishFirst(dir, "name", []byte("own\n"), !isClaim); !errors.Is(err, wantErr) {
					t.Errorf("got %v, want %v", err, wantErr)
				}
				a.Meter.AwaitIdle(within(t)) // the temporary file of a claim is removed in the background
				left := []string{"name"}
				if wantErr != nil && !tc.there {
					left, want = []string{}, ""
				}
				if got := names(t, dir); !slices.Equal(got, left) || isClaim && fs.lists.Load() > 0 {
					t.Errorf("left %v after %d listings, want %v", got, fs.lists.Load(), left)
				}
				if data, _ := os.ReadFile(filepath.Join(dir, "name")); string(data) != want {
					t.Errorf("left %q, want %q", data, want)
				}
			})
		}
	}
}
