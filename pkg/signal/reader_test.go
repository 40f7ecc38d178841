package signal

import (
	"context"
	"errors"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/bringupd/bringupd/pkg/signal/record"
)

// reading opens a folder of a new directory with these files.
func reading(t *testing.T, files map[string]string) (*Reader, *DirSnapshot, string) {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		must(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	reader, err := OpenReader(t.Context(), dir)
	must(t, err)
	folder, err := reader.ListDir(t.Context(), "")
	must(t, err)
	return reader, folder, dir
}

func TestReaderRefusesWhatIsNoFileOfTheOwner(t *testing.T) {
	reader, folder, dir := reading(t, map[string]string{"fine": "text"})
	must(t, os.Symlink(filepath.Join(dir, "fine"), filepath.Join(dir, "link")))
	must(t, os.Mkdir(filepath.Join(dir, "dir"), 0o700))
	must(t, syscall.Mkfifo(filepath.Join(dir, "pipe"), 0o600))
	for name, want := range map[string]string{
		"link": "symbolic link", "dir": "not a file", "pipe": "not a file",
		"../fine": "not the name of a file", "none": "no such file",
	} {
		if _, err := folder.ReadFile(t.Context(), name, 100); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s is read: %v", name, err)
		}
	}
	if got, err := folder.ReadFile(t.Context(), "fine", 100); err != nil ||
		string(got.Data) != "text" || got.Tail != nil {
		t.Errorf("a file has %+v: %v", got, err)
	}
	reader.owner++
	if _, err := folder.ReadFile(t.Context(), "fine", 100); err == nil || !strings.Contains(err.Error(), "belongs to") {
		t.Errorf("a stranger's file is read: %v", err)
	}
	if _, err := reader.ListDir(t.Context(), "dir"); err == nil || !strings.Contains(err.Error(), "belongs to") {
		t.Errorf("a stranger's directory is read: %v", err)
	}
}

func TestReaderFollowsNoLinkToADirectory(t *testing.T) {
	reader, _, dir := reading(t, nil)
	must(t, os.Symlink(t.TempDir(), filepath.Join(dir, NodesDir)))
	if _, err := reader.ListDir(t.Context(), NodesDir); err == nil {
		t.Error("a link to a directory is followed")
	}
	if _, err := OpenReader(t.Context(), filepath.Join(dir, NodesDir)); !errors.Is(err, errNotDir) {
		t.Errorf("a link is read: %v", err)
	}
}

func TestReaderReadsBothEndsOfALargeFile(t *testing.T) {
	_, folder, _ := reading(t, map[string]string{"large": "begin" + strings.Repeat(".", 100) + "ended"})
	got, err := folder.ReadFile(t.Context(), "large", 10)
	if err != nil || string(got.Data) != "begin" || string(got.Tail) != "ended" || got.Size != 110 {
		t.Errorf("a large file has %+v: %v", got, err)
	}
}

func TestReaderRecords(t *testing.T) {
	const whole = `{"v":2,"nonce":"a","rank":3,"host":"n3","at":"2026-01-02T03:04:05Z"}`
	_, folder, _ := reading(t, map[string]string{
		"whole": whole + "\n", "cut": whole[:20], "unended": whole, "mark": "",
		"new": `{"v":9,"nonce":"a"}` + "\n", "text": "hello\n",
	})
	for _, test := range []struct {
		name, nonce string
		is          error
		says        string
	}{
		{"whole", "a", nil, ""},
		{"whole", "", nil, ""},
		{"whole", "b", errOtherAttempt, "another attempt"},
		{"cut", "a", errTruncated, "incomplete"},
		{"unended", "a", errTruncated, "incomplete"},
		{"mark", "a", nil, ""},
		{"new", "a", nil, "version 9"},
		{"text", "a", nil, "cannot"},
	} {
		var rec record.Mark
		at, err := folder.ReadRecord(t.Context(), test.name, test.nonce, &rec)
		if test.says == "" && err != nil || test.says != "" &&
			(err == nil || !strings.Contains(err.Error(), test.says)) {
			t.Errorf("%s: %v", test.name, err)
		}
		if test.is != nil && !errors.Is(err, test.is) {
			t.Errorf("%s: %v, want %v", test.name, err, test.is)
		}
		if at.IsZero() {
			t.Errorf("%s was never written", test.name)
		}
		isWhole := test.name == "whole" && test.is == nil
		if read := record.HeaderOf(&rec).Version == record.FormatVersion; read != isWhole {
			t.Errorf("%s is read as %+v", test.name, rec)
		}
	}
}

func TestReaderSortsDirectoriesByAge(t *testing.T) {
	_, _, dir := reading(t, map[string]string{"file": ""})
	for i, name := range []string{"b", "a", "c"} {
		must(t, os.Mkdir(filepath.Join(dir, name), 0o700))
		at := time.Unix(int64(1_700_000_000+i), 0)
		must(t, os.Chtimes(filepath.Join(dir, name), at, at))
	}
	reader, err := OpenReader(t.Context(), dir)
	must(t, err)
	folder, err := reader.ListDir(t.Context(), "")
	must(t, err)
	if got, err := folder.ListDirs(t.Context()); err != nil || !slices.Equal(got, []string{"c", "a", "b"}) {
		t.Errorf("by age they are %v: %v", got, err)
	}
}

