package daemon

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/bringupd/bringupd/pkg/config"
	"github.com/bringupd/bringupd/pkg/console"
	"github.com/bringupd/bringupd/pkg/daemon/deps"
	"github.com/bringupd/bringupd/pkg/framework"
	"github.com/bringupd/bringupd/pkg/health"
	"github.com/bringupd/bringupd/pkg/membership"
)

// newWorld returns a job of size nodes that run a line of shell in perNode ranks each.
func newWorld(t *testing.T, size, perNode int, line string) *job {
	t.Helper()
	return newJob(t, size, line).ranks(perNode)
}

// newRealWorld is the same with processes, on the machine's disk.
func newRealWorld(t *testing.T, size, perNode int, line string) *job {
	t.Helper()
	return newRealJob(t, size, line).ranks(perNode)
}

// ranks sets the number of ranks per node.
func (j *job) ranks(perNode int) *job {
	return j.all(func(c *deps.Config) {
		c.World.PerNode, c.World.Oversubscribe = strconv.Itoa(perNode), true
		c.World.Output = console.AllRanks
	})
}

// onRank returns a line of shell that runs one command in a single rank and then another in all
// ranks.
func onRank(rank int, what, then string) string {
	return fmt.Sprintf(`[ "$BRINGUPD_RANK" = %d ] && { %s; }; %s`, rank, what, then)
}

// TestHeadsRanksEndLast verifies that the job ends at once if the head's ranks end long after those of
// the other nodes.
func TestHeadsRanksEndLast(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		const long = 37 * time.Second
		began := time.Now()
		newWorld(t, 2, 2, fmt.Sprintf(`[ "$BRINGUPD_RANK" -lt 2 ] && sleep %d`,
			int(long.Seconds()))+"; exit 0").start().expect(everyone(0, 2)...)
		if took := time.Since(began) - long; took > 150*time.Millisecond {
			t.Errorf("the job ended %s after its last rank", took)
		}
	})
}

// TestTheCauseAmongRanks lets a rank report a lost connection to another that died before it, on
// the same node or on another one.
func TestTheCauseAmongRanks(t *testing.T) {
	t.Parallel()
	const loses = "until [ -e %s ]; do sleep 0.01; done; echo 'ConnectionResetError: [Errno " +
		"104] Connection reset by peer' >&2; exit 1"
	for _, tc := range []struct {
		name, dies string
		rank, code int
	}{
		{"on the same node, by a signal", "touch %s; sleep 0.05; kill -SEGV $$", 3, 139},
		{"on the same node, by itself", "touch %s; sleep 0.05; exit 7", 3, 7},
		{"on another node", "touch %s; sleep 0.3; exit 7", 5, 7},
		{"on the head's node", "touch %s; sleep 0.5; exit 7", 0, 7},
		{"nowhere", "touch %s; exec sleep 300", 3, 1}, // the rank beside it is the cause
	} {
		rowInBubble(t, tc.name, func(t *testing.T) {
			dying := filepath.Join(t.TempDir(), "dying")
			j := newWorld(t, 3, 2, onRank(2, fmt.Sprintf(loses, dying),
				onRank(tc.rank, fmt.Sprintf(tc.dies, dying), "exec sleep 300")))
			j.start().expect(everyone(tc.code, 3)...)
			cause := j.blames(tc.rank/2, health.RankFailed, tc.code)
			if looks := cause.WorldRank.Symptom != ""; looks != (tc.code == 1) {
				t.Errorf("the cause is %+v, of %+v", cause, cause.WorldRank)
			}
		})
	}
}

func TestOtherRanksGoOn(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		marks := t.TempDir()
		then := onRank(2, "kill -KILL $$", "until [ -e "+marks+"/late ]; do sleep 0.02; done; echo $RANK")
		j := newWorld(t, 2, 2, onRank(1, "exit 9", onRank(3, "sleep 0.5; touch "+marks+"/late; exit 0", then)))
		j.all(func(c *deps.Config) { c.World.GoOn = true })
		j.start().expect(9, 0)
		if got := j.contents(j.out); got != "0\n" {
			t.Errorf("standard output is %q", got)
		}
		if result := j.result(); result.Code != 9 || result.Outcome != health.DriverOutcomeName || result.Cause != nil {
			t.Errorf("the result is %+v", result)
		}
	})
}

