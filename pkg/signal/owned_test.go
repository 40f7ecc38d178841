package signal

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/bringupd/bringupd/pkg/signal/record"
)

// order is a record that contains a request.
type order struct {
	record.Header
	Argv []string `json:"argv"`
}

// foreign is a file system on which some names belong to another user.
type foreign struct {
	SharedFS
	theirs string // suffix of their paths
}

func (s foreign) Stat(path string) (FileAttributes, error) {
	facts, err := s.SharedFS.Stat(path)
	return s.disown(path, facts), err
}

func (s foreign) ReadRange(path string, offset, most int64) ([]byte, FileAttributes, error) {
	data, facts, err := s.SharedFS.ReadRange(path, offset, most)
	return data, s.disown(path, facts), err
}

func (s foreign) disown(path string, facts FileAttributes) FileAttributes {
	if strings.HasSuffix(path, s.theirs) {
		facts.Owner++
	}
	return facts
}

// TestReadOwned verifies that a request is accepted if it is a complete record of this attempt, in
// a file that belongs to the user and that no other user can write to.
func TestReadOwned(t *testing.T) {
	p := newPlace(t)
	p.FS = foreign{plain, "theirs"}
	d := create(t, p)
	for range 2 { // the second call finds it
		must(t, d.EnsureSubdir(within(t), ExecDir))
	}
	exec := filepath.Join(d.Path(), ExecDir)
	for _, name := range []string{"ours", "theirs", "open"} {
		publish(t, d, ExecDir, name, &order{Argv: []string{name}})
	}
	for _, err := range []error{os.Chmod(filepath.Join(exec, "open"), 0o620),
		os.Mkdir(filepath.Join(exec, "directory"), dirMode), os.Symlink("ours", filepath.Join(exec, "link"))} {
		must(t, err)
	}
	put(t, filepath.Join(exec, "short"), `{"v":2,`)
	for _, tc := range []struct {
		name, says string
		absent     bool
	}{
		{"ours", "", false},
		{"theirs", "it belongs to", false},
		{"open", "its mode is 0620", false},
		{"directory", "it is not a regular file", false},
		{"link", "too many levels of symbolic links", false},
		{"short", "no such record", true},
		{"missing", "cannot read", true},
	} {
		var rec order
		err := d.ReadOwnedRecord(within(t), ExecDir, tc.name, &rec)
		if (err == nil) != (tc.says == "") || err != nil &&
			(!strings.Contains(err.Error(), tc.says) || IsTransient(err) != tc.absent) {
			t.Errorf("%s: %v, absent: %t", tc.name, err, IsTransient(err))
		}
		if err == nil && !slices.Equal(rec.Argv, []string{tc.name}) {
			t.Errorf("%s has %v", tc.name, rec.Argv)
		}
	}
	must(t, os.Chmod(exec, 0o777))
	if shown, err := d.ListOwnedNames(within(t), ExecDir); err == nil {
		t.Errorf("a directory that is anybody's to write to shows %v", shown)
	}
}
