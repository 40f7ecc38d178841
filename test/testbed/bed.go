// Package testbed runs a real Slurm of several nodes on one machine, for tests and for a
// developer's hands.
//
// Every node is a place of its own: a network namespace behind a bridge, a host name, and a mount
// namespace with its own /tmp, /var/tmp, /dev/shm and /etc/hosts, and with a mount of its own of
// the one share. What runs on it is Debian's slurmd. Another place, ctl, is the login node:
// slurmctld, munged, the file server and the clients (srun, sbatch, …) run there. Nodes can be
// cut off, hung, lost and brought back.
//
// It needs root, and takes what it lacks from Debian's packages (see Install). Several beds live
// side by side. Of the host a bed takes one network link, one folder, and on a MooseFS one mount in
// that folder, all gone after Close, and the empty folder /run/sshd that sshd wants.
package testbed

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"sync"
	"time"
)

// Share is how the nodes see the bed's share.
type Share string

const (
	// Local lets every node see the host's folder itself: always coherent.
	Local Share = "local"
	// SSHFS gives each node a FUSE mount of its own, that caches nothing for longer than a second.
	SSHFS Share = "sshfs"
	// StaleSSHFS gives each node a FUSE mount that caches attributes, names and missing names for 20
	// s, as an NFS client at its worst. Listings are always fresh.
	StaleSSHFS Share = "sshfs-stale"
	// MooseFS is a distributed file system with a metadata server and a chunkserver of its own, and
	// gives each node a FUSE mount with the caches that MooseFS has by itself: attributes and
	// directories for 1 s.
	MooseFS Share = "moosefs"
	// Hostile gives each node a FUSE mount of ours of the host's folder, whose faults TurnShare sets.
	// It does not go over the bed's network.
	Hostile Share = "hostile"
)

// Shares are all kinds of shares there are.
var Shares = []Share{Local, SSHFS, StaleSSHFS, MooseFS, Hostile}

// startTimeout bounds Start, but for the packages that it may install.
const startTimeout = 90 * time.Second

// Config says what bed Start builds.
type Config struct {
	Nodes     int      // how many nodes, 1 to 200; they are called n0, n1, …
	Share     Share    // how the nodes see the share; SSHFS where empty
	CPUs      int      // CPUs that Slurm believes a node has; 8 where zero
	GPUs      int      // GPUs that Slurm believes a node has (behind each is a /dev/null)
	SlurmConf []string // further lines of slurm.conf
	// GridEngine has a Grid Engine run beside Slurm, on the same nodes; it must have been unpacked
	// (test/setup.sh).
	GridEngine bool
	Log        io.Writer // what Start and the faults have to say; nil for silence
}

// Bed is a running Slurm. Its methods may be called from several goroutines, but for one node only
// one of the faults (LoseNode, HangNode, HealNode, …) at a time.
type Bed struct {
	cfg   Config
	slot  *slot
	ctl   *place
	nodes []*node

	watchdog *daemon
	// munged, slurmctld and the file servers, all of ctl; on a MooseFS ctl's mount too
	servers []*daemon

	close func() error // tears down, once
}

// node is one compute node.
type node struct {
	*place
	mu     sync.Mutex // guards the fields below
	slurmd *daemon
	execd  *daemon // Grid Engine's; nil without one
	mount  *daemon // sshfs, mfsmount or hostile; nil on a local share
	panel  *panel  // of a hostile mount; nil on other shares
	disk   *daemon // that serves a disk of its own; nil without MountDisk
	// diskPanel is that disk's.
	diskPanel *panel
}

// Start builds a bed and returns once every node is idle and a job over all of them has run. Where
// it cannot, nothing of the bed is left, and the error has the last lines of the log of what
// failed. It first removes the beds that killed processes left behind.
func Start(ctx context.Context, cfg Config) (*Bed, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
		return nil, err
	}
	if err := install(ctx, cfg.Share.needs()); err != nil {
		return nil, err
	}
	ctx, cancel := context.WithTimeoutCause(ctx, startTimeout,
		fmt.Errorf("the bed was not ready within %v", startTimeout))
	defer cancel()
	if err := Sweep(ctx); err != nil {
		return nil, err
	}
	s, err := claimSlot()
	if err != nil {
		return nil, err
	}
	b := &Bed{cfg: cfg, slot: s}
	b.close = sync.OnceValue(func() error { return b.tearDown(context.WithoutCancel(ctx)) })
	began := time.Now()
	if err := b.build(ctx); err != nil {
		return nil, errors.Join(fmt.Errorf("cannot start the testbed in %s: %v", s.dir, err), b.Close())
	}
	b.logf("%d nodes on a share of kind %s are ready after %v", cfg.Nodes, cfg.Share,
		time.Since(began).Round(time.Millisecond))
	return b, nil
}

func (c Config) withDefaults() (Config, error) {
	if c.Nodes < 1 || c.Nodes > maxNodes {
		return c, fmt.Errorf("cannot start a testbed of %d nodes: give 1 to %d", c.Nodes, maxNodes)
	}
	if c.Share == "" {
		c.Share = SSHFS
	}
	if !slices.Contains(Shares, c.Share) {
		return c, fmt.Errorf("cannot start a testbed on a share of kind %q: give one of %v", c.Share, Shares)
	}
	if c.CPUs == 0 {
		c.CPUs = 8
	}
	if c.Log == nil {
		c.Log = io.Discard
	}
	if os.Geteuid() != 0 {
		return c, errors.New("cannot start a testbed: namespaces and mounts need root; run as root")
	}
	return c, nil
}