func TestRanksAreToldToEnd(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name string
		end  func(j *job)
		code []int
	}{
		{"TERM to the head", func(j *job) { j.signals[0] <- syscall.SIGTERM }, everyone(143, 2)},
		{"TERM to another node", func(j *job) { j.signals[1] <- syscall.SIGTERM }, everyone(143, 2)},
		{"INT to another node", func(j *job) { j.signals[1] <- syscall.SIGINT }, everyone(130, 2)},
		{"a stop", func(j *job) { j.stop() }, []int{5, 0}},
	} {
		rowInBubble(t, tc.name, func(t *testing.T) {
			marks := t.TempDir()
			j := newWorld(t, 2, 2,
				onTerm("sleep 0.7; touch "+marks+"/saved.$RANK; exit 5", "touch "+marks+"/running.$RANK")).start()
			for rank := range 4 {
				j.untilFile(fmt.Sprintf("%s/running.%d", marks, rank))
			}
			tc.end(j)
			j.expect(tc.code...)
			for rank := range 4 {
				if _, err := os.Stat(fmt.Sprintf("%s/saved.%d", marks, rank)); err != nil {
					t.Errorf("rank %d was not let to save its work: %v", rank, err)
				}
			}
		})
	}
}

// TestRanksSaveAfterAFailure verifies that the other ranks have their whole grace period, which is
// longer than Slurm's, when one rank fails.
func TestRanksSaveAfterAFailure(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		marks := t.TempDir()
		saves := onTerm("sleep 40; touch "+marks+"/saved.$RANK; exit 0", "touch "+marks+"/running.$RANK")
		j := newWorld(t, 2, 2, onRank(3, waitsFor(marks+"/now")+"; exit 4", saves)).all(func(c *deps.Config) {
			c.Times.DriverGrace = time.Minute
		}).start()
		for rank := range 3 {
			j.untilFile(fmt.Sprintf("%s/running.%d", marks, rank))
		}
		if err := os.WriteFile(marks+"/now", nil, 0o600); err != nil {
			t.Fatal(err)
		}
		j.expect(4, 4)
		j.blames(1, health.RankFailed, 4)
		for rank := range 3 {
			if _, err := os.Stat(fmt.Sprintf("%s/saved.%d", marks, rank)); err != nil {
				t.Errorf("rank %d was not let to save its work: %v", rank, err)
			}
		}
	})
}

// TestDriverSavesAfterAFailure verifies that the driver has its whole grace period when a service
// dies on another node, and that the other daemons wait for it.
func TestDriverSavesAfterAFailure(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		marks := t.TempDir()
		saves := onTerm("sleep 40; touch "+marks+"/saved; exit 0", "touch "+marks+"/running")
		j := newJob(t, 3, saves).all(func(c *deps.Config) {
			c.Times.DriverGrace = time.Minute
			c.Framework = framework.None{WorkerCommand: only("1", waitsFor(marks+"/running")+"; exit 5")}
		}).start()
		j.expect(77, 77, 77)
		if _, err := os.Stat(marks + "/saved"); err != nil {
			t.Errorf("the driver was not let to save its work: %v", err)
		}
	})
}

// TestWorldWithoutLifelines verifies that nodes observe the gate and each other's ends through the
// shared file system.
func TestWorldWithoutLifelines(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		j := newWorld(t, 3, 2, onRank(5, "exit 4", "exec sleep 300"))
		j.all(func(c *deps.Config) { c.Lifeline = config.LinkOff })
		j.start().expect(everyone(4, 3)...)
		j.blames(2, health.RankFailed, 4)
	})
}

func TestAProgramThatOneNodeLacks(t *testing.T) {
	t.Parallel()
	j := newRealWorld(t, 2, 1, "")
	program := filepath.Join(t.TempDir(), "app")
	if err := os.Symlink("/bin/true", program); err != nil {
		t.Fatal(err)
	}
	j.all(func(c *deps.Config) {
		c.Driver = []string{"app"}
		if c.Identity.NodeIndex == 0 {
			c.Environ = append(slices.Clone(c.Environ), "PATH="+filepath.Dir(program))
		} else {
			c.Environ = append(slices.Clone(c.Environ), "PATH=/nonexistent")
		}
	})
	j.start().expect(127, 127)
	j.blames(1, health.NotFound, 127)
}

