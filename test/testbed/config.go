package testbed

import (
	"fmt"
	"maps"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

// writeConfigs writes the configuration files of the testbed.
func (b *Bed) writeConfigs() error {
	files := map[string]string{
		"slurm.conf":      slurmConf(b.slot, b.cfg),
		"cgroup.conf":     cgroupConf,
		"gres.conf":       gresConf(b.slot, b.cfg),
		"etc/hosts":       hostsFile(b.slot, b.cfg.Nodes),
		"etc/sshd_config": sshdConfig(b.slot),
		"etc/ssh_config":  sshConfig(b.slot),
	}
	if b.cfg.Site {
		maps.Copy(files, siteFiles())
	}
	if err := b.slot.write(files); err != nil {
		return err
	}
	prolog := b.slot.path("etc/taskprolog")
	if err := os.WriteFile(prolog, []byte(taskProlog), 0o755); err != nil {
		return fmt.Errorf("cannot write the testbed's task prolog: %v", err)
	}
	if b.cfg.Site {
		if err := b.SetProlog("#!/bin/sh\n"); err != nil {
			return err
		}
	}
	return b.makeGPUs()
}

// write writes files into the slot's folder; the keys are their relative names.
func (s *slot) write(files map[string]string) error {
	for name, content := range files {
		if err := os.WriteFile(s.path(name), []byte(content), 0o644); err != nil {
			return fmt.Errorf("cannot write a configuration file of the testbed: %v", err)
		}
	}
	return nil
}

// nvidiaMajor is the major number of NVIDIA's devices in Linux' list of devices.
const nvidiaMajor = 195

// makeGPUs makes the devices that stand for GPUs: Slurm accepts only device files, and hides those
// of other jobs by their numbers. They have NVIDIA's numbers; there is no driver behind them.
func (b *Bed) makeGPUs() error {
	for i := range b.cfg.GPUs {
		number := int(unix.Mkdev(nvidiaMajor, uint32(i)))
		if err := unix.Mknod(b.slot.path(gpuFile(i)), unix.S_IFCHR|0o666, number); err != nil {
			return fmt.Errorf("cannot make a device that stands for a GPU: %v", err)
		}
	}
	return nil
}

// slurmConf returns a typical site's slurm.conf, except for settings that make jobs start at once:
// batch_sched_delay, the intervals, and cred_expire, which delays a requeued job (120 seconds by
// default). Timeouts such as KillWait and SlurmdTimeout keep Slurm's defaults, so that tests see
// what users see.
func slurmConf(s *slot, cfg Config) string {
	lines := []string{
		fmt.Sprintf("ClusterName=testbed%d", s.number),
		fmt.Sprintf("SlurmctldHost=ctl(%s)", s.ctlAddress()),
		"SlurmUser=root",
		"SlurmdUser=root",
		"AuthType=auth/munge",
		"CredType=cred/munge",
		fmt.Sprintf("AuthInfo=socket=%s,cred_expire=%d", s.path("state/munge.socket"), credExpire),
		"StateSaveLocation=" + s.path("state"),
		"SlurmdSpoolDir=" + s.path("spool/%n"),
		"SlurmctldPidFile=" + s.path("pid/slurmctld"),
		"SlurmdPidFile=" + s.path("pid/slurmd-%n"),
		"SlurmctldLogFile=" + s.path("log/slurmctld.log"),
		"SlurmdLogFile=" + s.path("log/slurmd-%n.log"),
		"ProctrackType=proctrack/linuxproc",
		"TaskPlugin=task/none",
		"JobAcctGatherType=jobacct_gather/none",
		"AccountingStorageType=accounting_storage/none",
		"MpiDefault=none",
		"SelectType=select/cons_tres",
		"SelectTypeParameters=CR_CPU",
		"SchedulerType=sched/backfill",
		"SchedulerParameters=batch_sched_delay=0,sched_interval=1,bf_interval=1," +
			"nohold_on_prolog_fail",
		"SlurmdParameters=config_overrides", // permits more CPUs than the machine has
		"ReturnToService=2",
		"KillWait=30",
		"SlurmdTimeout=300",
		"MailProg=/bin/true",
	}
	gres := ""
	if cfg.GPUs > 0 {
		lines = append(lines, "GresTypes=gpu")
		gres = fmt.Sprintf(" Gres=gpu:%d", cfg.GPUs)
	}
	for i := range cfg.Nodes {
		lines = append(lines,
			fmt.Sprintf("NodeName=%s NodeAddr=%s CPUs=%d RealMemory=1000000%s State=UNKNOWN",
				nodeName(i), s.nodeAddress(i), cfg.CPUs, gres))
	}
	lines = append(lines, "PartitionName=all Nodes=ALL Default=YES MaxTime=INFINITE State=UP")
	if cfg.User != "" {
		lines = append(lines, "TaskProlog="+s.path("etc/taskprolog"))
	}
	if cfg.Site {
		lines = append(lines, siteConf(s)...)
	}
	return joinLines(append(lines, cfg.SlurmConf...))
}

// taskProlog gives each job a TMPDIR with a path of 60 characters, as some sites do.
const taskProlog = `#!/bin/sh
dir=/tmp/site-scratch/users/$(id -un)/jobs/$SLURM_JOB_ID
mkdir -p -m 700 "$dir"
echo "export TMPDIR=$dir"
`

// credExpire is the lifetime of a job step's credential, in seconds. A node that is suspended for
// longer while a step starts refuses the credential.
const credExpire = 15

// cgroupConf keeps slurmd from requesting a cgroup from systemd on hosts with the unified
// hierarchy. The testbed uses no plugin that needs a cgroup.
const cgroupConf = "CgroupPlugin=cgroup/v1\n"

// gresConf returns gres.conf, which lists the devices that stand for GPUs.
func gresConf(s *slot, cfg Config) string {
	var lines []string
	for i := range cfg.GPUs {
		lines = append(lines, "Name=gpu File="+s.path(gpuFile(i)))
	}
	return joinLines(lines)
}

func gpuFile(i int) string { return fmt.Sprintf("etc/gpu%d", i) }

func hostsFile(s *slot, nodes int) string {
	lines := []string{"127.0.0.1 localhost", "::1 localhost ip6-localhost", s.ctlAddress() + " ctl"}
	for i := range nodes {
		lines = append(lines, s.nodeAddress(i)+" "+nodeName(i))
	}
	return joinLines(lines)
}

// sshdConfig returns the configuration of an sshd that only serves files, to root with the
// testbed's key.
func sshdConfig(s *slot) string {
	return joinLines([]string{
		"ListenAddress " + s.ctlAddress(),
		"HostKey " + s.path("etc/host_key"),
		"AuthorizedKeysFile " + s.path("etc/client_key.pub"),
		"AuthenticationMethods publickey",
		"PermitRootLogin yes",
		"StrictModes no",
		"UsePAM no",
		"UseDNS no",
		"PidFile none",
		"MaxStartups 1000",
		"Subsystem sftp internal-sftp",
		"ForceCommand internal-sftp",
	})
}

func sshConfig(s *slot) string {
	return joinLines([]string{
		"BatchMode yes",
		"IdentityFile " + s.path("etc/client_key"),
		"IdentitiesOnly yes",
		"UserKnownHostsFile " + s.path("etc/known_hosts"),
		"GlobalKnownHostsFile /dev/null",
		"StrictHostKeyChecking yes",
		"Ciphers aes128-gcm@openssh.com",
		"Compression no",
	})
}

func joinLines(lines []string) string { return strings.Join(lines, "\n") + "\n" }
