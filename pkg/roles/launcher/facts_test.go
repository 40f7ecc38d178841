package launcher

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// TestFactsDocumented verifies that docs/launchers.md has the table of the facts.
func TestFactsDocumented(t *testing.T) {
	doc, err := os.ReadFile("../../../docs/launchers.md")
	if err != nil {
		t.Fatal(err)
	}
	table := "| launcher | KILL after TERM | at the time limit | starts again by itself | variables that reach the daemons | a host is lost | several daemons on a host |\n|---|---|---|---|---|---|---|\n"
	documented := 0
	for _, l := range []Launcher{LauncherSlurm, LauncherPBS, LauncherPALS, LauncherFlux, LauncherLSF, LauncherJSM, LauncherGridEngine,
		LauncherOpenMPI, LauncherMPICH, LauncherKubernetes, LauncherHosts, LauncherLocal} {
		table += factsRow(l)
		documented++
	}
	if documented != len(launcherFacts) {
		t.Errorf("%d launchers of %d are in the table", documented, len(launcherFacts))
	}
	if !strings.Contains(string(doc), table) {
		t.Errorf("docs/launchers.md should have:\n%s", table)
	}
}

// factsRow returns the row of a launcher.
func factsRow(l Launcher) string {
	f, kill, limit := l.Facts(), "–", "–"
	if f.KillDelay > 0 {
		kill = fmt.Sprintf("%d s, %s", f.KillDelay/time.Second, f.KillSetting)
	}
	if f.TimeLimitSignal != 0 {
		limit = strings.TrimPrefix(unix.SignalName(f.TimeLimitSignal), "SIG")
	}
	name := string(l)
	switch l.CommandHints("").Title {
	case "":
		name = "`bringupd " + name + "`"
	case LauncherLSF.CommandHints("").Title, LauncherPBS.CommandHints("").Title:
		name = map[Launcher]string{LauncherLSF: "LSF", LauncherJSM: "jsrun", LauncherPBS: "PBS", LauncherPALS: "PALS"}[l]
	default:
		name = l.CommandHints("").Title
	}
	return "| " + strings.Join([]string{name, kill, limit, f.Restart, f.Variables, f.LostHost, f.SeveralPerHost}, " | ") + " |\n"
}