// TestWhatRanksPrint verifies that the ranks' output is passed on in the configured form and that
// rank 0 receives standard input.
func TestWhatRanksPrint(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name   string
		output console.Mode
		tag    bool
		want   []string
	}{
		{"of all", console.AllRanks, false, []string{"0: hello", "1:", "2:", "3:"}},
		{"of all, with tags", console.AllRanks, true,
			[]string{"[0 n0] 0: hello", "[1 n0] 1:", "[2 n1] 2:", "[3 n1] 3:"}},
		{"of rank 0", console.RankZero, false, []string{"0: hello"}},
		{"of none", console.NoRanks, false, nil},
	} {
		rowInBubble(t, tc.name, func(t *testing.T) {
			j := newWorld(t, 2, 2, `read -r line; printf "%s:%s\n" $RANK "${line:+ $line}"`).all(func(c *deps.Config) {
				in := tempFile(t)
				if _, err := in.WriteString("hello\n"); err != nil {
					t.Fatal(err)
				}
				if _, err := in.Seek(0, 0); err != nil {
					t.Fatal(err)
				}
				c.Streams.In = in
				c.World.Output, c.World.Tag = tc.output, tc.tag
			})
			j.start().expect(0, 0)
			got := slices.Sorted(strings.Lines(j.contents(j.out)))
			for i := range got {
				got[i] = strings.TrimSuffix(got[i], "\n")
			}
			if !slices.Equal(got, tc.want) {
				t.Errorf("standard output is %q, not %q", got, tc.want)
			}
		})
	}
}

// TestTooManyRanks verifies that a node refuses more ranks than it has cores.
func TestTooManyRanks(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		j := newWorld(t, 2, 1<<20, "exit 0").all(func(c *deps.Config) { c.World.Oversubscribe = false })
		j.start().expect(65, 65)
		if result := j.result(); result.Cause.Kind != health.Launch ||
			!strings.Contains(result.Reason, "--oversubscribe") {
			t.Errorf("the result is %+v", result)
		}
	})
}

// TestWorldOfATeam verifies that a world is as large as the membership: spares run no ranks.
func TestWorldOfATeam(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		j := newJob(t, 3, `echo "$RANK of $WORLD_SIZE: $BRINGUPD_NODE_RANK"`).all(func(c *deps.Config) {
			c.Team = membership.NodeRange{Min: 2, Max: 2}
			c.World.PerNode, c.World.Oversubscribe, c.World.Output = "2", true, console.AllRanks
		})
		j.start().expect(everyone(0, 3)...)
		got := slices.Sorted(strings.Lines(j.contents(j.out)))
		if want := []string{"0 of 4: 0\n", "1 of 4: 0\n", "2 of 4: 1\n", "3 of 4: 1\n"}; !slices.Equal(got, want) {
			t.Errorf("standard output is %q, not %q", got, want)
		}
	})
}

// TestRanksThatHang verifies that the run ends when no rank is active any more, and not before the
// last one has stopped.
func TestRanksThatHang(t *testing.T) {
	takesSeconds(t)
	t.Parallel()
	done := filepath.Join(t.TempDir(), "done")
	busy := "i=0; while [ $i -lt 8 ]; do echo $i; sleep 0.5; i=$((i+1)); done; touch " + done + "; exec sleep 300"
	j := newRealWorld(t, 2, 2, onRank(0, "exit 0", onRank(3, busy, "exec sleep 300"))).all(func(c *deps.Config) {
		c.World.Hang = 2 * time.Second
	})
	j.start().expect(124, 124)
	if _, err := os.Stat(done); err != nil {
		t.Errorf("it was ended while a rank printed: %v", err)
	}
	if cause := j.blames(0, health.DeadlinePassed, 124); !strings.Contains(cause.Message, "--hang-timeout") {
		t.Errorf("the cause is %+v", cause)
	}
	if said := j.said(); !strings.Contains(said, "asked of "+j.run()) {
		t.Errorf("what the ranks do is not told: %s", said)
	}
}
