package roles

import (
	"fmt"
	"strings"
)

// Hosts is the launcher of machines without a batch system: "bringupd hosts" starts a daemon on
// each of them by ssh.
const Hosts Launcher = "hosts"

var hosts = launcher{
	name: Hosts, identify: identifyHosts, words: hostsWords,
	claim: func(_ Environment, want Want) claim {
		if len(want.Hosts) > 0 {
			return told
		}
		return unclaimed
	},
}

func hostsWords(string) Words {
	return Words{
		Nested:  anotherName,
		Nodes:   func(n int) string { return fmt.Sprintf("bringupd hosts with %d of them in --hosts", n) },
		Exclude: func(string) string { return "leave them out of --hosts" },
		Attach:  func(host string) []string { return []string{"ssh", "--", host} },
		Gone:    "once no machine runs a daemon of it", NoRequeue: "bringupd hosts starts no job anew",
	}
}

// identifyHosts uses the values from "bringupd hosts". sshd provides the address of the launching
// machine: SSH_CONNECTION begins with the client's address (ssh(1)).
func identifyHosts(env Environment, hostname string, want Want) (Identity, error) {
	if want.Rank == nil {
		return Identity{}, fmt.Errorf("internal error: a daemon of bringupd hosts without a rank")
	}
	client, _, _ := strings.Cut(env.get("SSH_CONNECTION"), " ")
	id, err := plainIdentity(Hosts, hostname, *want.Rank, len(want.Hosts), want.JobID, client)
	if err != nil {
		return Identity{}, err
	}
	for _, host := range want.Hosts {
		_, host = CutUser(host)
		id.Hosts = append(id.Hosts, host)
	}
	id.Host = id.Hosts[id.Rank]
	return id, nil
}

// CutUser splits "user@host", as for ssh. The user is empty if none is given.
func CutUser(destination string) (user, host string) {
	if at := strings.LastIndexByte(destination, '@'); at >= 0 {
		return destination[:at], destination[at+1:]
	}
	return "", destination
}
