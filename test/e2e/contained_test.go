//go:build testbed

package e2e

import (
	"strings"
	"syscall"
	"testing"

	"github.com/bringupd/bringupd/pkg/health"
)

// container returns a command that runs another command in a new container, made from the host's
// /usr. It contains the shared directory and this bringupd at the same paths, and a temporary /tmp.
func (bed *lane) container(flags ...string) []string {
	return append([]string{
		"bwrap", "--ro-bind", "/usr", "/usr", "--symlink", "usr/bin", "/bin", "--symlink",
		"usr/lib", "/lib", "--symlink", "usr/lib64", "/lib64",
		"--ro-bind", "/etc/hosts", "/etc/hosts", "--ro-bind", "/sys", "/sys", "--dev", "/dev",
		"--tmpfs", "/tmp",
		"--bind", bed.Share(), bed.Share(), "--ro-bind", program, program,
	}, flags...)
}

// TestContained checks jobs whose daemons each run in a container, as with pyxis and apptainer:
// with the host's process ids, in a user namespace, and in a PID namespace with and without an init
// process.
func TestContained(t *testing.T) {
	t.Parallel()
	for _, kind := range []struct {
		name   string
		flags  []string
		orphan bool // the daemon becomes the parent of orphans
	}{
		{"the host's numbers", []string{"--ro-bind", "/proc", "/proc"}, false},
		{"a user namespace",
			[]string{"--ro-bind", "/proc", "/proc", "--unshare-user", "--uid", "1000", "--gid",
				"1000"}, false},
		{"numbers of its own", []string{"--proc", "/proc", "--unshare-pid"}, false},
		{"as the first process", []string{"--proc", "/proc", "--unshare-pid", "--as-pid-1"}, true},
	} {
		t.Run(kind.name, func(t *testing.T) {
			bed := claim(t, fewNodes)
			inside := bed.container(kind.flags...)
			over := bed.run(t, launch{nodes: 2, container: inside,
				driver: []string{"sh", "-c", "ls /etc; exit 7"}})
			if over.wantCode(7); over.stdout.String() != "hosts\n" {
				t.Errorf("the driver said %q, want hosts", &over.stdout)
			}

			j := bed.start(t, launch{
				nodes: 2, container: inside, driver: []string{"sleep", "1004"},
				flags: []string{"--worker-cmd=exec sleep 1002",
					"--sandbox-cmd=setsid sleep 1003 & (sleep 1005 &); wait"},
			})
			bed.find(t, 0, "sleep", "1004")
			if code, out, errs, _ := bed.outside(t, "exec", "--all", j.logs, "--", "ls",
				"/etc"); code != 0 || sortedLines(out) != "n0: hosts\nn1: hosts\n" {
				t.Errorf("exec ended with %d: %s%s", code, out, errs)
			}
			if code, out, errs, _ := bed.outside(t, "why", j.logs); code != 0 ||
				!strings.Contains(out, "driver on n0: asleep in ") ||
				!strings.Contains(out, "2 of sandbox on n0, n1: asleep in ") {
				t.Errorf("why ended with %d: %s%s", code, out, errs)
			}
			if code, out, errs, _ := bed.outside(t, "status", j.logs); code != 0 ||
				!strings.Contains(out, "  shell: srun --overlap --mem=0 --jobid=") {
				t.Errorf("status ended with %d: %s%s", code, out, errs)
			}
			kill(t, bed.find(t, 1, "sleep", "1005"), syscall.SIGKILL)
			if kind.orphan {
				buried := []string{"sh", "-c",
					"while cat /proc/[0-9]*/stat 2>&1 | grep -q ' Z 1 '; do sleep 0.1; done"}
				if code, _, errs, _ := bed.outside(t,
					append([]string{"exec", "--node=1", j.logs, "--"}, buried...)...); code != 0 {
					t.Errorf("an orphan that has ended stays: code %d: %s", code, errs)
				}
			}
			kill(t, bed.daemonOf(t, 1), syscall.SIGKILL)
			j.wantCode(137)
			if cause, _, code := causeOf(j, false); cause.Kind != health.DaemonDied ||
				!about(cause, 1) || code != 76 {
				t.Errorf("the first cause is %+v and the code %d, want that the daemon of node "+
					"1 has died, and 76", cause, code)
			}
			bed.noneLeft(t)
		})
	}
}

// TestContainedProc checks that a /proc of another PID namespace is refused: signals would reach
// unrelated processes.
func TestContainedProc(t *testing.T) {
	bed := claim(t, fewNodes)
	j := bed.run(t, launch{nodes: 1,
		container: bed.container("--unshare-pid", "--ro-bind", "/proc", "/proc"),
		driver:    []string{"true"}})
	if j.wantCode(70); !strings.Contains(j.stderr.String(), "mount a proc file system inside") {
		t.Errorf("standard error lacks what to do:\n%s", &j.stderr)
	}
}
