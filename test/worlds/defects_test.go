package worlds

import (
	"fmt"
	"os"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/bringupd/bringupd/pkg/signal"
	"github.com/bringupd/bringupd/pkg/signal/record"
)

// The following tests check known defects of other launchers of ranks, each with a world of shells.

// TestTermReachesChildren checks that TERM to the job reaches the child processes of its ranks. If
// a launcher blocks signals before it forks, the children never receive them.
func TestTermReachesChildren(t *testing.T) {
	t.Parallel()
	const child = `trap 'echo heard >$0/heard.$BRINGUPD_RANK; exit 0' TERM; echo $$ >$0/begun.$BRINGUPD_RANK
		while :; do sleep 0.02; done`
	j := begin(t, 2, 2, "sh", "-c", `grep -E '^Sig(Blk|Ign)' /proc/self/status >$`+ringVariable+`/signals.$BRINGUPD_RANK
		sh -c "$0" $`+ringVariable+`; true`, child)
	for rank := range 4 {
		path := fileOf(j.Dir, "begun", rank)
		j.Need(path, func() bool {
			text, _ := os.ReadFile(path)
			return strings.HasSuffix(string(text), "\n")
		})
	}
	j.signal(syscall.SIGTERM, j.Cmd.Process.Pid)
	if got := j.await(); got.code != 143 || len(got.left) > 0 {
		t.Errorf("the job ended with %d, and left %v:\n%s", got.code, got.left, &j.Said)
	}
	for rank := range 4 {
		if _, err := os.Stat(fileOf(j.Dir, "heard", rank)); err != nil {
			t.Errorf("what rank %d has started has not heard of it: %v", rank, err)
		}
		deaf(t, fileOf(j.Dir, "signals", rank))
	}
}

// deaf checks that a process starts with no blocked signals, and ignores none of the signals that a
// launcher forwards.
func deaf(t *testing.T, status string) {
	t.Helper()
	text, err := os.ReadFile(status)
	if err != nil {
		t.Fatal(err)
	}
	sets := make(map[string]uint64)
	for line := range strings.Lines(string(text)) {
		name, set, _ := strings.Cut(line, ":")
		sets[name], err = strconv.ParseUint(strings.TrimSpace(set), 16, 64)
		if err != nil {
			t.Fatal(err)
		}
	}
	if len(sets) != 2 || sets["SigBlk"] != 0 {
		t.Errorf("%s: blocked are %x", status, sets)
	}
	for _, sig := range []syscall.Signal{syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP,
		syscall.SIGUSR1, syscall.SIGUSR2} {
		if sets["SigIgn"]&(1<<(sig-1)) != 0 {
			t.Errorf("%s: %v is ignored", status, sig)
		}
	}
}

// TestFirstCodeNotLast checks three ranks that exit with different codes, one after the other, in
// each order: the job's exit code must be the first.
func TestFirstCodeNotLast(t *testing.T) {
	t.Parallel()
	for _, order := range [][]int{{0, 1, 2}, {0, 2, 1}, {1, 0, 2}, {1, 2, 0},
		{2, 0, 1}, {2, 1, 0}} {
		t.Run(fmt.Sprint(order), func(t *testing.T) {
			t.Parallel()
			// The ranks ignore TERM.
			j := begin(t, 3, 1, "sh", "-c", `trap : TERM; echo >$`+ringVariable+`/begun.$BRINGUPD_RANK
				until [ -e $`+ringVariable+`/now.$BRINGUPD_RANK ]; do sleep 0.01; done; exit $((BRINGUPD_RANK + 3))`)
			for rank := range 3 {
				path := fileOf(j.Dir, "begun", rank)
				j.NeedFile(path)
			}
			for _, rank := range order {
				if err := os.WriteFile(fileOf(j.Dir, "now", rank), nil, 0o600); err != nil {
					t.Fatal(err)
				}
				path := j.Path(signal.NodesDir,
					signal.NodeName(rank, 3, record.StateFailed))
				if rank == order[0] {
					j.NeedFile(path)
				}
			}
			s := schedule{kind: exitRank, rank: order[0] * perNode, code: order[0] + 3}
			got := j.await()
			if got.result != nil && got.result.Cause != nil && got.result.Cause.WorldRank != nil {
				got.result.Cause.WorldRank.Number *= perNode // judge expects more ranks per node
			}
			if wrong := judge(s, got); len(wrong) > 0 {
				t.Errorf("%s\n%s", strings.Join(wrong, "\n"), &j.Said)
			}
		})
	}
}

// TestLongLines checks that lines which are longer than any buffer, and written in pieces, are
// complete in the log and on standard output.
func TestLongLines(t *testing.T) {
	t.Parallel()
	const length, lines = 10_000, 5
	j := begin(t, 2, 2, "sh", "-c", `half=$(head -c `+strconv.Itoa(length/2)+` /dev/zero | tr '\0' "$BRINGUPD_RANK")
		for line in 1 2 3 4 5; do printf %s "$half"; sleep 0.0$BRINGUPD_RANK; printf '%s\n' "$half"; done`)
	got := j.await()
	whole := make(map[string]int)
	for _, line := range regexp.MustCompile(`(?m)^[0-3]{1000,}$`).FindAllString(j.Said.String(),
		-1) {
		whole[line]++
	}
	for rank := range 4 {
		line := strings.Repeat(strconv.Itoa(rank), length)
		if whole[line] != lines {
			t.Errorf("%d of the %d lines of rank %d are whole", whole[line], lines, rank)
		}
		log, err := os.ReadFile(
			j.Path(signal.LogsDir, signal.LogName("rank", rank, 0)))
		if want := strings.Repeat(line+"\n", lines); err != nil || string(log) != want {
			t.Errorf("the log of rank %d has %d bytes, want %d: %v", rank, len(log), len(want), err)
		}
	}
	if got.code != 0 || len(whole) != 4 {
		t.Errorf("code %d, and %d sorts of lines", got.code, len(whole))
	}
}
