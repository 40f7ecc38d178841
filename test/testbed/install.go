package testbed

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
)

// needed are the programs of the bed, and of the tests on it, with the Debian packages that have them.
var needed = []struct{ program, pkg string }{
	{"slurmctld", "slurm-wlm"},
	{"slurmd", "slurm-wlm"},
	{"srun", "slurm-client"},
	{"munged", "munge"},
	{"sshfs", "sshfs"},
	{"sshd", "openssh-server"},
	{"ssh-keygen", "openssh-client"},
	{"ip", "iproute2"},
	{"nft", "nftables"},
	{"hostname", "hostname"},
	{"nsenter", "util-linux"},
	{"flock", "util-linux"},
}

// Install installs the Debian packages of those programs that are missing. It needs root only if there are any.
func Install(ctx context.Context) error {
	var packages, missing []string
	for _, n := range needed {
		if _, err := exec.LookPath(n.program); err != nil {
			packages, missing = append(packages, n.pkg), append(missing, n.program)
		}
	}
	if len(missing) == 0 {
		return nil
	}
	install := append([]string{"install", "--yes", "--no-install-recommends"}, packages...)
	for _, args := range [][]string{{"update"}, install} {
		apt := exec.CommandContext(ctx, "apt-get", args...)
		apt.Env = append(os.Environ(), "DEBIAN_FRONTEND=noninteractive")
		if out, err := apt.CombinedOutput(); err != nil {
			return fmt.Errorf("cannot install %s: apt-get %s: %v: %s", strings.Join(missing, ", "), args[0], err,
				strings.TrimSpace(string(out)))
		}
	}
	for _, program := range missing {
		if _, err := exec.LookPath(program); err != nil {
			return errors.New("cannot find " + program + " after installing its package; is /usr/sbin in PATH?")
		}
	}
	return nil
}
