// Package mpidetect detects which MPI a program is linked with or has loaded, without running the
// program, and why a rank may have started as a singleton.
package mpidetect

import (
	"bytes"
	"debug/elf"
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/bringupd/bringupd/internal/textutil/lazyregexp"
)

// Kind is the implementation of MPI that a library belongs to.
type Kind string

// Known implementations.
const (
	OpenMPI Kind = "Open MPI"
	MPICH   Kind = "MPICH"
	Intel   Kind = "Intel MPI"
	MVAPICH Kind = "MVAPICH"
	Cray    Kind = "Cray MPICH"
	Other   Kind = "an MPI that is not known"
)

// Library is an installed MPI library.
type Library struct {
	Kind    Kind   `json:"kind"`
	Version string `json:"version,omitempty"`
	Path    string `json:"path"` // path of its libmpi
	// PMI lists the protocols that it supports for communication with its launcher, the preferred one
	// first. PMILibrary is the library that implements them; empty if the MPI itself does.
	PMI        []string `json:"pmi,omitempty"`
	PMILibrary string   `json:"pmi_library,omitempty"`
	// Fabrics are the libraries through which it uses networks.
	Fabrics []string `json:"fabrics,omitempty"`
}

// Protocols between ranks and their launcher.
const (
	PMI1 = "PMI-1"
	PMIx = "PMIx"
)

// String returns the name and version of the library.
func (l Library) String() string { return strings.TrimSpace(string(l.Kind) + " " + l.Version) }

// MajorVersion returns the first component of the version.
func (l Library) MajorVersion() string {
	major, _, _ := strings.Cut(l.Version, ".")
	return major
}

// libraryNames matches the names of MPI libraries. The libraries for C++ and Fortran are excluded
// because they need one of these. Cray's names contain the compiler.
var libraryNames = lazyregexp.CompileLazily(`^lib(mpi|mpich|mpi_abi|mpi_ilp64|mpi_(cray|gnu|intel|amd|aocc|nvidia)[0-9_]*)\.so(\.[0-9.]+)?$`)

// isMPILibrary reports whether a library with this name is an MPI library.
func isMPILibrary(name string) bool { return libraryNames().MatchString(filepath.Base(name)) }

var (
	// Versions 0.x belong to hwloc, which some MPI libraries contain.
	versionText = lazyregexp.CompileLazily(`^[1-9]\d*\.\d+(\.\d+)*((a|b|rc|p)\d+)?$`)
	intelText   = lazyregexp.CompileLazily(`^20\d\d\.\d+(\.\d+)*$`)
	pmixText    = lazyregexp.CompileLazily(`OpenPMIx (\d[\w.]*)`)
	crayText    = lazyregexp.CompileLazily(`CRAY MPICH version (\d[\d.]*)`)
)

// identifyLibrary determines which MPI a file contains, from symbols and texts that are unique to
// each implementation.
func (l *linker) identifyLibrary(path string) (Library, error) {
	f, err := elf.Open(path)
	if err != nil {
		return Library{}, fmt.Errorf("cannot determine which MPI %s is: %v", path, err)
	}
	defer f.Close()
	lib := Library{Kind: Other, Path: path}
	symbols, _ := dynamicSymbols(f)
	text := sectionData(f, ".rodata")
	lib.Kind, lib.Version = classifyMPI(
		symbols.defines,
		func(name string) string { return symbolText(f, symbols, name) }, text)
	l.addProtocols(&lib, text)
	return lib, nil
}

// classifyMPI determines the implementation and version, from the symbols of a library, the string
// values of some of them, and the texts in its data.
func classifyMPI(has func(symbol string) bool, value func(symbol string) string, text []byte) (Kind, string) {
	switch {
	case has("ompi_mpi_comm_self"):
		return OpenMPI, value("ompi_version_string")
	case has("I_MPI_Check_image_status"):
		return Intel, firstMatch(text, intelText())
	case bytes.Contains(text, []byte("CRAY MPICH")):
		if m := crayText().FindSubmatch(text); m != nil {
			return Cray, string(m[1])
		}
		return Cray, ""
	case bytes.Contains(text, []byte("MVAPICH")):
		return MVAPICH, "" // the text contains the version of the underlying MPICH as well
	case bytes.Contains(text, []byte("MPICH Version")):
		if version := value("MPII_Version_string"); version != "" {
			return MPICH, version
		}
		return MPICH, firstMatch(text, versionText())
	}
	return Other, ""
}

