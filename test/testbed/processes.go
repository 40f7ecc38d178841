package testbed

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
)

// Process is a process of a testbed. Its ids are the same on the host and on all nodes.
type Process struct {
	PID, PPID int
	State     string   // as printed by ps: R, S, D, T (stopped), …
	Args      []string // command line; nil if it is no longer readable
	// Infra is set if the process belongs to the testbed, not to a job: the node's holder, slurmd,
	// slurmstepd and the mount.
	Infra bool

	place string // name of the place in whose namespaces it runs
}

func (p Process) String() string {
	return fmt.Sprintf("%d (%s) %s", p.PID, p.State, strings.Join(p.Args, " "))
}

// Processes returns all processes in node i's namespaces, whatever their parents are. Those whose
// Infra is false belong to a job or to OnNode.
func (b *Bed) Processes(i int) ([]Process, error) {
	n := b.nodes[i]
	own, err := b.membersOf(n, func(Process) bool { return false })
	n.mu.Lock()
	defer n.mu.Unlock()
	for k := range own {
		own[k].Infra = n.isInfra(own[k])
	}
	return own, err
}

// AllProcesses returns the result of Processes for every node, from one scan.
func (b *Bed) AllProcesses() ([][]Process, error) {
	members, err := b.members()
	if err != nil {
		return nil, err
	}
	all := make([][]Process, len(b.nodes))
	for i, n := range b.nodes {
		n.mu.Lock()
		for _, p := range members {
			if p.place == n.name {
				p.Infra = n.isInfra(p)
				all[i] = append(all[i], p)
			}
		}
		n.mu.Unlock()
	}
	return all, nil
}

// isInfra reports whether a process of the node belongs to the testbed. The caller holds n.mu.
func (n *node) isInfra(p Process) bool {
	if p.PID == n.holder.pid() || n.isMount(p) || n.slurmd != nil && p.PID == n.slurmd.pid() {
		return true
	}
	exe, err := os.Readlink(fmt.Sprintf("/proc/%d/exe", p.PID))
	name := filepath.Base(exe)
	return err == nil &&
		(name == "slurmd" || strings.HasPrefix(name, "slurmstepd"))
}

// isMount reports whether a process is the node's mount or its disk, or the ssh of an sshfs, which
// has no known parent because sshfs forks twice. The caller holds n.mu.
func (n *node) isMount(p Process) bool {
	if n.disk != nil && p.PID == n.disk.pid() {
		return true
	}
	if n.mount == nil {
		return false
	}
	return p.PID == n.mount.pid() || len(p.Args) > 0 && p.Args[0] == "ssh" &&
		slices.Contains(p.Args, "sftp")
}

// members returns all processes of the running testbed.
func (b *Bed) members() ([]Process, error) {
	nets := make(map[string]string)
	for _, p := range b.places() {
		// after the holder's end the kernel may reuse the namespace's name
		if p.holder.alive() == nil {
			nets[p.net] = p.name
		}
	}
	return scan(b.slot.tag, nets)
}

// membersButHolders returns the processes of the running testbed except those that hold its
// namespaces.
func (b *Bed) membersButHolders() ([]Process, error) {
	holders := make(map[int]bool)
	for _, p := range b.places() {
		holders[p.holder.pid()] = true
	}
	members, err := b.members()
	return slices.DeleteFunc(members, func(p Process) bool { return holders[p.PID] }), err
}

// membersOf returns the processes of a node for which skip returns false. It calls skip with n.mu
// held.
func (b *Bed) membersOf(n *node, skip func(Process) bool) ([]Process, error) {
	members, err := b.members()
	if err != nil {
		return nil, err
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.DeleteFunc(members, func(p Process) bool { return p.place != n.name || skip(p) }),
		nil
}

// scan returns the processes that run in the places of a testbed: their network namespace is in
// nets (which maps its name to that of the place), or their mounts contain the testbed's marker, as
// with a container that has its own network.
func scan(tag string, nets map[string]string) ([]Process, error) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, fmt.Errorf("cannot list the processes: %v", err)
	}
	marked := make(map[string]string) // maps mount namespaces to places
	var found []Process
	for _, entry := range entries {
		pid, err := strconv.Atoi(entry.Name())
		if err != nil {
			continue
		}
		mounts := namespace(pid, "mnt")
		if mounts == "" {
			continue // the process has ended
		}
		if _, known := marked[mounts]; !known {
			marked[mounts] = markedPlace(pid, tag)
		}
		place := marked[mounts]
		if name, ok := nets[namespace(pid, "net")]; ok {
			place = name
		}
		if p, ok := readProcess(pid); ok && place != "" {
			p.place = place
			found = append(found, p)
		}
	}
	return found, nil
}

// namespace returns the name of a process's namespace, or "" if the process has ended.
func namespace(pid int, kind string) string {
	name, err := os.Readlink(fmt.Sprintf("/proc/%d/ns/%s", pid, kind))
	if err != nil {
		return ""
	}
	return name
}

// markedPlace returns the place that the testbed's marker names in the mounts of a process, or ""
// if they contain no marker.
func markedPlace(pid int, tag string) string {
	mounts, err := os.ReadFile(fmt.Sprintf("/proc/%d/mountinfo", pid))
	if err != nil {
		return ""
	}
	_, after, found := bytes.Cut(mounts, []byte(" "+tag+"-"))
	if !found {
		return ""
	}
	place, _, _ := bytes.Cut(after, []byte(" "))
	return string(place)
}

// readProcess reads a process from /proc. It returns false if the process has ended.
func readProcess(pid int) (Process, bool) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return Process{}, false
	}
	// The format is "PID (NAME) STATE PPID …". NAME may contain spaces and parentheses.
	fields := strings.Fields(string(stat[bytes.LastIndexByte(stat, ')')+1:]))
	if len(fields) < 2 || fields[0] == "Z" {
		return Process{}, false
	}
	ppid, err := strconv.Atoi(fields[1])
	if err != nil {
		return Process{}, false
	}
	line, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", pid))
	if err != nil {
		return Process{}, false
	}
	p := Process{PID: pid, PPID: ppid, State: fields[0]}
	if len(line) > 0 {
		p.Args = strings.Split(strings.TrimSuffix(string(line), "\x00"), "\x00")
	}
	return p, true
}

// killAll kills all processes that list returns until it returns none, because a process may fork
// between the listing and the kill.
func killAll(ctx context.Context, list func() ([]Process, error)) error {
	var left []Process
	err := poll(ctx, func() (bool, error) {
		var err error
		if left, err = list(); err != nil {
			return false, err
		}
		return len(left) == 0, signalAll(left, syscall.SIGKILL)
	})
	if err != nil {
		return fmt.Errorf("cannot kill %v: %v", left, err)
	}
	return nil
}

// signalAll sends a signal to the processes and ignores those that have ended.
func signalAll(processes []Process, signal syscall.Signal) error {
	for _, p := range processes {
		if err := syscall.Kill(p.PID, signal); err != nil && !errors.Is(err, syscall.ESRCH) {
			return fmt.Errorf("cannot send %v to %v: %v", signal, p, err)
		}
	}
	return nil
}
