package signal

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"github.com/bringupd/bringupd/test/users"
)

func TestNoteBadNodes(t *testing.T) {
	p := newPlace(t)
	again := p
	again.Run += "-r1"
	for _, d := range []*Dir{create(t, p), create(t, again)} {
		for _, hosts := range [][]string{{"n3", "n1"}, {"n7"}} { // the second list has no effect
			path, err := d.RecordBadNodes(within(t), hosts)
			if err != nil || path != filepath.Join(p.LogDir, "bad-nodes", d.Name()) {
				t.Errorf("it is at %s: %v", path, err)
			}
			if data, err := os.ReadFile(path); err != nil || string(data) != "n3\nn1\n" {
				t.Errorf("with %v it has %q: %v", hosts, data, err)
			}
		}
	}
	for path, mode := range map[string]os.FileMode{"": 0o700 | os.ModeDir, "123.0": 0o600, "123.0-r1": 0o600} {
		facts, err := os.Lstat(filepath.Join(p.LogDir, BadNodesDir, path))
		if err != nil || facts.Mode() != mode {
			t.Errorf("%q: %v, %v", path, facts, err)
		}
	}
	if all := names(t, filepath.Join(p.LogDir, BadNodesDir)); len(all) != 2 {
		t.Errorf("there is %v", all)
	}
}

// TestNoteBadNodesElsewhere verifies that a directory that other users can write to, or a link to
// one, is not used: another user may have made it.
func TestNoteBadNodesElsewhere(t *testing.T) {
	for name, make := range map[string]func(dir, elsewhere string) error{
		"a link":    func(dir, elsewhere string) error { return os.Symlink(elsewhere, dir) },
		"anybody's": func(dir, _ string) error { return errors.Join(os.Mkdir(dir, 0o777), os.Chmod(dir, 0o777)) },
		"another user": func(dir, _ string) error {
			return errors.Join(os.Mkdir(dir, 0o755), os.Chown(dir, 64102, 64102))
		},
	} {
		t.Run(name, func(t *testing.T) {
			users.Need(t)
			p, elsewhere := newPlace(t), t.TempDir()
			d := create(t, p)
			dir := filepath.Join(p.LogDir, BadNodesDir)
			must(t, make(dir, elsewhere))
			_, err := d.RecordBadNodes(within(t), []string{"n3"})
			var refused *DirError
			if !errors.As(err, &refused) || len(names(t, dir))+len(names(t, elsewhere)) > 0 {
				t.Errorf("got %v", err)
			}
		})
	}
}
