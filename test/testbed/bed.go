// Package testbed runs a real Slurm cluster of several nodes on one machine, for tests and for
// interactive use by developers.
//
// Each node has its own network namespace (behind a bridge), its own host name, and its own mount
// namespace with a private /tmp, /var/tmp, /dev/shm and /etc/hosts and its own mount of the shared
// file system. Debian's slurmd runs in it. One more set of namespaces, ctl, is the login node:
// slurmctld, munged, the file server and the clients (srun, sbatch, …) run there. Tests can
// disconnect, suspend, destroy and restore nodes.
//
// The package needs root, and installs the Debian packages that are missing (see Install). Several
// testbeds can run at the same time. On the host, a testbed uses one network link, one folder and,
// with MooseFS, one mount in that folder. Close removes them all. It leaves the empty folder
// /run/sshd, which sshd requires.
package testbed

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/user"
	"slices"
	"strings"
	"sync"
	"time"
)

// Share is a kind of shared file system that the nodes of a testbed mount.
type Share string

const (
	// Local lets every node see the host's folder directly. It is always coherent.
	Local Share = "local"
	// SSHFS gives each node its own FUSE mount, which caches nothing for longer than a second.
	SSHFS Share = "sshfs"
	// StaleSSHFS gives each node a FUSE mount that caches attributes, names and missing names for 20
	// s, like the worst NFS clients. Listings are always fresh.
	StaleSSHFS Share = "sshfs-stale"
	// MooseFS is a distributed file system with its own metadata server and chunkserver. It gives each
	// node a FUSE mount with MooseFS's default caches: attributes and directories for 1 s.
	MooseFS Share = "moosefs"
	// Hostile gives each node a FUSE mount of the host's folder, served by test/hostile. TurnShare
	// sets its faults. It does not use the testbed's network.
	Hostile Share = "hostile"
)

// Shares lists all kinds of shared file systems.
var Shares = []Share{Local, SSHFS, StaleSSHFS, MooseFS, Hostile}

// startTimeout limits the duration of Start, without the installation of packages.
const startTimeout = 90 * time.Second

// Config describes the testbed that Start builds.
type Config struct {
	Nodes int   // number of nodes, 1 to 200; they are called n0, n1, …
	Share Share // kind of shared file system; empty means SSHFS
	CPUs  int   // CPUs of a node in Slurm's configuration; 0 means 8
	GPUs  int   // GPUs of a node in Slurm's configuration
	// Site configures Slurm as on a site whose nodes are shared by jobs, see siteConf. Only one such
	// testbed may run at a time, because the names of its control groups are those of the nodes.
	Site      bool
	SlurmConf []string // additional lines of slurm.conf
	// User is the name of a user of the host who owns the share and runs the clients of Slurm; empty
	// means root. The share must then be Local, SSHFS or StaleSSHFS. The nodes are those of a typical
	// site: processes of other users are hidden, and TMPDIR has a long path.
	User string
	Log  io.Writer // receives messages of Start and of the faults; nil discards them
}

// Bed is a running Slurm cluster. Its methods may be called from several goroutines, but only one
// fault (LoseNode, HangNode, HealNode, …) at a time per node.
type Bed struct {
	cfg   Config
	slot  *slot
	ctl   *place
	nodes []*node

	cpu      string     // CPU on which the nodes' namespaces are created; empty for any
	user     *user.User // nil if root runs the clients
	watchdog *daemon
	// munged, slurmctld and the file servers, all on ctl; with MooseFS also the mount on ctl
	servers []*daemon

	close func() error // tears down; only the first call has an effect
}

// node is a compute node.
type node struct {
	*place
	mu     sync.Mutex // guards the fields below
	slurmd *daemon
	mount  *daemon // sshfs, mfsmount or hostile; nil if Share is Local
	panel  *panel  // controls a hostile mount; nil on other shares
	disk   *daemon // serves the node's private disk; nil without MountDisk
	// diskPanel controls the faults of the private disk.
	diskPanel *panel
}

