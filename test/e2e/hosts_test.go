//go:build testbed

package e2e

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/bringupd/bringupd/pkg/signal"
)

// sshPort is the port on which the nodes' sshd listen.
const sshPort = "2222"

// withSSH starts an sshd on the given nodes. It returns a client configuration for them and a
// function that ends them all.
func (bed *lane) withSSH(t *testing.T, on ...int) (config string, end func()) {
	t.Helper()
	dir := filepath.Join(bed.Bin(), filepath.Base(bed.place(t)))
	must(t, os.Mkdir(dir, 0o700))
	for _, name := range []string{"host", "client"} {
		if out, err := exec.Command("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "", "-f",
			filepath.Join(dir, name)).CombinedOutput(); err != nil {
			t.Fatalf("cannot make a key: %v: %s", err, out)
		}
	}
	server := filepath.Join(dir, "sshd_config")
	must(t, os.WriteFile(server,
		[]byte(fmt.Sprintf("Port %s\nHostKey %s/host\nAuthorizedKeysFile "+
			"%s/client.pub\nStrictModes no\nUsePAM no\nPidFile none\n", sshPort, dir, dir)), 0o600))
	client := "ConnectTimeout 5\nLogLevel ERROR\nStrictHostKeyChecking no\nUserKnownHostsFile " +
		"/dev/null\nIdentitiesOnly yes\nIdentityFile " + dir + "/client\nPort " + sshPort + "\n"
	for node := range bed.Nodes() {
		client += fmt.Sprintf("Host %s\n  HostName %s\n", bed.Node(node), bed.Address(node))
	}
	config = filepath.Join(dir, "ssh_config")
	must(t, os.WriteFile(config, []byte(client), 0o600))
	sshd, err := exec.LookPath("sshd") // sshd must be started by its absolute path
	must(t, err)
	var all []*exec.Cmd
	for _, node := range on {
		cmd := bed.OnNode(context.Background(), node, sshd, "-D", "-e", "-f", server)
		said := new(buffer)
		cmd.Stderr = said
		must(t, cmd.Start())
		all = append(all, cmd)
		eventually(t, func() string {
			if !strings.Contains(said.String(), "listening") {
				return "sshd has said: " + said.String()
			}
			return ""
		})
	}
	return config, func() {
		for _, cmd := range all {
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
		}
	}
}

// onHosts starts a job on nodes by ssh, without Slurm.
func (bed *lane) onHosts(t *testing.T, ssh, hosts string, args ...string) *job {
	t.Helper()
	logs := bed.place(t)
	command := slices.Concat([]string{"-u", "SLURM_CONF", program, "hosts", "--hosts=" + hosts,
		"--ssh=ssh -F " + ssh, "--log-dir=" + logs, "--job-id=1"}, args)
	return bed.begin(t, logs, bed.Command(context.Background(), "env", command...))
}

