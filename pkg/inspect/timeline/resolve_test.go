package timeline

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/bringupd/bringupd/pkg/signal"
)

// logs creates a log directory with these runs, the oldest first.
func logs(t *testing.T, runs ...string) string {
	t.Helper()
	dir := t.TempDir()
	for i, name := range runs {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Join(path, signal.ControlDir), 0o700); err != nil {
			t.Fatal(err)
		}
		at := noon.Add(time.Duration(i) * time.Minute)
		if err := os.Chtimes(path, at, at); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func link(t *testing.T, to, path string) {
	t.Helper()
	if err := os.Symlink(to, path); err != nil {
		t.Fatal(err)
	}
}

func TestResolve(t *testing.T) {
	dir := logs(t, "1.0", "2.0", "3.0")
	linked := logs(t, "1.0", "2.0", "3.0")
	link(t, "2.0", filepath.Join(linked, signal.LatestLink))
	astray := logs(t, "1.0", "2.0")
	elsewhere, err := filepath.Rel(astray, filepath.Join(dir, "1.0"))
	if err != nil {
		t.Fatal(err)
	}
	link(t, elsewhere, filepath.Join(astray, signal.LatestLink))
	through := logs(t, "1.0", "2.0")
	link(t, "1.0/../"+elsewhere, filepath.Join(through, signal.LatestLink))
	hidden := logs(t, ".9.0", "1.0", "2.0")
	link(t, ".9.0", filepath.Join(hidden, signal.LatestLink))
	dangling := logs(t, "1.0", "2.0")
	link(t, "9.0", filepath.Join(dangling, signal.LatestLink))
	if err := os.Mkdir(filepath.Join(dir, "bad-nodes"), 0o700); err != nil { // the newest entry, which is not a run
		t.Fatal(err)
	}
	for _, test := range []struct{ name, arg, logDir, want string }{
		{"nothing: the newest of the default", "", dir, dir + "/3.0"},
		{"a run directory", dir + "/1.0", "/nowhere", dir + "/1.0"},
		{"a log directory", dir, "/nowhere", dir + "/3.0"},
		{"a log directory with a link", linked, "/nowhere", linked + "/2.0"},
		{"the link itself", linked + "/latest", "/nowhere", linked + "/2.0"},
		{"a link that leads astray, to a run", astray, "/nowhere", astray + "/2.0"},
		{"a link that leads there through a run", through, "/nowhere", through + "/2.0"},
		{"a link to a run that is not whole yet", hidden, "/nowhere", hidden + "/2.0"},
		{"a link to nothing", dangling + "/latest", "/nowhere", dangling + "/2.0"},
		{"the name of a run", "2.0", dir, dir + "/2.0"},
	} {
		t.Run(test.name, func(t *testing.T) {
			if got, err := FindRun(t.Context(), test.arg, test.logDir); got != test.want {
				t.Errorf("it is %q, want %q: %v", got, test.want, err)
			}
		})
	}
	for name, arg := range map[string]string{"it does not exist": dir + "/9.0", "it contains no run": t.TempDir()} {
		if got, err := FindRun(t.Context(), arg, "/nowhere"); err == nil || !strings.Contains(err.Error(), name) || !strings.Contains(err.Error(), pathAdvice) {
			t.Errorf("%s is %q: %v", arg, got, err)
		}
	}
}
