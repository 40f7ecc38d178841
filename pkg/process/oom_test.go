package process

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/bringupd/bringupd/pkg/roles/launcher"
)

// Cgroups as Slurm 23.11 creates them in version 2, with one limit per job, and in version 1 in the
// hybrid layout.
const (
	groupsV2 = "0::/system.slice/slurmstepd.scope/job_17/step_0/user/task_0\n"
	mountsV2 = "24 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw\n" +
		"35 24 0:30 / /sys/fs/cgroup rw,nosuid,nodev,noexec,relatime shared:9 - cgroup2 cgroup2 rw,nsdelegate,memory_recursiveprot\n"
	eventsV2 = "low 0\nhigh 0\nmax 112\noom 3\noom_kill %d\noom_group_kill 0\n"

	groupsV1 = "9:name=systemd:/\n8:pids:/\n4:memory:/slurm/uid_1000/job_17/step_0/task_0\n3:cpuset:/\n0::/\n"
	mountsV1 = "31 23 0:28 / /sys/fs/cgroup rw,relatime - tmpfs tmpfs rw,mode=755\n" +
		"32 31 0:29 / /sys/fs/cgroup/cpu rw,relatime - cgroup cgroup rw,cpu\n" +
		"35 31 0:32 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory\n" +
		"41 31 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw\n"
	eventsV1  = "oom_kill_disable 0\nunder_oom 0\noom_kill %d\n"
	noLimitV1 = "9223372036854771712\n"

	taskV2 = "sys/fs/cgroup/system.slice/slurmstepd.scope/job_17/step_0/user/task_0/"
	userV2 = "sys/fs/cgroup/system.slice/slurmstepd.scope/job_17/step_0/user/"
	jobV2  = "sys/fs/cgroup/system.slice/slurmstepd.scope/job_17/"
	allV2  = "sys/fs/cgroup/system.slice/slurmstepd.scope/"
	taskV1 = "sys/fs/cgroup/memory/slurm/uid_1000/job_17/step_0/task_0/"
	jobV1  = "sys/fs/cgroup/memory/slurm/uid_1000/job_17/"
)

// tree writes files below a new root.
func tree(t *testing.T, files map[string]string) string {
	t.Helper()
	root := t.TempDir()
	grow(t, root, files)
	return root
}

