package local

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bringupd/bringupd/test/jobtest"
	"github.com/bringupd/bringupd/test/users"
)

// exchangeVariable makes the test binary exchange the names of two directories and exit. Its value
// contains their paths with a colon between them. It runs as another user.
const exchangeVariable = "BRINGUPD_TEST_EXCHANGE"

func exchange(paths string) int {
	a, b, _ := strings.Cut(paths, ":")
	if err := unix.Renameat2(unix.AT_FDCWD, a, unix.AT_FDCWD, b, unix.RENAME_EXCHANGE); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// runAs runs a command to its end and returns its output.
func runAs(t *testing.T, u users.User, env string, program string, args ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), ceiling)
	defer cancel()
	cmd := u.Command(ctx, "/", program, args...)
	cmd.Env = append(cmd.Env, env)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s %v: %v: %s", program, args, err, out)
	}
	return string(out)
}

// TestLogDirectoryIsExchanged checks that a member of the project's group who replaces the log
// directory of a running job receives none of the job's data, and that the job ends normally in its
// own directory.
func TestLogDirectoryIsExchanged(t *testing.T) {
	users.Need(t)
	project, home := users.Project(t), users.Job.Dir(t)
	program, self := users.Public(t, jobtest.Bringupd), users.Public(t, os.Args[0])
	logs, lure, mark := filepath.Join(project, "logs"), filepath.Join(project, "lure"),
		filepath.Join(project, "exchanged")
	// The run's name is predictable, so the other user can create all paths to which daemons write.
	runAs(t, users.Stranger, "", "sh", "-c",
		"umask 0; cd "+project+" && mkdir -p lure/job/control lure/job/nodes lure/job/logs lure/job/events")

	ctx, cancel := context.WithTimeout(t.Context(), ceiling)
	defer cancel()
	job := users.Job.Command(ctx, home, program, "local", "--nodes=2", "--job-id=job",
		"--log-dir="+logs, "--",
		"sh", "-c", "echo up > up; until [ -e "+mark+" ]; do sleep 0.05; done")
	var said strings.Builder
	job.Stdout, job.Stderr = &said, &said
	if err := job.Start(); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error, 1)
	go func() { ended <- job.Wait() }()
	for up := false; !up; {
		_, err := os.Stat(filepath.Join(home, "up"))
		select {
		case err := <-ended:
			t.Fatalf("the job has ended: %v\n%s", err, said.String())
		case <-time.After(20 * time.Millisecond):
			up = err == nil
		}
	}
	before := runAs(t, users.Stranger, "", "find", lure, "-printf", "%P\n")
	runAs(t, users.Stranger, exchangeVariable+"="+logs+":"+lure, self)
	runAs(t, users.Stranger, "", "touch", mark)
	if err := <-ended; err != nil {
		t.Errorf("the job: %v\n%s", err, said.String())
	}
	if after := runAs(t, users.Stranger, "", "find", logs, "-printf", "%P\n"); after != before {
		t.Errorf("the stranger has\n%sand had\n%s", after, before)
	}
	for _, name := range []string{"result.json", "control/drain", "nodes/0001.done"} {
		if _, err := os.Stat(filepath.Join(lure, "job", name)); err != nil {
			t.Errorf("the job's own directory: %v\n%s", err, said.String())
		}
	}
}

// TestProjectInUserNamespace checks that a project's directory can be used in a user namespace, in
// which root and all other users appear as one unknown user.
func TestProjectInUserNamespace(t *testing.T) {
	users.Need(t)
	program := users.Public(t, jobtest.Bringupd)
	for _, mapping := range []string{"--map-root-user", "--map-current-user"} {
		t.Run(mapping, func(t *testing.T) {
			project, home := users.Project(t), users.Job.Dir(t)
			ctx, cancel := context.WithTimeout(t.Context(), ceiling)
			defer cancel()
			job := users.Job.Command(ctx, home, "unshare", "--user", mapping,
				program, "local", "--nodes=2", "--log-dir="+filepath.Join(project, "logs"), "--",
				"echo", "done")
			out, err := job.CombinedOutput()
			if err != nil || !strings.Contains(string(out), "done\n") ||
				strings.Contains(string(out), "replace the log directory") {
				t.Errorf("%v\n%s", err, out)
			}
		})
	}
}
