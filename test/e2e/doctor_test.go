//go:build testbed

package e2e

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/bringupd/bringupd/pkg/check"
	"github.com/bringupd/bringupd/pkg/preflight"
)

// slurmdPort is a port on which slurmd listens on each node.
const slurmdPort = "6818"

// examine runs the doctor on four nodes and returns its report. Each node has its own ray in /tmp,
// except for the nodes in without.
func (bed *lane) examine(t *testing.T, without []int, l launch) (*job, preflight.DoctorReport) {
	t.Helper()
	bin := "/tmp/ray-" + filepath.Base(bed.place(t)) // each node has its own /tmp
	for node := range l.nodes {
		if !slices.Contains(without, node) {
			bed.onNode(t, node, "sh", "-c",
				"mkdir "+bin+" && printf '#!/bin/sh\necho ray, version 2.9.0\n' > "+bin+"/ray && chmod +x "+bin+"/ray")
			t.Cleanup(func() { bed.onNode(t, node, "rm", "-r", bin) })
		}
	}
	bed.prependPath(bin)
	l.flags = append([]string{"--framework=ray", "--gpu-check=off", "--check=host.disk=off",
		"--check=host.limits=off"}, l.flags...)
	l.flags = append(l.flags, "--json")
	j := bed.startDoctor(t, l)
	j.wait()
	var report preflight.DoctorReport
	if err := json.Unmarshal([]byte(j.stdout.String()), &report); err != nil {
		t.Fatalf("cannot read the report: %v\n%s\n%s", err, &j.stdout, &j.stderr)
	}
	t.Logf("%s", report.FormatText(true))
	return j, report
}

// startDoctor is like start, but runs bringupd doctor.
func (bed *lane) startDoctor(t *testing.T, l launch) *job {
	t.Helper()
	if l.logs == "" {
		l.logs = bed.place(t)
	}
	args := []string{"-N", itoa(l.nodes), "-w", "n[0-" + itoa(l.nodes-1) + "]",
		"--kill-on-bad-exit=0", "--wait=0"}
	if len(l.srun) == 0 {
		l.srun = []string{"--ntasks-per-node=1"}
	}
	args = append(append(args, l.srun...), program, "doctor", "--log-dir="+l.logs)
	return bed.startCommand(t, l.logs,
		bed.Command(t.Context(), "srun", append(args, l.flags...)...))
}

// finds fails the test unless the report contains that finding for those nodes.
func finds(t *testing.T, r preflight.DoctorReport, id string, verdict check.Verdict, says string,
	nodes ...string) {
	t.Helper()
	if !slices.ContainsFunc(r.Findings, func(f check.Finding) bool {
		return f.ID == id && f.Verdict == verdict && strings.Contains(f.Observed, says) &&
			slices.Equal(f.Nodes, nodes)
	}) {
		t.Errorf("no %s %s of %v with %q", verdict, id, nodes, says)
	}
}

// TestDoctorFindsNothing checks the report of a healthy allocation, and that no file is left.
func TestDoctorFindsNothing(t *testing.T) {
	bed := claim(t, fewNodes)
	j, report := bed.examine(t, nil,
		launch{nodes: 4, flags: []string{"--framework-port=6379", "--check=host.shm=off"}})
	j.wantCode(0)
	finds(t, report, "share.seen", check.Pass, "all 4 nodes can read and write")
	finds(t, report, "framework", check.Pass, "ray 2.9.0 (all 4 nodes)")
	finds(t, report, "head.name", check.Pass, "n0")
	if left, err := os.ReadDir(j.logs); err != nil || len(left) > 0 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

// TestDoctorFindsPlantedFaults checks that the doctor reports all injected faults in one table.
// Clock offsets are tested in pkg/preflight, because the nodes of a testbed share one clock.
func TestDoctorFindsPlantedFaults(t *testing.T) {
	bed := claim(t, fewNodes)
	bed.onNode(t, 2, "mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", "/dev/shm")
	t.Cleanup(func() { bed.onNode(t, 2, "umount", "/dev/shm") })
	bed.onNode(t, 3, "hostname", "elsewhere")
	t.Cleanup(func() { bed.onNode(t, 3, "hostname", "n3") })
	bed.onNode(t, 1, "sh", "-c",
		"sed 's/^[0-9.]*\\(.*n0\\)/"+bed.Address(
			2)+"\\1/' /etc/hosts > /tmp/hosts && mount --bind /tmp/hosts /etc/hosts")
	t.Cleanup(func() { bed.onNode(t, 1, "umount", "/etc/hosts") })
	j, report := bed.examine(t, []int{1},
		launch{nodes: 4, flags: []string{"--framework-port=" + slurmdPort}})
	j.wantCode(2)
	finds(t, report, "ports", check.Fail, "Ray's GCS cannot use port "+slurmdPort, "n0")
	finds(t, report, "framework", check.Fail, "not found in PATH", "n1")
	finds(t, report, "head.name", check.Fail,
		"resolves to "+bed.Address(2)+", but the head does not respond there", "n1")
	finds(t, report, "host.shm", check.Warn, "1.0 MiB", "n2")
	finds(t, report, "node.name", check.Warn,
		"the kernel's host name is elsewhere, but Slurm calls the node n3", "n3")
	finds(t, report, "share.seen", check.Pass, "all 4 nodes")
}

// TestDoctorFindsAShareOfItsOwn checks the report if one node has mounted a private file system on
// the log directory.
func TestDoctorFindsAShareOfItsOwn(t *testing.T) {
	bed := claim(t, fewNodes)
	logs := bed.place(t)
	must(t, os.Mkdir(logs, 0o700))
	eventually(t, func() string { // the node's mount may show it with a delay
		if out, err := bed.OnNode(t.Context(), 2, "mount", "-t", "tmpfs", "-o", "mode=0700",
			"tmpfs", logs).CombinedOutput(); err != nil {
			return string(out)
		}
		return ""
	})
	t.Cleanup(func() { bed.onNode(t, 2, "umount", logs) })
	j, report := bed.examine(t, nil,
		launch{nodes: 4, logs: logs, flags: []string{"--join-timeout=5s"}})
	j.wantCode(66)
	finds(t, report, "share.seen", check.Fail, "1 of 4 nodes did not appear in "+logs, "n2")
	if !strings.Contains(j.stderr.String(), "on n2: the head's run ") {
		t.Errorf("n2 says nothing of it: %s", &j.stderr)
	}
}

// TestDoctorOfTasksThatAreNotNodes checks the report of a launch with two tasks per node.
func TestDoctorOfTasksThatAreNotNodes(t *testing.T) {
	bed := claim(t, fewNodes)
	j, report := bed.examine(t, nil,
		launch{nodes: 2, srun: []string{"--ntasks-per-node=2", "--overcommit"}})
	j.wantCode(65)
	finds(t, report, "launch", check.Fail, "cannot run 2 daemons on one node")
}