// TestHosts checks jobs that are started over a real sshd on each of four machines with a shared
// directory.
func TestHosts(t *testing.T) {
	bed := claim(t, fewNodes)
	ssh, end := bed.withSSH(t, 0, 1, 2, 3)
	defer end()
	t.Run("a driver's words, output, code and hosts", func(t *testing.T) {
		j := bed.onHosts(t, ssh, "n[0-3]", "--export=WORDS=it's $HOME", "--", "sh", "-c",
			`echo "$1|$WORDS|$BRINGUPD_HOSTS"; exit 42`, "sh", "a  b'\n\"c")
		j.wantCode(42)
		if want := "a  b'\n\"c|it's $HOME|n0,n1,n2,n3\n"; j.stdout.String() != want {
			t.Errorf("it printed %q, want %q", &j.stdout, want)
		}
	})
	t.Run("a daemon is killed", func(t *testing.T) {
		j := bed.onHosts(t, ssh, "n[0-3]", "--", "sleep", "600")
		j.reached("control/go")
		kill(t, bed.daemonOf(t, 2), syscall.SIGKILL)
		j.wantCode(76)
		if r := j.result(); !slices.Equal(r.BadNodes, []string{"n2"}) {
			t.Errorf("the result is %d, by %v: %s", r.Code, r.BadNodes, r.Reason)
		}
	})
	t.Run("the launcher is told to end, and is killed", func(t *testing.T) {
		for sig, code := range map[syscall.Signal]int{syscall.SIGINT: 130, syscall.SIGKILL: 137} {
			j := bed.onHosts(t, ssh, "n[0-3]", "--", "sleep", "600")
			j.reached("control/go")
			kill(t, j.cmd.Process.Pid, sig)
			if got := j.wait(); code != 137 && got != code {
				t.Errorf("%s ended it with %d, want %d: %s", sig, got, code, &j.stderr)
			}
			ended := time.Now()
			within(t, 30*time.Second, func() string {
				var left []string
				for node := range 4 {
					all, err := bed.Processes(node)
					must(t, err)
					for _, p := range all {
						if !p.Infra && len(p.Args) > 0 &&
							(p.Args[0] == program || p.Args[0] == "sleep") {
							left = append(left, p.String())
						}
					}
				}
				return strings.Join(left, "\n")
			})
			t.Logf("%s: nothing was left after %s", sig, time.Since(ended))
		}
	})
	// This must be the last subtest: restoring the node ends its sshd.
	t.Run("a host's network is down", func(t *testing.T) {
		j := bed.onHosts(t, ssh, "n[0-3]", "--", "sleep", "600")
		j.reached("control/go")
		ctx := context.Background()
		must(t, bed.LinkDown(ctx, 3))
		defer func() { must(t, bed.HealNode(ctx, 3)) }()
		path := filepath.Join(j.logs, "latest", signal.NameResult)
		eventually(t, func() string { return missing(path) })
		if r := j.result(); r.Code != 76 || !slices.Contains(r.BadNodes, "n3") {
			t.Errorf("the result is %d, by %v: %s", r.Code, r.BadNodes, r.Reason)
		}
		must(t, bed.LinkUp(ctx, 3)) // ssh waits for the link, or for ServerAliveInterval
		j.wantCode(76)
	})
}

// TestHostsThatAreNotReady checks jobs on machines some of which have no sshd, no program or no
// shared directory.
func TestHostsThatAreNotReady(t *testing.T) {
	bed := claimEarly(t, fewNodes)
	ssh, end := bed.withSSH(t, 0, 1)
	defer end()
	t.Run("a host that can't be reached", func(t *testing.T) {
		j := bed.onHosts(t, ssh, "n0,n1,n2", "--", "true")
		j.wantCode(65)
		if said := j.stderr.String(); !strings.Contains(said, "cannot reach n2: ") {
			t.Errorf("it said: %s", said)
		}
		if r := j.result(); r.Code != 65 || !strings.Contains(r.Reason, "cannot reach n2: ") {
			t.Errorf("the result is %d: %s", r.Code, r.Reason)
		}
	})
	t.Run("one of two that can't be reached can be spared", func(t *testing.T) {
		j := bed.onHosts(t, ssh, "n0,n2,n1", "--nnodes=2", "--", "sh", "-c", "echo $BRINGUPD_HOSTS")
		j.wantCode(0)
		if said := j.stderr.String(); !strings.Contains(said, "continuing without n2: 0 spares") ||
			j.stdout.String() != "n0,n1\n" {
			t.Errorf("it said: %s%s", &j.stdout, said)
		}
		j = bed.onHosts(t, ssh, "n0,n2,n3", "--nnodes=2", "--", "true")
		j.wantCode(65)
	})
	t.Run("no program there", func(t *testing.T) {
		j := bed.onHosts(t, ssh, "n0,n1", "--remote-program=/nowhere/bringupd", "--", "true")
		j.wantCode(65)
		if said := j.stderr.String(); !strings.Contains(said, "cannot find bringupd on n") {
			t.Errorf("it said: %s", said)
		}
	})
	t.Run("nothing is shared", func(t *testing.T) {
		j := bed.onHosts(t, ssh, "n[0-1]", "--log-dir=/tmp/alone", "--", "true")
		j.wantCode(66)
		if said := j.stderr.String(); !strings.Contains(said, "exists on one machine only") {
			t.Errorf("it said: %s", said)
		}
	})
}