// build brings the bed up step by step; what it leaves half done is Close's to remove.
func (b *Bed) build(ctx context.Context) error {
	steps := []struct {
		name string
		do   func(context.Context) error
	}{
		{"watchdog", b.startWatchdog},
		{"places", b.startPlaces},
		{"network", b.connectPlaces},
		{"servers", b.startServers},
		{"nodes", b.startNodes},
		{"first job", b.waitReady},
		{"Grid Engine", b.startGridEngine},
	}
	for _, step := range steps {
		began := time.Now()
		if err := step.do(ctx); err != nil {
			return fmt.Errorf("%s: %v", step.name, err)
		}
		b.logf("%s: %v", step.name, time.Since(began).Round(time.Millisecond))
	}
	return nil
}

// Close ends every process of the bed, whatever it is doing, and removes its namespaces, mounts,
// links and folder. Further calls return what the first one did.
func (b *Bed) Close() error { return b.close() }

func (b *Bed) tearDown(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, killTimeout, errors.New("its processes do not die"))
	defer cancel()
	// The holders last: as long as they live it is known which network namespaces are the bed's.
	err := errors.Join(killAll(ctx, b.membersButHolders), killAll(ctx, b.members))
	for _, d := range b.daemons() {
		err = errors.Join(err, d.wait(ctx))
	}
	if b.watchdog != nil {
		err = errors.Join(err, b.watchdog.kill(ctx))
	}
	unlock, lockErr := lockRoot() // so that no Sweep takes a half removed bed for a dead one
	if lockErr != nil {
		return errors.Join(err, lockErr)
	}
	defer unlock()
	return errors.Join(err, b.slot.release())
}

// daemons returns all that the bed itself has started in its places.
func (b *Bed) daemons() []*daemon {
	all := slices.Clone(b.servers)
	for _, p := range b.places() {
		all = append(all, p.holder)
	}
	for _, n := range b.nodes {
		all = append(all, n.daemons()...)
	}
	return all
}

// daemons returns what the bed has started on the node, as far as it has.
func (n *node) daemons() []*daemon {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.DeleteFunc([]*daemon{n.slurmd, n.execd, n.mount, n.disk}, func(d *daemon) bool { return d == nil })
}

// Share returns the absolute path of the share, the same on every node, on ctl and on the host. On
// the host and on ctl it is the backing folder; on a MooseFS, which has none, it is one mount that
// caches nothing.
func (b *Bed) Share() string { return b.slot.path("share") }

// Bin returns a folder for programs: the same path everywhere, seen by every node not through the
// share.
func (b *Bed) Bin() string { return b.slot.path("bin") }

// Logs returns the folder with the logs of Slurm's daemons. Close removes it.
func (b *Bed) Logs() string { return b.slot.path("log") }

// Env returns the variables that a client of Slurm, or of Grid Engine, needs to find this bed.
func (b *Bed) Env() []string {
	env := []string{"SLURM_CONF=" + b.slot.path("slurm.conf")}
	if b.cfg.GridEngine {
		env = append(env, b.gridEngineEnv()...)
	}
	return env
}

// Nodes returns how many nodes the bed has.
func (b *Bed) Nodes() int { return len(b.nodes) }

// Node returns the name of node i, which is its host name too.
func (b *Bed) Node(i int) string { return b.nodes[i].name }

// Address returns the IPv4 address of node i, reachable from all nodes and from the host.
func (b *Bed) Address(i int) string { return b.slot.nodeAddress(i) }

// Command returns a Slurm client (srun, sbatch, scancel, …), or any other program, to be run on
// the login node, ctl: it sees the host's files and reaches and resolves the nodes. Its working
// directory is the share. When ctx is done it gets SIGTERM, so that srun can end its step, and ten
// seconds later SIGKILL.
func (b *Bed) Command(ctx context.Context, name string, args ...string) *exec.Cmd {
	return b.ctl.command(ctx, b.Share(), b.Env(), append([]string{name}, args...))
}

// OnNode returns a command to be run on node i but outside Slurm, with the share as its working
// directory. On a lost node, which has no share, it fails. It is one of the node's processes:
// HangNode and LoseNode do not spare it.
func (b *Bed) OnNode(ctx context.Context, i int, argv ...string) *exec.Cmd {
	return b.nodes[i].command(ctx, b.Share(), b.Env(), argv)
}

// Enter returns the command line that opens a shell on ctl (for "ctl") or on the node of the given
// name.
func (b *Bed) Enter(name string) (string, error) {
	for _, p := range b.places() {
		if p.name == name {
			return fmt.Sprintf("nsenter --target %d --net --uts --mount --wdns=%s", p.holder.pid(), b.Share()), nil
		}
	}
	return "", fmt.Errorf("cannot enter %q: the bed has ctl and n0 to n%d", name, len(b.nodes)-1)
}

func (b *Bed) places() []*place {
	var all []*place
	if b.ctl != nil {
		all = append(all, b.ctl)
	}
	for _, n := range b.nodes {
		all = append(all, n.place)
	}
	return all
}

func (b *Bed) logf(format string, args ...any) {
	_, _ = fmt.Fprintf(b.cfg.Log, "testbed %d: %s\n", b.slot.number, fmt.Sprintf(format, args...))
}
