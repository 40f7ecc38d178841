//go:build bwrap

package local

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/bringupd/bringupd/test/jobtest"
	"github.com/bringupd/bringupd/test/users"
)

// site is a machine with a file of site defaults: a container with an /etc of its own.
type site struct {
	t    *testing.T
	etc  string
	home string
}

func newSite(t *testing.T, text string) site {
	t.Helper()
	users.Need(t)
	s := site{t, t.TempDir(), t.TempDir()}
	for _, err := range []error{os.Chmod(s.etc, 0o755), os.WriteFile(s.path(), []byte(text), 0o644)} {
		if err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"passwd", "group", "hosts"} {
		data, err := os.ReadFile("/etc/" + name)
		if err := errors.Join(err, os.WriteFile(filepath.Join(s.etc, name), data, 0o644)); err != nil {
			t.Fatal(err)
		}
	}
	return s
}

func (s site) path() string { return filepath.Join(s.etc, "bringupd.yaml") }

// command returns a command of bringupd there, which has only these variables.
func (s site) command(env []string, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(s.t.Context(), "bwrap", append([]string{"--dev-bind", "/", "/", "--ro-bind",
		s.etc, "/etc", "--die-with-parent", jobtest.Bringupd}, args...)...)
	cmd.Dir, cmd.WaitDelay = s.home, time.Second
	cmd.Env = append(append(jobtest.Environ(), "PATH="+os.Getenv("PATH"), "HOME="+s.home), env...)
	return cmd
}

// run runs a command, and returns its output and its exit code.
func (s site) run(env []string, args ...string) (out, errs string, code int) {
	s.t.Helper()
	cmd := s.command(env, args...)
	var said strings.Builder
	cmd.Stderr = &said
	text, err := cmd.Output()
	if exit, is := errors.AsType[*exec.ExitError](err); is {
		return string(text), said.String(), exit.ExitCode()
	}
	if err != nil {
		s.t.Fatal(err)
	}
	return string(text), said.String(), 0
}

// TestSiteDefaults verifies which value of which source the built program uses, that a run uses
// those of the site, and that other subcommands find the run.
func TestSiteDefaults(t *testing.T) {
	t.Parallel()
	s := newSite(t, "join-timeout: 31s\nstart-timeout: 32s\npeer-timeout: 33s\ndriver-grace: 34s\n"+
		"check: [net.*=off]\nlog-dir: ${HOME}/logs\nframework-auth: own\non-end: echo $BRINGUPD_RUN > ended\n")
	job := filepath.Join(s.home, "job.yaml")
	text := "start-timeout: 42s\npeer-timeout: 43s\ncheck: [host.*=warn]\n"
	if err := os.WriteFile(job, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	out, errs, code := s.run([]string{"BRINGUPD_PEER_TIMEOUT=53s", "BRINGUPD_DRIVER_GRACE=54s"},
		"local", "--dry-run", "--config=job.yaml", "--driver-grace=35s", "--framework=dask")
	var root yaml.Node
	if err := yaml.Unmarshal([]byte(out), &root); err != nil || code != 0 {
		t.Fatalf("code %d, %v: %s%s", code, err, out, errs)
	}
	shown := make(map[string]string)
	for top := root.Content[0].Content; len(top) > 1; top = top[2:] {
		shown[top[0].Value] = top[1].Value + " " + top[0].LineComment + top[1].LineComment
	}
	want := map[string]string{
		"clean": "all # default", "join-timeout": "31s # /etc/bringupd.yaml:1",
		"start-timeout": "42s # job.yaml:1",
		"peer-timeout":  "53s # BRINGUPD_PEER_TIMEOUT", "driver-grace": "35s # --driver-grace",
		"check": " # /etc/bringupd.yaml:5, job.yaml:3", "framework-auth": "auto # default",
		"log-dir": s.home + "/logs # /etc/bringupd.yaml:6",
	}
	for key := range shown {
		if _, isWanted := want[key]; !isWanted {
			delete(shown, key)
		}
	}
	if !reflect.DeepEqual(shown, want) {
		t.Errorf("got %q", shown)
	}

	if out, errs, code := s.run(nil, "local", "--nodes=2", "--job-id=one", "--gpu-check=off", "--",
		jobtest.Bringupd, "list"); code != 0 || !strings.Contains(out, "one") {
		t.Errorf("the run ended with %d: %s%s", code, out, errs)
	}
	if text, err := os.ReadFile(filepath.Join(s.home, "ended")); err != nil || string(text) != "one\n" {
		t.Errorf("the command at the end wrote %q, %v", text, err)
	}
	if out, errs, code := s.run(nil, "list"); code != 0 || !strings.Contains(out, "one") {
		t.Errorf("the list is %s%s", out, errs)
	}
}

// TestSiteFileIsBad verifies which subcommands a file that cannot be used prevents.
func TestSiteFileIsBad(t *testing.T) {
	t.Parallel()
	s := newSite(t, "peer-timeout: 33s\n")
	if err := os.Chmod(s.path(), 0o666); err != nil {
		t.Fatal(err)
	}
	for _, tc := range []struct {
		args, variable string
		code           int
	}{
		{"local -- true", "", 64}, {"check", "", 64}, {"list", "", 64}, {"version", "", 0}, {"help run", "", 0},
		{"list --log-dir=.", "", 0}, {"list", "BRINGUPD_LOG_DIR=.", 0},
		{"list", "BRINGUPD_RUN_DIR=" + s.home + "/1", 0},
	} {
		_, errs, code := s.run([]string{tc.variable}, strings.Fields(tc.args)...)
		if isNamed := strings.Contains(errs, "cannot use /etc/bringupd.yaml: "); code != tc.code ||
			isNamed != (tc.code == 64) {
			t.Errorf("%s %s ended with %d: %s", tc.variable, tc.args, code, errs)
		}
	}
}

// TestSiteFilesDiffer verifies that nodes with different files do not run a job, and that the error
// names the file.
func TestSiteFilesDiffer(t *testing.T) {
	t.Parallel()
	logs := t.TempDir()
	args := func(node string) []string {
		return []string{"run", "--launched-locally", "--launched-of=2", "--rank=" + node, "--job-id=two",
			"--log-dir=" + logs, "--gpu-check=off", "--", "true"}
	}
	head := newSite(t, "peer-timeout: 33s\n").command(nil, args("0")...)
	var said strings.Builder
	head.Stderr = &said
	if err := head.Start(); err != nil {
		t.Fatal(err)
	}
	_, errs, code := newSite(t, "# none\n").run(nil, args("1")...)
	err := head.Wait()
	if other := jobtest.ExitCode(head.ProcessState); code != 64 || other != 64 ||
		!strings.Contains(said.String(), "/etc/bringupd.yaml") {
		t.Errorf("the nodes ended with %d and %d, %v: %s%s", other, code, err, &said, errs)
	}
}
