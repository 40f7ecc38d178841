package kmsg

import (
	"os"
	"path/filepath"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// standing returns a root directory with a file in place of the kernel's log.
func standing(t *testing.T, text string) (root string) {
	t.Helper()
	root = empty(t)
	if err := os.WriteFile(logPath(root), []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	return root
}

// empty returns a root directory without a log.
func empty(t *testing.T) (root string) {
	t.Helper()
	root = t.TempDir()
	if err := os.Mkdir(filepath.Join(root, "dev"), 0o755); err != nil {
		t.Fatal(err)
	}
	return root
}
