package testbed

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"os/exec"
	"strings"
)

// privilegeDir is the privilege separation directory of sshd. Its path is compiled in, and it does
// not exist if no sshd has been started since boot.
const privilegeDir = "/run/sshd"

// startSSHD starts the sshd from which the nodes mount the share.
func (b *Bed) startSSHD(ctx context.Context) error {
	if err := b.makeKeys(ctx); err != nil {
		return err
	}
	if err := os.MkdirAll(privilegeDir, 0o755); err != nil {
		return fmt.Errorf("cannot make sshd's folder: %v", err)
	}
	sshd, err := exec.LookPath("sshd") // sshd must be started by its absolute path
	if err != nil {
		return fmt.Errorf("cannot find sshd: %v", err)
	}
	server, err := b.serve("sshd", sshd, "-D", "-e", "-f", b.slot.path("etc/sshd_config"))
	if err != nil {
		return err
	}
	// Wait until it listens: sshfs does not retry after a refused connection.
	return server.says(ctx, "Server listening on")
}

// makeKeys generates the keys of the file server and of its clients.
func (b *Bed) makeKeys(ctx context.Context) error {
	for _, name := range []string{"host_key", "client_key"} {
		keygen := exec.CommandContext(ctx, "ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "",
			"-f", b.slot.path("etc/"+name))
		if out, err := keygen.CombinedOutput(); err != nil {
			return fmt.Errorf("cannot make the testbed's %s: %v: %s", name, err,
				strings.TrimSpace(string(out)))
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

// sshfs returns the program that mounts the share on a node by sshfs.
func (b *Bed) sshfs(n *node) *exec.Cmd {
	return n.service(nil, "sshfs", "-f", "-F", b.slot.path("etc/ssh_config"), "-o",
		sshfsOptions(b.cfg.Share)+b.mountOptions(),
		cmp.Or(b.cfg.User, "root")+"@"+b.slot.ctlAddress()+":"+b.Share(), b.Share())
}

// sshfsOptions returns sshfs's options for a kind of share. dir_cache=no keeps sshfs from serving
// listings from a cache, which no network file system does.
func sshfsOptions(share Share) string {
	if share == StaleSSHFS {
		return "dir_cache=no,negative_timeout=20,entry_timeout=20,attr_timeout=20"
	}
	return "dir_cache=no"
}
