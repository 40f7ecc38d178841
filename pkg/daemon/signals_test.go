package daemon

import (
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/bringupd/bringupd/pkg/config"
	"github.com/bringupd/bringupd/pkg/daemon/deps"
	"github.com/bringupd/bringupd/pkg/framework"
	"github.com/bringupd/bringupd/pkg/health"
	"github.com/bringupd/bringupd/pkg/roles/launcher"
	"github.com/bringupd/bringupd/pkg/signal"
	"github.com/bringupd/bringupd/pkg/signal/record"
	"github.com/bringupd/bringupd/test/fakechild"
)

// onTerm returns a line of shell that begins with one command, and runs until TERM makes it run another.
func onTerm(does, begins string) string {
	return "trap '" + does + "' TERM; " + begins + "; while :; do sleep 0.05; done"
}

// saving returns a driver that takes a moment to save its work at SIGTERM.
func saving(marks string, code string) string {
	return onTerm("sleep 0.7; touch "+marks+"/saved; exit "+code, "touch "+marks+"/running")
}

// ending returns a framework whose three workers note in files that they are up, and that TERM has
// ended them.
func ending(t *testing.T, marks string) framework.None {
	const node = ".$BRINGUPD_NODE_RANK"
	return framework.None{
		WorkerCommand: onTerm("touch "+marks+"/ended"+node+"; exit 0", "touch "+marks+"/up"+node),
		WorkerReady:   counts(t, 3, marks+"/up.*"),
	}
}

func TestSignals(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name string
		to   []int
		sig  syscall.Signal
		kind health.Kind
		code int
	}{
		{"TERM to the head", []int{0}, syscall.SIGTERM, health.Terminated, 143},
		{"INT to the head", []int{0}, syscall.SIGINT, health.Interrupted, 130},
		{"TERM to a worker", []int{1}, syscall.SIGTERM, health.Terminated, 143},
		{"INT to a worker", []int{2}, syscall.SIGINT, health.Interrupted, 130},
		{"TERM to all", []int{0, 1, 2}, syscall.SIGTERM, health.Terminated, 143},
	} {
		rowInBubble(t, tc.name, func(t *testing.T) {
			marks := t.TempDir()
			j := newJob(t, 3, saving(marks, "0")).all(func(c *deps.Config) {
				c.Framework = ending(t, marks)
			}).start()
			j.untilFile(filepath.Join(marks, "running"))
			for _, nodeIndex := range tc.to {
				j.signals[nodeIndex] <- tc.sig
			}
			j.expect(everyone(tc.code, 3)...)
			if cause := j.blames(j.result().Cause.NodeIndex, tc.kind, tc.code); len(tc.to) == 1 &&
				cause.NodeIndex != tc.to[0] {
				t.Errorf("the result blames node %d, not %d", cause.NodeIndex, tc.to[0])
			}
			saved, err := os.Stat(filepath.Join(marks, "saved"))
			if err != nil {
				t.Fatalf("the driver was not let to save its work: %v", err)
			}
			// The services run as long as the driver.
			ended, err := os.Stat(filepath.Join(marks, "ended.1"))
			if err != nil || ended.ModTime().Before(saved.ModTime()) {
				t.Errorf("the services ended before the driver had saved its work, or by force: %v", err)
			}
		})
	}
}

// TestALauncherEndsTheOthers simulates a launcher that signals the others as soon as one daemon is
// killed, as srun does with --kill-on-bad-exit: the killed daemon is the cause, not the signal.
func TestALauncherEndsTheOthers(t *testing.T) {
	t.Parallel()
	const size = 3
	rowInBubble(t, "the head was killed", func(t *testing.T) {
		j := newJob(t, size, "exit 0")
		head, lines, die := j.playLines()
		j.start(0)
		j.until("two lifelines", func() bool { return lines.heard() == size-1 })
		head.silence()
		j.signals[1] <- syscall.SIGTERM
		j.signals[2] <- syscall.SIGTERM
		die()
		j.expect(-1, 76, 76)
		if result := j.result(); result.Cause == nil || result.Cause.Kind != health.DaemonDied ||
			!slices.Equal(result.Cause.LostNodes, []int{0}) {
			t.Errorf("the result, of code %d, blames %+v", result.Code, result.Cause)
		}
	})
	rowInBubble(t, "a worker was killed", func(t *testing.T) {
		j := newJob(t, size, "exec sleep 300")
		j.start(1)
		dead := j.playWorker(1)
		line := j.playLine(dead, 1)
		j.untilNamed(signal.ControlDir, signal.NameGateOpen)
		dead.silence()
		line.close()
		j.signals[0] <- syscall.SIGTERM
		j.signals[2] <- syscall.SIGTERM
		j.expect(76, -1, 76)
		if cause := j.blames(0, health.DaemonDied, 76); !slices.Equal(cause.LostNodes, []int{1}) {
			t.Errorf("the ranks %v are taken for lost", cause.LostNodes)
		}
	})
}

