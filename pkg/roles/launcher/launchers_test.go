package launcher

import (
	"strings"
	"testing"
)

// TestWords verifies that each launcher has all phrases that messages are composed of.
func TestWords(t *testing.T) {
	for _, l := range allLaunchers {
		w := l.name.CommandHints("17-4")
		switch {
		case w.NoRequeueReason == "" || !strings.Contains(w.StartOn(3), "3"):
			t.Errorf("%s lacks words: %+v", l.name, w)
		case w.MemoryUsed != "" && w.MoreMemory == "", w.WhyEnded != "" &&
			w.MoreTime == "", w.ShowNode != "" && w.Title == "":
			t.Errorf("%s has a part of what a sentence needs: %+v", l.name, w)
		}
	}
	for _, tc := range []struct{ got, want string }{
		{LauncherPBS.CommandHints("17-4").MemoryUsed, "qstat -xf 17[4]"},
		{ForNodes(LauncherPBS.CommandHints("17").ShowNode, "n[1-2]"), "pbsnodes n1 n2"},
		{ForHost(LauncherPBS.CommandHints("17").DrainNode, "n1", "Xid 79"), `pbsnodes -C "Xid 79" -o n1`},
		{LauncherPALS.CommandHints("17").StartOn(4), "mpiexec -n 4 --ppn 1"},
		{LauncherLSF.CommandHints("17-4").MemoryUsed, `bjobs -l "17[4]"`},
		{ForNodes(LauncherLSF.CommandHints("17").ExcludeNodes, "n[1-2]"),
			`bsub -R "select[hname!='n1' && hname!='n2']" …`},
		{Identity{Launcher: LauncherKubernetes, Job: "train-cb0c52b1", Host: "train-1",
			NodeIndex: 1}.LauncherJob(), "train"},
		{Identity{Launcher: LauncherKubernetes, Job: "train-cb0c52b1", Host: "n1"}.LauncherJob(), "train-cb0c52b1"},
		{LauncherFlux.CommandHints("fA-fB").WhyEnded,
			"the time limit, an exception or flux cancel: flux job eventlog fA"},
		{ForNodes(LauncherFlux.CommandHints("f1").ExcludeNodes, "n[1-2]"), "flux run --requires=-host:n[1-2] …"},
		{ForHost(LauncherFlux.CommandHints("f1").DrainNode, "n1", "bad"), `flux resource drain n1 "bad"`},
		{ForNodes(LauncherFlux.CommandHints("f1").ShowNode, "n1"), "flux resource status --include=n1"},
		{ForHost(LauncherLSF.CommandHints("1").DrainNode, "n1", "bad"), `badmin hclose -C "bad" n1`},
		{LauncherLSF.StarterProgram() + ", " + LauncherKubernetes.StarterProgram() + ", " +
			Launcher("").StarterProgram(), "blaunch, the pods start, srun"},
	} {
		if tc.got != tc.want {
			t.Errorf("got %q, want %q", tc.got, tc.want)
		}
	}
}

// TestMoreCPUs verifies that the command that gives a daemon more CPUs is that of its launcher, and, for
// a task of Slurm that is bound to fewer CPUs than its step has, how not to be.
func TestMoreCPUs(t *testing.T) {
	for name, tc := range map[string]struct {
		launcher Launcher
		environ  []string
		want     string
	}{
		"Slurm":        {LauncherSlurm, []string{"SLURM_CPUS_ON_NODE=1"}, "srun --cpus-per-task=2"},
		"PBS":          {LauncherPBS, nil, "qsub -l select=…:ncpus=2"},
		"Flux":         {LauncherFlux, nil, "flux run --cores-per-task=2"},
		"this machine": {LauncherLocal, nil, ""},
		"bound by default": {LauncherSlurm, []string{"SLURM_CPUS_ON_NODE=8"},
			"srun --cpus-per-task=2, or --cpu-bind=none"},
		"bound": {LauncherSlurm, []string{"SLURM_CPUS_ON_NODE=8", "SLURM_CPUS_PER_TASK=8"},
			"srun --cpu-bind=none"},
	} {
		id := Identity{Launcher: tc.launcher}
		id.CPUs = 1
		if got := id.MoreCPUs(tc.environ, 2); got != tc.want {
			t.Errorf("%s: %q, want %q", name, got, tc.want)
		}
	}
}
