package testbed

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"syscall"
	"time"
)

// faultTimeout bounds the faults: a process that waits for a dead mount may not heed a signal at
// once.
const faultTimeout = 15 * time.Second

var errFaultTimeout = fmt.Errorf("its processes did not heed the signal within %v", faultTimeout)

// healTimeout bounds the coming back of a node: slurmctld may have to ask it again what became of
// its job.
const healTimeout = 60 * time.Second

// LinkDown cuts node i off the network, its share and Slurm included. Its processes go on.
func (b *Bed) LinkDown(ctx context.Context, i int) error {
	b.logf("%s: link down", b.Node(i))
	return b.setLink(ctx, b.nodes[i], "down")
}

// LinkUp undoes LinkDown. What waits on TCP goes on at its next retransmission, whose pause has
// doubled since the cut: up to as long again as the link was down.
func (b *Bed) LinkUp(ctx context.Context, i int) error {
	b.logf("%s: link up", b.Node(i))
	return b.setLink(ctx, b.nodes[i], "up")
}

// LoseNode makes node i end as by a power cut: its link goes down first, so that nobody hears of
// it, then all of its processes are killed, slurmd and the mount too. HealNode brings it back.
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

// HangNode stops (SIGSTOP) all processes of node i but its mount: its connections stay, nothing
// answers.
func (b *Bed) HangNode(ctx context.Context, i int) error {
	b.logf("%s: hung", b.Node(i))
	ctx, cancel := context.WithTimeoutCause(ctx, faultTimeout, errFaultTimeout)
	defer cancel()
	n := b.nodes[i]
	signalled := make(map[int]bool)
	err := poll(ctx, func() (bool, error) {
		running, err := b.membersOf(n, func(p Process) bool {
			// One that waits for the share (D) stops when it is answered.
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

// HealNode brings node i back after whatever was done to it, as by a reboot: link, mount and
// slurmd. It returns when Slurm has the node idle, which needs the job that was lost on it to have
// ended. Its private folders keep their content.
func (b *Bed) HealNode(ctx context.Context, i int) error {
	ctx, cancel := context.WithTimeoutCause(ctx, healTimeout,
		fmt.Errorf("%s was not back within %v", b.Node(i), healTimeout))
	defer cancel()
	n := b.nodes[i]
	steps := []func(context.Context, *node) error{
		b.lose, // whatever state it is in, from here it is a lost one
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

// endCompletion takes the node down for Slurm where a job is still ending on it. Of a node that is
// back Slurm would ask once more, a KillWait after it has asked in vain, whether its job has ended.
func (b *Bed) endCompletion(ctx context.Context, n *node) error {
	states, err := b.nodeStates(ctx)
	if err != nil || !strings.HasPrefix(states[n.name], "completing") {
		return err
	}
	_, err = b.client(ctx, "scontrol", "update", "nodename="+n.name, "state=down", "reason=healed")
	return err
}

// undrain takes back what made Slurm, or a test, close the node to jobs.
func (b *Bed) undrain(ctx context.Context, n *node) error {
	var refused error
	err := poll(ctx, func() (bool, error) {
		states, err := b.nodeStates(ctx)
		if err != nil {
			return false, err
		}
		state := states[n.name]
		if !strings.HasPrefix(state, "down") && !strings.HasPrefix(state, "drain") {
			return true, nil // Slurm refuses to resume a node that it does not think ill
		}
		// It refuses also where the node has come back by itself since that look.
		_, refused = b.client(ctx, "scontrol", "update", "nodename="+n.name, "state=resume")
		return refused == nil, nil
	})
	if err != nil {
		return errors.Join(err, refused)
	}
	return nil
}

func (n *node) isHolder(p Process) bool { return p.PID == n.holder.pid() }
