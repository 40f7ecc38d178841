package faults

import (
	"context"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/bringupd/bringupd/pkg/signal"
	"github.com/bringupd/bringupd/test/hostile"
)

// TestEvicted has the mount of one node hang, and then refuse what hung, as that
// of a client that its server has evicted: while the lifelines are up, and looks
// at the share are rare. What a look that hung has cost is not to be waited for a
// second time before the next: the node would be sick for longer than a peer may
// be silent.
func TestEvicted(t *testing.T) {
	const peer, hang = 10 * time.Second, 4500 * time.Millisecond
	t.Parallel()
	j := newJob(t, func(int) hostile.Knobs { return hostile.Knobs{} })
	for _, p := range phases {
		if p != driver {
			j.free(p)
		}
	}
	j.extra = []string{"--lifeline=on", "--peer-timeout=" + peer.String()}
	j.start(0)
	j.await(driver)
	j.endTurn()
	j.relaxed(victim, peer)

	mount := j.mounts[victim]
	j.must(mount.Stall(hostile.Held))
	asked := j.ask(victim)
	j.taken(mount, func(calls int) bool { return calls > 0 })
	time.Sleep(hang)
	j.must(mount.Set(hostile.Knobs{IO: 1}))
	j.taken(mount, func(calls int) bool { return calls == 0 })
	j.must(mount.Set(hostile.Knobs{}))
	if out, err := asked(); err != nil {
		t.Errorf("what the node was asked meanwhile: %v: %s", err, out)
	}

	begin := time.Now()
	j.letGo()
	o := j.outcome(begin)
	j.endedWell(o, 0)
	j.nothingLeft()
}

// relaxed waits until a rank looks rarely: its lifeline is well, and nothing is
// expected but the end.
func (j *job) relaxed(rank int, peer time.Duration) {
	j.t.Helper()
	events := filepath.Join(j.runDir(), signal.EventsDir, signal.EventsName("daemon", rank, size))
	j.until("a worker with nothing to do", func() bool {
		said, _ := os.ReadFile(events)
		return strings.Contains(string(said), `"phase":"driver"`)
	})
	time.Sleep(peer / 4) // two beats, of which each may make its pace another
}

// ask has a rank run a command, by a request through the mount of another one,
// and returns who waits for its end.
func (j *job) ask(rank int) func() ([]byte, error) {
	ctx, cancel := context.WithTimeout(j.t.Context(), ceiling)
	j.t.Cleanup(cancel)
	cmd := exec.CommandContext(ctx, bringupd, "exec", "--node="+strconv.Itoa(rank), j.logDir(1), "--", "true")
	cmd.Env = j.environ(0)
	type answer struct {
		out []byte
		err error
	}
	answers := make(chan answer, 1)
	j.told.Go(func() {
		out, err := cmd.CombinedOutput()
		answers <- answer{out, err}
	})
	return func() ([]byte, error) {
		a := <-answers
		return a.out, a.err
	}
}

// taken waits until so many calls into a mount are under way.
func (j *job) taken(mount *hostile.Mount, enough func(calls int) bool) {
	j.t.Helper()
	j.until("calls into "+mount.At(), func() bool {
		calls, err := mount.Taken()
		j.must(err)
		return enough(calls)
	})
}

// until waits for a condition.
func (j *job) until(what string, reached func() bool) {
	j.t.Helper()
	for deadline := time.Now().Add(ceiling); !reached(); time.Sleep(step) {
		if time.Now().After(deadline) {
			j.t.Fatalf("after %s there is no sign of %s", ceiling, what)
		}
	}
}
