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

// Loaded is a process that has an MPI loaded, as it is now.
type Loaded struct {
	PID int
	// MPIs are the libraries that are one, and PMIs those that speak to who serves ranks.
	MPIs, PMIs []string
	// Extension is the mpi4py that is loaded; empty: none.
	Extension string
	Environ   []string
	// Apart tells that it has another tree of files than we, or another network, as in a container.
	Apart bool
	// Hidden tells that the directory of PMIx's socket, which its environment names, is not there for it.
	Hidden bool
	// Deaf tells that the descriptor that PMI_FD names is no socket.
	Deaf bool
}

// mostFamily is how many processes of one rank are looked at.
const mostFamily = 64

// Look looks for an MPI in a process of this machine and those that it has started, and returns the first that has one; nil: none has.
func Look(pid int) *Loaded { return procfs("/proc").look(pid) }

// procfs is where /proc is.
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

func (root procfs) of(pid int, path ...string) string {
	return filepath.Join(append([]string{string(root), strconv.Itoa(pid)}, path...)...)
}

func (root procfs) children(pid int) (pids []int) {
	files, _ := filepath.Glob(root.of(pid, "task", "*", "children"))
	for _, file := range files {
		text, _ := os.ReadFile(file) // of a thread that has ended: none
		for field := range strings.FieldsSeq(string(text)) {
			if child, err := strconv.Atoi(field); err == nil {
				pids = append(pids, child)
			}
		}
	}
	return pids
}

// process looks at one process; nil: it has no MPI loaded, or may not be looked at.
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

// sort takes from the maps of a process what matters.
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

// IsLaunched reports whether a launcher of an MPI, or a daemon of ours, has started the process as a rank.
func (p *Loaded) IsLaunched() bool {
	return slices.ContainsFunc([]string{"PMI_RANK", "PMI_ID", "PMIX_RANK", "OMPI_COMM_WORLD_RANK", "MV2_COMM_WORLD_RANK", "PALS_RANKID"}, func(name string) bool {
		_, set := process.LookupEnv(p.Environ, name)
		return set
	})
}

// Library tells which MPI it is that a process has loaded, of several the first.
func (p *Loaded) Library() (Library, error) {
	l := newLinker("/", p.Environ)
	lib, err := l.identify(p.of(p.MPIs[0]))
	lib.Path = p.MPIs[0]
	return lib, err
}

// of is where a file of the process is for us.
func (p *Loaded) of(file string) string {
	if !p.Apart {
		return file
	}
	return fmt.Sprintf("/proc/%d/root%s", p.PID, file)
}
