package pmi

import (
	"fmt"
	"strings"
	"testing"
)

// TestPutsAreBounded verifies that a rank that puts more and more keys is refused, and that it can
// still replace existing ones.
func TestPutsAreBounded(t *testing.T) {
	space := newHall().open(job(0), func(aborted) {})[0]
	var says strings.Builder
	value := strings.Repeat("v", maxPMI1Value)
	const enough = maxPutSize/maxPMI1Value + 1
	for i := range enough {
		fmt.Fprintf(&says, "cmd=put kvsname=job key=k%d value=%s\n", i, value)
	}
	fmt.Fprintf(&says, "cmd=put kvsname=job key=k0 value=short\ncmd=get kvsname=job key=k0\ncmd=finalize\n")
	conn := &script{Reader: strings.NewReader(says.String())}
	if parting := space.ServeRank(t.Context(), 0, conn); !parting.Finalized {
		t.Errorf("the rank parts as %+v", parting)
	}
	heard := conn.heard.String()
	const refused = "cmd=put_result rc=-1 msg=the_ranks_of_a_node_can_put_at_most_64_MiB\n"
	if n := strings.Count(heard, refused); n == 0 || n > enough/4 {
		t.Errorf("%d of %d puts were refused", n, enough)
	}
	if !strings.HasSuffix(heard, refused+"cmd=put_result rc=0 msg=success\ncmd=get_result rc=0 "+
		"msg=success value=short\ncmd=finalize_ack rc=0\n") {
		t.Errorf("at last it hears %q", heard[max(0, len(heard)-300):])
	}
}

// TestSpawnsAreBounded verifies that a spawn that is too large is refused, and that the rank is
// still served.
func TestSpawnsAreBounded(t *testing.T) {
	line := "arg1=" + strings.Repeat("a", 100_000) + "\n"
	block := "mcmd=spawn\nnprocs=1\nexecname=a\ntotspawns=%d\n%sendcmd\n"
	refused := strings.ReplaceAll(fmt.Sprintf("cmd=spawn_result rc=-1 msg=a spawn request may "+
		"have at most %d bytes and %d commands\n", MaxSpawnSize, MaxCommands), " ", "_")
	refused = strings.Replace(strings.Replace(refused, "_rc", " rc", 1), "_msg", " msg", 1)
	for name, says := range map[string]string{
		"bytes":        fmt.Sprintf(block, 1, strings.Repeat(line, MaxSpawnSize/100_000+1)),
		"short lines":  fmt.Sprintf(block, 1, strings.Repeat("a=\n", MaxSpawnSize/pairOverhead+1)),
		"commands":     strings.Repeat(fmt.Sprintf(block, MaxCommands+1, ""), MaxCommands+1),
		"empty blocks": strings.Repeat("mcmd=spawn\ntotspawns=5000\nendcmd\n", 5000),
		"bytes of some": fmt.Sprintf(block, 2, strings.Repeat(line, MaxSpawnSize/100_000+1)) +
			fmt.Sprintf(block, 2, ""),
	} {
		t.Run(name, func(t *testing.T) {
			h := newHall()
			h.spawn = func(*hall, SpawnRequest) (string, error) { t.Error("it was spawned"); return "", nil }
			hears, _, _ := talk(t, h, job(0, 0, 1), says+"cmd=get_appnum\n")
			if hears != refused+"cmd=appnum rc=0 appnum=0\n" {
				t.Errorf("it hears %q", hears)
			}
		})
	}
}