// TestServicesOutliveTheDriver lets Slurm signal the services' processes too, which it may do: they
// end before their daemons know the reason, and are not blamed. Services that ignore the signal run
// until the driver has saved its work.
func TestServicesOutliveTheDriver(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		marks := t.TempDir()
		mortal := "echo $$ >" + marks + "/mortal.$BRINGUPD_NODE_RANK; exec sleep 300"
		j := newJob(t, 3, saving(marks, "0")).all(func(c *deps.Config) {
			c.Times.DriverGrace = time.Hour
			c.Framework = framework.None{HeadCommand: "exec sleep 300", WorkerCommand: mortal,
				WorkerReady: counts(t, 3, marks+"/mortal.*")}
			c.Sandbox = config.Sandbox{
				Command: onTerm("touch "+marks+"/ended.$BRINGUPD_NODE_RANK; exit 0", ":"),
				Require: require(t, "all"),
			}
		}).start()
		j.untilFile(filepath.Join(marks, "running"))
		for nodeIndex := range 3 {
			if !fakechild.Kill(j.pidIn(filepath.Join(marks, "mortal."+strconv.Itoa(nodeIndex))), syscall.SIGTERM) {
				t.Fatalf("the service of node %d has ended", nodeIndex)
			}
		}
		for _, signals := range j.signals {
			signals <- syscall.SIGTERM
		}
		j.expect(everyone(143, 3)...)
		j.blames(j.result().Cause.NodeIndex, health.Terminated, 143)
		saved, err := os.Stat(filepath.Join(marks, "saved"))
		if err != nil {
			t.Fatalf("the driver was not let to save its work: %v", err)
		}
		ended, err := os.Stat(filepath.Join(marks, "ended.2"))
		if err != nil || ended.ModTime().Before(saved.ModTime()) {
			t.Errorf("the sandboxes ended before the driver had saved its work, or by force: %v", err)
		}
	})
}

// pidIn returns the process ID that a child has written to a file.
func (j *job) pidIn(path string) int {
	j.t.Helper()
	data, err := os.ReadFile(path)
	if err != nil {
		j.t.Fatal(err)
	}
	pid, err := strconv.Atoi(strings.TrimSpace(string(data)))
	if err != nil {
		j.t.Fatal(err)
	}
	return pid
}

// TestWorkerWithoutAHeadHasNoGrace lets the head die during the driver's grace period, whose end a
// worker waits for.
func TestWorkerWithoutAHeadHasNoGrace(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		j := newJob(t, 2, "exit 0").all(func(c *deps.Config) { c.Times.DriverGrace = time.Hour })
		head := j.playHead()
		j.start(0)
		j.untilNamed(signal.NodesDir, signal.NodeName(1, 2, record.StateJoined))
		j.signals[1] <- syscall.SIGTERM
		j.untilNamed(signal.NodesDir, signal.NodeName(1, 2, record.StateFailed))
		head.silence()
		j.expect(-1, 143)
	})
}

