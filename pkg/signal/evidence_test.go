package signal

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

func TestKeepEvidence(t *testing.T) {
	d := &Dir{path: t.TempDir(), via: Access{}.ready()}
	if err := os.Mkdir(filepath.Join(d.path, Logs), 0o700); err != nil {
		t.Fatal(err)
	}
	from := t.TempDir()
	long := append(bytes.Repeat([]byte("x"), evidenceTail), []byte("the end")...)
	for name, data := range map[string][]byte{"short.log": []byte("all of it"), "long.log": long, "empty.log": nil} {
		if err := os.WriteFile(filepath.Join(from, name), data, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Symlink("/etc/passwd", filepath.Join(from, "link.log")); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(from, "below"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := d.KeepEvidence(t.Context(), from, "ray-0003"); err != nil {
		t.Fatal(err)
	}
	kept := filepath.Join(d.path, Logs, "ray-0003")
	if got, _ := os.ReadFile(filepath.Join(kept, "short.log")); string(got) != "all of it" {
		t.Errorf("short.log is %q", got)
	}
	if got, _ := os.ReadFile(filepath.Join(kept, "long.log")); len(got) != evidenceTail || !bytes.HasSuffix(got, []byte("the end")) {
		t.Errorf("long.log has %d bytes, want the last %d", len(got), evidenceTail)
	}
	entries, err := os.ReadDir(kept)
	if err != nil || len(entries) != 2 {
		t.Errorf("there are %v (%v), want the two files with something in them", entries, err)
	}
}

func TestKeepEvidenceOfNothing(t *testing.T) {
	d := &Dir{path: t.TempDir(), via: Access{}.ready()}
	if err := d.KeepEvidence(t.Context(), filepath.Join(t.TempDir(), "never-made"), "x"); err != nil {
		t.Errorf("a directory that was never made: %v", err)
	}
}

// inextensible is a share to which nothing can be appended.
type inextensible struct{ Share }

func (inextensible) Extend(string) (io.WriteCloser, error) { return nil, syscall.EDQUOT }

func TestKeepEvidenceThatFails(t *testing.T) {
	from := t.TempDir()
	if err := os.WriteFile(filepath.Join(from, "a.log"), []byte("something"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		name   string
		before func(logs string) error
	}{
		{"there is no place for it", func(string) error { return nil }},
		{"it is kept already", func(logs string) error { return os.MkdirAll(filepath.Join(logs, "x"), 0o700) }},
	} {
		d := &Dir{path: t.TempDir(), via: Access{}.ready()}
		if err := tc.before(filepath.Join(d.path, Logs)); err != nil {
			t.Fatal(err)
		}
		if err := d.KeepEvidence(t.Context(), from, "x"); err == nil {
			t.Errorf("%s: no error", tc.name)
		}
	}
	d := &Dir{path: t.TempDir(), via: Access{Share: inextensible{plain}}.ready()}
	if err := os.Mkdir(filepath.Join(d.path, Logs), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := d.KeepEvidence(t.Context(), from, "x"); !errors.Is(err, syscall.EDQUOT) {
		t.Errorf("on a full share: %v", err)
	}
	if err := copyTail(plain, filepath.Join(from, "missing"), filepath.Join(from, "b.log")); err == nil {
		t.Error("a file that has gone: no error")
	}
	if err := copyTail(plain, filepath.Join(from, "a.log"), filepath.Join(from, "missing", "b.log")); err == nil {
		t.Error("a copy that can't be made: no error")
	}
}
