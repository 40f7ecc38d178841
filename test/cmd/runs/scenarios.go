package main

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/bringupd/bringupd/pkg/signal"
	"github.com/bringupd/bringupd/pkg/signal/record"
)

// scenario is a run to record.
type scenario struct {
	name   string
	job    int
	flags  []string
	driver []string
	code   int              // one of the daemons must exit with it
	odd    map[int]string   // additional flag of a node's daemon
	gpus   map[int][]string // answers of NVML on a node
	// meanwhile runs while the daemons run.
	meanwhile func(ctx context.Context, run string) error
	alive     bool   // record the run while it is active
	roles     string // the file of the roles; empty: none
}

// waitingRoles has servers of which one listens on another port than its probe expects. All nodes
// are on one machine, and their ports are the same.
const waitingRoles = `roles:
- {name: setup, nodes: all, oneshot: true, command: echo prepared}
- name: judge
  nodes: 1
  per-node: 2
  after: [setup]
  command: exec python3 -m http.server $((BRINGUPD_PORT + 100 * BRINGUPD_ROLE_INDEX))
  ready: {probe: "http://localhost:$BRINGUPD_PORT/", timeout: 20m}
  restarts: 2
- {name: router, nodes: head, after: [judge], command: exec sleep 1000}
- {name: trainer, nodes: rest, ranks-per-node: 2, primary: true, command: exec sleep 1000}
`

// runningRoles has a server that is started again, and one that is lost.
const runningRoles = `roles:
- name: judge
  nodes: 2
  per-node: 2
  command: >-
    test $BRINGUPD_ROLE_INDEX != 1 -o $BRINGUPD_GENERATION != 0 && exec sleep 1000; sleep 2;
    echo CUDA error, out of memory >&2; exit 1
  restarts: {max: 3, backoff: 100ms..1s}
- name: reward
  with: judge
  command: test $BRINGUPD_ROLE_INDEX = 0 && exec sleep 1000; sleep 3; echo reward has no such model >&2; exit 4
  require: {start: all, run: 1}
- {name: trainer, nodes: rest, ranks-per-node: 2, primary: true, command: exec sleep 1000}
`

// failingRoles has too few servers after the second has exited.
const failingRoles = `roles:
- name: judge
  nodes: 3
  command: >-
    test $BRINGUPD_ROLE_INDEX = 0 && exec sleep 1000; sleep $BRINGUPD_ROLE_INDEX;
    echo judge $BRINGUPD_ROLE_INDEX gives up >&2; exit 5
  require: {start: all, run: 2}
- {name: trainer, nodes: rest, primary: true, command: exec sleep 1000}
`

// services are the commands of a fictitious framework, whose worker on node 2 is the slowest.
var services = []string{
	"--sandbox-cmd=echo the sandbox listens; exec sleep 1000",
	"--head-cmd=echo head ready; exec sleep 1000",
	"--worker-cmd=sleep 0.$((SLURM_PROCID % 3 * 3)); touch ready.$SLURM_PROCID; echo worker ready; exec sleep 1000",
	"--worker-ready=exec:sh -c 'test -e ready.$SLURM_PROCID'",
	"--active-check=sleep 0.$SLURM_PROCID",
}

func sh(script string) []string { return []string{"sh", "-c", script} }

func with(more ...string) []string { return append(append([]string(nil), services...), more...) }

