package testbed

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
)

// privilegeDir is where sshd locks its unprivileged half in; its path is compiled in, and it is missing where
// no sshd has been started since boot.
const privilegeDir = "/run/sshd"

// startFileServer starts the sshd that the nodes mount the share from.
func (b *Bed) startFileServer(ctx context.Context) error {
	if b.cfg.Share == Local {
		return nil
	}
	if err := b.makeKeys(ctx); err != nil {
		return err
	}
	if err := os.MkdirAll(privilegeDir, 0o755); err != nil {
		return fmt.Errorf("cannot make sshd's folder: %v", err)
	}
	sshd, err := exec.LookPath("sshd") // it insists on being started by its absolute path
	if err != nil {
		return fmt.Errorf("cannot find sshd: %v", err)
	}
	server, err := b.serve("sshd", sshd, "-D", "-e", "-f", b.slot.path("etc/sshd_config"))
	if err != nil {
		return err
	}
	// A client that comes too early is refused, and sshfs does not try again.
	return poll(ctx, func() (bool, error) {
		if err := server.alive(); err != nil {
			return false, err
		}
		said, err := os.ReadFile(b.slot.path("log/sshd.out"))
		return strings.Contains(string(said), "Server listening on"), err
	})
}

// makeKeys makes the keys of the file server and of its clients.
func (b *Bed) makeKeys(ctx context.Context) error {
	for _, name := range []string{"host_key", "client_key"} {
		keygen := exec.CommandContext(ctx, "ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "",
			"-f", b.slot.path("etc/"+name))
		if out, err := keygen.CombinedOutput(); err != nil {
			return fmt.Errorf("cannot make the testbed's %s: %v: %s", name, err, strings.TrimSpace(string(out)))
		}
	}
	key, err := os.ReadFile(b.slot.path("etc/host_key.pub"))
	if err != nil {
		return fmt.Errorf("cannot read the testbed's host key: %v", err)
	}
	known := b.slot.ctlAddress() + " " + string(key)
	if err := os.WriteFile(b.slot.path("etc/known_hosts"), []byte(known), 0o644); err != nil {
		return fmt.Errorf("cannot write the testbed's known hosts: %v", err)
	}
	return nil
}

// mountOptions returns sshfs's options for a kind of share. dir_cache=no: sshfs would serve listings from a
// cache, which no network file system does.
func mountOptions(share Share) string {
	if share == StaleSSHFS {
		return "dir_cache=no,negative_timeout=20,entry_timeout=20,attr_timeout=20"
	}
	return "dir_cache=no"
}

// mountShare mounts the share on node n and returns once it is mounted.
func (b *Bed) mountShare(ctx context.Context, n *node) (*daemon, error) {
	if b.cfg.Share == Local {
		return nil, nil
	}
	// In the foreground, so that its process is known.
	sshfs := n.service(nil, "sshfs", "-f", "-F", b.slot.path("etc/ssh_config"), "-o", mountOptions(b.cfg.Share),
		"root@"+b.slot.ctlAddress()+":"+b.Share(), b.Share())
	mount, err := startDaemon(sshfs, b.slot.path("log/sshfs-"+n.name+".log"))
	if err != nil {
		return nil, err
	}
	err = poll(ctx, func() (bool, error) {
		if err := mount.alive(); err != nil {
			return false, err
		}
		return n.hasMount(b.Share())
	})
	if err == nil {
		err = n.run(ctx, "", "stat", b.Share()) // answered once it is connected
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("cannot mount the share on %s: %v: %s", n.name, err, lastLines(mount.log, 5)),
			mount.kill(ctx))
	}
	return mount, nil
}

// unmountShare takes the share, that may not answer any more, off the node.
func (b *Bed) unmountShare(ctx context.Context, n *node) error {
	mounted, err := n.hasMount(b.Share())
	if err != nil || !mounted {
		return err
	}
	return n.run(ctx, "", "umount", "--lazy", b.Share())
}

// hasMount tells whether something is mounted at the path on this place.
func (p *place) hasMount(path string) (bool, error) {
	mounts, err := os.ReadFile(fmt.Sprintf("/proc/%d/mountinfo", p.holder.pid()))
	if err != nil {
		return false, fmt.Errorf("cannot read the mounts of %s: %v", p.name, err)
	}
	return strings.Contains(string(mounts), " "+path+" "), nil
}
