package process_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/bringupd/bringupd/pkg/process"
	"github.com/bringupd/bringupd/pkg/roles/launcher"
)

// scontrol is the identity that uses Slurm's own client, for job 17.
var scontrol = launcher.Identity{Launcher: launcher.LauncherSlurm, Job: "17"}.NewRequeuer(process.RunClient)

// playScontrol puts a program of that name first in PATH: it records its arguments and then runs
// the shell lines. The returned function returns the recorded arguments.
func playScontrol(t *testing.T, lines string) (called func() string) {
	t.Helper()
	dir := t.TempDir()
	notes := filepath.Join(dir, "called")
	script := "#!/bin/sh\necho \"$@\" >> " + notes + "\n" + lines + "\n"
	if err := os.WriteFile(filepath.Join(dir, "scontrol"), []byte(script), 0o700); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", dir+":"+os.Getenv("PATH"))
	return func() string {
		data, _ := os.ReadFile(notes)
		return string(data)
	}
}

// requeue requeues the job by the scontrol of PATH, within a minute or the given time.
func requeue(t *testing.T, within time.Duration) error {
	ctx, cancel := context.WithTimeout(t.Context(), within)
	defer cancel()
	return scontrol.RequeueJob(ctx)
}

// TestScontrolRequeues verifies that scontrol's message is the error, on one line, and that scontrol
// is run again after a signal: Slurm signals all processes of a job that it ends.
func TestScontrolRequeues(t *testing.T) {
	for _, tc := range []struct {
		name, lines string
		calls       int
		err         string
	}{
		{"at once", "", 1, ""},
		{"a refusal", "echo Only batch jobs are accepted or processed for job $2; echo and more >&2; exit 1", 1,
			"cannot run scontrol requeue 17: exit status 1: Only batch jobs are accepted or " +
				"processed for job 17 and more"},
		{"one signal", "[ -e again ] || { touch again; kill -TERM $$; }", 2, ""},
		{"always a signal", "kill -TERM $$", 3, "cannot run scontrol requeue 17: signal: terminated"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Chdir(t.TempDir())
			called := playScontrol(t, tc.lines)
			err := requeue(t, time.Minute)
			if (err == nil) != (tc.err == "") || err != nil && err.Error() != tc.err {
				t.Errorf("got %v, want %s", err, tc.err)
			}
			if got := called(); got != strings.Repeat("requeue 17\n", tc.calls) {
				t.Errorf("it was called with %q", got)
			}
		})
	}
	playScontrol(t, "exec sleep 300")
	if err := requeue(t, time.Second/2); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("while it hangs: %v", err)
	}
	t.Setenv("PATH", t.TempDir())
	if err := requeue(t, time.Minute); err == nil ||
		!strings.HasPrefix(err.Error(), "cannot run scontrol requeue 17: ") {
		t.Errorf("without the program: %v", err)
	}
}

func TestScontrolExcludes(t *testing.T) {
	for _, tc := range []struct{ name, shown, want string }{
		{"none before", "JobId=17 ReqNodeList=n9 ExcNodeList=(null) NodeList=n1", "n3,n12"},
		{"some before", "JobId=17 ReqNodeList=(null) ExcNodeList=n[1-2,12],m7 NodeList=(null)", "m7,n[1-3,12]"},
		{"nothing shown", "", "n3,n12"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			called := playScontrol(t, `[ "$1" != show ] || echo '`+tc.shown+`'`)
			if err := scontrol.ExcludeHosts(t.Context(), []string{"n12", "n3"}); err != nil {
				t.Error(err)
			}
			want, _ := launcher.ExpandNodeList(tc.want, 0)
			list := launcher.CompactNodeList(want)
			if got := called(); got != "show job --oneliner 17\nupdate JobId=17 ExcNodeList="+list+"\n" {
				t.Errorf("it was called with %q", got)
			}
		})
	}
}

// TestScontrolIsElsewhere verifies that a scontrol in the working directory is not used.
func TestScontrolIsElsewhere(t *testing.T) {
	called := playScontrol(t, "")
	dir, _, _ := strings.Cut(os.Getenv("PATH"), ":")
	t.Chdir(dir)
	t.Setenv("PATH", ".")
	if err := requeue(t, time.Minute); err == nil || called() != "" {
		t.Errorf("got %v after the calls %q", err, called())
	}
}

func TestRequeuer(t *testing.T) {
	for _, id := range []launcher.Identity{{Launcher: launcher.LauncherLocal, Job: "17"},
		{Launcher: launcher.LauncherRanks, Job: "17"}, {Launcher: launcher.LauncherSlurm}, {}} {
		if by := id.NewRequeuer(process.RunClient); by != nil {
			t.Errorf("%q can have job %q started anew: %v", id.Launcher, id.Job, by)
		}
	}
}
