package testbed

import (
	"bytes"
	"context"
	"crypto/rand"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"
)

// startServers starts the servers on ctl: munged, slurmctld and the file servers.
func (b *Bed) startServers(ctx context.Context) error {
	if err := b.startMunged(ctx); err != nil {
		return err
	}
	slurmctld, err := b.serve("slurmctld", "slurmctld", "-D", "-f", b.slot.path("slurm.conf"))
	if err != nil {
		return err
	}
	if err := b.startFileServer(ctx); err != nil {
		return err
	}
	// Wait for slurmctld: a slurmd that does not reach it waits a second before it tries again.
	return poll(ctx, func() (bool, error) {
		return b.Command(ctx, "scontrol", "ping").Run() == nil, slurmctld.alive()
	})
}

// startMunged starts a munged with its own key. It does not touch a munged of the host.
func (b *Bed) startMunged(ctx context.Context) error {
	key := make([]byte, 64)
	rand.Read(key)
	if err := os.WriteFile(b.slot.path("etc/munge.key"), key, 0o600); err != nil {
		return fmt.Errorf("cannot write munged's key: %v", err)
	}
	socket := b.slot.path("state/munge.socket")
	// Without --force, munged refuses to run as root.
	munged, err := b.serve("munged", "munged", "--foreground", "--force", "--num-threads=4",
		"--key-file="+b.slot.path("etc/munge.key"), "--seed-file="+b.slot.path("state/munge.seed"),
		"--pid-file="+b.slot.path("pid/munged"), "--socket="+socket)
	if err != nil {
		return err
	}
	return poll(ctx, func() (bool, error) {
		_, err := os.Stat(socket)
		return err == nil, munged.alive()
	})
}

// serve starts a daemon on ctl.
func (b *Bed) serve(name string, argv ...string) (*daemon, error) {
	d, err := startDaemon(b.ctl.service(b.Env(), argv...), b.slot.path("log/"+name+".out"))
	if err != nil {
		return nil, err
	}
	b.servers = append(b.servers, d)
	return d, nil
}

// startNodes mounts the share and starts slurmd on all nodes concurrently.
func (b *Bed) startNodes(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	for _, n := range b.nodes {
		group.Go(func() error { return b.startNode(ctx, n) })
	}
	return group.Wait()
}

func (b *Bed) startNode(ctx context.Context, n *node) error {
	mount, err := b.mountShare(ctx, n)
	if err != nil {
		return err
	}
	slurmd, err := startDaemon(n.service(b.Env(), "slurmd", "-D", "-N", n.name),
		b.slot.path("log/slurmd-"+n.name+".out"))
	n.mu.Lock()
	defer n.mu.Unlock()
	n.mount, n.slurmd = mount, slurmd
	return err
}

// waitReady waits until all nodes are idle and a job on all of them has run.
func (b *Bed) waitReady(ctx context.Context) error {
	if err := b.waitIdle(ctx, b.nodes...); err != nil {
		return err
	}
	if _, err := b.client(ctx, "srun", "-N", strconv.Itoa(len(b.nodes)), "true"); err != nil {
		return err
	}
	return b.waitIdle(ctx, b.nodes...)
}

// requeueTimeout limits how long a requeued job may take to end: KillWait plus a margin.
const requeueTimeout = 60 * time.Second

// Requeue makes Slurm end a batch job and restart it two seconds after Requeue has returned. By
// default Slurm would delay the job until the credentials of its steps have expired (credExpire),
// as it does when a job requeues itself.
func (b *Bed) Requeue(ctx context.Context, job string) error {
	ctx, cancel := context.WithTimeoutCause(ctx, requeueTimeout,
		fmt.Errorf("job %s had not ended %v after it was to be requeued", job, requeueTimeout))
	defer cancel()
	if _, err := b.client(ctx, "scontrol", "requeue", job); err != nil {
		return err
	}
	return poll(ctx, func() (bool, error) {
		state, err := b.client(ctx, "squeue", "--noheader", "--job="+job, "--format=%T")
		if err != nil || state != "PENDING" {
			return false, err // still completing
		}
		// Within a second of the job's end a node would mistake the job's new credentials for the revoked
		// ones.
		_, err = b.client(ctx, "scontrol", "update", "jobid="+job, "starttime=now+2")
		return true, err
	})
}

// client runs a Slurm client as root and returns its standard output.
func (b *Bed) client(ctx context.Context, name string, args ...string) (string, error) {
	var stderr bytes.Buffer
	cmd := b.ctl.command(ctx, b.Share(), b.Env(), append([]string{name}, args...))
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("cannot run %s %s: %v: %s", name, strings.Join(args, " "), err,
			bytes.TrimSpace(stderr.Bytes()))
	}
	return strings.TrimSpace(string(out)), nil
}

// waitIdle waits until no job runs on the nodes and Slurm could start one there.
func (b *Bed) waitIdle(ctx context.Context, nodes ...*node) error {
	var seen string
	err := poll(ctx, func() (bool, error) {
		if err := b.ailing(nodes); err != nil {
			return false, err
		}
		states, err := b.nodeStates(ctx)
		if err != nil {
			seen = err.Error()
			return false, nil // slurmctld may not listen yet
		}
		for _, n := range nodes {
			if states[n.name] != "idle" {
				seen = fmt.Sprint(states)
				return false, nil
			}
		}
		return true, nil
	})
	if err != nil {
		return fmt.Errorf("cannot see the nodes idle: %v; last seen: %s\n%s", err, seen,
			lastLines(b.slot.path("log/slurmctld.log"), 12))
	}
	return nil
}

// ailing returns an error if one of the daemons that ctl and the given nodes need has ended.
func (b *Bed) ailing(nodes []*node) error {
	needed := slices.Clone(b.servers)
	for _, n := range nodes {
		needed = append(needed, n.daemons()...)
	}
	for _, d := range needed {
		if err := d.alive(); err != nil {
			return err
		}
	}
	return nil
}

// nodeStates returns the state of each node as printed by sinfo, such as "idle", or "down*" if the
// node does not respond.
func (b *Bed) nodeStates(ctx context.Context) (map[string]string, error) {
	out, err := b.client(ctx, "sinfo", "--noheader", "--Node", "--format=%N %T")
	if err != nil {
		return nil, err
	}
	states := make(map[string]string)
	for line := range strings.Lines(out) {
		if name, state, ok := strings.Cut(strings.TrimSpace(line), " "); ok {
			states[name] = state
		}
	}
	return states, nil
}
