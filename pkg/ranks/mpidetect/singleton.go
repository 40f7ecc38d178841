package mpidetect

import (
	"fmt"
	"path/filepath"
	"strings"

	"github.com/bringupd/bringupd/internal/envlist"
)

// RankMPI describes a rank that has loaded an MPI and has not connected to the PMI servers of its
// node.
type RankMPI struct {
	LoadedMPI
	MPI Library
	// NoPMIxReason is the reason why the rank's node does not serve PMIx; empty if it does.
	NoPMIxReason string
	GivenEnv     map[string]string // variables that it was given to find its servers
}

// PMIxDisabled is the value of [RankMPI.NoPMIxReason] if the user disabled PMIx.
const PMIxDisabled = "--pmix=off was given"

// ExplainSingleton returns the likely reason why a rank of several runs as a world of its own (a
// singleton), and how to fix it, in one sentence each.
func ExplainSingleton(f RankMPI) (reason, fix string) {
	for _, check := range []func(*RankMPI) (reason, fix string){
		(*RankMPI).checkLibraries, (*RankMPI).checkEnvironment, (*RankMPI).checkSwitches,
		(*RankMPI).checkContainer, (*RankMPI).checkServer,
	} {
		if reason, fix = check(&f); reason != "" {
			return reason, fix
		}
	}
	for _, file := range f.PMIs {
		if !strings.HasPrefix(filepath.Base(file), "libpmix.") {
			return "it uses the PMI library " + file + ", which may support only the launcher that it belongs to",
				"use an MPI with built-in PMI-1, such as MPICH's default build"
		}
	}
	return "no known cause was found",
		"check that it calls MPI_Init, and that all ranks use the same MPI: bringupd doctor -- COMMAND"
}

// checkLibraries detects that several MPIs are loaded. Then the MPI that is initialised may differ
// from the one that the program or mpi4py was built for.
func (f *RankMPI) checkLibraries() (reason, fix string) {
	if len(f.MPIs) < 2 {
		return "", ""
	}
	return "it has loaded several MPI libraries: " + strings.Join(f.MPIs, " and "),
		"build the program and its libraries with the same MPI, and also mpi4py: " +
			"pip install --no-binary=mpi4py --force-reinstall mpi4py"
}

// checkEnvironment detects that a program between the daemon and the process removed the variables
// or closed the descriptor with which the MPI finds its servers.
func (f *RankMPI) checkEnvironment() (reason, fix string) {
	names := []string{"PMI_FD", "PMI_RANK"}
	if f.MPI.NeedsPMIx() {
		names = []string{"PMIX_RANK"}
	}
	for _, name := range names {
		_, given := f.GivenEnv[name]
		if _, has := envlist.Lookup(f.Environ, name); given && !has {
			return "the program that started it removed " + name +
					" from its environment, as sudo, env -i and some containers do",
				"make that program keep PMI_* and PMIX_*, or start bringupd inside it"
		}
	}
	if f.PMIDescriptorClosed && names[0] == "PMI_FD" {
		return "the program that started it closed the file descriptor PMI_FD, as sudo and some containers do",
			"make that program keep it open (sudo -C, podman's --preserve-fds), or start bringupd inside it"
	}
	return "", ""
}

// serverSwitches are the variables with which users make an MPI use another server, or none.
var serverSwitches = map[Kind][]string{
	OpenMPI: {"OMPI_MCA_ess", "OMPI_MCA_pmix", "PMIX_MCA_ptl", "PMIX_MCA_psec"},
	Intel:   {"I_MPI_PMI", "I_MPI_PMI_LIBRARY"},
	MPICH:   {"MPIR_CVAR_PMI_VERSION"},
	MVAPICH: {"MPIR_CVAR_PMI_VERSION"},
	Cray:    {"MPIR_CVAR_PMI_VERSION"},
}

// checkSwitches detects that one of the [serverSwitches] is set. Values that only exclude components
// (they begin with "^") do not count.
func (f *RankMPI) checkSwitches() (reason, fix string) {
	for _, name := range serverSwitches[f.MPI.Kind] {
		value, _ := envlist.Lookup(f.Environ, name)
		if value != "" && value != f.GivenEnv[name] && !strings.HasPrefix(value, "^") {
			return fmt.Sprintf("%s=%s makes %s use another server or none", name, value, f.MPI.Kind), "unset " + name
		}
	}
	return "", ""
}

func (f *RankMPI) checkContainer() (reason, fix string) {
	if !f.MPI.NeedsPMIx() || !f.InOtherNamespace {
		return "", ""
	}
	if f.PMIxDirHidden {
		dir, _ := envlist.Lookup(f.Environ, "PMIX_SERVER_TMPDIR")
		return "it is in a container, where the directory of its PMIx server, " + dir + ", does not exist",
			"mount it at the same path (--bind or --volume " + dir + "), or start bringupd inside the container"
	}
	return "it is in a container, where it may not reach its PMIx server's port on 127.0.0.1",
		"give the container the node's network (--network=host), or start bringupd inside it"
}

// checkServer detects that the node does not serve PMIx, or that the MPI finds no sign of it, while
// the MPI supports no other protocol.
func (f *RankMPI) checkServer() (reason, fix string) {
	_, hasHint := envlist.Lookup(f.Environ, "JSM_JSRUN_PORT")
	switch {
	case !f.MPI.NeedsPMIx():
		return "", ""
	case f.NoPMIxReason == PMIxDisabled:
		return "Open MPI supports only PMIx, and " + PMIxDisabled, "leave out --pmix=off"
	case strings.HasPrefix(f.NoPMIxReason, UnneededPrefix):
		return "Open MPI supports only PMIx, which is not served: " + f.NoPMIxReason, "give --pmix=on"
	case f.NoPMIxReason != "":
		return "Open MPI supports only PMIx, and this node cannot serve it: " + f.NoPMIxReason,
			"give the path of a libpmix.so.2 with --pmix, install Debian's libpmix2 or Fedora's pmix, or load a " +
				"module with it"
	case strings.HasPrefix(f.MPI.Version, "4.") && !hasHint:
		return "Open MPI 4 did not recognise its launcher", "keep JSM_JSRUN_PORT=1 in its environment"
	}
	return "", ""
}
