package signal

import (
	"bytes"
	"os"
	"path/filepath"
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
