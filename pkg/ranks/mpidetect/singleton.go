package mpidetect

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/bringupd/bringupd/pkg/process"
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
	return "nothing that bringupd knows of keeps it from them",
		"see whether it has called MPI_Init, and whether all ranks use one MPI: bringupd doctor -- COMMAND"
}

// detectSeveralMPIs detects that several MPIs are loaded. Then the MPI that is initialised may
// differ from the one that the program or mpi4py was built for.
func (f *RankMPI) detectSeveralMPIs() (reason, mend string) {
	if len(f.MPIs) < 2 {
		return "", ""
	}
	what := "it has several MPIs loaded at once: " + strings.Join(f.MPIs, " and ")
	if f.Extension != "" {
		return what + "; mpi4py (" + filepath.Base(f.Extension) + ") was built for one of them",
			"load the one that mpi4py was built for, or install mpi4py anew for the other: pip install --no-binary=mpi4py --force-reinstall mpi4py"
	}
	return what, "build the program and its libraries with one of them"
}

// lacksVariable reports whether the process does not have a variable that it was given.
func (f *RankMPI) lacksVariable(name string) bool {
	_, given := f.GivenEnv[name]
	_, has := process.LookupEnv(f.Environ, name)
	return given && !has
}

// detectScrubbedEnv detects that a program between the daemon and the process removed the variables
// or closed the descriptor with which the MPI finds its servers.
func (f *RankMPI) detectScrubbedEnv() (reason, mend string) {
	for _, name := range []string{"PMI_FD", "PMI_RANK", "PMIX_RANK"} {
		if f.lacksVariable(name) && f.usesVariable(name) {
			return "what has started it has taken " + name + " from its environment, as sudo, env -i and some containers do",
				"have that keep PMI_* and PMIX_*, or start bringupd within it"
		}
	}
	if f.PMIDescriptorClosed && f.usesVariable("PMI_FD") {
		return "what has started it has closed the descriptor of PMI_FD, as sudo and some containers do",
			"have that keep it (sudo -C, podman's --preserve-fds), or start bringupd within it"
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
		value, _ := process.LookupEnv(f.Environ, s.name)
		if value != "" && value != f.GivenEnv[s.name] && !strings.HasPrefix(value, "^") && slices.Contains(s.kinds, f.MPI.Kind) {
			return fmt.Sprintf("%s=%s has %s look for another server, or for none", s.name, value, f.MPI.Kind), "unset " + s.name
		}
	}
	return "", ""
}

// detectContainer detects that the rank runs in a container from which it may not reach its server.
func (f *RankMPI) detectContainer() (reason, mend string) {
	if !slices.Contains(f.MPI.PMI, PMIx) || !f.InOtherNamespace {
		return "", ""
	}
	dir, _ := process.LookupEnv(f.Environ, "PMIX_SERVER_TMPDIR")
	if f.PMIxDirHidden {
		return "it is in a container, where the directory of its PMIx server, " + dir + ", is not there",
			"mount it at the same place (--bind or --volume " + dir + "), or start bringupd within the container"
	}
	return "it is in a container, which may keep it from its PMIx server's port on 127.0.0.1",
		"let the container have the network of the node (--network=host), or start bringupd within it"
}

// detectNoServer detects that the node does not serve PMIx, or that the MPI finds no sign of it,
// while the MPI supports no other protocol.
func (f *RankMPI) detectNoServer() (reason, mend string) {
	if f.MPI.Kind != OpenMPI {
		return "", ""
	}
	if f.NoPMIxReason == PMIxDisabled {
		return "Open MPI speaks PMIx alone, and " + PMIxDisabled, "leave --pmix=off out"
	}
	if strings.HasPrefix(f.NoPMIxReason, UnneededPrefix) {
		return "Open MPI speaks PMIx alone, which is not served: " + f.NoPMIxReason, "give --pmix=on"
	}
	if f.NoPMIxReason != "" {
		return "Open MPI speaks PMIx alone, and there is none: " + f.NoPMIxReason,
			"give a libpmix.so.2 by --pmix, install Debian's libpmix2 or Fedora's pmix, or load a module that has it"
	}
	_, hinted := process.LookupEnv(f.Environ, "JSM_JSRUN_PORT")
	if f.MPI.MajorVersion() == "4" && !hinted {
		return "Open MPI 4 found no sign of a launcher that it knows", "have what starts it keep JSM_JSRUN_PORT=1"
	}
	return "", ""
}

// detectForeignPMI detects that the MPI uses a PMI library of another launcher.
func (f *RankMPI) detectForeignPMI() (reason, mend string) {
	for _, file := range f.PMIs {
		stem, _, _ := strings.Cut(filepath.Base(file), ".so")
		if stem == "libpmi" || stem == "libpmi2" {
			return "it speaks to its launcher by " + file + ", which may know that launcher alone",
				"use an MPI that has PMI-1 within itself, as MPICH has by default"
		}
	}
	return "", ""
}
