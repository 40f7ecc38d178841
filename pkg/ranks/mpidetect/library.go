// Package mpidetect determines whether a program may need PMIx, and whether MPI programs run as
// worlds of one rank although they were started as one world.
package mpidetect

import (
	"debug/elf"
	"fmt"
	"path/filepath"
	"regexp"
	"strings"

	"github.com/bringupd/bringupd/internal/textutil"
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
}

// String returns the name and version of the library.
func (l Library) String() string { return strings.TrimSpace(string(l.Kind) + " " + l.Version) }

// NeedsPMIx reports whether the MPI finds its launcher only by PMIx. Others use PMI-1 if they can.
func (l Library) NeedsPMIx() bool { return l.Kind == OpenMPI }

// libraryNames matches the names of MPI libraries. The libraries for C++ and Fortran are excluded
// because they need one of these. Cray's names contain the compiler.
var libraryNames = textutil.CompileLazily(
	`^lib(mpi|mpich|mpi_abi|mpi_ilp64|mpi_(cray|gnu|intel|amd|aocc|nvidia)[0-9_]*)\.so(\.[0-9.]+)?$`)

func isMPILibrary(name string) bool { return libraryNames().MatchString(filepath.Base(name)) }

func isPMILibrary(name string) bool { return strings.HasPrefix(filepath.Base(name), "libpmi") }

var (
	// versionText matches a version. Versions 0.x belong to hwloc, which some MPI libraries contain.
	versionText = textutil.CompileLazily(`(?:^|\x00)([1-9]\d*\.\d+(?:\.\d+)*(?:(?:a|b|rc|p)\d+)?)\x00`)
	intelText   = textutil.CompileLazily(`(?:^|\x00)(20\d\d\.\d+(?:\.\d+)*)\x00`)
	crayText    = textutil.CompileLazily(`CRAY MPICH version (\d[\d.]*)`)
)

// implementations are the known implementations with the name of a symbol, or a text, that only
// their libraries contain. MPICH is the last one, because others contain its texts.
var implementations = []struct {
	kind    Kind
	marker  string
	version func() *regexp.Regexp // nil if the library does not contain its version
}{
	{OpenMPI, "ompi_mpi_comm_self", versionText},
	{Intel, "I_MPI_Check_image_status", intelText},
	{Cray, "CRAY MPICH", crayText},
	{MVAPICH, "MVAPICH", nil},
	{MPICH, "MPICH Version", versionText},
}

// identifyLibrary determines which MPI a file contains.
func identifyLibrary(path string) (Library, error) {
	f, err := elf.Open(path)
	if err != nil {
		return Library{}, fmt.Errorf("cannot determine which MPI %s is: %v", path, err)
	}
	defer f.Close()
	names, texts := sectionText(f, ".dynstr"), sectionText(f, ".rodata")
	for _, known := range implementations {
		if !strings.Contains(names, known.marker) && !strings.Contains(texts, known.marker) {
			continue
		}
		lib := Library{Kind: known.kind, Path: path}
		if known.version == nil {
			return lib, nil
		}
		if m := known.version().FindStringSubmatch(texts); m != nil {
			lib.Version = m[1]
		}
		return lib, nil
	}
	return Library{Kind: Other, Path: path}, nil
}

// sectionText returns the content of a section; an empty string if it does not exist.
func sectionText(f *elf.File, name string) string {
	s := f.Section(name)
	if s == nil {
		return ""
	}
	text, _ := s.Data() // nil if it cannot be read
	return string(text)
}
