package testbed

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"syscall"
	"time"
)

// faultTimeout limits the duration of a fault's injection: a process that waits for a dead mount
// may not react to a signal at once.
const faultTimeout = 15 * time.Second

var errFaultTimeout = fmt.Errorf("its processes did not react to the signal within %v",
	faultTimeout)

// healTimeout limits how long a node may take to come back: slurmctld may have to query the node
// again about the state of its job.
const healTimeout = 60 * time.Second

// LinkDown disconnects node i from the network, including the shared file system and Slurm. Its
// processes continue to run.
func (b *Bed) LinkDown(ctx context.Context, i int) error {
	b.logf("%s: link down", b.Node(i))
	return b.setLink(ctx, b.nodes[i], "down")
}

// LinkUp undoes LinkDown. TCP connections continue at their next retransmission. Its interval has
// doubled repeatedly, so this may take as long again as the link was down.
func (b *Bed) LinkUp(ctx context.Context, i int) error {
	b.logf("%s: link up", b.Node(i))
	return b.setLink(ctx, b.nodes[i], "up")
}

// LoseNode simulates a power failure of node i: the link goes down first, so that no peer is
// notified, then all processes are killed, including slurmd and the mount. HealNode brings the node
// back.
func (b *Bed) LoseNode(ctx context.Context, i int) error {
	b.logf("%s: lost", b.Node(i))
	return b.lose(ctx, b.nodes[i])
}

func (b *Bed) lose(ctx context.Context, n *node) error {
	ctx, cancel := context.WithTimeoutCause(ctx, faultTimeout, errFaultTimeout)
	defer cancel()
	if err := b.setLink(ctx, n, "down"); err != nil {
		return err
	}
	err := killAll(ctx, func() ([]Process, error) { return b.membersOf(n, n.isHolder) })
	for _, d := range n.daemons() {
		err = errors.Join(err, d.wait(ctx))
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.slurmd, n.mount, n.panel, n.disk, n.diskPanel = nil, nil, nil, nil, nil
	return err
}

// HangNode stops (SIGSTOP) all processes of node i except its mount. Connections stay open, but
// nothing responds.
func (b *Bed) HangNode(ctx context.Context, i int) error {
	b.logf("%s: hung", b.Node(i))
	ctx, cancel := context.WithTimeoutCause(ctx, faultTimeout, errFaultTimeout)
	defer cancel()
	n := b.nodes[i]
	signalled := make(map[int]bool)
	err := poll(ctx, func() (bool, error) {
		running, err := b.membersOf(n, func(p Process) bool {
			// A process that waits for the shared file system (D) stops when the request completes.
			stops := p.State == "T" || p.State == "D" && signalled[p.PID]
			return stops || n.isHolder(p) || n.isMount(p)
		})
		if err != nil {
			return false, err
		}
		for _, p := range running {
			signalled[p.PID] = true
		}
		return len(running) == 0, signalAll(running, syscall.SIGSTOP)
	})
	if err != nil {
		return fmt.Errorf("cannot hang %s: %v", n.name, err)
	}
	return nil
}

// ResumeNode undoes HangNode.
func (b *Bed) ResumeNode(_ context.Context, i int) error {
	b.logf("%s: resumed", b.Node(i))
	n := b.nodes[i]
	own, err := b.membersOf(n, n.isHolder)
	if err != nil {
		return err
	}
	return signalAll(own, syscall.SIGCONT)
}

// HealNode brings node i back after any fault, as a reboot would: link, mount and slurmd. It
// returns when Slurm reports the node as idle, which requires that the job lost on it has ended.
// The node's private folders keep their content.
func (b *Bed) HealNode(ctx context.Context, i int) error {
	ctx, cancel := context.WithTimeoutCause(ctx, healTimeout,
		fmt.Errorf("%s was not restarted within %v", b.Node(i), healTimeout))
	defer cancel()
	n := b.nodes[i]
	steps := []func(context.Context, *node) error{
		b.lose, // puts the node into a known state, whatever the fault was
		b.unmountShare,
		func(ctx context.Context, n *node) error { return b.setLink(ctx, n, "up") },
		b.startNode,
		b.endCompletion,
		b.undrain,
		func(ctx context.Context, n *node) error { return b.waitIdle(ctx, n) },
	}
	for _, step := range steps {
		if err := step(ctx, n); err != nil {
			return fmt.Errorf("cannot heal %s: %v", n.name, err)
		}
	}
	b.logf("%s: healed", n.name)
	return nil
}

// endCompletion sets the node to down in Slurm if a job is still completing on it. Otherwise Slurm
// would query a recovered node about its job only KillWait after the last failed query.
func (b *Bed) endCompletion(ctx context.Context, n *node) error {
	states, err := b.nodeStates(ctx)
	if err != nil || !strings.HasPrefix(states[n.name], "completing") {
		return err
	}
	_, err = b.client(ctx, "scontrol", "update", "nodename="+n.name, "state=down", "reason=healed")
	return err
}

// undrain makes the node available to jobs again after Slurm, or a test, has drained it.
func (b *Bed) undrain(ctx context.Context, n *node) error {
	var refused error
	err := poll(ctx, func() (bool, error) {
		states, err := b.nodeStates(ctx)
		if err != nil {
			return false, err
		}
		state := states[n.name]
		if !strings.HasPrefix(state, "down") && !strings.HasPrefix(state, "drain") {
			return true, nil // Slurm refuses to resume a node that is in order
		}
		// Slurm also refuses if the node has come back by itself since the last query.
		_, refused = b.client(ctx, "scontrol", "update", "nodename="+n.name, "state=resume")
		return refused == nil, nil
	})
	if err != nil {
		return errors.Join(err, refused)
	}
	return nil
}

func (n *node) isHolder(p Process) bool { return p.PID == n.holder.pid() }
