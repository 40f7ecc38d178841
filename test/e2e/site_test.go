//go:build testbed && site

package e2e

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/bringupd/bringupd/pkg/signal"
	"github.com/bringupd/bringupd/test/testbed"
)

// The nodes of the beds are those of a site at which jobs share nodes.
func init() {
	configureBed = func(config *testbed.Config) {
		config.Site = true
		config.GPUs = 2
	}
}

// srunLine returns the line of a job's script that starts bringupd.
func srunLine(logs, flags, driver string) string {
	return "srun --kill-on-bad-exit=1 --wait=0 " + program + " --log-dir=" + logs + " " + flags +
		" -- sh -c '" + driver + "'\n"
}

// output returns what a finished job has printed on standard output, in sorted order.
func (b *batchJob) output() string {
	b.t.Helper()
	out, err := os.ReadFile(b.out)
	must(b.t, err)
	return sortedLines(string(out))
}

// want checks the exit code and the sorted output of a job with one run.
func (b *batchJob) want(logs string, code int, output string) {
	b.t.Helper()
	result := resultOf(b.t, b, logs)
	// The script's own end comes after that of its run.
	eventually(b.t, func() string {
		if state := b.shown("JobState"); state == "RUNNING" || state == "COMPLETING" {
			return "state: " + state
		}
		return ""
	})
	if diff := cmp.Diff(output, b.output()); diff != "" || result.Code != code {
		errors, _ := os.ReadFile(filepath.Join(filepath.Dir(b.out), "err"))
		b.t.Errorf("the job ended with %d, want %d: %s\n%s\n%s", result.Code, code, result.Reason,
			diff, errors)
	}
}

// TestSiteWhereJobsShareNodes runs two jobs on the same nodes. The memory of each is limited, and
// that of its step is all that it has: a further step of the driver needs --overlap.
func TestSiteWhereJobsShareNodes(t *testing.T) {
	bed := claim(t, fewNodes)
	flags := []string{"--nodes=2", "--nodelist=n[0-1]", "--ntasks-per-node=1", "--mem=200"}
	logs, met := bed.place(t), filepath.Join(bed.place(t), "met")
	bed.makeDir(t, filepath.Dir(met))
	waits := "while ! ls " + filepath.Dir(met) + " | grep -q met; do sleep 0.1; done; echo met"
	first := bed.submit(t, "#!/bin/sh\n"+srunLine(logs, "--gpu-check=off", waits), flags...)
	second := bed.submit(t, "#!/bin/sh\n"+
		srunLine(logs, "--gpu-check=off", "srun --overlap -N2 hostname; touch "+met), flags...)
	second.want(logs, 0, "n0\nn1\n")
	first.want(logs, 0, "met\n")
}

// TestSiteThatLimitsMemory checks that a driver that Slurm's cgroup has ended for its memory is
// explained by the limit, and that no node is blamed.
func TestSiteThatLimitsMemory(t *testing.T) {
	bed := claim(t, fewNodes)
	logs := bed.place(t)
	b := bed.submit(t, "#!/bin/sh\n"+srunLine(logs, "--gpu-check=off",
		`all=$(head -c 400000000 /dev/zero | tr "\\0" x); echo ${#all}`),
		"--nodes=2", "--ntasks-per-node=1", "--mem=200")
	b.want(logs, 137, "")
	result := resultOf(t, b, logs)
	if len(result.BadNodes) > 0 || !strings.Contains(result.Reason, "limit 200 MiB") {
		t.Errorf("the result blames %v: %s", result.BadNodes, result.Reason)
	}
}

// TestSiteWithANestedRun starts a run inside another one as the error of a start without a step of its
// own advises, in a job whose memory is given for each CPU and all of which is that of the outer step.
func TestSiteWithANestedRun(t *testing.T) {
	bed := claim(t, fewNodes)
	logs := bed.place(t)
	inner := program + " --log-dir=" + bed.place(t) + " --gpu-check=off -- hostname"
	b := bed.submit(t, "#!/bin/sh\n"+srunLine(logs, "--gpu-check=off",
		`step=$(`+inner+` 2>&1 | sed -n "s/.*a step of its own: \(srun .*\) bringupd .*, or .*/\1/p"); `+
			`echo "$step"; $step `+inner),
		"--nodes=2", "--nodelist=n[0-1]", "--ntasks-per-node=1", "--mem-per-cpu=200")
	b.want(logs, 0, "n0\nsrun --overlap --mem=0 --ntasks-per-node=1\n")
}