// TestLastChangeTime verifies that a request to stop from outside is no sign of life of a daemon.
func TestLastChangeTime(t *testing.T) {
	path, now := t.TempDir(), time.Now().Truncate(time.Second)
	control, nodes := filepath.Join(path, ControlDir), filepath.Join(path, NodesDir)
	for _, dir := range []string{control, nodes} {
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	is := func(want time.Time, at map[string]time.Time) {
		t.Helper()
		for name, changed := range at {
			if err := os.Chtimes(name, changed, changed); err != nil {
				t.Fatal(err)
			}
		}
		if got, err := LastChangeTime(t.Context(), path); err != nil || !got.Equal(want) {
			t.Errorf("the last change was at %v, want %v: %v", got, want, err)
		}
	}
	long, recently := now.Add(-time.Hour), now.Add(-time.Minute)
	is(recently, map[string]time.Time{control: recently, nodes: long})
	stop := filepath.Join(control, NameStop)
	if err := os.WriteFile(stop, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	is(long, map[string]time.Time{stop: now, control: now, nodes: long})
	is(now, map[string]time.Time{stop: recently, control: now, nodes: long})
	is(recently, map[string]time.Time{stop: now, control: now, nodes: recently})
	before := now.Add(-time.Second)
	data, err := (&Dir{nonce: "a", size: 1}).encodeRecord(&record.StopRequest{LastChange: before})
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(stop, data, 0o600); err != nil {
		t.Fatal(err)
	}
	is(before, map[string]time.Time{stop: now, control: now, nodes: long})
}

// TestReaderGivesUp verifies that a file system that does not answer blocks a reader no longer than
// its context allows.
func TestReaderGivesUp(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	_, err := OpenReader(ctx, t.TempDir())
	if _, stalled := errors.AsType[*StallError](err); !stalled {
		t.Errorf("the error is %v", err)
	}
}

// TestReaderAsksAgain verifies that a file that is temporarily unknown is requested again.
func TestReaderAsksAgain(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "late")
	made := make(chan error, 1)
	appears := time.AfterFunc(2*minRetryPause, func() { made <- os.MkdirAll(filepath.Join(dir, "nodes"), 0o700) })
	defer appears.Stop()
	reader, err := OpenReader(t.Context(), dir)
	must(t, err)
	must(t, <-made)
	folder, err := reader.ListDir(t.Context(), "")
	must(t, err)
	if !slices.Equal(folder.Names, []string{"nodes"}) || reader.access.Meter.CallStats().Retries == 0 {
		t.Errorf("it shows %v, after %d tries more", folder.Names, reader.access.Meter.CallStats().Retries)
	}
}

func TestReadFrom(t *testing.T) {
	d := create(t, newPlace(t))
	logs := filepath.Join(d.Path(), LogsDir)
	put(t, filepath.Join(logs, "driver.log"), "0123456789")
	put(t, filepath.Join(logs, ".hidden"), "hidden")
	mkdir(t, filepath.Join(logs, "head"), dirMode)
	point(t, filepath.Join(logs, "link"), "driver.log")
	must(t, syscall.Mkfifo(filepath.Join(logs, "fifo"), fileMode))
	folder, err := d.NewReader().ListDir(within(t), LogsDir)
	must(t, err)
	for _, tc := range []struct {
		name   string
		offset int64
		want   string
		says   string // the error if it is refused
	}{
		{"driver.log", 0, "0123", ""},
		{"driver.log", 8, "89", ""},
		{"driver.log", 10, "", ""},
		{"driver.log", 99, "", ""},
		{"head", 0, "", "it is not a file"},
		{"fifo", 0, "", "it is not a file"},
		{"link", 0, "", "it is a symbolic link"},
		{"missing", 0, "", syscall.ENOENT.Error()},
		{".hidden", 0, "", "it is not the name of a file"},
		{"../logs/driver.log", 0, "", "it is not the name of a file"},
	} {
		data, err := folder.ReadRange(within(t), tc.name, tc.offset, 4)
		if string(data) != tc.want || (err == nil) != (tc.says == "") || err != nil &&
			!strings.Contains(err.Error(), tc.says) {
			t.Errorf("%s from %d: %q, %v", tc.name, tc.offset, data, err)
		}
	}
}

func TestHosts(t *testing.T) {
	d := create(t, newPlace(t))
	want := map[int]string{}
	for _, node := range []int{0, 2} {
		own := d.ForNode(node)
		own.host = NodeName(node, 4, "host")
		publish(t, own, NodesDir, NodeName(node, 4, record.StateJoined), &record.Joined{})
		want[node] = own.host
	}
	publish(t, d, NodesDir, NodeName(1, 4, record.StateServiceUp), &record.Mark{})
	if got, err := d.NewReader().NodeHosts(within(t), 4); err != nil || !maps.Equal(got, want) {
		t.Errorf("got %v, %v, not %v", got, err, want)
	}
	must(t, os.RemoveAll(filepath.Join(d.Path(), NodesDir)))
	if got, err := d.NewReader().NodeHosts(within(t), 4); err == nil {
		t.Errorf("without the directory: %v", got)
	}
}
