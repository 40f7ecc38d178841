// Package mpi tells which MPI a program is linked with or has loaded, without running it, and why a rank that has one may have come up alone.
package mpi

import (
	"bytes"
	"debug/elf"
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/bringupd/bringupd/pkg/pattern"
)

// Kind is who an MPI is of.
type Kind string

// The kinds that are known.
const (
	OpenMPI Kind = "Open MPI"
	MPICH   Kind = "MPICH"
	Intel   Kind = "Intel MPI"
	MVAPICH Kind = "MVAPICH"
	Cray    Kind = "Cray MPICH"
	Other   Kind = "an MPI that is not known"
)

// Library is an MPI.
type Library struct {
	Kind    Kind   `json:"kind"`
	Version string `json:"version,omitempty"`
	Path    string `json:"path"` // of its libmpi
	// PMI is what it can speak to who serves its ranks, and PMILibrary by which library; empty: it has that within itself.
	PMI        []string `json:"pmi,omitempty"`
	PMILibrary string   `json:"pmi_library,omitempty"`
	// Fabrics are the libraries that it uses networks by.
	Fabrics []string `json:"fabrics,omitempty"`
}

// The protocols between ranks and who serves them.
const (
	PMI1 = "PMI-1"
	PMIx = "PMIx"
)

// String is its name for people.
func (l Library) String() string { return strings.TrimSpace(string(l.Kind) + " " + l.Version) }

// Major is the first number of its version.
func (l Library) Major() string {
	major, _, _ := strings.Cut(l.Version, ".")
	return major
}

// names are those of libraries that are an MPI: those for C++ and Fortran need one of them. Cray's have names by compilers.
var names = pattern.New(`^lib(mpi|mpich|mpi_abi|mpi_ilp64|mpi_(cray|gnu|intel|amd|aocc|nvidia)[0-9_]*)\.so(\.[0-9.]+)?$`)

// isMPI tells whether a library of that name is an MPI.
func isMPI(name string) bool { return names().MatchString(filepath.Base(name)) }

var (
	versionText = pattern.New(`^[1-9]\d*\.\d+(\.\d+)*((a|b|rc|p)\d+)?$`) // 0.…: hwloc's, which some have within them
	intelText   = pattern.New(`^20\d\d\.\d+(\.\d+)*$`)
	pmixText    = pattern.New(`OpenPMIx (\d[\w.]*)`)
	crayText    = pattern.New(`CRAY MPICH version (\d[\d.]*)`)
)

// identify reads which MPI a file is: by symbols and texts that only one of them has.
func (l *linker) identify(path string) (Library, error) {
	f, err := elf.Open(path)
	if err != nil {
		return Library{}, fmt.Errorf("cannot tell which MPI %s is: %v", path, err)
	}
	defer f.Close()
	lib := Library{Kind: Other, Path: path}
	symbols, _ := f.DynamicSymbols()
	text := section(f, ".rodata")
	lib.Kind, lib.Version = judge(
		func(name string) bool {
			return slices.ContainsFunc(symbols, func(s elf.Symbol) bool { return s.Name == name && s.Section != elf.SHN_UNDEF })
		},
		func(name string) string { return valueOf(f, symbols, name) }, text)
	l.speaks(&lib, text)
	return lib, nil
}

// judge tells the MPI by its symbols, what some of those hold, and its texts.
func judge(has func(symbol string) bool, value func(symbol string) string, text []byte) (Kind, string) {
	switch {
	case has("ompi_mpi_comm_self"):
		return OpenMPI, value("ompi_version_string")
	case has("I_MPI_Check_image_status"):
		return Intel, first(text, intelText())
	case bytes.Contains(text, []byte("CRAY MPICH")):
		if m := crayText().FindSubmatch(text); m != nil {
			return Cray, string(m[1])
		}
		return Cray, ""
	case bytes.Contains(text, []byte("MVAPICH")):
		return MVAPICH, "" // it has the version of the MPICH that it is made of, too
	case bytes.Contains(text, []byte("MPICH Version")):
		if version := value("MPII_Version_string"); version != "" {
			return MPICH, version
		}
		return MPICH, first(text, versionText())
	}
	return Other, ""
}

// mostVersion is longer than any version.
const mostVersion = 24

// first is the first of the texts, each of which ends with a zero, that is of a form; empty: none is.
func first(texts []byte, form *regexp.Regexp) string {
	for text := range bytes.SplitSeq(texts, []byte{0}) {
		if len(text) > 0 && len(text) <= mostVersion && form.Match(text) {
			return string(text)
		}
	}
	return ""
}

// speaks fills in by what the library speaks to who serves its ranks.
func (l *linker) speaks(lib *Library, text []byte) {
	lib.PMI = []string{PMI1}
	switch {
	case lib.Kind == OpenMPI:
		lib.PMI = []string{PMIx}
	case lib.Kind != Intel && bytes.Contains(text, []byte("PMIx_Init")): // Intel's goes by a library that its user must name
		lib.PMI = []string{PMI1, PMIx}
	}
	// Open MPI 4 has it in a plugin, which may have it all within itself.
	files := []string{lib.Path}
	dir := filepath.Dir(lib.Path)
	if real, err := filepath.EvalSymlinks(lib.Path); err == nil {
		dir = filepath.Dir(real)
	}
	for _, place := range []string{"openmpi*", "openmpi/lib/openmpi*"} {
		plugins, _ := filepath.Glob(filepath.Join(dir, place, "mca_pmix_*.so"))
		if lib.Kind == OpenMPI {
			files = append(files, plugins...)
		}
	}
	for _, file := range files {
		_ = l.load(file, func(name, at string) bool { // it was read before; a plugin that can't be is none
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

// PMIxVersion is the version of a libpmix; empty: it tells none.
func PMIxVersion(path string) string {
	f, err := elf.Open(path)
	if err != nil {
		return ""
	}
	defer f.Close()
	if m := pmixText().FindSubmatch(section(f, ".rodata")); m != nil {
		return string(m[1])
	}
	return ""
}

// section is what a section of a file has; nothing where it has none.
func section(f *elf.File, name string) []byte {
	s := f.Section(name)
	if s == nil {
		return nil
	}
	text, _ := s.Data() // one that can't be read tells nothing
	return text
}

// valueOf is the text that a symbol is the beginning of.
func valueOf(f *elf.File, symbols []elf.Symbol, name string) string {
	for _, s := range symbols {
		if s.Name != name || int(s.Section) >= len(f.Sections) {
			continue
		}
		at := f.Sections[s.Section]
		text, err := at.Data()
		if err == nil && s.Value >= at.Addr && s.Value-at.Addr < uint64(len(text)) {
			return stringAt(text, uint32(s.Value-at.Addr))
		}
	}
	return ""
}
