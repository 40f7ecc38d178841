package deploy_test

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestNodeScripts verifies that the prolog and the check of NHC fail only if a check of the node has
// failed, with its finding as a reason that is safe in a shell, and not if the state of the node is
// unknown.
func TestNodeScripts(t *testing.T) {
	const fail = "echo 'bringupd: checking'; echo 'FAIL n1: 1 of 9 checks failed'; " +
		`echo '  WARN     host.shm  small'; printf "  FAIL     gpu.ecc  GPU 3: \$(reboot) 'x' \"y\"\n"; exit 2`
	const reason = "gpu.ecc  GPU 3: (reboot) x y"
	for _, tc := range []struct {
		name, bringupd string // the lines of a stand-in
		late           bool   // what is late drains the node
		reason         string // empty: the node is not blamed
		inNHC          string // the same there; empty: as reason
	}{
		{"passed", "exit 0", false, "", ""},
		{"warnings", "exit 1", false, "", ""},
		{"failed", fail, false, reason, ""},
		{"unknown", "echo 'UNKNOWN n1'; exit 3", true, "", ""},
		{"a crash", "echo '  FAIL     gpu.ecc  no'; exit 255", true, "", ""},
		{"a wrong flag", "echo 'cannot use --x'; exit 64", true, "", ""},
		{"no such program", "", true, "", ""},
		{"not ready", "echo 'WAIT n1: 1 not ready yet'; echo '  WAIT     gpu.fabric  joining'; exit 2", false, "", ""},
		{"not ready is a fault", "echo '  WAIT     gpu.fabric  joining'; exit 2", true, "not ready within 2 s", "none"},
		{"no answer", "exec sleep 60", false, "", ""},
		{"no answer is a fault", "trap '' TERM; sleep 60; sleep 60", true, "not ready within 2 s", "none"},
		{"the job's variables", `[ -z "$CUDA_VISIBLE_DEVICES$SLURM_JOB_ID" ] || { ` + fail + "; }", false, "", ""},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			write := func(name, text string, mode os.FileMode) {
				t.Helper()
				if err := os.WriteFile(filepath.Join(dir, name), []byte(text), mode); err != nil {
					t.Fatal(err)
				}
			}
			if tc.bringupd != "" {
				write("bringupd", "#!/bin/sh\n"+tc.bringupd+"\n", 0o700)
			}
			write("scontrol", "#!/bin/sh\necho \"$@\" >>"+dir+"/drained\n", 0o700)
			write("logger", "#!/bin/sh\n", 0o700)
			run := func(script string, env ...string) (said string, code int) {
				shell := exec.CommandContext(t.Context(), "bash", "-c", script)
				shell.Dir = dir
				shell.Env = append(env, "PATH="+dir+":/usr/bin:/bin", "BRINGUPD="+dir+"/bringupd",
					"CUDA_VISIBLE_DEVICES=0", "SLURM_JOB_ID=7", "SLURMD_NODENAME=n1")
				out, _ := shell.CombinedOutput()
				return string(out), shell.ProcessState.ExitCode()
			}

			prolog := shipped(t, "slurm/prolog.sh")
			prolog = strings.Replace(prolog, "limit=5 ", "limit=2 ", 1)
			if tc.late {
				prolog = strings.Replace(prolog, "drain_late=no", "drain_late=yes", 1)
			}
			said, code := run(prolog)
			drained, _ := os.ReadFile(filepath.Join(dir, "drained"))
			want := ""
			if tc.reason != "" {
				want = "update nodename=n1 state=drain reason=bringupd: " + tc.reason + "\n"
			}
			if string(drained) != want || (code != 0) != (tc.reason != "") || code > 1 {
				t.Errorf("the prolog ended with %d and drains by %q, want %q: %s", code, drained, want, said)
			}

			// As NHC calls a check: with a function die, which evaluates its text.
			const nhc = "set -f; dbg() { :; }; log() { echo \"log: $*\"; }; IFS=\n" +
				"die() { eval \"echo died '$1' '$2'\"; }\n"
			said, code = run(nhc+shipped(t, "nhc/bringupd.nhc")+"\nIFS=$' \\t\\n'\ncheck_bringupd --check=host.*=off",
				"BRINGUPD_LIMIT=3")
			blamed := tc.reason != "" && tc.inNHC == ""
			if died := strings.Contains(said, "died 1 check_bringupd:  "+tc.reason+"\n"); died != blamed ||
				(code != 0) != blamed {
				t.Errorf("the check of NHC ended with %d, want a failure %v: %s", code, blamed, said)
			}
		})
	}
}

func shipped(t *testing.T, path string) string {
	t.Helper()
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}
