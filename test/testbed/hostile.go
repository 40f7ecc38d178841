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

// panel turns the knobs of a node's mount of a hostile share.
type panel struct {
	mu   sync.Mutex
	in   io.Writer     // guarded by mu
	said *os.File      // what the mount's server says
	out  *bufio.Reader // the same by lines, guarded by mu
}

// gentle are the knobs of a mount with which nothing is wrong. Who is killed with a file open on a stalled mount
// ends at once, as on an NFS.
var gentle = hostile.Knobs{NoFlush: true}

// buildHostile builds the server of hostile mounts.
func (b *Bed) buildHostile(ctx context.Context) error {
	_, err := hostile.Build(ctx, b.Bin(), false)
	return err
}

// mountHostile shows the host's folder to node n at the same path, through a file system whose faults are ours. The
// server opens the folder before the mount hides it.
func (b *Bed) mountHostile(ctx context.Context, n *node) (*daemon, error) {
	knobs, err := json.Marshal(gentle)
	if err != nil {
		return nil, err
	}
	cmd := n.service(nil, b.slot.path("bin/hostile"), "-from", b.Share(), "-at", b.Share(), "-knobs", string(knobs))
	in, err := cmd.StdinPipe()
	if err != nil {
		return nil, fmt.Errorf("cannot make the pipe of a mount: %v", err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, errors.Join(fmt.Errorf("cannot make the pipe of a mount: %v", err), in.Close())
	}
	mount, err := startDaemon(cmd, b.slot.path("log/mount-"+n.name+".log"))
	if err != nil {
		return nil, errors.Join(err, in.Close())
	}
	p := &panel{in: in, said: out.(*os.File), out: bufio.NewReader(out)}
	if err := p.heard(ctx); err != nil {
		return nil, errors.Join(err, mount.kill(ctx))
	}
	n.mu.Lock()
	n.panel = p
	n.mu.Unlock()
	return mount, nil
}

// TurnShare sets what is wrong with the share of node i from now on, on a bed of the kind Hostile; HealShare undoes
// it. The node's other faults don't reach the share: it is not on the bed's network.
func (b *Bed) TurnShare(ctx context.Context, i int, knobs hostile.Knobs) error {
	n := b.nodes[i]
	n.mu.Lock()
	p := n.panel
	n.mu.Unlock()
	if p == nil {
		return fmt.Errorf("cannot turn the share of %s: it is lost, or its share is not of the kind %s", n.name, Hostile)
	}
	knobs.NoFlush = true
	said, err := json.Marshal(knobs)
	if err != nil {
		return err
	}
	b.logf("%s: share %s", n.name, said)
	p.mu.Lock()
	defer p.mu.Unlock()
	if _, err := p.in.Write(append(said, '\n')); err != nil {
		return fmt.Errorf("cannot turn the share of %s: %v", n.name, err)
	}
	return p.heard(ctx)
}

// HealShare undoes TurnShare.
func (b *Bed) HealShare(ctx context.Context, i int) error { return b.TurnShare(ctx, i, gentle) }

// heard reads one answer of the server's. The caller holds p.mu, or is alone.
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
