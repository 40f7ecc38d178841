package check

import (
	"os/exec"
	"strings"
	"testing"

	"github.com/bringupd/bringupd/pkg/roles/launcher"
)

var drain = launcher.LauncherSlurm.CommandHints("").DrainNode

func TestDrainLine(t *testing.T) {
	of := func(host string, findings ...Finding) Report { return Report{Host: host, Findings: findings} }
	bad := Finding{ID: "gpu.remap", Device: gpu(2), Verdict: Fail, Class: ClassNode,
		Observed: "a row could not be remapped"}
	const before = `scontrol update nodename=n7 state=drain reason="`
	for _, tc := range []struct {
		name   string
		report Report
		want   string
	}{
		{"one", of("n7", bad), before + `bringupd gpu.remap GPU 2 (0000:3b:00.0): a row could not be remapped"`},
		{"the first of three", of("n7", Finding{Verdict: Pass}, bad, bad, bad),
			before + `bringupd gpu.remap GPU 2 (0000:3b:00.0): a row could not be remapped (and 2 more)"`},
		{"nothing failed", of("n7", Finding{ID: "a", Verdict: Warn, Class: ClassNode},
			Finding{ID: "a", Verdict: Unknown, Class: ClassNode}), ""},
		{"the job is to blame", of("n7", Finding{ID: "node.limits", Verdict: Fail, Class: ClassUser}), ""},
		{"a host that a shell reads", of("n7;reboot", bad), ""},
		{"a host that is a flag", of("-n7", bad), ""},
		{"no host", of("", bad), ""},
		{"what a shell reads", of("n7", Finding{ID: "a", Verdict: Fail, Class: ClassNode,
			Observed: "\"; reboot; $(reboot) `reboot` \\ !! 'x'\nreboot"}),
			before + `bringupd a: '; reboot; (reboot) 'reboot' / .. 'x' reboot"`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if got := DrainCommand(tc.report, drain); got != tc.want {
				t.Errorf("got  %s\nwant %s", got, tc.want)
			}
		})
	}
	long := DrainCommand(of("n7", Finding{ID: "a", Verdict: Fail, Class: ClassNode,
		Observed: strings.Repeat("x", 1000)}, bad), drain)
	if reason := strings.SplitN(long, `"`, 3)[1]; len([]rune(reason)) > maxDrainReason ||
		!strings.HasSuffix(reason, "… (and 1 more)") {
		t.Errorf("%d characters: %s", len(reason), reason)
	}
}

// TestDrainLineInShell verifies that a shell parses the line as one command of four words, whatever
// was observed.
func TestDrainLineInShell(t *testing.T) {
	var all strings.Builder
	for r := rune(1); r < 128; r++ {
		all.WriteRune(r)
	}
	line := DrainCommand(Report{Host: "n7", Findings: []Finding{{ID: "a", Verdict: Fail,
		Class: ClassNode, Observed: all.String()}}}, drain)
	out, err := exec.Command("sh", "-c", "scontrol() { echo $# \"$4\"; }; "+line).CombinedOutput()
	if err != nil || !strings.HasPrefix(string(out), "4 reason=bringupd a: ") || strings.Count(string(out), "\n") != 1 {
		t.Errorf("%s became %s, %v", line, out, err)
	}
}
