package daemon

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/bringupd/bringupd/pkg/check"
	"github.com/bringupd/bringupd/pkg/daemon/deps"
	"github.com/bringupd/bringupd/pkg/gpu/history"
	"github.com/bringupd/bringupd/pkg/roles/launcher"
	"github.com/bringupd/bringupd/pkg/signal"
	"github.com/bringupd/bringupd/test/memory"
)

// devicesOf returns a node's two GPUs; the second was throttled in slowed of 100 polls.
func devicesOf(host string, slowed int) []history.Device {
	return []history.Device{
		{ID: "GPU-" + host + "-0", Index: 0, Bus: "0000:1b:00.0", Counters: &history.Counters{Polls: 100}},
		{ID: "GPU-" + host + "-1", Index: 1, Bus: "0000:9b:00.0", Counters: &history.Counters{Polls: 100, SlowedPolls: slowed}},
	}
}

// events returns the GPU events in the result, one per line.
func (j *job) events() (told string) {
	for _, e := range j.result().Events {
		told += e.Message + "\n"
	}
	return told
}

// TestHistory runs three jobs on the same two nodes: a GPU of n0 is throttled in two of them, and
// one of n1 has memory errors in the first and the last.
func TestHistory(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		share := memory.NewShare(mountPoint)
		share.Clock = time.Now
		job := func(run, driver, errors string, slowed int) (*job, []*card) {
			j := newJob(t, 2, driver)
			cards := j.carded()
			j.share = share
			j.all(func(c *deps.Config) {
				c.Identity.Launcher, c.Identity.Job = launcher.LauncherSlurm, run
				if looks := c.Checks.(*looks); c.Identity.NodeIndex == 1 && errors != "" {
					looks.found = append(looks.found, check.Finding{
						ID: "gpu.ecc_unc", Device: &check.Device{UUID: "GPU-n1-0"}, Verdict: check.Warn, Class: check.ClassNode, Observed: errors,
					})
				}
			})
			cards[0].devices, cards[1].devices = devicesOf("n0", slowed), devicesOf("n1", 0)
			return j, cards
		}
		first, _ := job("1", "exit 0", "1 error", 70)
		first.start().expect(0, 0)
		if bad, told := first.badNodes(), first.events(); bad != "" || !strings.Contains(told, "(n0): GPU 1 (0000:9b:00.0): throttled 70 % of the run") {
			t.Errorf("the first time the bad nodes are %q, and it is told: %s", bad, told)
		}
		second, _ := job("2", "exit 0", "", 80)
		second.start().expect(0, 0)
		const evidence = "throttled: 80 % of the run (80 of 100 readings); also in run 1.0 of "
		if bad, told := second.badNodes(), second.events(); bad != "n0\n" || !strings.Contains(told, evidence) {
			t.Errorf("the second time the bad nodes are %q, and it is told: %s", bad, told)
		}
		if said := second.said(); !strings.Contains(said, "ask an administrator to drain n0, ") {
			t.Errorf("nobody says what to do:\n%s", said)
		}
		enough := filepath.Join(t.TempDir(), "enough")
		third, cards := job("3", "until test -e "+enough+"; do sleep 0.05; done", "5 errors", 0)
		cards[0].devices[0].ID = "GPU-another"
		third.start().untilNamed(signal.NodesDir, signal.EventName(1, 2, signal.UnfitEventNumber))
		if err := os.WriteFile(enough, nil, 0o600); err != nil {
			t.Fatal(err)
		}
		third.expect(0, 0)
		told := third.events()
		for _, want := range []string{
			"(n0): GPU 0 (0000:1b:00.0): replaced since run 2.0: now GPU-another, was GPU-n0-0",
			"(n1): GPU 0 (0000:1b:00.0): gpu.ecc_unc: 5 errors; also in run 1.0 of ",
			// The line appears once more, because the end of the second job may have been too late for its
			// own list of bad nodes.
			evidence,
		} {
			if !strings.Contains(told, want) {
				t.Errorf("the third job does not tell %q: %s", want, told)
			}
		}
		if bad := third.badNodes(); bad != "n0\nn1\n" {
			t.Errorf("the third job's bad nodes are %q", bad)
		}
		for _, host := range []string{"n0", "n1"} {
			if entries := third.share.ReadDir(filepath.Join(third.logDir, signal.HistoryDir, host)); len(entries) != 3 {
				t.Errorf("of %s there is %v", host, entries)
			}
		}
	})
}

// TestHistoryThatCannotBeKept verifies that a history that cannot be written does not affect the
// job.
func TestHistoryThatCannotBeKept(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		j := newJob(t, 2, "exit 0")
		cards := j.carded()
		cards[0].devices, cards[1].devices = devicesOf("n0", 70), devicesOf("n1", 0)
		j.share.WriteFile(filepath.Join(j.logDir, signal.HistoryDir), nil)
		j.start().expect(0, 0)
		if told := j.events(); !strings.Contains(told, "throttled 70 %") {
			t.Errorf("it is told: %s", told)
		}
	})
}

// TestNoHistoryOfNoGPUs verifies that nodes without GPUs write no history.
func TestNoHistoryOfNoGPUs(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		j := newJob(t, 2, "exit 0")
		j.carded()
		j.start().expect(0, 0)
		if j.share.Has(filepath.Join(j.logDir, signal.HistoryDir)) {
			t.Error("there is a history")
		}
	})
}
