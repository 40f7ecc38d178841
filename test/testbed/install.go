package testbed

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
)

// requirement is a program and the Debian package that contains it.
type requirement struct{ program, pkg string }

// needed lists the programs that every testbed, and the tests on it, need.
var needed = []requirement{
	{"slurmctld", "slurm-wlm"},
	{"slurmd", "slurm-wlm"},
	{"srun", "slurm-client"},
	{"jq", "jq"},
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

// neededByMooseFS lists the additional programs of a testbed with MooseFS. Debian's packages do not
// start their daemons, neither now nor at boot, and the daemons of a testbed use none of the host's
// MooseFS files.
var neededByMooseFS = []requirement{
	{"mfsmaster", "moosefs-master"},
	{"mfschunkserver", "moosefs-chunkserver"},
	{"mfsmount", "moosefs-client"},
	{"mfssetgoal", "moosefs-client"},
}

// needs returns the programs that a testbed with this kind of shared file system needs.
func (s Share) needs() []requirement {
	if s == MooseFS {
		return slices.Concat(needed, neededByMooseFS)
	}
	return needed
}

// Install installs the Debian packages of missing programs for all kinds of shared file systems;
// Start installs only the packages its own testbed needs. It needs root only if a program is
// missing.
func Install(ctx context.Context) error {
	return install(ctx, slices.Concat(needed, neededByMooseFS))
}

func install(ctx context.Context, needs []requirement) error {
	var packages, missing []string
	for _, n := range needs {
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
			return fmt.Errorf("cannot install %s: apt-get %s: %v: %s",
				strings.Join(missing, ", "), args[0], err,
				strings.TrimSpace(string(out)))
		}
	}
	for _, program := range missing {
		if _, err := exec.LookPath(program); err != nil {
			return errors.New("cannot find " + program +
				" after installing its package; is /usr/sbin in PATH?")
		}
	}
	return nil
}