// TestSignalThatIsPassedOn lets all processes die of a signal that the daemons pass on, as after the
// loss of a terminal: it ends the job with 129, is no failure of a rank, and restarts nothing.
func TestSignalThatIsPassedOn(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name  string
		ranks int // per node; 0: a driver
		codes []int
	}{{"to the driver", 0, []int{129, 0}}, {"to ranks", 2, []int{129, 129}}} {
		rowInBubble(t, tc.name, func(t *testing.T) {
			marks := t.TempDir()
			j := newJob(t, 2, "touch "+marks+"/${BRINGUPD_RANK:-driver}; exec sleep 300").all(func(c *deps.Config) {
				c.After.Restarts, c.After.Rules.On = 3, config.RestartOnAny
			})
			if tc.ranks > 0 {
				j.ranks(tc.ranks)
			}
			j.start()
			j.until("all processes", func() bool {
				running, _ := filepath.Glob(marks + "/*")
				return len(running) == max(1, 2*tc.ranks)
			})
			for _, signals := range j.signals {
				signals <- syscall.SIGHUP
			}
			j.expect(tc.codes...)
			result := j.result()
			if result.Code != 129 || result.NextAttempt != 0 || result.Cause != nil &&
				result.Cause.Kind != health.Signalled {
				t.Errorf("the result is %+v, of the cause %+v", result, result.Cause)
			}
		})
	}
}

// stop requests the end from outside the job, as soon as the link to the run exists. The daemon
// creates that link concurrently with other tasks, so it may appear late.
func (j *job) stop() {
	j.t.Helper()
	j.until("the link to the run", func() bool {
		return j.exists(filepath.Join(j.logDir, "latest"))
	})
	dir, _, err := j.through(signal.Access{}).OpenExisting(bounded(j.t), j.run(), "login")
	if err != nil {
		j.t.Fatal(err)
	}
	if err := dir.RequestStop(bounded(j.t)); err != nil {
		j.t.Fatal(err)
	}
}

// TestStopBeforeDriver stops jobs before their driver has started. It must not look like success,
// unless there is no driver, or the launcher would start the daemons again.
func TestStopBeforeDriver(t *testing.T) {
	t.Parallel()
	for _, tc := range []struct {
		name     string
		driver   string
		launcher launcher.Launcher
		absent   []int // nodes that never join
		codes    []int
	}{
		{"in the setup", "exit 0", launcher.LauncherLocal, nil, []int{143, 0}},
		{"before the nodes have met", "exit 0", launcher.LauncherLocal, []int{1}, []int{143, -1}},
		{"in the setup on Kubernetes", "exit 0", launcher.LauncherKubernetes, nil, []int{0, 0}},
		{"in the setup without a driver", "", launcher.LauncherLocal, nil, []int{0, 0}},
	} {
		rowInBubble(t, tc.name, func(t *testing.T) {
			marks := t.TempDir()
			j := newJob(t, 2, tc.driver).all(func(c *deps.Config) {
				c.Setup = "touch " + marks + "/$BRINGUPD_NODE_RANK; exec sleep 300"
				c.Identity.Launcher = tc.launcher
			}).start(tc.absent...)
			j.untilFile(filepath.Join(marks, "0"))
			if tc.absent == nil {
				j.untilFile(filepath.Join(marks, "1"))
			}
			j.stop()
			j.expect(tc.codes...)
			if result := j.result(); result.Code != tc.codes[0] || result.Outcome != "stopped" {
				t.Errorf("the result is %+v", result)
			}
		})
	}
}

// TestChildDeafToTerm runs children that all ignore SIGTERM: no process may outlive the job.
func TestChildDeafToTerm(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		marks := t.TempDir()
		ignoring := func(what string) string {
			return "trap '' TERM INT HUP; touch " + marks + "/" + what +
				".$BRINGUPD_NODE_RANK; while :; do sleep 0.05; done"
		}
		j := newJob(t, 2, ignoring("driver")).all(func(c *deps.Config) {
			c.Times.DriverGrace, c.Times.StopGrace = 300*time.Millisecond, 300*time.Millisecond
			c.Framework = framework.None{HeadCommand: ignoring("head"), WorkerCommand: ignoring("worker")}
			c.Sandbox = config.Sandbox{Command: ignoring("sandbox"), Require: require(t, "all")}
		}).start()
		for _, what := range []string{"driver.0", "head.0", "worker.0", "worker.1", "sandbox.0", "sandbox.1"} {
			j.untilFile(filepath.Join(marks, what))
		}
		j.signals[0] <- syscall.SIGTERM
		j.expect(143, 143)
	})
}
