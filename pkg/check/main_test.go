package check

import (
	"errors"
	"os"
	"path/filepath"
	"testing"

	"go.uber.org/goleak"
	"golang.org/x/sys/unix"

	"github.com/bringupd/bringupd/internal/files"
)

func TestMain(m *testing.M) {
	// Tests of another package lock the memory of a process, whose environment the kernel then hands
	// out late; the goroutine that reads it is given up by design and ends with the answer.
	goleak.VerifyTestMain(m, goleak.IgnoreAnyFunction(
		"github.com/bringupd/bringupd/pkg/process.(*procScanner).readEnviron.func1"))
}

const gib = 1 << 30

// node is a machine defined by a test. Its zero value has plenty of every resource.
type node struct {
	space  map[string]files.Space // by path
	files  uint64                 // the hard limit; 0: many
	locked uint64                 // the limit; 0: none
	err    error                  // of every call
	prove  func(dir string) error
}

var _ hostSystem = node{}

func (n node) FreeSpace(path string) (files.Space, error) {
	if space, ok := n.space[path]; ok {
		return space, n.err
	}
	return files.Space{Size: 100 * gib, Free: 90 * gib, Files: 1e6, FreeFiles: 9e5}, n.err
}

func (n node) TestWrite(dir string) error {
	if n.prove != nil {
		return n.prove(dir)
	}
	return n.err
}

func (n node) ResourceLimit(resource int) (unix.Rlimit, error) {
	switch {
	case resource == unix.RLIMIT_NOFILE && n.files > 0:
		return unix.Rlimit{Cur: 1024, Max: n.files}, n.err
	case resource == unix.RLIMIT_NOFILE:
		return unix.Rlimit{Cur: 1024, Max: 1 << 20}, n.err
	case n.locked > 0:
		return unix.Rlimit{Cur: n.locked, Max: n.locked}, n.err
	default:
		return unix.Rlimit{Cur: unix.RLIM_INFINITY, Max: unix.RLIM_INFINITY}, n.err
	}
}

// found returns the findings of one check of a host.
func found(h *Host, id string) []Finding {
	for _, p := range h.listChecks() {
		if p.id == id {
			s := FindingBuilder{Template: Finding{ID: p.id, Source: p.source}}
			p.inspect(&s)
			return s.Findings
		}
	}
	return nil
}

// tree creates files and, if the content begins with "-> ", links below a temporary directory, and
// returns that directory.
func tree(t testing.TB, files map[string]string) string {
	t.Helper()
	root := t.TempDir()
	grow(t, root, files)
	return root
}

// grow creates or replaces files and links in a tree.
func grow(t testing.TB, root string, files map[string]string) {
	t.Helper()
	for name, content := range files {
		path := filepath.Join(root, name)
		err := os.MkdirAll(filepath.Dir(path), 0o755)
		if target, isLink := cutArrow(content); isLink {
			err = errors.Join(err, os.Symlink(target, path))
		} else {
			err = errors.Join(err, os.WriteFile(path, []byte(content), 0o644))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

func cutArrow(content string) (target string, isLink bool) {
	if len(content) > 3 && content[:3] == "-> " {
		return content[3:], true
	}
	return "", false
}

// complete reports an error if a finding lacks a required text.
func complete(t *testing.T, f Finding) {
	t.Helper()
	if f.ID == "" || f.Observed == "" || f.Source == "" {
		t.Errorf("%+v lacks an id, what was observed, or a source", f)
	}
	if wrong := f.Verdict != Pass && f.Verdict != Skip; wrong != (f.Hint != "") || wrong != (f.Class != "") {
		t.Errorf("%+v should have a hint and a class where something is wrong, and only there", f)
	}
}
