package mpidetect

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/bringupd/bringupd/internal/envlist"
)

// RankMPI describe a rank that has loaded an MPI and has not connected to the PMI servers of its
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
func ExplainSingleton(f RankMPI) (reason, mend string) {
	for _, guess := range []func(*RankMPI) (reason, mend string){(*RankMPI).detectSeveralMPIs, (*RankMPI).detectScrubbedEnv, (*RankMPI).detectSwitches, (*RankMPI).detectContainer, (*RankMPI).detectNoServer, (*RankMPI).detectForeignPMI} {
		if reason, mend = guess(&f); reason != "" {
			return reason, mend
		}
	}
	return "no known cause was found",
		"check that it calls MPI_Init, and that all ranks use the same MPI: bringupd doctor -- COMMAND"
}

// detectSeveralMPIs detects that several MPIs are loaded. Then the MPI that is initialised may
// differ from the one that the program or mpi4py was built for.
func (f *RankMPI) detectSeveralMPIs() (reason, mend string) {
	if len(f.MPIs) < 2 {
		return "", ""
	}
	what := "it has loaded several MPI libraries: " + strings.Join(f.MPIs, " and ")
	if f.Extension != "" {
		return what + "; mpi4py (" + filepath.Base(f.Extension) + ") was built for one of them",
			"load the one that mpi4py was built for, or reinstall mpi4py for the other: pip install --no-binary=mpi4py --force-reinstall mpi4py"
	}
	return what, "build the program and its libraries with the same MPI"
}

// lacksVariable reports whether the process does not have a variable that it was given.
func (f *RankMPI) lacksVariable(name string) bool {
	_, given := f.GivenEnv[name]
	_, has := envlist.Lookup(f.Environ, name)
	return given && !has
}

// detectScrubbedEnv detects that a program between the daemon and the process removed the variables
// or closed the descriptor with which the MPI finds its servers.
func (f *RankMPI) detectScrubbedEnv() (reason, mend string) {
	for _, name := range []string{"PMI_FD", "PMI_RANK", "PMIX_RANK"} {
		if f.lacksVariable(name) && f.usesVariable(name) {
			return "the program that started it removed " + name + " from its environment, as sudo, env -i and some containers do",
				"make that program keep PMI_* and PMIX_*, or start bringupd inside it"
		}
	}
	if f.PMIDescriptorClosed && f.usesVariable("PMI_FD") {
		return "the program that started it closed the file descriptor PMI_FD, as sudo and some containers do",
			"make that program keep it open (sudo -C, podman's --preserve-fds), or start bringupd inside it"
	}
	return "", ""
}

// usesVariable reports whether a variable belongs to the MPI's preferred protocol. It returns true
// if the protocol is unknown.
func (f *RankMPI) usesVariable(name string) bool {
	protocol := PMI1
	if strings.HasPrefix(name, "PMIX_") {
		protocol = PMIx
	}
	return len(f.MPI.PMI) == 0 || f.MPI.PMI[0] == protocol
}

// serverSwitches are variables with which users make an MPI use another server, or none.
var serverSwitches = []struct {
	kinds []Kind
	name  string
}{
	{[]Kind{OpenMPI}, "OMPI_MCA_ess"},
	{[]Kind{OpenMPI}, "OMPI_MCA_pmix"},
	{[]Kind{OpenMPI}, "PMIX_MCA_ptl"},
	{[]Kind{OpenMPI}, "PMIX_MCA_psec"},
	{[]Kind{Intel}, "I_MPI_PMI"},
	{[]Kind{Intel}, "I_MPI_PMI_LIBRARY"},
	{[]Kind{MPICH, MVAPICH, Cray}, "MPIR_CVAR_PMI_VERSION"},
}

// detectSwitches detects that one of the [serverSwitches] is set. Values that only exclude
// components (they begin with "^") do not count.
func (f *RankMPI) detectSwitches() (reason, mend string) {
	for _, s := range serverSwitches {
		value, _ := envlist.Lookup(f.Environ, s.name)
		if value != "" && value != f.GivenEnv[s.name] && !strings.HasPrefix(value, "^") && slices.Contains(s.kinds, f.MPI.Kind) {
			return fmt.Sprintf("%s=%s makes %s use another server or none", s.name, value, f.MPI.Kind), "unset " + s.name
		}
	}
	return "", ""
}

// detectContainer detects that the rank runs in a container from which it may not reach its server.
func (f *RankMPI) detectContainer() (reason, mend string) {
	if !slices.Contains(f.MPI.PMI, PMIx) || !f.InOtherNamespace {
		return "", ""
	}
	dir, _ := envlist.Lookup(f.Environ, "PMIX_SERVER_TMPDIR")
	if f.PMIxDirHidden {
		return "it is in a container, where the directory of its PMIx server, " + dir + ", does not exist",
			"mount it at the same path (--bind or --volume " + dir + "), or start bringupd inside the container"
	}
	return "it is in a container, where it may not reach its PMIx server's port on 127.0.0.1",
		"give the container the node's network (--network=host), or start bringupd inside it"
}

// detectNoServer detects that the node does not serve PMIx, or that the MPI finds no sign of it,
// while the MPI supports no other protocol.
func (f *RankMPI) detectNoServer() (reason, mend string) {
	if f.MPI.Kind != OpenMPI {
		return "", ""
	}
	if f.NoPMIxReason == PMIxDisabled {
		return "Open MPI supports only PMIx, and " + PMIxDisabled, "leave out --pmix=off"
	}
	if strings.HasPrefix(f.NoPMIxReason, UnneededPrefix) {
		return "Open MPI supports only PMIx, which is not served: " + f.NoPMIxReason, "give --pmix=on"
	}
	if f.NoPMIxReason != "" {
		return "Open MPI supports only PMIx, and this node cannot serve it: " + f.NoPMIxReason,
			"give the path of a libpmix.so.2 with --pmix, install Debian's libpmix2 or Fedora's pmix, or load a module with it"
	}
	_, hinted := envlist.Lookup(f.Environ, "JSM_JSRUN_PORT")
	if f.MPI.MajorVersion() == "4" && !hinted {
		return "Open MPI 4 did not recognise its launcher", "keep JSM_JSRUN_PORT=1 in its environment"
	}
	return "", ""
}

// detectForeignPMI detects that the MPI uses a PMI library of another launcher.
func (f *RankMPI) detectForeignPMI() (reason, mend string) {
	for _, file := range f.PMIs {
		stem, _, _ := strings.Cut(filepath.Base(file), ".so")
		if stem == "libpmi" || stem == "libpmi2" {
			return "it uses the PMI library " + file + ", which may support only the launcher that it belongs to",
				"use an MPI with built-in PMI-1, such as MPICH's default build"
		}
	}
	return "", ""
}
