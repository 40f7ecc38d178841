package mpi

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/bringupd/bringupd/pkg/process"
)

// Facts are what is known of a rank that has an MPI and has not spoken to its servers.
type Facts struct {
	Loaded
	MPI Library
	// NoPMIx is why its node does not serve PMIx; empty: it does.
	NoPMIx string
	Given  map[string]string // what it was given to find its servers by
}

// Off is why a node does not serve PMIx that was told not to.
const Off = "--pmix=off was given"

// Alone tells the likely reason why a rank of several has come up as a world of its own, and what to do about it, in one sentence each.
func Alone(f Facts) (reason, mend string) {
	for _, guess := range []func(*Facts) (reason, mend string){(*Facts).twoMPIs, (*Facts).scrubbed, (*Facts).told, (*Facts).contained, (*Facts).unserved, (*Facts).foreign} {
		if reason, mend = guess(&f); reason != "" {
			return reason, mend
		}
	}
	return "nothing that bringupd knows of keeps it from them",
		"see whether it has called MPI_Init, and whether all ranks use one MPI: bringupd doctor -- COMMAND"
}

// twoMPIs is that more than one was loaded: what initializes is not what mpi4py, or the program, was built for.
func (f *Facts) twoMPIs() (reason, mend string) {
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

// lacks tells whether the process has not got what it was given.
func (f *Facts) lacks(name string) bool {
	_, given := f.Given[name]
	_, has := process.LookupEnv(f.Environ, name)
	return given && !has
}

// scrubbed is that something between us and the process has taken away what it would find its servers by.
func (f *Facts) scrubbed() (reason, mend string) {
	for _, name := range []string{"PMI_FD", "PMI_RANK", "PMIX_RANK"} {
		if f.lacks(name) && f.wants(name) {
			return "what has started it has taken " + name + " from its environment, as sudo, env -i and some containers do",
				"have that keep PMI_* and PMIX_*, or start bringupd within it"
		}
	}
	if f.Deaf && f.wants("PMI_FD") {
		return "what has started it has closed the descriptor of PMI_FD, as sudo and some containers do",
			"have that keep it (sudo -C, podman's --preserve-fds), or start bringupd within it"
	}
	return "", ""
}

// wants tells whether the MPI goes by a variable of that name.
func (f *Facts) wants(name string) bool {
	protocol := PMI1
	if strings.HasPrefix(name, "PMIX_") {
		protocol = PMIx
	}
	return len(f.MPI.PMI) == 0 || f.MPI.PMI[0] == protocol
}

// switches are variables of users that make an MPI look for another server than ours, or for none.
var switches = []struct {
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

// told is that somebody has told the MPI to look elsewhere. What only leaves some ways out is no such thing.
func (f *Facts) told() (reason, mend string) {
	for _, s := range switches {
		value, _ := process.LookupEnv(f.Environ, s.name)
		if value != "" && value != f.Given[s.name] && !strings.HasPrefix(value, "^") && slices.Contains(s.kinds, f.MPI.Kind) {
			return fmt.Sprintf("%s=%s has %s look for another server, or for none", s.name, value, f.MPI.Kind), "unset " + s.name
		}
	}
	return "", ""
}

// contained is that a container keeps it from where its server is.
func (f *Facts) contained() (reason, mend string) {
	if !slices.Contains(f.MPI.PMI, PMIx) || !f.Apart {
		return "", ""
	}
	dir, _ := process.LookupEnv(f.Environ, "PMIX_SERVER_TMPDIR")
	if f.Hidden {
		return "it is in a container, where the directory of its PMIx server, " + dir + ", is not there",
			"mount it at the same place (--bind or --volume " + dir + "), or start bringupd within the container"
	}
	return "it is in a container, which may keep it from its PMIx server's port on 127.0.0.1",
		"let the container have the network of the node (--network=host), or start bringupd within it"
}

// unserved is that the node has no PMIx for an MPI that speaks nothing else.
func (f *Facts) unserved() (reason, mend string) {
	if f.MPI.Kind != OpenMPI {
		return "", ""
	}
	if f.NoPMIx == Off {
		return "Open MPI speaks PMIx alone, and " + Off, "leave --pmix=off out"
	}
	if strings.HasPrefix(f.NoPMIx, Unneeded) {
		return "Open MPI speaks PMIx alone, which is not served: " + f.NoPMIx, "give --pmix=on"
	}
	if f.NoPMIx != "" {
		return "Open MPI speaks PMIx alone, and there is none: " + f.NoPMIx,
			"give a libpmix.so.2 by --pmix, install Debian's libpmix2 or Fedora's pmix, or load a module that has it"
	}
	_, hinted := process.LookupEnv(f.Environ, "JSM_JSRUN_PORT")
	if f.MPI.Major() == "4" && !hinted {
		return "Open MPI 4 found no sign of a launcher that it knows", "have what starts it keep JSM_JSRUN_PORT=1"
	}
	return "", ""
}

// foreign is that the MPI goes by a library of another launcher.
func (f *Facts) foreign() (reason, mend string) {
	for _, file := range f.PMIs {
		stem, _, _ := strings.Cut(filepath.Base(file), ".so")
		if stem == "libpmi" || stem == "libpmi2" {
			return "it speaks to its launcher by " + file + ", which may know that launcher alone",
				"use an MPI that has PMI-1 within itself, as MPICH has by default"
		}
	}
	return "", ""
}
