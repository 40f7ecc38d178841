package pmix

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/bringupd/bringupd/pkg/process"
)

// Library is a libpmix.
type Library struct {
	Path string
	// Prefix is where what it reads besides is, of an Open MPI that was moved since it was built; empty: where it was built for.
	Prefix string
}

// soname is the same from version 3 to 6.
const soname = "libpmix.so.2"

// environ is what the child is told. What version 5's clients could get by shared memory, and who they are by MUNGE, makes them print pages of
// warnings where they can't.
func (l Library) environ(base []string) []string {
	set := map[string]string{"PMIX_MCA_gds": "hash", "PMIX_MCA_psec": "native", childVariable: "1", "GOMAXPROCS": "1"}
	if l.Prefix != "" {
		set["OPAL_PREFIX"], set["PMIX_PREFIX"] = l.Prefix, l.Prefix
	}
	return process.WithEnv(base, set)
}

// What --pmix takes beside a path.
const (
	Auto = "auto"
	Off  = "off"
)

// errNone is that there is no libpmix.
var errNone = errors.New("cannot find a " + soname + " to serve PMIx with: install Debian's libpmix2, Fedora's pmix, or give its path by --pmix")

// Find returns the library that wanted asks for: a path, or Auto, which is that of the Open MPI of program, whose first word is looked for in path,
// or what the linker would find, or Debian's.
func Find(wanted, program, path string) (Library, error) {
	if wanted != Auto {
		if _, err := os.Stat(wanted); err != nil {
			return Library{}, fmt.Errorf("cannot serve PMIx by --pmix=%s: %w", wanted, err)
		}
		return Library{Path: wanted}, nil
	}
	for _, prefix := range prefixes(program, path) {
		for _, dir := range []string{"lib/openmpi", "lib", "lib64"} {
			if file := filepath.Join(prefix, dir, soname); isFile(file) {
				return Library{file, prefix}, nil
			}
		}
	}
	for _, pattern := range systemPlaces {
		if files, _ := filepath.Glob(pattern); len(files) > 0 {
			return Library{Path: files[0]}, nil
		}
	}
	return Library{}, errNone
}

// systemPlaces are where distributions put it.
var systemPlaces = []string{
	"/usr/lib/*/pmix2/lib/" + soname, "/usr/lib64/" + soname, "/usr/lib/*/" + soname, "/usr/lib/" + soname, "/usr/local/lib/" + soname,
	"/usr/lib64/pmix/lib/" + soname, "/opt/pmix/lib/" + soname, "/opt/pmix/*/lib/" + soname,
}

// prefixes are where an Open MPI may be installed: where the program is, as in a virtual environment, and where mpirun is.
func prefixes(program, path string) (found []string) {
	add := func(file string) {
		if file == "" {
			return
		}
		prefix := filepath.Dir(filepath.Dir(file))
		if prefix != "/usr" && prefix != "/" && prefix != "." {
			found = append(found, prefix)
		}
	}
	if strings.Contains(program, "/") {
		add(program)
	} else {
		add(inPath(program, path))
	}
	add(inPath("mpirun", path))
	return found
}

func inPath(name, path string) string {
	for _, dir := range filepath.SplitList(path) {
		if file := filepath.Join(dir, name); filepath.IsAbs(dir) && isFile(file) {
			return file
		}
	}
	return ""
}

func isFile(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular()
}
