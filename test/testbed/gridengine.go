package testbed

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
)

// GridEnginePrograms is the folder in which Debian installs all programs of Grid Engine, including
// qsub and qrsh. Grid Engine loads its spooling library from nowhere else.
const GridEnginePrograms = "/usr/lib/gridengine"

// gridEngineData is the folder with Grid Engine's default configuration.
const gridEngineData = "/usr/share/gridengine"

// ParallelEnvironment is the parallel environment of the testbed's Grid Engine: one slot per host.
const ParallelEnvironment = "one"

// inForeground is the variable that keeps Grid Engine's daemons in the foreground.
const inForeground = "SGE_ND=1"

// startGridEngine starts Grid Engine next to Slurm: its master on ctl, and an execution daemon on
// each node. Neither scheduler knows about the jobs of the other. HealNode does not restart these
// daemons.
func (b *Bed) startGridEngine(ctx context.Context) error {
	if !b.cfg.GridEngine {
		return nil
	}
	if err := b.layCell(ctx); err != nil {
		return err
	}
	master, err := b.serve("sge_qmaster", "env", inForeground, GridEnginePrograms+"/sge_qmaster")
	if err != nil {
		return err
	}
	err = poll(ctx, func() (bool, error) {
		return b.Command(ctx, GridEnginePrograms+"/qconf", "-sh").Run() == nil, master.alive()
	})
	if err != nil {
		return fmt.Errorf("cannot start sge_qmaster: %v", err)
	}
	if err := b.admitNodes(ctx); err != nil {
		return err
	}
	for _, n := range b.nodes {
		execd, err := startDaemon(n.service(append(b.Env(), inForeground),
			GridEnginePrograms+"/sge_execd"), b.slot.path("log/sge_execd-"+n.name+".out"))
		if err != nil {
			return err
		}
		n.mu.Lock()
		n.execd = execd
		n.mu.Unlock()
	}
	return b.waitQueue(ctx)
}

// gridEngineEnv returns the variables that Grid Engine's programs need to find the testbed's cell.
func (b *Bed) gridEngineEnv() []string {
	return []string{
		"SGE_ROOT=" + b.slot.path("gridengine"), "SGE_CELL=default", "SGE_QMASTER_PORT=6444",
		"SGE_EXECD_PORT=6445",
	}
}

// layCell creates the files that the master reads when it starts.
func (b *Bed) layCell(ctx context.Context) error {
	root := b.slot.path("gridengine")
	for _, name := range []string{"default/common/local_conf", "qmaster/job_scripts", "spool",
		"execd", "bin", "utilbin"} {
		if err := os.MkdirAll(root+"/"+name, 0o755); err != nil {
			return fmt.Errorf("cannot make a folder of Grid Engine's: %v", err)
		}
	}
	arch, err := exec.CommandContext(ctx, gridEngineData+"/util/arch").Output()
	if err != nil {
		return fmt.Errorf("cannot run Grid Engine's util/arch (have_gridengine of test/setup.sh unpacks it): %v", err)
	}
	for to, from := range map[string]string{
		"util":                                   gridEngineData + "/util",
		"bin/" + strings.TrimSpace(string(arch)): GridEnginePrograms,
		"utilbin/" + strings.TrimSpace(string(arch)): GridEnginePrograms,
	} {
		if err := os.Symlink(from, root+"/"+to); err != nil {
			return fmt.Errorf("cannot lay a link of Grid Engine's: %v", err)
		}
	}
	defaults, err := os.ReadFile(gridEngineData + "/default-configuration")
	if err != nil {
		return fmt.Errorf("cannot read Grid Engine's defaults: %v", err)
	}
	if err := b.slot.write(gridEngineFiles(b.slot, b.cfg.Nodes, string(defaults))); err != nil {
		return err
	}
	spool := root + "/default/common;" + root + "/spool"
	for _, argv := range [][]string{
		{"spoolinit", "classic", "libspoolc", spool, "init"},
		{"spooldefaults", "configuration", root + "/configuration"},
		{"spooldefaults", "complexes", gridEngineData + "/util/resources/centry"},
		{"spooldefaults", "usersets", gridEngineData + "/util/resources/usersets"},
		{"spooldefaults", "managers", "root"},
	} {
		if _, err := b.client(ctx, GridEnginePrograms+"/"+argv[0], argv[1:]...); err != nil {
			return err
		}
	}
	return nil
}

// admitNodes configures the nodes and a queue in the master, and makes it start jobs at once.
func (b *Bed) admitNodes(ctx context.Context) error {
	var hosts []string
	for _, n := range b.nodes {
		hosts = append(hosts, n.name)
	}
	all := strings.Join(hosts, ",")
	commands := [][]string{{"-ah", all}, {"-as", all + ",ctl"}, {"-Ap", "environment"},
		{"-Aq", "queue"}, {"-Msconf", "scheduler"}}
	for _, n := range b.nodes {
		commands = append(commands, []string{"-Aconf", n.name})
	}
	for _, argv := range commands {
		if strings.HasPrefix(argv[0], "-A") || argv[0] == "-Msconf" {
			argv[1] = b.slot.path("gridengine/" + argv[1])
		}
		if _, err := b.client(ctx, GridEnginePrograms+"/qconf", argv...); err != nil {
			return err
		}
	}
	return nil
}

