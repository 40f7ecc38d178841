package doctor

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/zap"

	"github.com/bringupd/bringupd/internal/files"
	"github.com/bringupd/bringupd/pkg/process"
	"github.com/bringupd/bringupd/pkg/service"
)

// machine returns a root directory whose /proc contains processes of this user.
func machine(t *testing.T, processes ...userProcess) string {
	t.Helper()
	root := t.TempDir()
	for _, p := range processes {
		dir := filepath.Join(root, "proc", fmt.Sprint(p.pid))
		var environ strings.Builder
		for name, value := range p.environ {
			environ.WriteString(name + "=" + value + "\x00")
		}
		for name, text := range map[string]string{
			"stat":    fmt.Sprintf("%d (%s) S %d 1 1 0 -1", p.pid, p.name, p.parent) + strings.Repeat(" 0", 44) + "\n",
			"cmdline": strings.Join(p.args, "\x00") + "\x00",
			"environ": environ.String(),
		} {
			write(t, filepath.Join(dir, name), text)
		}
	}
	return root
}

func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

func TestStrays(t *testing.T) {
	ours := func(job string) map[string]string {
		return map[string]string{"SLURM_JOB_ID": job, process.MarkVariable: "x", "BRINGUPD_RUN": job + ".0"}
	}
	daemon := func(pid int, job string, args ...string) userProcess {
		return userProcess{pid: pid, parent: 1, name: "bringupd", args: append([]string{"bringupd"}, args...), environ: map[string]string{"SLURM_JOB_ID": job}}
	}
	local := func(run string) map[string]string {
		return map[string]string{process.MarkVariable: "x", "BRINGUPD_RUN": run}
	}
	self := daemon(100, "8", "doctor")
	for _, tc := range []struct {
		name string
		all  []userProcess
		want []Process
	}{
		{"one whose daemon is gone", []userProcess{{pid: 7, parent: 1, name: "raylet", environ: ours("6")}}, []Process{{7, "raylet", "6.0"}}},
		{"one whose daemon is there", []userProcess{daemon(6, "6"), {pid: 7, parent: 6, name: "raylet", environ: ours("6")}}, nil},
		{"one in the background of a job whose daemon is there", []userProcess{daemon(6, "6", "--framework=ray"), {pid: 7, parent: 1, name: "raylet", environ: ours("6")}}, nil},
		{"one of another job than the daemon's", []userProcess{daemon(6, "5"), {pid: 7, parent: 1, name: "raylet", environ: ours("6")}}, []Process{{7, "raylet", "6.0"}}},
		{"one of a job where another only looks", []userProcess{daemon(6, "6", "doctor"), {pid: 7, parent: 1, name: "raylet", environ: ours("6")}}, []Process{{7, "raylet", "6.0"}}},
		{"a child of ours", []userProcess{{pid: 7, parent: 100, name: "ray", environ: ours("8")}}, nil},
		{"somebody else's", []userProcess{{pid: 7, parent: 1, name: "bash", environ: map[string]string{"SLURM_JOB_ID": "6"}}}, nil},
		{"one outside of a job, next to another daemon", []userProcess{daemon(6, ""), {pid: 7, parent: 1, name: "raylet", environ: local("a")}}, []Process{{7, "raylet", "a"}}},
		{"one in the background outside of a job", []userProcess{daemon(6, ""), {pid: 7, parent: 6, name: "sh", environ: local("a")}, {pid: 8, parent: 1, name: "raylet", environ: local("a")}}, nil},
		{"a guard", []userProcess{{pid: 7, parent: 1, name: "exe", args: []string{"family-guard"}}}, nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			root := machine(t, append(tc.all, self)...)
			if diff := cmp.Diff(tc.want, findStrays(listProcesses(filepath.Join(root, "proc"), os.Geteuid()), 100)); diff != "" {
				t.Errorf("(-want +got)\n%s", diff)
			}
		})
	}
}

func TestLeftovers(t *testing.T) {
	temp := t.TempDir()
	for _, name := range []string{"bu-old", "bu-used", "other"} {
		if err := os.Mkdir(filepath.Join(temp, name), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	write(t, filepath.Join(temp, "bu-file"), "")
	root := machine(t, userProcess{pid: 7, parent: 1, name: "raylet", args: []string{"raylet", "--temp-dir=" + temp + "/bu-used"}})
	write(t, filepath.Join(root, "dev/shm/old"), "1234")
	write(t, filepath.Join(root, "dev/shm/used"), "1234")
	write(t, filepath.Join(root, "proc/7/maps"), "7f00-7f01 rw-s 00000000 00:01 7 "+filepath.Join(root, "dev/shm/used")+"\n")
	link := filepath.Join(root, "tmp/bu-link") // the short path of a long one
	if err := os.MkdirAll(link, 0o700); err != nil {
		t.Fatal(err)
	}
	want := Leftovers{Shm: []File{{filepath.Join(root, "dev/shm/old"), 4}}, Temp: []string{filepath.Join(temp, "bu-old"), link}}
	if diff := cmp.Diff(want, scanLeftovers(root, temp, os.Geteuid())); diff != "" {
		t.Errorf("(-want +got)\n%s", diff)
	}
	if diff := cmp.Diff(Leftovers{}, scanLeftovers(root, temp, os.Geteuid()+1)); diff != "" {
		t.Errorf("of another user (-want +got)\n%s", diff)
	}
	for _, path := range []string{want.Shm[0].Path, want.Temp[0]} {
		if _, err := os.Lstat(path); err != nil {
			t.Errorf("what was only to be named is gone: %v", err)
		}
	}
}

// TestLeftoversOfOwner verifies that the directory of a daemon that lives is not listed, whether its
// process is visible or not, even if no process has a file in it.
func TestLeftoversOfOwner(t *testing.T) {
	temp := t.TempDir()
	dir := service.NewTempDir(temp, time.Minute, func(files.OwnedPath) {}, zap.NewNop(), service.Contexts{Run: t.Context(), Teardown: t.Context()})
	defer dir.Remove(false, false)
	if _, err := dir.EnsureDir(); err != nil {
		t.Fatal(err)
	}
	for name, root := range map[string]string{"visible": "", "in another namespace": machine(t)} {
		if found := scanLeftovers(root, temp, os.Geteuid()).Temp; slices.ContainsFunc(found, func(path string) bool { return filepath.Dir(path) == temp }) {
			t.Errorf("%s: listed %v", name, found)
		}
	}
}
