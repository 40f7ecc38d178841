package daemon

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"testing"
	"time"

	"github.com/bringupd/bringupd/pkg/config"
	"github.com/bringupd/bringupd/pkg/daemon/deps"
	"github.com/bringupd/bringupd/pkg/daemon/lifecycle"
	"github.com/bringupd/bringupd/pkg/framework"
	"github.com/bringupd/bringupd/pkg/roles"
	"github.com/bringupd/bringupd/pkg/roles/launcher"
)

// childVariable is the environment variable that makes this binary run one daemon of a test's job;
// its value is the childOrder.
const childVariable = "BRINGUPD_TEST_DAEMON"

// childOrder is the configuration of such a daemon.
type childOrder struct {
	Rank, Size      int
	Role            roles.DaemonRole
	LogDir, TempDir string
	Driver          []string
	Worker          string // the worker's service
	Times           config.Timeouts
}

// childDaemon runs such a daemon and returns its exit code.
func childDaemon(text string) int {
	signals := lifecycle.Signals()
	var t childOrder
	if err := json.Unmarshal([]byte(text), &t); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 2
	}
	_ = os.Unsetenv(childVariable)
	return Run(context.Background(), deps.Config{Config: config.Config{
		Identity: testIdentity(t.Rank, t.Size), LogDir: t.LogDir, Program: "test",
		Workload: config.Workload{Driver: t.Driver}, Framework: framework.None{WorkerCommand: t.Worker}, Times: t.Times,
		Output:  config.Output{Streams: config.Streams{In: os.Stdin, Out: os.Stdout, Err: os.Stderr}},
		Process: config.Process{TempDir: t.TempDir, Environ: os.Environ()},
	}, Set: deps.Set{
		Signals: signals,
		Address: func() (launcher.NodeAddress, error) { return launcher.NodeAddress{Address: "127.0.0.1"}, nil },
	}}, t.Role).Code
}

// child is a daemon of a job that runs as its own process.
type child struct {
	t     *testing.T
	cmd   *exec.Cmd
	ended chan struct{}
}

// launch starts the daemon of a node as its own process, with stderr as its standard error.
func (j *job) launch(nodeIndex int, stderr *os.File) *child {
	j.t.Helper()
	cfg := j.configs[nodeIndex]
	text, err := json.Marshal(childOrder{
		Rank: nodeIndex, Size: j.size, Role: j.roles[nodeIndex], LogDir: cfg.LogDir, TempDir: cfg.TempDir,
		Driver: cfg.Driver, Worker: cfg.Framework.(framework.None).WorkerCommand, Times: cfg.Times,
	})
	if err != nil {
		j.t.Fatal(err)
	}
	c := &child{t: j.t, cmd: exec.Command(os.Args[0]), ended: make(chan struct{})}
	c.cmd.Env = append(os.Environ(), childVariable+"="+string(text))
	c.cmd.Stdout, c.cmd.Stderr = j.out, stderr
	c.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	if err := c.cmd.Start(); err != nil {
		j.t.Fatal(err)
	}
	j.running.Go(func() {
		defer close(c.ended)
		_ = c.cmd.Wait()
		code := c.cmd.ProcessState.ExitCode()
		j.mu.Lock()
		defer j.mu.Unlock()
		j.codes[nodeIndex] = code
	})
	j.t.Cleanup(func() { // before the job's own cleanup, which waits for its daemons
		_ = c.cmd.Process.Kill()
		<-c.ended
	})
	return c
}

func (c *child) signal(sig syscall.Signal) {
	c.t.Helper()
	if err := c.cmd.Process.Signal(sig); err != nil {
		c.t.Fatal(err)
	}
}

// wait waits until the process has exited.
func (c *child) wait() {
	c.t.Helper()
	select {
	case <-c.ended:
	case <-time.After(ceiling):
		c.t.Fatalf("the daemon has not ended after %s", ceiling)
	}
}
