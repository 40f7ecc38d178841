package signal

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// left returns the texts of the newest files of a host, at most most of them.
func left(t *testing.T, p HostHistory, most int) []string {
	t.Helper()
	data, err := p.ReadRecent(within(t), most)
	if err != nil {
		t.Fatal(err)
	}
	all := []string{}
	for _, one := range data {
		all = append(all, string(one))
	}
	return all
}

// TestPast verifies that each run of a host leaves one file, its first, and that the newest files
// are read and kept.
func TestPast(t *testing.T) {
	p := newPlace(t)
	p.NodeIndex = 3
	if got := left(t, p.HostHistory(), 3); len(got) > 0 {
		t.Errorf("before any run there is %q", got)
	}
	if all := names(t, p.LogDir); len(all) > 0 {
		t.Errorf("who reads makes %q", all)
	}
	const runs = maxHistoryFiles + 3
	for n := range runs {
		p.Run = fmt.Sprintf("%d.0", 900+n*37%runs) // as on a new cluster, whose job numbers restart
		d := create(t, p)
		if err := d.HostHistory().SaveRecord(within(t), []byte(p.Run)); err != nil {
			t.Fatal(err)
		}
		if err := d.HostHistory().SaveRecord(within(t), []byte("again")); !errors.Is(err, ErrAlreadyPublished) {
			t.Errorf("the second time: %v", err)
		}
		if got := left(t, p.HostHistory(), 1); len(got) != 1 || got[0] != p.Run {
			t.Errorf("after %s it has %q", p.Run, got)
		}
	}
	host := filepath.Join(p.LogDir, HistoryDir, "n0")
	all := names(t, host)
	if len(all) != maxHistoryFiles || all[0] != "000004."+left(t, p.HostHistory(), maxHistoryFiles)[maxHistoryFiles-1]+".0003" {
		t.Errorf("there are %d: %q", len(all), all)
	}
	for path, mode := range map[string]os.FileMode{"..": 0o700 | os.ModeDir, "": 0o700 | os.ModeDir, all[0]: 0o600} {
		if facts, err := os.Lstat(filepath.Join(host, path)); err != nil || facts.Mode() != mode {
			t.Errorf("%q: %v, %v", path, facts, err)
		}
	}
	p.Host = "n1"
	if got := left(t, p.HostHistory(), 3); len(got) > 0 {
		t.Errorf("of another host there is %q", got)
	}
}

// TestPastOfHostsWithoutAName verifies that such hosts write to no other directory.
func TestPastOfHostsWithoutAName(t *testing.T) {
	p := newPlace(t)
	for _, host := range []string{"", "..", ".", ".n0", "../n0", "a/b", "n\x00"} {
		p.Host = host
		past := p.HostHistory()
		past.fileName = "123.0.0000"
		if err := past.SaveRecord(within(t), []byte("x")); err == nil || !strings.HasPrefix(err.Error(), "cannot keep a history of the host ") {
			t.Errorf("%q: %v", host, err)
		}
		if _, err := past.ReadRecent(within(t), 3); err == nil {
			t.Errorf("%q is read", host)
		}
	}
	if all := names(t, p.LogDir); len(all) > 0 {
		t.Errorf("there is %q", all)
	}
}

