package worlds

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"regexp"
	"slices"
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
	const child = `trap 'echo heard >$0/heard.$BRINGUPD_RANK; exit 0' TERM; echo $$ >$0/begun.$BRINGUPD_RANK; while :; do sleep 0.02; done`
	j := begin(t, 2, 2, "sh", "-c", `grep -E '^Sig(Blk|Ign)' /proc/self/status >$`+ringVariable+`/signals.$BRINGUPD_RANK
		sh -c "$0" $`+ringVariable+`; true`, child)
	for rank := range 4 {
		path := fileOf(j.Dir, "begun", rank)
		j.Need(path, func() bool {
			text,
				_ := os.ReadFile(path)
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

// slurmStep starts a Slurm step with a world of two nodes with two ranks each. Each rank prints a
// line, and the last one exits with the given code.
func slurmStep(t *testing.T, logs, id string, code int, more ...string) [2]*job {
	t.Helper()
	var daemons [2]*job
	for node := range daemons {
		env := append([]string{
			"SLURM_JOB_ID=17", "SLURM_STEP_ID=" + id, "SLURM_NTASKS=2", "SLURM_NNODES=2",
			"SLURM_STEP_NODELIST=n[1-2]", "SLURM_LOCALID=0",
			"SLURM_STEP_TASKS_PER_NODE=1(x2)", "SLURM_LAUNCH_NODE_IPADDR=127.0.0.1",
			"SLURM_PROCID=" + strconv.Itoa(node), "SLURM_NODEID=" + strconv.Itoa(node),
			"SLURMD_NODENAME=n" + strconv.Itoa(node+1),
		}, more...)
		daemons[node] = run(t, logs, env, "--ranks-per-node=2", "--oversubscribe",
			"--log-dir="+logs, "--", "sh", "-c",
			`echo "rank $BRINGUPD_RANK of $BRINGUPD_RANKS in $(basename "$BRINGUPD_RUN_DIR") at $MASTER_PORT"; sleep 0.2; [ $BRINGUPD_RANK != 3 ] || exit `+strconv.Itoa(code))
	}
	return daemons
}

// ran checks that a step has ended with that code in its own directory, and returns the port for
// the rendezvous of its ranks.
func ran(t *testing.T, daemons [2]*job, name string, code int) (port string) {
	t.Helper()
	var said string
	for _, j := range daemons {
		if got := j.await(); got.code != code {
			t.Errorf("a daemon of %s ended with %d, want %d:\n%s", name, got.code, code, &j.Said)
		}
		said += j.Said.String()
	}
	lines := regexp.MustCompile(
		`(?m)^rank ([0-3]) of 4 in (\S+) at (\d+)$`).FindAllStringSubmatch(said, -1)
	ranks := make(map[string]bool)
	for _, line := range lines {
		ranks[line[1]] = true
		if port = line[3]; line[2] != name || port != lines[0][3] {
			t.Errorf("a rank of %s has told %q", name, line[0])
		}
	}
	if len(ranks) != 4 || len(lines) != 4 {
		t.Errorf("the ranks of %s have told %q:\n%s", name, lines, said)
	}
	return port
}

// TestTwoStepsInOneJob checks that two steps of one job can run worlds at the same time in one log
// directory without affecting each other.
func TestTwoStepsInOneJob(t *testing.T) {
	t.Parallel()
	logs := t.TempDir()
	first, second := slurmStep(t, logs, "0", 0), slurmStep(t, logs, "1", 0)
	if a, b := ran(t, first, "17.0", 0), ran(t, second, "17.1", 0); a == b {
		t.Errorf("both meet at port %s", a)
	}
}

// TestStateOfBeforeARequeue checks that the world of a requeued job does not see the state of the
// failed attempt, and does not change it.
func TestStateOfBeforeARequeue(t *testing.T) {
	t.Parallel()
	logs := t.TempDir()
	ran(t, slurmStep(t, logs, "0", 5), "17.0", 5)
	before := tree(t, filepath.Join(logs, "17.0"))
	ran(t, slurmStep(t, logs, "0", 0, "SLURM_RESTART_COUNT=1"), "17.0-r1", 0)
	if after := tree(t, filepath.Join(logs, "17.0")); !slices.Equal(before, after) {
		t.Errorf("the first run's directory was %q, and is %q", before, after)
	}
}

// tree lists the content of a directory with names, sizes and times.
func tree(t *testing.T, dir string) (all []string) {
	t.Helper()
	err := filepath.Walk(dir, func(path string, info os.FileInfo, err error) error {
		if err == nil {
			all = append(all, fmt.Sprint(path, " ", info.Size(), " ", info.ModTime()))
		}
		return err
	})
	if err != nil || len(all) < 5 {
		t.Fatalf("%s has %q: %v", dir, all, err)
	}
	return all
}

// TestDraw checks that seeds result in the same schedules as before, and cover every kind.
func TestDraw(t *testing.T) {
	kinds := []kind{killRank, crashRank, exitRank, abortRank, outOfMemory, killDaemon, killNode}
	drawn := make(map[kind]int)
	for range 100 {
		seed := rand.Uint64()
		s := draw(seed, kinds)
		if s != draw(seed, kinds) || s.rank < 0 || s.rank >= size {
			t.Errorf("seed %d draws %v", seed, s)
		}
		drawn[s.kind]++
	}
	if len(drawn) != len(kinds) {
		t.Errorf("drawn were %v", drawn)
	}
}
