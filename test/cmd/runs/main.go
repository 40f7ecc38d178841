// Command runs records the run directories that the tests of pkg/inspect/timeline read: real
// daemons on four simulated Slurm nodes on one machine, each with its own host name. It needs root,
// for the host names, and gcc, for GPUs.
//
//	go run ./test/cmd/runs [NAME...]
package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/bringupd/bringupd/pkg/signal"
	"github.com/bringupd/bringupd/test/cuda"
	"github.com/bringupd/bringupd/test/nvml"
)

const (
	nodes = 4
	// place is the path that the recorded runs contain; it does not reveal a home directory.
	place = "/tmp/recorded"
	into  = "pkg/inspect/timeline/testdata/runs"
	// longest limits the duration of one scenario.
	longest = 90 * time.Second
)

func main() {
	if err := recordRun(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "runs:", err)
		os.Exit(1)
	}
}

func recordRun(wanted []string) error {
	if err := os.RemoveAll(place); err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Join(place, "nvml"), 0o755); err != nil {
		return err
	}
	bin := filepath.Join(place, "bringupd")
	if out, err := exec.Command("go", "build", "-o", bin,
		"./cmd/bringupd").CombinedOutput(); err != nil {
		return fmt.Errorf("cannot build bringupd: %v: %s", err, out)
	}
	if _, err := cuda.Build(filepath.Join(place, "nvml")); err != nil {
		return err
	}
	fake, err := nvml.Build(filepath.Join(place, "nvml"))
	if err != nil {
		return err
	}
	for i, s := range scenarios() {
		if len(wanted) > 0 && !slices.Contains(wanted, s.name) {
			continue
		}
		s.job = 4711 + i
		if err := s.record(bin, fake); err != nil {
			return fmt.Errorf("cannot record %s: %v", s.name, err)
		}
	}
	if len(wanted) > 0 && !slices.Contains(wanted, "cut-off") {
		return nil
	}
	return cutOff(filepath.Join(into, "waiting"), filepath.Join(into, "cut-off"))
}

// record runs a scenario and keeps its run directory.
func (s scenario) record(bin string, fake nvml.Fake) error {
	logs := filepath.Join(place, "logs")
	if err := os.RemoveAll(filepath.Join(place, "work")); err != nil {
		return err
	}
	if err := os.Mkdir(filepath.Join(place, "work"), 0o755); err != nil {
		return err
	}
	if s.roles != "" {
		if err := os.WriteFile(filepath.Join(place, "work", "roles.yaml"), []byte(s.roles), 0o644); err != nil {
			return err
		}
		s.flags = append(s.flags, "--config=roles.yaml")
	}
	for rank := range nodes {
		if err := fake.Answer(host(rank), s.gpus[rank]...); err != nil {
			return err
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), longest)
	defer cancel()
	run := filepath.Join(logs, fmt.Sprintf("%d.0", s.job))
	codes := make([]int, nodes)
	var daemons sync.WaitGroup
	for rank := range nodes {
		daemons.Go(func() { codes[rank] = s.daemon(ctx, bin, logs, fake, rank) })
	}
	ended := make(chan struct{})
	go func() { daemons.Wait(); close(ended) }()
	if s.meanwhile != nil {
		alive, dead := context.WithCancel(ctx)
		go func() { <-ended; dead() }()
		err := s.meanwhile(alive, run)
		if err != nil {
			cancel()
			<-ended
			return err
		}
	}
	if s.alive {
		// Wait for files that are written with a delay.
		time.Sleep(8 * time.Second)
		err := keep(run, filepath.Join(into, s.name))
		if stop := exec.Command(bin, "stop", run).Run(); stop != nil {
			cancel()
		}
		<-ended
		return err
	}
	<-ended
	if !slices.Contains(codes, s.code) {
		return fmt.Errorf("the daemons have ended with %v, want %d", codes, s.code)
	}
	fmt.Println(s.name, codes)
	return keep(run, filepath.Join(into, s.name))
}

func host(rank int) string { return fmt.Sprintf("node%d", rank) }