func grow(t *testing.T, root string, files map[string]string) {
	t.Helper()
	for name, text := range files {
		path := filepath.Join(root, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
}

func TestOOMCounts(t *testing.T) {
	v2 := map[string]string{
		"proc/self/cgroup": groupsV2, "proc/self/mountinfo": mountsV2,
		taskV2 + "memory.events": fmt.Sprintf(eventsV2, 4), taskV2 + "memory.max": "max\n",
		userV2 + "memory.events": fmt.Sprintf(eventsV2, 4), userV2 + "memory.max": "max\n",
		jobV2 + "memory.events": fmt.Sprintf(eventsV2, 5), jobV2 + "memory.max": "68719476736\n",
		allV2 + "memory.events": fmt.Sprintf(eventsV2, 90), allV2 + "memory.max": "max\n",
	}
	v1 := map[string]string{
		"proc/self/cgroup": groupsV1, "proc/self/mountinfo": mountsV1,
		taskV1 + "memory.oom_control": fmt.Sprintf(eventsV1, 0), taskV1 + "memory.limit_in_bytes": noLimitV1,
		jobV1 + "memory.limit_in_bytes": "1610612736\n",
	}
	for _, tc := range []struct {
		name    string
		before  map[string]string
		then    map[string]string
		killed  bool
		kills   int
		limit   int64
		cgroup  string
		nowhere bool
	}{
		{
			name: "version 2, the task's own", before: v2, killed: true, kills: 1, limit: 64 << 30, cgroup: taskV2,
			then: map[string]string{taskV2 + "memory.events": fmt.Sprintf(eventsV2, 5), jobV2 + "memory.events": fmt.Sprintf(eventsV2, 6)},
		},
		{
			name: "version 2, and the child ended by itself", before: v2, kills: 2, limit: 64 << 30, cgroup: taskV2,
			then: map[string]string{taskV2 + "memory.events": fmt.Sprintf(eventsV2, 6)},
		},
		{
			name: "version 2, a container's own cgroup in the job's", before: v2, killed: true, kills: 1, limit: 64 << 30, cgroup: jobV2,
			then: map[string]string{jobV2 + "memory.events": fmt.Sprintf(eventsV2, 6)},
		},
		{
			name: "version 2, elsewhere in the job, and the child ended by itself", before: v2,
			then: map[string]string{jobV2 + "memory.events": fmt.Sprintf(eventsV2, 6)},
		},
		{
			name: "version 2, another job's", before: v2, killed: true,
			then: map[string]string{allV2 + "memory.events": fmt.Sprintf(eventsV2, 91)},
		},
		{name: "version 2, nothing new", before: v2, killed: true},
		{
			name: "version 2, a limit of the task's own", before: v2, killed: true, kills: 1, limit: 1 << 30, cgroup: taskV2,
			then: map[string]string{taskV2 + "memory.events": fmt.Sprintf(eventsV2, 5), taskV2 + "memory.max": "1073741824\n"},
		},
		{
			name: "version 1, the task's own", before: v1, killed: true, kills: 1, limit: 1536 << 20, cgroup: taskV1,
			then: map[string]string{taskV1 + "memory.oom_control": fmt.Sprintf(eventsV1, 1)},
		},
		{name: "version 1, nothing new", before: v1, killed: true},
		{
			name: "a count that is damaged", before: v2, killed: true,
			then: map[string]string{taskV2 + "memory.events": "oom_kill many\n"},
		},
		{
			name: "a part of the hierarchy that is mounted in a container", killed: true, kills: 1, limit: 1 << 20, cgroup: "sys/fs/cgroup/step/",
			before: map[string]string{
				"proc/self/cgroup": "0::/box/7/step\n", "proc/self/mountinfo": "35 24 0:30 /box/7 /sys/fs/cgroup ro - cgroup2 cgroup2 rw\n",
				"sys/fs/cgroup/step/memory.events": "oom_kill 0\n", "sys/fs/cgroup/step/memory.max": "1048576\n",
			},
			then: map[string]string{"sys/fs/cgroup/step/memory.events": "oom_kill 1\n"},
		},
		{
			name: "a cgroup that does not show in the container", nowhere: true,
			before: map[string]string{"proc/self/cgroup": "0::/../other\n", "proc/self/mountinfo": mountsV2},
		},
		{
			name: "a part of the hierarchy that is another's", nowhere: true,
			before: map[string]string{
				"proc/self/cgroup": "0::/job_17/step\n", "proc/self/mountinfo": "35 24 0:30 /box/7 /sys/fs/cgroup ro - cgroup2 cgroup2 rw\n",
			},
		},
		{
			name: "cgroups that are not mounted", nowhere: true,
			before: map[string]string{"proc/self/cgroup": "0::/job_17/step\n", "proc/self/mountinfo": ""},
		},
		{name: "no cgroups", nowhere: true, before: map[string]string{"proc/self/cgroup": "", "proc/self/mountinfo": ""}},
		{name: "no /proc", nowhere: true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			root := tree(t, tc.before)
			group := findMemoryGroup(root)
			if found := len(group.levels) > 0; found == tc.nowhere {
				t.Fatalf("found: %v, %+v", found, group)
			}
			before := group.killCounts()
			grow(t, root, tc.then)
			want := OOMInfo{Kills: tc.kills, Limit: tc.limit}
			if tc.kills > 0 {
				want.Cgroup = filepath.Join(root, tc.cgroup)
			}
			if got := group.killsSince(before, tc.killed); got != want {
				t.Errorf("got %+v, want %+v", got, want)
			}
		})
	}
}

// TestOOMOfAChild verifies that a lack of memory explains an exit that was not requested, and no
// other.
func TestOOMOfAChild(t *testing.T) {
	for _, tc := range []struct {
		name   string
		script string
		stop   bool
		kills  int
	}{
		{"killed", "kill -KILL $$", false, 1},
		{"failed", "exit 1", false, 1},
		{"well", "exit 0", false, 0},
		{"asked to end", "exec sleep " + nap(), true, 0},
	} {
		t.Run(tc.name, func(t *testing.T) {
			files := map[string]string{
				"proc/self/cgroup": groupsV2, "proc/self/mountinfo": mountsV2,
				taskV2 + "memory.events": fmt.Sprintf(eventsV2, 4), taskV2 + "memory.max": "1073741824\n",
			}
			root := tree(t, files)
			s := newSupervisor(t)
			s.findMemory = func() memoryGroup { return findMemoryGroup(root) }
			events := filepath.Join(root, taskV2, "memory.events")
			c := start(t, s, shell("until grep -qx 'oom_kill 5' "+events+"; do sleep 0.01; done; "+tc.script))
			grow(t, root, map[string]string{taskV2 + "memory.events": fmt.Sprintf(eventsV2, 5)})
			if tc.stop {
				until(t, "count that was seen", func() (bool, any) {
					p, err := readStat(c.PID())
					return p.name == "sleep", []any{p, err}
				})
				c.Stop(t.Context(), 0, unix.SIGKILL)
			}
			if exit := finished(t, c); exit.OOM.Kills != tc.kills || exit.Requested != tc.stop {
				t.Errorf("%#v, want %d kills, asked %v", exit, tc.kills, tc.stop)
			}
		})
	}
}

func TestSignalName(t *testing.T) {
	for sig, want := range map[unix.Signal]string{
		1: "SIGHUP", 9: "SIGKILL", 15: "SIGTERM", 31: "SIGSYS", 33: "signal 33", 34: "SIGRTMIN", 40: "SIGRTMIN+6", 64: "SIGRTMIN+30", 65: "signal 65",
	} {
		if got := SignalName(sig); got != want {
			t.Errorf("signal %d is %q, want %q", int(sig), got, want)
		}
	}
}

// TestRealOOM makes the kernel kill a child for lack of memory, in a cgroup of this machine's own
// version that has a limit. Without the permission to create one, only the recorded trees are
// tested; root has it, and CI runs as root.
func TestRealOOM(t *testing.T) {
	group := findMemoryGroup("/")
	if len(group.levels) == 0 {
		t.Fatal("cannot find the memory cgroup of this process")
	}
	const limit = 256 << 20
	dir := boundedGroup(t, group, limit)
	for _, tc := range []struct{ name, script, says string }{
		{"the child itself", "exec dd if=/dev/zero of=/dev/null bs=1G count=1", "killed by SIGKILL: the kernel has ended 1 process of this cgroup"},
		{"a child's child", "dd if=/dev/zero of=/dev/null bs=1G count=1", "exit code 137 (killed by SIGKILL): the kernel has ended 1 process"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			self, err := os.Executable()
			if err != nil {
				t.Fatal(err)
			}
			daemon := exec.CommandContext(t.Context(), "/bin/sh", "-c", `echo $$ >"$0/cgroup.procs" && exec "$@"`, dir, self, tc.script+"; exit $?")
			daemon.Env = append(os.Environ(), helperVariable+"=exit")
			daemon.Stderr = os.Stderr
			out, err := daemon.Output()
			if err != nil {
				t.Fatalf("the stand-in daemon: %v", err)
			}
			var said struct {
				Text string
				OOM  OOMInfo
			}
			if err := json.Unmarshal(out, &said); err != nil {
				t.Fatalf("%v: %q", err, out)
			}
			if want := (OOMInfo{Kills: 1, Limit: limit, Cgroup: dir}); said.OOM != want || !strings.HasPrefix(said.Text, tc.says) {
				t.Errorf("%s: %+v, want %s: %+v", said.Text, said.OOM, tc.says, want)
			}
		})
	}
}