// TestSiteThatHidesDevices runs ranks of two jobs that have one of the two GPUs of each node. Each
// rank uses the first GPU that it sees, and cannot open the device of the other job.
func TestSiteThatHidesDevices(t *testing.T) {
	bed := claim(t, fewNodes)
	flags := []string{"--nodes=2", "--nodelist=n[0-1]", "--ntasks-per-node=1", "--gpus-per-node=1",
		"--mem=200"}
	logs, stop := bed.place(t), filepath.Join(bed.place(t), "stop")
	bed.makeDir(t, filepath.Dir(stop))
	look := `echo "$BRINGUPD_RANK: GPU $CUDA_VISIBLE_DEVICES" $(for i in 0 1; do ` +
		`head -c 1 ` + filepath.Join(filepath.Dir(bed.Bin()), "etc/gpu") + `$i 2>&1 | sed "s/.*: //"; done)`
	first := bed.submit(t, "#!/bin/sh\n"+srunLine(logs, "--ranks-per-node=gpu --oversubscribe", look+
		"; while ! ls "+filepath.Dir(stop)+" | grep -q stop; do sleep 0.1; done"), flags...)
	eventually(t, func() string {
		return missing(filepath.Join(logs, first.id+".0", signal.ControlDir, signal.NameGateOpen))
	})
	second := bed.submit(t, "#!/bin/sh\n"+
		srunLine(logs, "--ranks-per-node=gpu --oversubscribe", look), flags...)
	const absent, refused = "No such device or address", "Operation not permitted"
	second.want(logs, 0, "0: GPU 0 "+refused+" "+absent+"\n"+"1: GPU 0 "+refused+" "+absent+"\n")
	must(t, os.WriteFile(stop, nil, 0o644))
	first.want(logs, 0, "0: GPU 0 "+absent+" "+refused+"\n"+"1: GPU 0 "+absent+" "+refused+"\n")
}

// TestSiteWithThreeComponents runs roles in the three components of a heterogeneous job, of which
// only one has GPUs.
func TestSiteWithThreeComponents(t *testing.T) {
	bed := claim(t, fewNodes)
	bed.prependPath(beds.bin())
	dir := bed.copyRoleExamples(t)
	copyFile(t, "testdata/three_components.yaml", filepath.Join(dir, "examples", "roles"))
	b, logs := bed.submitComponents(t, dir, "three_components.yaml", "--nodes=1,1,2",
		"--gpus-per-node=0,1,0")
	b.want(logs, 0, "train.0.0: rank 0 of 2, server on 1, store on 0\n"+
		"train.0.1: rank 1 of 2, server on 1, store on 0\n")
}

// TestSiteThatPreempts checks that a job that Slurm preempts has its grace period and is started
// again by Slurm, as another attempt.
func TestSiteThatPreempts(t *testing.T) {
	bed := claim(t, fewNodes)
	logs := bed.place(t)
	flags := []string{"--nodes=2", "--nodelist=n[0-1]", "--ntasks-per-node=1", "--exclusive"}
	spot := bed.submit(t, "#!/bin/sh\n"+srunLine(logs, "--gpu-check=off",
		`[ "$SLURM_RESTART_COUNT" ] && echo again && exit; `+
			`trap "echo saved; exit" TERM; echo first; sleep 1000 & wait`),
		append(flags, "--partition=spot", "--requeue", "--open-mode=append")...)
	first := filepath.Join(logs, spot.id+".0")
	eventually(t, func() string {
		return missing(filepath.Join(first, signal.ControlDir, signal.NameGateOpen))
	})
	urgentLogs := bed.place(t)
	urgent := bed.submit(t, "#!/bin/sh\n"+srunLine(urgentLogs, "--gpu-check=off", "echo urgent"),
		append(flags, "--partition=urgent")...)
	urgent.want(urgentLogs, 0, "urgent\n")
	if result := resultOfRun(t, logs, spot.id+".0"); result.Code != 143 || len(result.BadNodes) > 0 {
		t.Errorf("the preempted attempt ended with %d and blames %v: %s", result.Code, result.BadNodes,
			result.Reason)
	}
	spot.wait("first\nsaved\nagain\n")
	if result := resultOfRun(t, logs, spot.id+".0-r1"); result.Code != 0 {
		t.Errorf("the second attempt ended with %d: %s", result.Code, result.Reason)
	}
}