// daemon runs the daemon of a node to its end, and returns its exit code.
func (s scenario) daemon(ctx context.Context, bin, logs string, fake nvml.Fake, rank int) int {
	args := []string{"--uts", "sh", "-c", `hostname $0; exec "$@"`, host(rank), bin,
		"--log-dir=" + logs}
	args = append(args, s.flags...)
	if s.odd[rank] != "" {
		args = append(args, s.odd[rank])
	}
	if len(s.driver) > 0 {
		args = append(append(args, "--"), s.driver...)
	}
	cmd := exec.CommandContext(ctx, "unshare", args...)
	cmd.Dir = filepath.Join(place, "work")
	cmd.Env = []string{
		"PATH=/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/tmp", "LANG=C.UTF-8", fake.Env(),
		"LD_LIBRARY_PATH=" + filepath.Dir(fake.Library),
		"SLURM_JOB_ID=" + strconv.Itoa(s.job), "SLURM_STEP_ID=0",
		"SLURM_PROCID=" + strconv.Itoa(rank),
		"SLURM_NTASKS=4", "SLURM_STEP_NUM_TASKS=4", "SLURM_NNODES=4", "SLURM_STEP_NUM_NODES=4",
		"SLURM_NODEID=" + strconv.Itoa(rank),
		"SLURM_LOCALID=0", "SLURM_STEP_TASKS_PER_NODE=1(x4)", "SLURM_STEP_NODELIST=node[0-3]",
		"SLURM_JOB_NODELIST=node[0-3]",
		"SLURMD_NODENAME=" + host(rank), "SLURM_CLUSTER_NAME=recorded",
		"SLURM_SRUN_COMM_PORT=40000",
	}
	out, err := cmd.CombinedOutput()
	if exit, ok := errors.AsType[*exec.ExitError](err); ok {
		if os.Getenv("VERBOSE") != "" {
			fmt.Printf("node %d:\n%s", rank, out)
		}
		if status, ok := exit.Sys().(syscall.WaitStatus); ok && status.Signaled() {
			return 128 + int(status.Signal())
		}
		return exit.ExitCode()
	}
	return 0
}

// keep copies a run directory without temporary files. It adds a file to each empty directory,
// because git does not store empty directories.
func keep(from, to string) error {
	if err := os.RemoveAll(to); err != nil {
		return err
	}
	return filepath.WalkDir(from, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name, err := filepath.Rel(from, path)
		if err != nil {
			return err
		}
		switch {
		case name != "." && strings.HasPrefix(entry.Name(), "."):
			return nil
		case entry.IsDir():
			if err := os.MkdirAll(filepath.Join(to, name), 0o755); err != nil {
				return err
			}
			inside, err := os.ReadDir(path)
			if err == nil && len(inside) == 0 {
				err = os.WriteFile(filepath.Join(to, name, ".keep"), nil, 0o644)
			}
			return err
		}
		data, err := os.ReadFile(path)
		if err != nil {
			return err
		}
		return os.WriteFile(filepath.Join(to, name), data, 0o644)
	})
}

// cutOff copies a run directory and truncates its files, as if it had been copied while the run was
// writing them.
func cutOff(from, to string) error {
	if err := keep(from, to); err != nil {
		return err
	}
	half := func(names ...string) error {
		for _, name := range names {
			path := filepath.Join(to, name)
			info, err := os.Stat(path)
			if err == nil {
				err = os.Truncate(path, info.Size()/2)
			}
			if err != nil {
				return err
			}
		}
		return nil
	}
	err := half(filepath.Join(signal.EventsDir, "0000.jsonl"),
		filepath.Join(signal.EventsDir, "0002.jsonl"),
		filepath.Join(signal.NodesDir, "0001.joined"))
	if err == nil {
		err = os.WriteFile(filepath.Join(to, signal.NameResult), []byte(`{"v":1,"nonce":"`), 0o644)
	}
	if err == nil {
		err = os.Remove(filepath.Join(to, signal.EventsDir, "0003.jsonl"))
	}
	return err
}
