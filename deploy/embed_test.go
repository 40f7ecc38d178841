package deploy

import (
	"bytes"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestScripts verifies that every embedded file is offered, names itself and the place of the
// site's options, and is a valid shell script.
func TestScripts(t *testing.T) {
	var offered []string
	for _, s := range Scripts() {
		offered = append(offered, s.path)
		text := string(s.Text())
		if !strings.Contains(text, "\n# Your site: ") || !strings.Contains(text, " "+s.FileName()) {
			t.Errorf("%s does not mark the site's options, or does not name itself", s.path)
		}
		if !strings.HasPrefix(text, "#!/bin/bash\n") {
			continue
		}
		shell := exec.Command("bash", "-n")
		shell.Stdin = strings.NewReader(text)
		if said, err := shell.CombinedOutput(); err != nil || len(said) > 0 {
			t.Errorf("%s: %v: %s", s.path, err, said)
		}
	}
	err := fs.WalkDir(files, ".", func(name string, entry fs.DirEntry, err error) error {
		if err == nil && !entry.IsDir() && !slices.Contains(offered, name) {
			t.Errorf("%s is not offered", name)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
}

// TestSlurmScripts verifies the options without which a step of a Slurm script does not work at
// some sites: the environment after sbatch --export=NONE, the end of a step in which a daemon dies,
// a WaitTime, and the GPUs of a job with --exclusive only. Directives follow no command.
func TestSlurmScripts(t *testing.T) {
	starts := regexp.MustCompile(`(?m)^ *(?:sandbox=\()?srun (?:.*\\\n)*.*\n?.*bringupd.*$`)
	for _, s := range Scripts() {
		if !strings.HasPrefix(s.path, "slurm/") {
			continue
		}
		text := s.Text()
		steps := starts.FindAll(text, -1)
		if len(steps) == 0 {
			t.Errorf("%s starts no step", s.path)
		}
		for _, step := range steps {
			for _, option := range []string{"--export=", "--kill-on-bad-exit=", "--wait=0"} {
				has := bytes.Contains(step, []byte(option))
				common := regexp.MustCompile(`(?m)^step=\((.*)$`).FindSubmatch(text)
				if bytes.Contains(step, []byte(`"${step[@]}"`)) {
					has = has || bytes.Contains(common[1], []byte(option))
				}
				if !has {
					t.Errorf("%s: %s is missing in: %s", s.path, option, step)
				}
			}
			if !regexp.MustCompile(`--export="?ALL\b`).Match(step) {
				t.Errorf("%s: the environment is not passed on by: %s", s.path, step)
			}
		}
		if !bytes.Contains(text, []byte(`export SLURM_GPUS_PER_NODE=`)) {
			t.Errorf("%s does not request the job's GPUs for its steps", s.path)
		}
		for line := range bytes.Lines(text) {
			if len(bytes.TrimSpace(line)) > 0 && line[0] != '#' {
				text = text[bytes.Index(text, line):]
				break
			}
		}
		if bytes.Contains(text, []byte("#SBATCH")) {
			t.Errorf("%s: sbatch ignores a directive after the first command", path.Base(s.path))
		}
	}
}

// TestSandboxScripts verifies that a script without the command of its sandboxes fails before it
// starts a step.
func TestSandboxScripts(t *testing.T) {
	for _, s := range Scripts() {
		if !strings.Contains(s.path, "-sandbox.") {
			continue
		}
		shell := exec.Command("bash", "-c", string(s.Text()), s.FileName(), "./driver.sh")
		shell.Dir = t.TempDir()
		shell.Env = append(shell.Environ(), "PATH=/usr/bin:/bin", "SANDBOX_CMD=", "SLURM_JOB_ID=7",
			"SLURM_SUBMIT_DIR="+shell.Dir)
		said, err := shell.CombinedOutput()
		if err == nil ||
			!strings.Contains(string(said), "SANDBOX_CMD: cannot start without the command of the sandbox") ||
			strings.Count(string(said), "\n") != 1 {
			t.Errorf("%s: %v: %s", s.path, err, said)
		}
	}
}

// TestCodesOfScripts verifies that the scripts whose step survives the loss of a daemon end with the code of
// the run, and with srun's if there is no run.
func TestCodesOfScripts(t *testing.T) {
	for _, s := range Scripts() {
		if !strings.HasPrefix(s.path, "slurm/") || !bytes.Contains(s.Text(), []byte("--kill-on-bad-exit=0")) {
			continue
		}
		for _, tc := range []struct{ srun, run, want int }{{137, 0, 0}, {137, 3, 3}, {0, 3, 0}, {65, 0, 65}} {
			dir := t.TempDir()
			const asked = `[ "$*" = "status --log-dir=%s/bringupd-logs --code=%d 7" ] && exit %d; exit 99`
			for name, line := range map[string]string{
				"srun":     fmt.Sprintf("exit %d", tc.srun),
				"bringupd": fmt.Sprintf(asked, dir, tc.srun, tc.run),
			} {
				if err := os.WriteFile(path.Join(dir, name), []byte("#!/bin/sh\n"+line+"\n"), 0o700); err != nil {
					t.Fatal(err)
				}
			}
			shell := exec.Command("bash", "-c", string(s.Text()), s.FileName(), "./driver.sh")
			shell.Dir = dir
			shell.Env = append(shell.Environ(), "PATH="+dir+":/usr/bin:/bin", "SLURM_JOB_ID=7", "SLURM_SUBMIT_DIR="+dir)
			said, _ := shell.CombinedOutput()
			if code := shell.ProcessState.ExitCode(); code != tc.want || len(said) > 0 {
				t.Errorf("%s: %+v: the script ends with %d: %s", s.path, tc, code, said)
			}
		}
	}
}
