package testbed

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
)

// startFileServer starts the file server on ctl from which the nodes mount the share.
func (b *Bed) startFileServer(ctx context.Context) error {
	switch b.cfg.Share {
	case Local:
		return nil
	case MooseFS:
		return b.startMooseFS(ctx)
	case Hostile:
		return b.buildHostile(ctx)
	default:
		return b.startSSHD(ctx)
	}
}

// mountCommand returns the program that mounts the share on a node. It stays in the foreground, so
// that its process id is known.
func (b *Bed) mountCommand(n *node) *exec.Cmd {
	if b.cfg.Share == MooseFS {
		return b.mfsmount(n.place)
	}
	return b.sshfs(n)
}

// mountTries is the maximum number of attempts to mount: a node that was disconnected may have to
// resolve its neighbours' addresses again.
const mountTries = 3

// mountShare mounts the share on node n and returns once it is mounted.
func (b *Bed) mountShare(ctx context.Context, n *node) (mount *daemon, err error) {
	switch b.cfg.Share {
	case Local:
		return nil, nil
	case Hostile:
		return b.mountHostile(ctx, n)
	}
	for range mountTries {
		if mount, err = b.mountOnce(ctx, n); err == nil {
			return mount, nil
		}
		if undo := b.unmountShare(ctx, n); undo != nil {
			return nil, errors.Join(err, undo)
		}
	}
	return nil, err
}

func (b *Bed) mountOnce(ctx context.Context, n *node) (*daemon, error) {
	mount, err := startDaemon(b.mountCommand(n), b.slot.path("log/mount-"+n.name+".log"))
	if err != nil {
		return nil, err
	}
	if err := b.waitMounted(ctx, n.place, mount); err != nil {
		return nil, errors.Join(err, mount.kill(ctx))
	}
	return mount, nil
}

// waitMounted waits until the given process has mounted the share on the place and the share
// responds.
func (b *Bed) waitMounted(ctx context.Context, p *place, mount *daemon) error {
	err := poll(ctx, func() (bool, error) {
		if err := mount.alive(); err != nil {
			return false, err
		}
		return p.hasMount(b.Share())
	})
	if err == nil {
		err = p.run(ctx, "", "stat", b.Share()) // responds when the mount is connected
	}
	if err != nil {
		return fmt.Errorf("cannot mount the share on %s: %v: %s", p.name, err,
			lastLines(mount.log, 5))
	}
	return nil
}

// unmountShare unmounts the share, which may be unresponsive, from the node.
func (b *Bed) unmountShare(ctx context.Context, n *node) error {
	mounted, err := n.hasMount(b.Share())
	if err != nil || !mounted {
		return err
	}
	err = n.run(ctx, "", "umount", "--lazy", b.Share())
	// A client that ends meanwhile, because it cannot connect, has unmounted the share itself.
	if mounted, readErr := n.hasMount(b.Share()); readErr == nil && !mounted {
		return nil
	}
	return err
}

// hasMount reports whether the place has a mount at the path.
func (p *place) hasMount(path string) (bool, error) {
	mounts, err := os.ReadFile(fmt.Sprintf("/proc/%d/mountinfo", p.holder.pid()))
	if err != nil {
		return false, fmt.Errorf("cannot read the mounts of %s: %v", p.name, err)
	}
	return strings.Contains(string(mounts), " "+path+" "), nil
}