// boundedGroup creates a cgroup with a limit for the duration of a test.
func boundedGroup(t *testing.T, group memoryGroup, limit int) string {
	t.Helper()
	top := group.levels[len(group.levels)-1]
	dir := filepath.Join(top, fmt.Sprintf("bringupd-test-%d", os.Getpid()))
	err := os.Mkdir(dir, 0o700)
	if errors.Is(err, fs.ErrPermission) || errors.Is(err, unix.EROFS) {
		unprivileged(t, "cannot make a memory cgroup: %v", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		until(t, "the cgroup removed", func() (bool, any) {
			err := os.Remove(dir)
			return err == nil, err
		})
	})
	if err := os.WriteFile(filepath.Join(dir, group.limitFile), fmt.Appendln(nil, limit), 0o600); errors.Is(err, fs.ErrPermission) {
		unprivileged(t, "cannot bound a memory cgroup, as %s does not hand the controller down: %v", top, err)
	} else if err != nil {
		t.Fatal(err)
	}
	return dir
}

// unprivileged skips a test that requires root; if root runs the test, it fails instead.
func unprivileged(t *testing.T, format string, args ...any) {
	t.Helper()
	if os.Geteuid() == 0 {
		t.Fatalf(format, args...)
	}
	t.Skipf(format, args...)
}

// tellExit is a daemon that starts one child and prints how it ended.
func tellExit() int {
	s, err := NewSupervisor(launcher.JobVariables())
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	c, err := s.Start(context.Background(), Spec{Name: "child", Argv: []string{"/bin/sh", "-c", os.Args[1]}, Env: childEnv()})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	<-c.Done()
	exit := c.Exit()
	if err := s.Close(context.Background()); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	_ = json.NewEncoder(os.Stdout).Encode(map[string]any{"Text": exit.String(), "OOM": exit.OOM})
	return 0
}
