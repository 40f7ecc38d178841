package daemon

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/bringupd/bringupd/internal/ctxutil"
	"github.com/bringupd/bringupd/pkg/config"
	"github.com/bringupd/bringupd/pkg/daemon/deps"
	"github.com/bringupd/bringupd/pkg/framework"
	"github.com/bringupd/bringupd/pkg/health"
	"github.com/bringupd/bringupd/pkg/membership"
	"github.com/bringupd/bringupd/pkg/signal"
	"github.com/bringupd/bringupd/pkg/signal/record"
)

func TestDriverCodes(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name, line string
		code       int
	}{
		{"a code of its own", "exit 3", 3},
		{"a code that is one of ours", "exit 76", 76},
		{"ended by a TERM of its own", "kill -TERM $$", 143},
		{"a code that looks like a signal's", "exit 200", 200},
	} {
		rowInBubble(t, tc.name, func(t *testing.T) {
			j := newJob(t, 2, tc.line).start()
			// The workers' end is orderly: only the head reports the code.
			j.expect(tc.code, 0)
			if result := j.result(); result.Code != tc.code ||
				result.Outcome != health.DriverOutcomeName || result.Cause != nil {
				t.Errorf("the result is %+v", result)
			}
			if drain := readRecordOf[record.OrderlyEnd](j, signal.ControlDir,
				signal.NameOrderlyEnd); drain.Code != tc.code {
				t.Errorf("drain says %d", drain.Code)
			}
		})
	}
}

// TestDriverLeavesSomebody runs a driver whose output another process keeps open: the driver's
// outcome is known before that process ends, and its later output is still passed on.
func TestDriverLeavesSomebody(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name, leaves string
		code         int
		out          string
		service      bool // dies after the driver
		daemon       bool // dies after the driver
	}{
		{name: "and a service dies", leaves: "sleep 300", service: true},
		{name: "and a daemon dies", leaves: "sleep 300", daemon: true},
		{name: "who passes its output on", leaves: "sleep 0.5; echo late", out: "late\n"},
		{name: "who passes the output of a failure on", leaves: "sleep 0.5; echo late", out: "late\n", code: 3},
	} {
		rowInBubble(t, tc.name, func(t *testing.T) {
			pid := filepath.Join(t.TempDir(), "driver")
			j := newJob(t, 2, fmt.Sprintf("(%s) & echo $$ >%[2]s.new; mv %[2]s.new %[2]s; exit %d",
				tc.leaves, pid, tc.code))
			if tc.service {
				j.all(func(c *deps.Config) {
					c.Framework = framework.None{WorkerCommand: only("1",
						"until [ -e "+pid+" ] && ! [ -e /proc/$(cat "+pid+") ]; do sleep 0.01; done; exit 5")}
				})
			}
			if !tc.daemon {
				j.start().expect(tc.code, 0)
			} else {
				j.start(1)
				p := j.playWorker(1)
				line := j.playLine(p, 1)
				j.untilGone(pid)
				p.silence()
				line.close()
				j.untilNamed(signal.ControlDir, signal.NameOrderlyEnd)
				p.publish(signal.NodeName(1, 2, record.StateDone), &record.Done{})
				j.expect(0, -1)
			}
			if result := j.result(); result.Code != tc.code ||
				result.Outcome != health.DriverOutcomeName || result.Cause != nil {
				t.Errorf("the result is %+v", result)
			}
			if got := j.contents(j.out); got != tc.out {
				t.Errorf("standard output is %q, not %q", got, tc.out)
			}
		})
	}
}

// TestEverything runs all services that a node can have and inspects them from the driver.
func TestEverything(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		const size = 3
		marks := t.TempDir()
		ready, err := health.ParseProbe("file:" + filepath.Join(marks, "head.ready"))
		if err != nil {
			t.Fatal(err)
		}
		mark := func(what string) string { return "touch " + marks + "/" + what + ".$BRINGUPD_NODE_RANK" }
		j := newJob(t, size, "ls "+marks+"; echo $BRINGUPD_HEAD_ADDRESS $BRINGUPD_HOSTS").all(func(c *deps.Config) {
			c.Setup = mark("setup")
			c.Sandbox = config.Sandbox{Command: mark("sandbox") + "; exec sleep 300",
				Ready: counts(t, size, marks+"/sandbox.*"), Require: require(t, "all")}
			c.Framework = framework.None{
				HeadCommand: mark("head") + "; sleep 0.3; touch " + marks +
					"/head.ready; exec sleep 300", HeadReady: &ready,
				WorkerCommand: "test -e " + marks + "/head.ready || exit 9; " + mark("worker") + "; exec sleep 300",
				WorkerReady:   counts(t, size, marks+"/worker.*"),
			}
		})
		j.start().expect(everyone(0, size)...)
		want := "head.0 head.ready sandbox.0 sandbox.1 sandbox.2 setup.0 setup.1 setup.2 worker.0 worker.1 worker.2 " +
			"127.0.0.1 n0,n1,n2"
		if got := strings.Join(strings.Fields(j.contents(j.out)), " "); got != want {
			t.Errorf("the driver saw %q, not %q", got, want)
		}
		for nodeIndex := range size {
			for _, state := range []record.State{record.StateJoined, record.StateChecked,
				record.StateSandboxReady, record.StateServiceUp, record.StateDone} {
				if !j.has(signal.NodesDir, signal.NodeName(nodeIndex, size, state)) {
					t.Errorf("node %d is not %s", nodeIndex, state)
				}
			}
		}
		result := j.result()
		if share := result.Share; share == nil || share.Head.ByKind["open"] == 0 || share.Head.Slowest.Took == 0 {
			t.Errorf("the result tells of the share: %+v", share)
		}
		done := readRecordOf[record.Done](j, signal.NodesDir, signal.NodeName(1, size, record.StateDone))
		if result.Links == nil || done.Share == nil || done.Share.ByKind["link"] == 0 {
			t.Errorf("the result has the links %+v, and node 1 tells of the share: %+v", result.Links, done.Share)
		}
	})
}

func probe(t *testing.T, text string) *health.Probe {
	t.Helper()
	p, err := health.ParseProbe(text)
	if err != nil {
		t.Fatal(err)
	}
	return &p
}

// counts returns a probe that succeeds when that many files match the pattern.
func counts(t *testing.T, files int, pattern string) *health.Probe {
	t.Helper()
	enough := filepath.Dir(pattern) + "-enough-" + strings.Trim(filepath.Base(pattern), ".*")
	go func() {
		for ctxutil.SleepContext(t.Context(), 5*time.Millisecond) {
			if made, _ := filepath.Glob(pattern); len(made) >= files {
				_ = os.WriteFile(enough, nil, 0o600)
				return
			}
		}
	}()
	return probe(t, "file:"+enough)
}

func require(t *testing.T, text string) membership.SandboxQuorum {
	t.Helper()
	r, err := membership.ParseSandboxQuorum(text)
	if err != nil {
		t.Fatal(err)
	}
	return r
}