// TestSiteWithAPrivateTmp checks that all processes of a job see its own /tmp, also those of exec,
// and that nothing is left of it.
func TestSiteWithAPrivateTmp(t *testing.T) {
	bed := claim(t, fewNodes)
	logs := bed.place(t)
	b := bed.submit(t, "#!/bin/sh\n"+srunLine(logs, "--gpu-check=off", "touch /tmp/mine; "+program+
		" exec --all -- sh -c \"ls -d /tmp/mine /tmp/site-scratch 2>&1; true\""),
		"--nodes=2", "--nodelist=n[0-1]", "--ntasks-per-node=1", "--mem=200")
	b.want(logs, 0, "n0: /tmp/mine\nn0: /tmp/site-scratch\nn1: /tmp/site-scratch\n"+
		"n1: ls: cannot access '/tmp/mine': No such file or directory\n")
	for node := range 2 {
		out, err := bed.OnNode(t.Context(), node, "ls", "-A", "/tmp").CombinedOutput()
		if err != nil || len(out) > 0 {
			t.Errorf("/tmp of node %d has %q: %v", node, out, err)
		}
	}
}

// TestSiteWithAProlog checks that the shipped prolog drains a node with a lost GPU, with the finding as
// the reason, and that Slurm runs the job on other nodes.
func TestSiteWithAProlog(t *testing.T) {
	bed := claim(t, fewNodes)
	built, err := library()
	must(t, err)
	dir, err := os.MkdirTemp(filepath.Dir(built.Library), "answers-*")
	must(t, err)
	must(t, os.Chmod(dir, 0o755))
	fake := built.In(dir)
	must(t, fake.Answer("n0", "gpu 3 handle 15"))
	check := copyFile(t, "../../deploy/slurm/prolog.sh", dir)
	// The check runs without the variables of the prolog.
	wrapper := filepath.Join(dir, "bringupd")
	must(t, os.WriteFile(wrapper, []byte("#!/bin/sh\nexport '"+fake.Env()+"' LD_LIBRARY_PATH="+
		filepath.Dir(built.Library)+"\nexec "+program+" \"$@\"\n"), 0o755))
	must(t, bed.SetProlog("#!/bin/sh\nBRINGUPD="+wrapper+" exec bash "+check+"\n"))
	t.Cleanup(func() {
		must(t, bed.SetProlog("#!/bin/sh\n"))
		resume := bed.OnNode(context.Background(), 0, "scontrol", "update", "nodename=n0", "state=resume")
		if out, err := resume.CombinedOutput(); err != nil {
			t.Errorf("cannot resume the node: %v: %s", err, out)
		}
	})
	b := bed.submit(t, "#!/bin/sh\nsrun hostname | sort\n", "--nodes=2", "--ntasks-per-node=1", "--requeue",
		"--mem=200")
	b.wait("n1\nn2\n")
	shown, err := bed.Command(t.Context(), "scontrol", "show", "node", "n0").CombinedOutput()
	must(t, err)
	_, reason, _ := strings.Cut(string(shown), "Reason=bringupd: gpu.count")
	if !strings.Contains(string(shown), "+DRAIN") || !strings.Contains(reason, "GPU 3") {
		t.Errorf("the node is\n%s", shown)
	}
}
