package mpi

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/bringupd/bringupd/pkg/process"
)

// Loaded describes a running process that has loaded an MPI.
type Loaded struct {
	PID int
	// MPIs are the loaded MPI libraries. PMIs are the loaded libraries for communication with a
	// launcher.
	MPIs, PMIs []string
	// Extension is the loaded extension module of mpi4py; empty if there is none.
	Extension string
	Environ   []string
	// Apart is true if the process has another mount or network namespace than this process, for
	// example in a container.
	Apart bool
	// Hidden is true if the process cannot access the directory that PMIX_SERVER_TMPDIR names.
	Hidden bool
	// Deaf is true if the descriptor that PMI_FD names is not a socket.
	Deaf bool
}

// mostFamily is the maximum number of processes that are examined for one rank.
const mostFamily = 64

// Look examines a process of this machine and its descendants, and returns the first that has
// loaded an MPI; nil if there is none.
func Look(pid int) *Loaded { return procfs("/proc").look(pid) }

// procfs is the mount point of the proc file system.
type procfs string

func (root procfs) look(pid int) *Loaded {
	queue := []int{pid}
	for at := 0; at < len(queue) && at < mostFamily; at++ {
		if found := root.process(queue[at]); found != nil {
			return found
		}
		queue = append(queue, root.children(queue[at])...)
	}
	return nil
}

// of returns the path of a file below a process's directory.
func (root procfs) of(pid int, path ...string) string {
	return filepath.Join(append([]string{string(root), strconv.Itoa(pid)}, path...)...)
}

// children returns the child processes of a process.
func (root procfs) children(pid int) (pids []int) {
	files, _ := filepath.Glob(root.of(pid, "task", "*", "children"))
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

// process examines one process. It returns nil if the process has not loaded an MPI or cannot be
// read.
func (root procfs) process(pid int) *Loaded {
	maps, _ := os.ReadFile(root.of(pid, "maps"))
	if !bytes.Contains(maps, []byte("mpi")) {
		return nil
	}
	p := &Loaded{PID: pid}
	p.sort(string(maps))
	if len(p.MPIs) == 0 {
		return nil
	}
	// Determine whether the process can reach its servers.
	text, _ := os.ReadFile(root.of(pid, "environ"))
	p.Environ = strings.Split(strings.TrimSuffix(string(text), "\x00"), "\x00")
	for _, kind := range []string{"mnt", "net"} {
		own, _ := os.Readlink(filepath.Join(string(root), "self/ns", kind))
		its, err := os.Readlink(root.of(pid, "ns", kind))
		p.Apart = p.Apart || err == nil && own != its
	}
	if dir, set := process.LookupEnv(p.Environ, "PMIX_SERVER_TMPDIR"); set {
		_, err := os.Stat(root.of(pid, "root", dir))
		p.Hidden = err != nil
	}
	if fd, set := process.LookupEnv(p.Environ, "PMI_FD"); set {
		link, _ := os.Readlink(root.of(pid, "fd", fd))
		p.Deaf = !strings.HasPrefix(link, "socket:")
	}
	return p
}

// sort collects the MPI and PMI libraries and the extension module from the memory maps.
func (p *Loaded) sort(maps string) {
	add := func(to *[]string, file string) {
		if !slices.Contains(*to, file) {
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
		stem, _, _ := strings.Cut(base, ".so")
		switch {
		case isMPI(base):
			add(&p.MPIs, file)
		case slices.Contains([]string{"libpmix", "libpmi", "libpmi2"}, stem):
			add(&p.PMIs, file)
		case strings.HasPrefix(base, "MPI.") && filepath.Base(filepath.Dir(file)) == "mpi4py":
			p.Extension = file
		}
	}
}

// IsLaunched reports whether the process was started as a rank, by an MPI's launcher or by a daemon
// of bringupd.
func (p *Loaded) IsLaunched() bool {
	return slices.ContainsFunc([]string{"PMI_RANK", "PMI_ID", "PMIX_RANK", "OMPI_COMM_WORLD_RANK", "MV2_COMM_WORLD_RANK", "PALS_RANKID"}, func(name string) bool {
		_, set := process.LookupEnv(p.Environ, name)
		return set
	})
}

// Library identifies the MPI that the process has loaded, the first if there are several.
func (p *Loaded) Library() (Library, error) {
	l := newLinker("/", p.Environ)
	lib, err := l.identify(p.of(p.MPIs[0]))
	lib.Path = p.MPIs[0]
	return lib, err
}

// of returns the path under which this process can open a file of the other process.
func (p *Loaded) of(file string) string {
	if !p.Apart {
		return file
	}
	return fmt.Sprintf("/proc/%d/root%s", p.PID, file)
}
