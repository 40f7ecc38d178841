package launcher

import (
	"encoding/hex"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// FuzzIdentify identifies a daemon in an environment of any lines NAME=VALUE, with and without
// flags.
func FuzzIdentify(f *testing.F) {
	files, err := filepath.Glob(filepath.Join("testdata", "*", "*.env"))
	if err != nil || len(files) == 0 {
		f.Fatal(files, err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(string(text), "n1", "", 0, 0, byte(0))
		f.Add(string(text), "train-1", "mine", 1, 3, byte(10))
	}
	f.Fuzz(func(t *testing.T, text, hostname, job string, node, size int, given byte) {
		vars := make(map[string]string)
		for line := range strings.Lines(text) {
			name, value, _ := strings.Cut(strings.TrimSuffix(line, "\n"), "=")
			vars[name] = value
		}
		want := Overrides{JobID: job, Local: given&4 != 0}
		want.ReadFile = func(string) ([]byte, error) {
			if given&8 == 0 {
				return nil, fs.ErrNotExist
			}
			return []byte(text), nil // the same as the environment
		}
		if given&1 != 0 || want.Local {
			want.NodeIndex = &node
		}
		if given&2 != 0 || want.Local {
			want.Size = &size
		}
		var id Identity
		var err error
		took := allocated(func() { id, err = IdentifyDaemon(fromMap(vars), hostname, want) })
		// The step's list of nodes is expanded up to its limit.
		if most := uint64(defaultNodeLimit*1024 + 512*len(text)); took > most {
			t.Errorf("an environment of %d bytes makes %d, and %d is the most", len(text), took, most)
		}
		if err != nil {
			if !strings.HasPrefix(err.Error(), "cannot ") || len(err.Error()) > 4000+8*len(text)+8*len(job) {
				t.Errorf("the error is %v", err)
			}
			return
		}
		checkIdentity(t, id)
	})
}

// checkIdentity verifies the documented properties of an identity's fields.
func checkIdentity(t *testing.T, id Identity) {
	t.Helper()
	if id.Size < 1 || id.Size > maxNodes || id.NodeIndex < 0 || id.NodeIndex >= id.Size ||
		id.LocalRank() < 0 || id.LocalRank() >= id.LocalSize || id.LocalSize > id.Size {
		t.Errorf("node %d of %d, %d of %d here", id.NodeIndex, id.Size, id.LocalRank(), id.LocalSize)
	}
	if id.Hosts != nil && (len(id.Hosts) != id.Size || id.Hosts[id.NodeIndex] != id.Host) {
		t.Errorf("%d hosts for %d ranks, and node %d is on %q", len(id.Hosts), id.Size, id.NodeIndex, id.Host)
	}
	name := id.RunName()
	if CheckRunName(name) != nil || filepath.Base(name) != name || len(name) > 200 {
		t.Errorf("the run is %q", name)
	}
	if _, err := hex.DecodeString(id.LaunchKey); err != nil || len(id.LaunchKey) != 16 {
		t.Errorf("the key is %q", id.LaunchKey)
	}
	if id.GPUs < -1 || id.CPUs < 0 || id.Restart < 0 {
		t.Errorf("%d GPUs, %d CPUs, restart %d", id.GPUs, id.CPUs, id.Restart)
	}
	for _, node := range []int{-1, 0, id.NodeIndex, id.Size - 1, id.Size} {
		if host := id.HostOf(node); node == id.NodeIndex && host != id.Host ||
			(node < 0 || node >= id.Size) && host != "" {
			t.Errorf("node %d of %d is on %q", node, id.Size, host)
		}
	}
}