// waitQueue waits until the master knows all nodes and could start a job on them.
func (b *Bed) waitQueue(ctx context.Context) error {
	return poll(ctx, func() (bool, error) {
		if err := b.ailing(b.nodes); err != nil {
			return false, err
		}
		// A node that has not reported yet has the load "-NA-" and the state "au".
		state, err := b.client(ctx, GridEnginePrograms+"/qstat", "-f", "-q", "all.q")
		return err == nil && !strings.Contains(state, "-NA-"), nil
	})
}

// gridEngineFiles returns a typical site's configuration, except that root may run jobs, nodes
// report their load every second, and jobs start at once.
func gridEngineFiles(s *slot, nodes int, defaults string) map[string]string {
	root := s.path("gridengine")
	var hosts []string
	files := make(map[string]string)
	for i := range nodes {
		hosts = append(hosts, nodeName(i))
		// Grid Engine identifies a task's processes by a supplementary group. All nodes share the
		// processes of one machine, so each node needs its own range of groups.
		first := 100_000 + 10_000*s.number + 20*i
		files["gridengine/"+nodeName(i)] = fmt.Sprintf("gid_range %d-%d\n", first, first+19)
	}
	var unlimited []string
	for _, limit := range []string{"rt", "cpu", "fsize", "data", "stack", "core", "rss", "vmem"} {
		unlimited = append(unlimited, "s_"+limit+" INFINITY", "h_"+limit+" INFINITY")
	}
	files["gridengine/configuration"] = changed(defaults, map[string]string{
		"execd_spool_dir": root + "/execd", "mailer": "/bin/true", "min_uid": "0", "min_gid": "0",
		"load_report_time": "00:00:01",
	})
	files["gridengine/default/common/act_qmaster"] = "ctl\n"
	files["gridengine/default/common/bootstrap"] = joinLines([]string{
		"admin_user none", "default_domain none", "ignore_fqdn false", "spooling_method classic",
		"spooling_lib libspoolc",
		"spooling_params " + root + "/default/common;" + root + "/spool",
		"binary_path " + GridEnginePrograms,
		"qmaster_spool_dir " + root + "/qmaster", "security_mode none",
		"listener_threads 2", "worker_threads 2", "scheduler_threads 1",
	})
	files["gridengine/environment"] = joinLines([]string{
		"pe_name " + ParallelEnvironment, "slots 999", "user_lists NONE", "xuser_lists NONE",
		"start_proc_args NONE",
		"stop_proc_args NONE", "allocation_rule 1", "control_slaves TRUE",
		"job_is_first_task FALSE", "urgency_slots min",
		"accounting_summary FALSE", "qsort_args NONE",
	})
	files["gridengine/queue"] = joinLines(append([]string{
		"qname all.q", "hostlist " + strings.Join(hosts, " "), "seq_no 0", "load_thresholds NONE",
		"suspend_thresholds NONE",
		"nsuspend 1", "suspend_interval 00:05:00", "priority 0", "min_cpu_interval 00:05:00",
		"processors UNDEFINED",
		"qtype BATCH INTERACTIVE", "ckpt_list NONE", "pe_list " + ParallelEnvironment, "rerun TRUE",
		"slots 8", "tmpdir /tmp",
		"shell /bin/sh", "prolog NONE", "epilog NONE", "shell_start_mode unix_behavior",
		"starter_method NONE",
		"suspend_method NONE", "resume_method NONE", "terminate_method NONE", "notify 00:00:60",
		"owner_list NONE",
		"user_lists NONE", "xuser_lists NONE", "subordinate_list NONE", "complex_values NONE",
		"projects NONE",
		"xprojects NONE", "calendar NONE", "initial_state default",
	}, unlimited...))
	files["gridengine/scheduler"] = joinLines([]string{
		"algorithm default", "schedule_interval 0:0:1", "maxujobs 0", "queue_sort_method seqno",
		"job_load_adjustments NONE",
		"load_adjustment_decay_time 0:0:0", "load_formula slots", "schedd_job_info true",
		"flush_submit_sec 1",
		"flush_finish_sec 1", "params none", "reprioritize_interval 0:0:0", "halftime 168",
		"usage_weight_list cpu=1.000000,mem=0.000000,io=0.000000", "compensation_factor 5.000000",
		"weight_user 0.250000",
		"weight_project 0.250000", "weight_department 0.250000", "weight_job 0.250000",
		"weight_tickets_functional 0",
		"weight_tickets_share 0", "share_override_tickets TRUE", "share_functional_shares TRUE",
		"max_functional_jobs_to_schedule 200", "report_pjob_tickets TRUE",
		"max_pending_tasks_per_job 50",
		"halflife_decay_list none", "policy_hierarchy OFS", "weight_ticket 0.500000",
		"weight_waiting_time 0.278000",
		"weight_deadline 3600000.000000", "weight_urgency 0.500000", "weight_priority 0.000000",
		"max_reservation 0",
		"default_duration INFINITY",
	})
	return files
}

// changed replaces the values of some names in lines that each consist of a name and a value.
func changed(lines string, values map[string]string) string {
	var all []string
	for line := range strings.Lines(lines) {
		name, _, _ := strings.Cut(strings.TrimSpace(line), " ")
		if value, ok := values[name]; ok {
			line = name + " " + value
		}
		all = append(all, strings.TrimSpace(line))
	}
	return joinLines(all)
}
