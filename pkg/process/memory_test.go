package process

import (
	"fmt"
	"path/filepath"
	"reflect"
	"testing"

	"github.com/bringupd/bringupd/pkg/signal/record"
)

// Cgroups as Slurm 23.11 creates them in version 2, with one limit per job, and in version 1 in the
// hybrid layout.
const (
	groupsV2 = "0::/system.slice/slurmstepd.scope/job_17/step_0/user/task_0\n"
	mountsV2 = "24 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw\n" +
		"35 24 0:30 / /sys/fs/cgroup rw,nosuid,nodev,noexec,relatime shared:9 - cgroup2 cgroup2 " +
		"rw,nsdelegate,memory_recursiveprot\n"
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
		write(t, filepath.Join(root, name), text, 0o600)
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
			then: map[string]string{taskV2 + "memory.events": fmt.Sprintf(eventsV2, 5), jobV2 +
				"memory.events": fmt.Sprintf(eventsV2, 6)},
		},
		{
			name: "version 2, and the child ended by itself", before: v2, kills: 2, limit: 64 << 30, cgroup: taskV2,
			then: map[string]string{taskV2 + "memory.events": fmt.Sprintf(eventsV2, 6)},
		},
		{
			name: "version 2, a container's own cgroup in the job's", before: v2, killed: true,
			kills: 1, limit: 64 << 30, cgroup: jobV2,
			then: map[string]string{jobV2 + "memory.events": fmt.Sprintf(eventsV2, 6)},
		},
		{
			name: "version 2, another job's", before: v2, killed: true,
			then: map[string]string{allV2 + "memory.events": fmt.Sprintf(eventsV2, 91)},
		},
		{
			name: "version 1, the task's own", before: v1, killed: true, kills: 1, limit: 1536 << 20, cgroup: taskV1,
			then: map[string]string{taskV1 + "memory.oom_control": fmt.Sprintf(eventsV1, 1)},
		},
		{
			name: "a count that is damaged", before: v2, killed: true,
			then: map[string]string{taskV2 + "memory.events": "oom_kill many\n"},
		},
		{
			name: "a part of the hierarchy that is mounted in a container", killed: true, kills: 1,
			limit: 1 << 20, cgroup: "sys/fs/cgroup/step/",
			before: map[string]string{
				"proc/self/cgroup":                 "0::/box/7/step\n",
				"proc/self/mountinfo":              "35 24 0:30 /box/7 /sys/fs/cgroup ro - cgroup2 cgroup2 rw\n",
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
				"proc/self/cgroup":    "0::/job_17/step\n",
				"proc/self/mountinfo": "35 24 0:30 /box/7 /sys/fs/cgroup ro - cgroup2 cgroup2 rw\n",
			},
		},
		{name: "no cgroups", nowhere: true, before: map[string]string{"proc/self/cgroup": "",
			"proc/self/mountinfo": ""}},
		{name: "no /proc", nowhere: true},
	} {
		t.Run(tc.name, func(t *testing.T) {
			root := tree(t, tc.before)
			group := FindMemoryCgroup(root)
			if found := len(group.Levels) > 0; found == tc.nowhere {
				t.Fatalf("found: %v, %+v", found, group)
			}
			before := group.KillCounts()
			grow(t, root, tc.then)
			var want *record.OOMReport
			if tc.kills > 0 {
				want = &record.OOMReport{Kills: tc.kills, Limit: tc.limit, Cgroup: filepath.Join(root, tc.cgroup)}
			}
			if got := group.KillsSince(before, tc.killed); !reflect.DeepEqual(got, want) {
				t.Errorf("got %+v, want %+v", got, want)
			}
		})
	}
}
