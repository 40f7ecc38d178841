package jobtest

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// Process is a process of this machine.
type Process struct {
	PID  int
	Line string // its command line
}

// String returns the pid and the command line.
func (p Process) String() string { return fmt.Sprintf("%d: %s", p.PID, p.Line) }

// Mark is a variable with its value, "NAME=VALUE", in the environment of all processes of a job.
type Mark string

// Has reports whether a process has the mark.
func (m Mark) Has(pid int) bool {
	environ, err := os.ReadFile(fmt.Sprintf("/proc/%d/environ", pid))
	return err == nil && slices.Contains(strings.Split(string(environ), "\x00"), string(m))
}

// Processes returns the running processes that have the mark.
func (m Mark) Processes() (found []Process) {
	paths, _ := filepath.Glob("/proc/[0-9]*")
	for _, path := range paths {
		if pid, _ := strconv.Atoi(filepath.Base(path)); m.Has(pid) {
			line, _ := os.ReadFile(filepath.Join(path, "cmdline"))
			found = append(found, Process{pid, strings.ReplaceAll(string(line), "\x00", " ")})
		}
	}
	return found
}

// Left waits until no process with the mark runs, at most for the given time, and returns those
// that remain.
func (m Mark) Left(within time.Duration) (left []Process) {
	for deadline := time.Now().Add(within); ; time.Sleep(2 * pause) {
		if left = m.Processes(); len(left) == 0 || time.Now().After(deadline) {
			return left
		}
	}
}

// Kill kills the processes with the mark.
func (m Mark) Kill() {
	for _, p := range m.Processes() {
		_ = syscall.Kill(p.PID, syscall.SIGKILL)
	}
}

// IsAlive reports whether a process runs.
func IsAlive(pid int) bool {
	_, state := parentOf(pid)
	return state != "" && state != "Z"
}

// Family returns a process and all its descendants, the process itself first.
func Family(pid int) []int {
	children := make(map[int][]int)
	paths, _ := filepath.Glob("/proc/[0-9]*")
	for _, path := range paths {
		child, _ := strconv.Atoi(filepath.Base(path))
		parent, _ := parentOf(child)
		children[parent] = append(children[parent], child)
	}
	all := []int{pid}
	for i := 0; i < len(all); i++ {
		all = append(all, children[all[i]]...)
	}
	return all
}

// parentOf returns the parent and the state of a process; 0 and "" if there is none.
func parentOf(pid int) (parent int, state string) {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return 0, ""
	}
	_, rest, _ := strings.Cut(string(stat), ") ")
	_, _ = fmt.Sscanf(rest, "%s %d", &state, &parent)
	return parent, state
}

// ExitCode returns an exit code in a shell's notation.
func ExitCode(state *os.ProcessState) int {
	if status := state.Sys().(syscall.WaitStatus); status.Signaled() {
		return 128 + int(status.Signal())
	}
	return state.ExitCode()
}