// scenarios returns all scenarios: one for each exit code that is possible here, and some other
// instructive ones.
func scenarios() []scenario {
	gpus := []string{"--gpu-check=require", "--gpus-per-node=8"}
	train := sh("for i in 1 2 3; do echo step $i; sleep 0.2; done")
	return []scenario{
		{name: "good", flags: services, driver: train},
		{name: "driver-3", flags: services,
			driver: sh("echo 'Traceback: out of luck' >&2; exit 3"), code: 3},
		{name: "driver-killed", flags: services, driver: sh("kill -9 $$"), code: 137},
		{name: "usage-64", driver: train, odd: map[int]string{2: "--deadline=7h"}, code: 64},
		{name: "share-66", driver: train, flags: []string{"--join-timeout=3s"},
			odd: map[int]string{2: "--log-dir=" + place + "/elsewhere"}, code: 66},
		{name: "check-75", driver: train,
			flags: with("--active-check=test $SLURM_PROCID != 2 || { echo 'all_reduce: 3.1 " +
				"GB/s, want 40' >&2; exit 2; }"), code: 75},
		{name: "peer-76", driver: sh("sleep 60"), flags: services,
			meanwhile: killRank(2, syscall.SIGKILL), code: 76},
		{name: "head-76", driver: sh("sleep 60"), flags: services,
			meanwhile: killRank(0, syscall.SIGKILL), code: 76},
		{name: "service-77", driver: train,
			flags: with("--worker-cmd=test $SLURM_PROCID != 2 && touch ready.$SLURM_PROCID && " +
				"exec sleep 1000; echo 'worker: cannot bind: address already in use' >&2; exit 1"), code: 77},
		{name: "sandbox-77", driver: train,
			flags: with("--sandbox-cmd=test $SLURM_PROCID != 1 && exec sleep 1000; echo " +
				"'sandbox: no image' >&2; exit 12"), code: 77},
		{name: "setup-77", driver: train,
			flags: with("--setup-cmd=test $SLURM_PROCID != 3 || { echo 'mount: permission " +
				"denied' >&2; exit 32; }"), code: 77},
		{name: "service-late-77", driver: sh("sleep 60"),
			flags: with("--worker-cmd=touch ready.$SLURM_PROCID; test $SLURM_PROCID != 1 && " +
				"exec sleep 1000; sleep 2; echo 'worker: segmentation fault' >&2; kill -SEGV $$"), code: 77},
		{name: "deadline-124", driver: sh("sleep 60"), flags: []string{"--deadline=2s"}, code: 124},
		{name: "driver-126", driver: []string{place + "/nvml"}, flags: services, code: 126},
		{name: "driver-127", driver: []string{"trian.py"}, flags: services, code: 127},
		{name: "interrupted-130", driver: sh("sleep 60"), flags: services,
			meanwhile: killRank(0, syscall.SIGINT), code: 130},
		{name: "terminated-143", driver: sh("sleep 60"), flags: services,
			meanwhile: killRank(0, syscall.SIGTERM), code: 143},
		{name: "gpu-75", flags: gpus, driver: train,
			gpus: map[int][]string{2: {"gpu 3 handle 15"}}, code: 75},
		{name: "gpu-lost-75", flags: gpus,
			driver: sh("sleep 0.5; echo 'event 3 xid 79' >> $FAKE_NVIDIA_DIR/node2.conf; sleep 60"),
			code:   75},
		{name: "gpu-events", flags: gpus,
			driver: sh("sleep 0.5; echo 'event 5 xid 31' >> $FAKE_NVIDIA_DIR/node1.conf; sleep " +
				"2; echo 'CUDA error: an illegal memory access was encountered' >&2; exit 1"), code: 1},
		{name: "spares", flags: with("--nnodes=3",
			"--active-check=test $SLURM_PROCID != 1 || exit 2"), driver: train},
		{name: "stopped", flags: services, meanwhile: stop},
		{name: "running", flags: services, driver: sh("echo step 1; sleep 60"),
			meanwhile: until(filepath.Join(signal.ControlDir, signal.NameGateOpen)), alive: true},
		{name: "waiting", flags: with(
			"--worker-cmd=test $SLURM_PROCID != 2 && touch ready.$SLURM_PROCID; exec sleep 1000"),
			driver:    train,
			meanwhile: until(filepath.Join(signal.NodesDir, "0003.up")), alive: true},
		{name: "roles-waiting", roles: waitingRoles, alive: true,
			meanwhile: func(ctx context.Context, run string) error {
				time.Sleep(6 * time.Second) // until the ports of the server are searched
				return until(filepath.Join(signal.NodesDir, "0000.i0004.g0.ready"))(ctx, run)
			}},
		{name: "roles-running", roles: runningRoles,
			meanwhile: until(filepath.Join(signal.NodesDir, "0001.i0005.g0.exited")), alive: true},
		{name: "roles-77", roles: failingRoles, code: 77},
	}
}

// until returns a function that waits for a name in the run directory.
func until(name string) func(context.Context, string) error {
	return func(ctx context.Context, run string) error {
		for {
			if _, err := os.Lstat(filepath.Join(run, name)); err == nil {
				return nil
			}
			select {
			case <-ctx.Done():
				return fmt.Errorf("%s does not come", name)
			case <-time.After(20 * time.Millisecond):
			}
		}
	}
}

// killRank returns a function that sends a signal to a node's daemon while the driver runs.
func killRank(rank int, sig syscall.Signal) func(context.Context, string) error {
	return func(ctx context.Context, run string) error {
		if err := until(filepath.Join(signal.ControlDir, signal.NameGateOpen))(ctx,
			run); err != nil {
			return err
		}
		time.Sleep(time.Second) // let the driver get to work
		data, err := os.ReadFile(
			filepath.Join(run, signal.NodesDir, fmt.Sprintf("%04d.%s", rank, record.StateJoined)))
		if err != nil {
			return err
		}
		var joined record.Joined
		if err := json.Unmarshal(data, &joined); err != nil {
			return err
		}
		return syscall.Kill(joined.PID, sig)
	}
}

// stop requests the orderly end of a job without a driver.
func stop(ctx context.Context, run string) error {
	if err := until(filepath.Join(signal.ControlDir, signal.NameGateOpen))(ctx, run); err != nil {
		return err
	}
	dir, _, err := signal.OpenExisting(ctx, run, "login")
	if err != nil {
		return err
	}
	return dir.RequestStop(ctx)
}
