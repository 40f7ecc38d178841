package mpidetect

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/bringupd/bringupd/internal/envlist"
)

// LoadedMPI describes a running process that has loaded an MPI.
type LoadedMPI struct {
	PID int
	// MPIs are the loaded MPI libraries. PMIs are the loaded libraries for communication with a
	// launcher.
	MPIs, PMIs []string
	Environ    []string
	// InOtherNamespace is true if the process has another mount or network namespace than this
	// process, for example in a container.
	InOtherNamespace bool
	// PMIxDirHidden is true if the process cannot access the directory that PMIX_SERVER_TMPDIR names.
	PMIxDirHidden bool
	// PMIDescriptorClosed is true if the descriptor that PMI_FD names is not a socket.
	PMIDescriptorClosed bool
}

const maxProcesses = 64

// DetectLoaded examines a process of this machine and its descendants, and returns the first that
// has loaded an MPI; nil if there is none.
func DetectLoaded(pid int) *LoadedMPI { return procfs("/proc").findLoaded(pid) }

type procfs string

func (root procfs) findLoaded(pid int) *LoadedMPI {
	queue := []int{pid}
	for at := 0; at < len(queue) && at < maxProcesses; at++ {
		if found := root.inspectProcess(queue[at]); found != nil {
			return found
		}
		queue = append(queue, root.childPIDs(queue[at])...)
	}
	return nil
}

func (root procfs) processPath(pid int, path ...string) string {
	return filepath.Join(append([]string{string(root), strconv.Itoa(pid)}, path...)...)
}

func (root procfs) childPIDs(pid int) (pids []int) {
	files, _ := filepath.Glob(root.processPath(pid, "task", "*", "children"))
	for _, file := range files {
		text, _ := os.ReadFile(file) // empty if the thread has ended
		for field := range strings.FieldsSeq(string(text)) {
			if child, err := strconv.Atoi(field); err == nil {
				pids = append(pids, child)
			}
		}
	}
	return pids
}

func (root procfs) inspectProcess(pid int) *LoadedMPI {
	maps, _ := os.ReadFile(root.processPath(pid, "maps"))
	if !bytes.Contains(maps, []byte("mpi")) {
		return nil
	}
	p := &LoadedMPI{PID: pid}
	p.parseMaps(string(maps))
	if len(p.MPIs) == 0 {
		return nil
	}
	// Determine whether the process can reach its servers.
	text, _ := os.ReadFile(root.processPath(pid, "environ"))
	p.Environ = strings.Split(strings.TrimSuffix(string(text), "\x00"), "\x00")
	for _, kind := range []string{"mnt", "net"} {
		own, _ := os.Readlink(filepath.Join(string(root), "self/ns", kind))
		its, err := os.Readlink(root.processPath(pid, "ns", kind))
		p.InOtherNamespace = p.InOtherNamespace || err == nil && own != its
	}
	if dir, set := envlist.Lookup(p.Environ, "PMIX_SERVER_TMPDIR"); set {
		_, err := os.Stat(root.processPath(pid, "root", dir))
		p.PMIxDirHidden = err != nil
	}
	if fd, set := envlist.Lookup(p.Environ, "PMI_FD"); set {
		link, _ := os.Readlink(root.processPath(pid, "fd", fd))
		p.PMIDescriptorClosed = !strings.HasPrefix(link, "socket:")
	}
	return p
}

func (p *LoadedMPI) parseMaps(maps string) {
	add := func(to *[]string, file string) {
		if !slices.Contains(*to, file) { // a file has several maps
			*to = append(*to, file)
		}
	}
	for line := range strings.Lines(maps) {
		at := strings.IndexByte(line, '/')
		if at < 0 {
			continue
		}
		file := strings.TrimSuffix(strings.TrimSpace(line[at:]), " (deleted)")
		base := filepath.Base(file)
		switch {
		case isMPILibrary(base):
			add(&p.MPIs, file)
		case isPMILibrary(base):
			add(&p.PMIs, file)
		}
	}
}

// IsLaunched reports whether the process was started as a rank, by an MPI's launcher or by a daemon
// of bringupd.
func (p *LoadedMPI) IsLaunched() bool {
	return slices.ContainsFunc([]string{"PMI_RANK", "PMI_ID", "PMIX_RANK", "OMPI_COMM_WORLD_RANK",
		"MV2_COMM_WORLD_RANK", "PALS_RANKID"}, func(name string) bool {
		_, set := envlist.Lookup(p.Environ, name)
		return set
	})
}

// IdentifyLibrary identifies the MPI that the process has loaded, the first if there are several.
func (p *LoadedMPI) IdentifyLibrary() (Library, error) {
	file := p.MPIs[0]
	if p.InOtherNamespace {
		file = fmt.Sprintf("/proc/%d/root%s", p.PID, file)
	}
	lib, err := identifyLibrary(file)
	lib.Path = p.MPIs[0]
	return lib, err
}
