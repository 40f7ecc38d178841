package testbed

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"github.com/bringupd/bringupd/test/hostile"
)

// panel controls the faults of a node's hostile mount.
type panel struct {
	mu   sync.Mutex
	in   io.Writer     // guarded by mu
	said *os.File      // standard output of the mount's server
	out  *bufio.Reader // said, buffered by line; guarded by mu
}

// gentle are the settings of a mount without faults. With NoFlush, a killed process that has a file
// open on a stalled mount ends at once, as on NFS.
var gentle = hostile.Knobs{NoFlush: true}

// buildHostile builds the server for hostile mounts.
func (b *Bed) buildHostile(ctx context.Context) error {
	_, err := hostile.Build(ctx, b.Bin(), false)
	return err
}

// mountHostile mounts the host's folder on node n at the same path, through a file system with
// injected faults. The server opens the folder before the mount hides it.
func (b *Bed) mountHostile(ctx context.Context, n *node) (*daemon, error) {
	mount, p, err := b.serveHostile(ctx, n, b.Share(), b.Share(), "mount-"+n.name)
	if err != nil {
		return nil, err
	}
	n.mu.Lock()
	n.panel = p
	n.mu.Unlock()
	return mount, nil
}

// serveHostile starts a server on node n that mounts the folder from at the path at, and waits
// until the mount is in place.
func (b *Bed) serveHostile(ctx context.Context, n *node, from, at, log string) (*daemon,
	*panel, error) {
	knobs, err := json.Marshal(gentle)
	if err != nil {
		return nil, nil, err
	}
	cmd := n.service(nil, b.slot.path("bin/hostile"), "-from", from, "-at", at, "-knobs",
		string(knobs))
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, nil, fmt.Errorf("cannot make the pipe of a mount: %v", err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, nil, errors.Join(fmt.Errorf("cannot make the pipe of a mount: %v", err),
			in.Close())
	}
	mount, err := startDaemon(cmd, b.slot.path("log/"+log+".log"))
	if err != nil {
		return nil, nil, errors.Join(err, in.Close())
	}
	p := &panel{in: in, said: out.(*os.File), out: bufio.NewReader(out)}
	if err := p.heard(ctx); err != nil {
		return nil, nil, errors.Join(err, mount.kill(ctx))
	}
	return mount, p, nil
}

// MountDisk gives node i a private disk at the path at, whose faults TurnDisk sets. The disk is a
// hostile mount of the folder from, which is created if necessary. The testbed's Share must be
// Hostile.
func (b *Bed) MountDisk(ctx context.Context, i int, from, at string) error {
	n := b.nodes[i]
	if err := n.run(ctx, "", "mkdir", "-p", from, at); err != nil {
		return err
	}
	disk, p, err := b.serveHostile(ctx, n, from, at, "disk-"+n.name)
	if err != nil {
		return fmt.Errorf("cannot give %s a disk: %v", n.name, err)
	}
	n.mu.Lock()
	n.disk, n.diskPanel = disk, p
	n.mu.Unlock()
	return nil
}

// TurnDisk sets the faults of node i's disk (see MountDisk). They last until the next call.
func (b *Bed) TurnDisk(ctx context.Context, i int, knobs hostile.Knobs) error {
	n := b.nodes[i]
	n.mu.Lock()
	p := n.diskPanel
	n.mu.Unlock()
	if p == nil {
		return fmt.Errorf("cannot turn the disk of %s: it is lost, or it has none", n.name)
	}
	b.logf("%s: disk %+v", n.name, knobs)
	return p.turn(ctx, n, knobs)
}

// TurnShare sets the faults of node i's mount of a Hostile share; HealShare removes them. The
// node's other faults do not affect the share, because it does not use the testbed's network.
func (b *Bed) TurnShare(ctx context.Context, i int, knobs hostile.Knobs) error {
	n := b.nodes[i]
	n.mu.Lock()
	p := n.panel
	n.mu.Unlock()
	if p == nil {
		return fmt.Errorf("cannot turn the share of %s: it is lost, or its share is not of the "+
			"kind %s", n.name, Hostile)
	}
	b.logf("%s: share %+v", n.name, knobs)
	return p.turn(ctx, n, knobs)
}

// HealShare undoes TurnShare.
func (b *Bed) HealShare(ctx context.Context, i int) error { return b.TurnShare(ctx, i, gentle) }

// turn applies the knobs, and returns when they are in effect.
func (p *panel) turn(ctx context.Context, n *node, knobs hostile.Knobs) error {
	knobs.NoFlush = true
	said, err := json.Marshal(knobs)
	if err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	if _, err := p.in.Write(append(said, '\n')); err != nil {
		return fmt.Errorf("cannot turn the knobs of a mount of %s: %v", n.name, err)
	}
	return p.heard(ctx)
}

// heard reads one reply of the server. The caller holds p.mu or is the only user.
func (p *panel) heard(ctx context.Context) error {
	stop := context.AfterFunc(ctx, func() { _ = p.said.SetReadDeadline(time.Unix(1, 0)) })
	defer stop()
	line, err := p.out.ReadBytes('\n')
	if err != nil {
		return fmt.Errorf("the server of a hostile share says nothing: %v", err)
	}
	var answer struct{ Error string }
	if err := json.Unmarshal(bytes.TrimSpace(line), &answer); err != nil {
		return fmt.Errorf("the server of a hostile share says %q: %v", line, err)
	}
	if answer.Error != "" {
		return errors.New(answer.Error)
	}
	return nil
}
