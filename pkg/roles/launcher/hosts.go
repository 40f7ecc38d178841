package launcher

import (
	"fmt"
	"strings"
)

// LauncherHosts is the launcher of machines without a batch system: "bringupd hosts" starts a
// daemon on each of them by ssh.
const LauncherHosts Launcher = "hosts"

var hostsLauncher = launcherSpec{
	name: LauncherHosts, identifyDaemon: identifyHosts, commandHints: hostsHints,
	claimOf: func(_ Environment, want Overrides) claimLevel {
		if len(want.Hosts) > 0 {
			return claimGiven
		}
		return claimNone
	},
}

func hostsHints(string) CommandHints {
	return CommandHints{
		NestedAdvice: nestedNameAdvice,
		StartOnNodes: func(n int) string { return fmt.Sprintf("bringupd hosts with %d of them in --hosts", n) },
		ExcludeNodes: func(string) string { return "leave them out of --hosts" },
		AttachShell:  func(host string) []string { return []string{"ssh", "--", host} },
		JobGoneSign:  "once no machine runs one of its daemons", NoRequeueReason: "bringupd hosts does not restart jobs",
	}
}

// identifyHosts uses the values from "bringupd hosts". sshd provides the address of the launching
// machine: SSH_CONNECTION begins with the client's address (ssh(1)).
func identifyHosts(env Environment, hostname string, want Overrides) (Identity, error) {
	if want.NodeIndex == nil {
		return Identity{}, fmt.Errorf("internal error: a daemon of bringupd hosts without a rank")
	}
	client, _, _ := strings.Cut(env.valueOf("SSH_CONNECTION"), " ")
	id, err := plainIdentity(LauncherHosts, hostname, *want.NodeIndex, len(want.Hosts), want.JobID, client)
	if err != nil {
		return Identity{}, err
	}
	for _, host := range want.Hosts {
		_, host = SplitUser(host)
		id.Hosts = append(id.Hosts, host)
	}
	id.Host = id.Hosts[id.NodeIndex]
	return id, nil
}

// SplitUser splits "user@host", as for ssh. The user is empty if none is given.
func SplitUser(destination string) (user, host string) {
	if at := strings.LastIndexByte(destination, '@'); at >= 0 {
		return destination[:at], destination[at+1:]
	}
	return "", destination
}
