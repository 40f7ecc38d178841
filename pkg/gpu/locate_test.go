package gpu_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/bringupd/bringupd/pkg/gpu"
)

func TestFindLibrary(t *testing.T) {
	with, without := t.TempDir(), t.TempDir()
	file := filepath.Join(with, "libnvidia-ml.so.1")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]string{
		"": "", without: "", ":" + without + ":" + with: file, filepath.Dir(file) + ":" + without: file,
	} {
		if got := gpu.FindLibrary(func(string) string { return path }); got != want {
			t.Errorf("in %q it is %q", path, got)
		}
	}
}