// Start builds a testbed and returns when every node is idle and a job on all nodes has run. If it
// fails, it removes everything it has created, and the error contains the last log lines of the
// failed program. First it removes testbeds whose owners were killed.
func Start(ctx context.Context, cfg Config) (*Bed, error) {
	cfg, err := cfg.withDefaults()
	if err != nil {
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
		return nil, errors.Join(fmt.Errorf("cannot start the testbed in %s: %v", s.dir, err),
			b.Close())
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
		return c, fmt.Errorf("cannot start a testbed on a share of kind %q: give one of %v",
			c.Share, Shares)
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

// build performs all steps in order. If a step fails, Close removes what exists by then.
func (b *Bed) build(ctx context.Context) error {
	steps := []struct {
		name string
		do   func(context.Context) error
	}{
		{"watchdog", b.startWatchdog},
		{"user", b.findUser},
		{"places", b.startPlaces},
		{"network", b.connectPlaces},
		{"servers", b.startServers},
		{"nodes", b.startNodes},
		{"first job", b.waitReady},
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

// Close ends every process of the testbed, in whatever state it is, and removes the testbed's
// namespaces, mounts, links and folder. Further calls return the result of the first one.
func (b *Bed) Close() error { return b.close() }

func (b *Bed) tearDown(ctx context.Context) error {
	ctx, cancel := context.WithTimeoutCause(ctx, killTimeout,
		errors.New("its processes do not die"))
	defer cancel()
	// Kill the holders last: while they live, they identify the network namespaces of the testbed.
	err := errors.Join(killAll(ctx, b.membersButHolders), killAll(ctx, b.members))
	for _, d := range b.daemons() {
		err = errors.Join(err, d.wait(ctx))
	}
	if b.watchdog != nil {
		err = errors.Join(err, b.watchdog.kill(ctx))
	}
	unlock, lockErr := lockRoot() // keeps Sweep from removing this half-removed testbed
	if lockErr != nil {
		return errors.Join(err, lockErr)
	}
	defer unlock()
	return errors.Join(err, b.slot.release())
}

// daemons returns all long-lived processes that the testbed itself has started.
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

// daemons returns the testbed's own processes on the node, without those that have not started yet.
func (n *node) daemons() []*daemon {
	n.mu.Lock()
	defer n.mu.Unlock()
	return slices.DeleteFunc([]*daemon{n.slurmd, n.mount, n.disk}, func(d *daemon) bool {
		return d == nil
	})
}

// Share returns the absolute path of the shared directory, which is the same on every node, on ctl
// and on the host. On the host and on ctl it is the backing folder; with MooseFS, which has no
// backing folder, it is a mount that caches nothing.
func (b *Bed) Share() string { return b.slot.path("share") }

// Bin returns a folder for programs. Its path is the same everywhere, and every node sees it
// directly, without the shared file system.
func (b *Bed) Bin() string { return b.slot.path("bin") }

// Logs returns the folder with the logs of Slurm's daemons. Close removes it.
func (b *Bed) Logs() string { return b.slot.path("log") }

// SlurmdLogs returns up to n lines from the end of each node's log of slurmd, for the report of a
// failure: the clients of Slurm do not say why they could not reach it.
func (b *Bed) SlurmdLogs(n int) string {
	var all strings.Builder
	for _, node := range b.nodes {
		path := b.slot.path("log/slurmd-" + node.name + ".log")
		fmt.Fprintf(&all, "slurmd of %s:\n%s\n", node.name, lastLines(path, n))
	}
	return all.String()
}

// Env returns the variables that clients of Slurm need to find this testbed.
func (b *Bed) Env() []string {
	return []string{"SLURM_CONF=" + b.slot.path("slurm.conf")}
}

// Nodes returns the number of nodes.
func (b *Bed) Nodes() int { return len(b.nodes) }

// Node returns the name of node i, which is also its host name.
func (b *Bed) Node(i int) string { return b.nodes[i].name }

// Address returns the IPv4 address of node i, which all nodes and the host can reach.
func (b *Bed) Address(i int) string { return b.slot.nodeAddress(i) }

// Command returns a command that runs a Slurm client (srun, sbatch, scancel, …) or any other
// program on the login node, ctl. It sees the host's files, and can resolve and reach the nodes.
// Its working directory is the shared directory. When ctx is done, the program receives SIGTERM, so
// that srun can end its step, and ten seconds later SIGKILL.
func (b *Bed) Command(ctx context.Context, name string, args ...string) *exec.Cmd {
	return b.ctl.command(ctx, b.Share(), b.userEnv(), b.asUser(append([]string{name}, args...)))
}

// OnNode returns a command that runs on node i, outside Slurm, with the shared directory as its
// working directory. On a lost node, which has no mount, it fails. The command counts as one of the
// node's processes: HangNode and LoseNode affect it.
func (b *Bed) OnNode(ctx context.Context, i int, argv ...string) *exec.Cmd {
	return b.nodes[i].command(ctx, b.Share(), b.Env(), argv)
}

// UserOnNode is like OnNode, but runs the command as the testbed's user.
func (b *Bed) UserOnNode(ctx context.Context, i int, argv ...string) *exec.Cmd {
	return b.nodes[i].command(ctx, b.Share(), b.userEnv(), b.asUser(argv))
}

// Enter returns the command line that opens a shell on ctl (for "ctl") or on the node of the given
// name.
func (b *Bed) Enter(name string) (string, error) {
	for _, p := range b.places() {
		if p.name == name {
			return fmt.Sprintf("nsenter --target %d --net --uts --mount --wdns=%s", p.holder.pid(),
				b.Share()), nil
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
