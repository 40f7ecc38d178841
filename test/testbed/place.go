package testbed

import (
	"bufio"
	"context"
	_ "embed"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"time"
)

//go:embed place.sh
var placeScript string

// place is a set of namespaces (network, host name, mounts). It exists as long as its holder.
type place struct {
	name   string
	holder *daemon // a sleeping process
	net    string  // network namespace, as returned by the function namespace
}

// startPlaces creates the namespaces of ctl and of every node, each with its private mounts.
func (b *Bed) startPlaces(ctx context.Context) error {
	if err := b.writeConfigs(); err != nil {
		return err
	}
	var err error
	if b.cfg.Site {
		if b.cpu, err = firstCPU(ctx); err != nil {
			return err
		}
	}
	if b.ctl, err = b.startPlace(ctx, "ctl"); err != nil {
		return err
	}
	for i := range b.cfg.Nodes {
		p, err := b.startPlace(ctx, nodeName(i), "/tmp", "/var/tmp", "/dev/shm")
		if err != nil {
			return err
		}
		b.nodes = append(b.nodes, &node{place: p})
	}
	return nil
}

// startPlace creates one place, in which the given folders are private and empty.
func (b *Bed) startPlace(ctx context.Context, name string, private ...string) (*place, error) {
	s := b.slot
	args := append([]string{"-c", placeScript, "testbed-" + name,
		name, s.marker(name), s.path("place"), s.path("etc/hosts"), b.procOptions()}, private...)
	args = append([]string{"unshare", "--net", "--uts", "--mount", "--propagation=private", "sh"}, args...)
	if b.cpu != "" {
		args = append([]string{"taskset", "--cpu-list", b.cpu}, args...)
	}
	cmd := exec.Command(args[0], args[1:]...)
	ready, err := cmd.StdoutPipe()
	if err != nil {
		return nil, fmt.Errorf("cannot make the pipe of %s: %v", name, err)
	}
	holder, err := startDaemon(cmd, s.path("log/place-"+name+".log"))
	if err != nil {
		return nil, err
	}
	// Read the script's only line, or the end of file if it failed.
	if line, _ := bufio.NewReader(ready).ReadString('\n'); line != "ready\n" {
		return nil, errors.Join(fmt.Errorf("cannot set up the namespaces of %s: %s", name,
			lastLines(holder.log, 5)),
			holder.kill(ctx))
	}
	return &place{name: name, holder: holder, net: namespace(holder.pid(), "net")}, nil
}

// command returns a command that runs in the place, in the folder dir. It receives SIGTERM when ctx
// is done.
func (p *place) command(ctx context.Context, dir string, env, argv []string) *exec.Cmd {
	cmd := exec.CommandContext(ctx, "nsenter", p.enter(dir, argv)...)
	cmd.Env = append(withoutSlurm(os.Environ()), env...)
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = 10 * time.Second
	return cmd
}

// service returns a command that runs in the place until it is killed.
func (p *place) service(env []string, argv ...string) *exec.Cmd {
	cmd := exec.Command("nsenter", p.enter("/", argv)...)
	cmd.Env = append(withoutSlurm(os.Environ()), env...)
	return cmd
}

// run runs one of the testbed's own commands in the place. It is killed when ctx is done.
func (p *place) run(ctx context.Context, stdin string, argv ...string) error {
	cmd := p.command(ctx, "/", nil, argv)
	cmd.Cancel = func() error { return cmd.Process.Kill() }
	cmd.Stdin = strings.NewReader(stdin)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("cannot run %q on %s: %v: %s", argv, p.name, err,
			strings.TrimSpace(string(out)))
	}
	return nil
}

// enter returns the arguments with which nsenter runs a program in the place, in the folder dir.
func (p *place) enter(dir string, argv []string) []string {
	return append([]string{"--target", strconv.Itoa(p.holder.pid()), "--net", "--uts", "--mount",
		"--wdns=" + dir, "--"},
		argv...)
}

func nodeName(i int) string { return "n" + strconv.Itoa(i) }

// withoutSlurm removes the variables of a Slurm job of which this process may be a part.
func withoutSlurm(env []string) []string {
	var kept []string
	for _, variable := range env {
		if !strings.HasPrefix(variable, "SLURM") && !strings.HasPrefix(variable, "SBATCH_") {
			kept = append(kept, variable)
		}
	}
	return kept
}
