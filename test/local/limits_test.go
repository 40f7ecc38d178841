package local

import (
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/bringupd/bringupd/test/jobtest"
	"github.com/bringupd/bringupd/test/users"
)

// pidsCgroup creates a cgroup that permits only the given number of processes and threads.
func pidsCgroup(t *testing.T, most int) (dir string) {
	t.Helper()
	for _, parent := range []string{"/sys/fs/cgroup/pids", "/sys/fs/cgroup"} {
		dir = filepath.Join(parent, "bringupd-test-"+strconv.Itoa(os.Getpid()))
		if err := os.Mkdir(dir, 0o755); err != nil {
			continue
		}
		t.Cleanup(func() { _ = os.Remove(dir) })
		if err := os.WriteFile(filepath.Join(dir, "pids.max"), []byte(strconv.Itoa(most)),
			0); err == nil {
			return dir
		}
	}
	if os.Getenv("CI") == "true" {
		t.Fatal("cannot make a cgroup with the pids controller")
	}
	t.Skip("cannot make a cgroup with the pids controller")
	return ""
}

// TestLimitsTooLow checks that a limit which leaves a daemon too few threads, files or addresses
// results in an error message, not in a dump of Go's stacks.
func TestLimitsTooLow(t *testing.T) {
	users.Need(t)
	dir := users.Job.Dir(t)
	self := users.Public(t, jobtest.Bringupd)
	daemon := " run --rank=0 --nnodes=1 --job-id=x --log-dir=" + dir + "/logs -- true"
	for name, tc := range map[string]struct{ limit, says string }{
		"processes of the user": {"ulimit -u 30; ", "(RLIMIT_NPROC)"},
		"open files":            {"ulimit -n 32; ", "a process may open 32 files"},
		"address space":         {"ulimit -v 2000000; ", "of address space (RLIMIT_AS)"},
		"cgroup":                {"", "the cgroup allows 24 processes and threads"},
	} {
		t.Run(name, func(t *testing.T) {
			self := self
			if jobtest.Race && name == "address space" { // the race detector reserves more at program start
				self = filepath.Join(t.TempDir(), "bringupd")
				build := exec.CommandContext(t.Context(), "go", "build", "-tags", "netgo,osusergo",
					"-o", self, "../../cmd/bringupd")
				if out, err := build.CombinedOutput(); err != nil {
					t.Fatalf("cannot build bringupd: %v: %s", err, out)
				}
				self = users.Public(t, self)
			}
			job := users.Job.Command(t.Context(), dir, "bash", "-c", tc.limit+"exec "+self+daemon)
			if name == "cgroup" {
				group := pidsCgroup(t, 24)
				job = exec.Command("sh", "-c",
					"echo $$ > "+group+"/cgroup.procs; exec "+self+daemon)
			}
			job.Env = append(job.Env, "GOMAXPROCS=2")
			out, err := job.CombinedOutput()
			if code := job.ProcessState.ExitCode(); code != 65 ||
				!strings.Contains(string(out), tc.says) ||
				strings.Contains(string(out), "goroutine") {
				t.Errorf("it ended with %d, %v:\n%s", code, err, out)
			}
		})
	}
}
