package testbed

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
)

// connectPlaces builds the testbed's network. The bridge is inside ctl, so that the host's firewall
// does not affect traffic between nodes, and so that the host has only one link, whatever the
// number of nodes.
func (b *Bed) connectPlaces(ctx context.Context) error {
	s := b.slot
	var batch strings.Builder
	say := func(format string, args ...any) { fmt.Fprintf(&batch, format+"\n", args...) }
	say("link set lo up")
	say("link add bridge type bridge")
	say("addr add %s/16 dev bridge", s.ctlAddress())
	say("link set bridge up")
	say("link add host type veth peer name %s netns %d", s.link(), os.Getpid())
	say("link set host master bridge up")
	for _, n := range b.nodes {
		say("link add %s type veth peer name eth0 netns %d", n.name, n.holder.pid())
		say("link set %s master bridge up", n.name)
	}
	if err := b.ctl.run(ctx, batch.String(), "ip", "-batch", "-"); err != nil {
		return err
	}
	for i, n := range b.nodes {
		address := fmt.Sprintf("link set lo up\naddr add %s/16 dev eth0\nlink set eth0 up\n",
			b.Address(i))
		if err := n.run(ctx, address, "ip", "-batch", "-"); err != nil {
			return err
		}
	}
	host := exec.CommandContext(ctx, "ip", "-batch", "-")
	host.Stdin = strings.NewReader(fmt.Sprintf("addr add %s/16 dev %s\nlink set %s up\n",
		s.hostAddress(), s.link(), s.link()))
	if out, err := host.CombinedOutput(); err != nil {
		return fmt.Errorf("cannot bring up the link %s: %v: %s", s.link(), err,
			strings.TrimSpace(string(out)))
	}
	return nil
}

// setLink sets the link of a node "down" or "up" at the bridge's end. The node keeps its address
// and routes, but receives nothing while the link is down.
func (b *Bed) setLink(ctx context.Context, n *node, state string) error {
	return b.ctl.run(ctx, "", "ip", "link", "set", n.name, state)
}
