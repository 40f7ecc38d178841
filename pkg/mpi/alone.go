package mpi

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"

	"github.com/bringupd/bringupd/pkg/process"
)

// Facts describe a rank that has loaded an MPI and has not connected to the PMI servers of its
// node.
type Facts struct {
	Loaded
	MPI Library
	// NoPMIx is the reason why the rank's node does not serve PMIx; empty if it does.
	NoPMIx string
	Given  map[string]string // variables that it was given to find its servers
}

// Off is the value of [Facts.NoPMIx] if the user disabled PMIx.
const Off = "--pmix=off was given"

// Alone returns the likely reason why a rank of several runs as a world of its own (a singleton),
// and how to fix it, in one sentence each.
func Alone(f Facts) (reason, mend string) {
	for _, guess := range []func(*Facts) (reason, mend string){(*Facts).twoMPIs, (*Facts).scrubbed, (*Facts).told, (*Facts).contained, (*Facts).unserved, (*Facts).foreign} {
		if reason, mend = guess(&f); reason != "" {
			return reason, mend
		}
	}
	return "nothing that bringupd knows of keeps it from them",
		"see whether it has called MPI_Init, and whether all ranks use one MPI: bringupd doctor -- COMMAND"
}

// twoMPIs detects that several MPIs are loaded. Then the MPI that is initialised may differ from
// the one that the program or mpi4py was built for.
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

// lacks reports whether the process does not have a variable that it was given.
func (f *Facts) lacks(name string) bool {
	_, given := f.Given[name]
	_, has := process.LookupEnv(f.Environ, name)
	return given && !has
}

// scrubbed detects that a program between the daemon and the process removed the variables or
// closed the descriptor with which the MPI finds its servers.
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

// wants reports whether a variable belongs to the MPI's preferred protocol. It returns true if the
// protocol is unknown.
func (f *Facts) wants(name string) bool {
	protocol := PMI1
	if strings.HasPrefix(name, "PMIX_") {
		protocol = PMIx
	}
	return len(f.MPI.PMI) == 0 || f.MPI.PMI[0] == protocol
}

// switches are variables with which users make an MPI use another server, or none.
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

// told detects that one of the [switches] is set. Values that only exclude components (they begin
// with "^") do not count.
func (f *Facts) told() (reason, mend string) {
	for _, s := range switches {
		value, _ := process.LookupEnv(f.Environ, s.name)
		if value != "" && value != f.Given[s.name] && !strings.HasPrefix(value, "^") && slices.Contains(s.kinds, f.MPI.Kind) {
			return fmt.Sprintf("%s=%s has %s look for another server, or for none", s.name, value, f.MPI.Kind), "unset " + s.name
		}
	}
	return "", ""
}

// contained detects that the rank runs in a container from which it may not reach its server.
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

// unserved detects that the node does not serve PMIx, or that the MPI finds no sign of it, while
// the MPI supports no other protocol.
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

// foreign detects that the MPI uses a PMI library of another launcher.
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