// TestPastThatIsNotOurs verifies that a folder in which other users could create files is neither
// read nor written, and that a link is not followed.
func TestPastThatIsNotOurs(t *testing.T) {
	for name, tc := range map[string]struct {
		plant func(history, host, elsewhere string) error
		share SharedFS
	}{
		"the history is a link":       {func(history, _, elsewhere string) error { return os.Symlink(elsewhere, history) }, plain},
		"the history is a file":       {func(history, _, _ string) error { return os.WriteFile(history, nil, 0o600) }, plain},
		"the history is a stranger's": {func(history, _, _ string) error { return os.Mkdir(history, 0o700) }, foreign{plain, HistoryDir}},
		"anybody may write to it": {func(history, _, _ string) error {
			return errors.Join(os.Mkdir(history, 0o700), os.Chmod(history, 0o777))
		}, plain},
		"the host's folder is a link": {func(history, host, elsewhere string) error {
			return errors.Join(os.Mkdir(history, 0o700), os.Symlink(elsewhere, host))
		}, plain},
		"anybody may write to the host's folder": {func(history, host, _ string) error {
			return errors.Join(os.MkdirAll(host, 0o700), os.Chmod(host, 0o770))
		}, plain},
	} {
		t.Run(name, func(t *testing.T) {
			p := newPlace(t)
			d := create(t, p)
			d.access.FS = tc.share
			elsewhere, history := t.TempDir(), filepath.Join(p.LogDir, HistoryDir)
			put(t, filepath.Join(elsewhere, "000001.1.0.0000"), "planted")
			if err := tc.plant(history, filepath.Join(history, "n0"), elsewhere); err != nil {
				t.Fatal(err)
			}
			if data, err := d.HostHistory().ReadRecent(within(t), 3); err == nil || len(data) > 0 {
				t.Errorf("it is read: %q", data)
			}
			err := d.HostHistory().SaveRecord(within(t), []byte("ours"))
			if err == nil || !strings.HasPrefix(err.Error(), "cannot use the directory ") {
				t.Errorf("it is written: %v", err)
			}
			if all := names(t, elsewhere); len(all) != 1 {
				t.Errorf("elsewhere there is %q", all)
			}
		})
	}
}

// TestPastFilesThatAreNotOurs verifies that files of other users are skipped, and that the others
// are read.
func TestPastFilesThatAreNotOurs(t *testing.T) {
	p := newPlace(t)
	d := create(t, p)
	if err := d.HostHistory().SaveRecord(within(t), []byte("ours")); err != nil {
		t.Fatal(err)
	}
	host := filepath.Join(p.LogDir, HistoryDir, "n0")
	open := put(t, filepath.Join(host, "000002.1.0.0000"), "open")
	put(t, filepath.Join(host, "000006.1.0.0000"), strings.Repeat("x", maxHistoryFileSize+1))
	put(t, filepath.Join(host, "notes"), "of a person")
	put(t, filepath.Join(host, ".000009.1.0.0000.tmp"), "half")
	for _, err := range []error{
		os.Chmod(open, 0o666), os.Symlink(open, filepath.Join(host, "000003.1.0.0000")),
		os.Mkdir(filepath.Join(host, "000004.1.0.0000"), 0o700), syscall.Mkfifo(filepath.Join(host, "000005.1.0.0000"), 0o600),
	} {
		if err != nil {
			t.Fatal(err)
		}
	}
	if diff := cmp.Diff([]string{"ours"}, left(t, d.HostHistory(), 9)); diff != "" {
		t.Error(diff)
	}
}

// TestPastOnASickShare verifies that no partial file is left on a full file system, and that an
// operation that hangs is abandoned.
func TestPastOnASickShare(t *testing.T) {
	d := create(t, newPlace(t))
	d.access.FS = &faulty{onWrite: func(string, []byte) error { return syscall.ENOSPC }}
	err := d.HostHistory().SaveRecord(within(t), []byte("x"))
	var refused *DirError
	if !errors.As(err, &refused) || !strings.Contains(refused.Remedy, "free space") {
		t.Errorf("full: %v", err)
	}
	if all := names(t, filepath.Join(filepath.Dir(d.Path()), HistoryDir, "n0")); len(all) > 0 {
		t.Errorf("there is %q", all)
	}
	hangs := make(chan struct{})
	d.access.FS = &faulty{onLook: func(string) error { <-hangs; return nil }}
	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errors.New("no time"))
	if _, err := d.HostHistory().ReadRecent(ctx, 3); !IsStalled(err) {
		t.Errorf("hangs: %v", err)
	}
	if err := d.HostHistory().SaveRecord(ctx, []byte("x")); !IsStalled(err) {
		t.Errorf("hangs: %v", err)
	}
	close(hangs)
	if err := d.HostHistory().SaveRecord(within(t), make([]byte, maxHistoryFileSize+1)); err == nil || !strings.HasPrefix(err.Error(), "cannot keep ") {
		t.Errorf("too much: %v", err)
	}
}