// maxVersionLength is the maximum length of a version.
const maxVersionLength = 24

// firstMatch returns the first of the zero-terminated texts that matches form; an empty string if
// none does.
func firstMatch(texts []byte, form *regexp.Regexp) string {
	for text := range bytes.SplitSeq(texts, []byte{0}) {
		if len(text) > 0 && len(text) <= maxVersionLength && form.Match(text) {
			return string(text)
		}
	}
	return ""
}

// addProtocols sets the protocols and libraries with which an MPI communicates with its launcher,
// and its network libraries.
func (l *linker) addProtocols(lib *Library, text []byte) {
	lib.PMI = []string{PMI1}
	switch {
	case lib.Kind == OpenMPI:
		lib.PMI = []string{PMIx}
	// Intel MPI supports PMIx only through a library that the user names.
	case lib.Kind != Intel && bytes.Contains(text, []byte("PMIx_Init")):
		lib.PMI = []string{PMI1, PMIx}
	}
	// Open MPI 4 supports PMIx in a plugin, which may contain all of libpmix.
	files := []string{lib.Path}
	if lib.Kind == OpenMPI {
		files = append(files, openMPIPlugins(lib.Path)...)
	}
	// Examine the libraries that they need.
	for _, file := range files {
		// the file was read before; unreadable plugins are ignored
		_ = l.walkLibraries(file, func(name, at string) bool {
			switch base, _, _ := strings.Cut(name, ".so"); {
			case slices.Contains([]string{"libpmix", "libpmi", "libpmi2"}, base) && lib.PMILibrary == "" && at != "":
				lib.PMILibrary = at
			case base == "libucp" && !slices.Contains(lib.Fabrics, "UCX"):
				lib.Fabrics = append(lib.Fabrics, "UCX")
			case base == "libfabric" && !slices.Contains(lib.Fabrics, "libfabric"):
				lib.Fabrics = append(lib.Fabrics, "libfabric")
			}
			return true
		})
	}
}

// openMPIPlugins returns the plugins of an Open MPI with which it communicates with its launcher.
func openMPIPlugins(library string) (plugins []string) {
	dir := filepath.Dir(library)
	if real, err := filepath.EvalSymlinks(library); err == nil {
		dir = filepath.Dir(real)
	}
	for _, place := range []string{"openmpi*", "openmpi/lib/openmpi*"} {
		found, _ := filepath.Glob(filepath.Join(dir, place, "mca_pmix_*.so"))
		plugins = append(plugins, found...)
	}
	return plugins
}

// PMIxVersion returns the version of a libpmix; an empty string if it is unknown.
func PMIxVersion(path string) string {
	f, err := elf.Open(path)
	if err != nil {
		return ""
	}
	defer f.Close()
	if m := pmixText().FindSubmatch(sectionData(f, ".rodata")); m != nil {
		return string(m[1])
	}
	return ""
}

// sectionData returns the content of a section; nil if it does not exist.
func sectionData(f *elf.File, name string) []byte {
	s := f.Section(name)
	if s == nil {
		return nil
	}
	text, _ := s.Data() // nil if it cannot be read
	return text
}

// maxSymbolText is the maximum length of the text at a symbol.
const maxSymbolText = 256

// symbolText returns the zero-terminated text at a symbol; an empty string if there is none.
func symbolText(f *elf.File, symbols symbolTable, name string) string {
	for s := range symbols.all() {
		if string(s.name) != name || int(s.section) >= len(f.Sections) {
			continue
		}
		at := f.Sections[s.section]
		if s.value < at.Addr || s.value-at.Addr >= at.Size || at.Type == elf.SHT_NOBITS {
			continue
		}
		text := make([]byte, maxSymbolText)
		n, _ := at.ReadAt(text, int64(s.value-at.Addr)) // shorter at the end of the section
		return stringAt(text[:n], 0)
	}
	return ""
}
