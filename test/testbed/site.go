package testbed

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
)

// siteConf returns further lines of slurm.conf for a site that shares its nodes between jobs:
// memory is consumable and limited, jobs see only the devices of their own GPUs, each job has a
// /tmp of its own on each node, jobs of the partition urgent preempt those of the partition spot,
// which are then requeued, and a prolog runs on each node before a job.
func siteConf(s *slot) []string {
	return []string{
		"SelectTypeParameters=CR_CPU_Memory",
		"DefMemPerCPU=500",
		"ProctrackType=proctrack/cgroup",
		"TaskPlugin=task/cgroup",
		"PrologFlags=Contain,DeferBatch",
		"Prolog=" + s.path(prologFile),
		"JobContainerType=job_container/tmpfs",
		"PreemptType=preempt/partition_prio",
		"PreemptMode=REQUEUE",
		"PartitionName=spot Nodes=ALL MaxTime=INFINITE State=UP PriorityTier=1 GraceTime=20",
		"PartitionName=urgent Nodes=ALL MaxTime=INFINITE State=UP PriorityTier=100",
	}
}

// prologFile is the prolog of such a site, relative to the folder of the testbed.
const prologFile = "etc/prolog"

// siteFiles returns the further configuration files of such a site.
func siteFiles() map[string]string {
	return map[string]string{
		"cgroup.conf": joinLines([]string{
			"CgroupPlugin=cgroup/v1",
			"ConstrainDevices=yes",
			"ConstrainRAMSpace=yes",
		}),
		"job_container.conf": joinLines([]string{
			"AutoBasePath=true",
			"BasePath=/var/tmp/containers",
			"Dirs=/tmp,/dev/shm",
		}),
	}
}

// firstCPU returns the CPU on which a namespace for mounts must be created so that namespaces that
// are created later, on any CPU, can be bound to files in it, as job_container/tmpfs does. Linux
// allows that only if the later one has the higher id, and since 6.18 each CPU has ids of its own.
func firstCPU(ctx context.Context) (string, error) {
	out, err := exec.CommandContext(ctx, "sh", "-c", firstCPUScript).CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("cannot find a CPU for the namespaces of the nodes: %v: %s", err, out)
	}
	return string(bytes.TrimSpace(out)), nil
}

const firstCPUScript = `
cpus=$(taskset -c -p $$ | sed 's/.*: //' | tr , '\n' | awk -F- '{for (i = $1; i <= $NF; i++) print i}')
for cpu in $cpus; do
	if taskset -c $cpu unshare --mount sh -ec '
		mount -t tmpfs tmpfs /mnt
		for cpu in "$@"; do
			touch /mnt/$cpu
			taskset -c $cpu unshare --mount=/mnt/$cpu true
		done' sh $cpus 2>/dev/null
	then
		echo $cpu
		exit
	fi
done
echo "none of $cpus" >&2
exit 1
`

// SetProlog replaces the script that runs as root on each node of a site before a job does.
func (b *Bed) SetProlog(script string) error {
	path := b.slot.path(prologFile)
	if err := os.WriteFile(path+".new", []byte(script), 0o755); err != nil {
		return fmt.Errorf("cannot write the testbed's prolog: %v", err)
	}
	return os.Rename(path+".new", path)
}
