package local

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"testing"
	"time"

	"github.com/bringupd/bringupd/test/jobtest"
	"github.com/bringupd/bringupd/test/users"
)

// fillShare is a part of a shell script that leaves no space for a record in the log directory.
// After fill_names, no empty file can be made there, either.
const fillShare = `
logs=$(dirname "$BRINGUPD_RUN_DIR")
cat /dev/zero >"$logs/fill" 2>/dev/null
fill_names() { n=0; while touch "$logs/name.$n" 2>/dev/null; do n=$((n+1)); done; }
`

// TestFullShare fills the log directory of a run of roles: what the nodes must report reaches the
// head at once nevertheless, and is written when there is space again.
func TestFullShare(t *testing.T) {
	users.Need(t) // mounting needs root
	for _, tc := range []struct {
		name string
		keys string // of the service, on the head's node and on another one
		main string // what the primary role does after the gate; it may use $work
		code int
	}{
		{"a required service is killed", "", `touch "$work/at"; kill -9 $(cat "$work/srv.1"); sleep 120`, 77},
		{"a required service of the head is killed", "",
			`touch "$work/at"; kill -9 $(cat "$work/srv.0"); sleep 120`, 77},
		{"no name can be made at the end", "", `fill_names; touch "$work/at"`, 0},
		{"a service starts again, and then there is space", ", restarts: {max: 1}", `
first=$(cat "$work/srv.1")
kill -9 $first
until now=$(cat "$work/srv.1") && [ -n "$now" ] && [ "$now" != $first ]; do sleep 0.1; done
sleep 2
rm "$logs/fill"
touch "$work/at"
for try in $(seq 300); do
	set -- "$BRINGUPD_RUN_DIR"/nodes/*.g0.exited
	[ -s "$1" ] && exit 0
	sleep 0.1
done
exit 9`, 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			logs, work := t.TempDir(), t.TempDir()
			file := filepath.Join(work, "job.yaml")
			roles := "roles:\n" +
				"  - {name: srv, nodes: 2, command: 'echo $$ >" + work +
				"/srv.$BRINGUPD_ROLE_INDEX; exec sleep 1000'" + tc.keys + "}\n" +
				"  - {name: main, nodes: 1, primary: true, command: '. " + work + "/main.sh'}\n"
			script := "work=" + work + fillShare + tc.main + "\n"
			for path, text := range map[string]string{file: roles, filepath.Join(work, "main.sh"): script} {
				if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
			defer cancel()
			const mounted = `mount -t tmpfs -o mode=0700,size=2m,nr_inodes=300 none "$1" && shift && exec "$@"`
			job := exec.CommandContext(ctx, "unshare", "--mount", "sh", "-c", mounted, "sh", logs,
				jobtest.Bringupd, "local", "--nodes=3", "--log-dir="+logs, "--config="+file)
			out, err := job.CombinedOutput()
			ended := time.Now()
			if code := job.ProcessState.ExitCode(); code != tc.code {
				t.Fatalf("it ended with %d (%v), not %d:\n%s", code, err, tc.code, out)
			}
			at, err := os.Stat(filepath.Join(work, "at"))
			if err != nil {
				t.Fatal(err)
			}
			// The record of the exit is tried again at most every 10 s. The rest takes a moment.
			if took := ended.Sub(at.ModTime()); took > 15*time.Second {
				t.Errorf("it ended %s after that:\n%s", took, out)
			}
		})
	}
}

// TestRunDirectoryVanishes removes the run directory while ranks run: the code is theirs, on all
// nodes.
func TestRunDirectoryVanishes(t *testing.T) {
	for _, tc := range []struct {
		name, last string
		code       int
	}{
		{"all ranks succeed", "exit 0", 0},
		{"a rank fails", "[ $BRINGUPD_RANK != 1 ] || exit 5; sleep 60", 5},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			const removes = `sleep 1; [ $BRINGUPD_RANK != 0 ] || rm -rf "$BRINGUPD_RUN_DIR"; sleep 2; `
			job := exec.CommandContext(ctx, jobtest.Bringupd,
				"local", "--nodes=3", "--ranks-per-node=1", "--pmix=off", "--log-dir="+t.TempDir(),
				"--", "sh", "-c", removes+tc.last)
			out, err := job.CombinedOutput()
			if code := job.ProcessState.ExitCode(); code != tc.code {
				t.Errorf("it ended with %d (%v), not %d:\n%s", code, err, tc.code, out)
			}
		})
	}
}
