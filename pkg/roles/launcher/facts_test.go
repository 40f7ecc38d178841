package launcher

import (
	"cmp"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"
)

// TestFactsDocumented verifies that docs/launchers.md has the facts in its table.
func TestFactsDocumented(t *testing.T) {
	doc, err := os.ReadFile("../../../docs/launchers.md")
	if err != nil {
		t.Fatal(err)
	}
	text := strings.ReplaceAll(string(doc), "`", "")
	for _, l := range allLaunchers {
		if row := factsRow(l); l.name != LauncherRanks && !strings.Contains(text, row) {
			t.Errorf("docs/launchers.md should have a row that begins with %s", row)
		}
	}
}

// factsRow returns the first columns of the row of a launcher.
func factsRow(l *launcherSpec) string {
	names := map[Launcher]string{
		LauncherLocal: "bringupd local", LauncherHosts: "bringupd hosts", LauncherPALS: "PALS",
	}
	kill := "–"
	if l.facts.KillDelay > 0 {
		kill = fmt.Sprintf("%d s, %s", l.facts.KillDelay/time.Second, l.facts.KillSetting)
	}
	name := cmp.Or(names[l.name], l.hints.Title)
	return "\n| " + strings.Join([]string{name, kill}, " | ") + " |"
}
