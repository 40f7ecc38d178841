package launcher

import (
	"errors"
	"net"
	"net/netip"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

var network = []netInterface{lo, eth0, ib0, bridge, down, bare}

func TestOwnName(t *testing.T) {
	const loopback, foreign, none = "127.0.1.1, which other nodes cannot reach",
		"10.0.0.9, which is not one of its addresses", "does not resolve to an address"
	for _, tc := range []struct {
		name, addrs string
		err         error
		want        string // end of the problem; empty: there is none
	}{
		{"the address of an interface", "10.0.0.7", nil, ""},
		{"that of another one, which the site has chosen", "2001:db8:1::7", nil, ""},
		{"Debian's default", "127.0.1.1", nil, loopback},
		{"getaddrinfo sorts the loopback address to the front", "10.0.0.7 127.0.1.1", nil, loopback},
		{"an address of another node", "10.0.0.9", nil, foreign},
		{"one of several", "10.0.0.9 10.0.0.7", nil, ""},
		{"nothing", "", nil, none},
		{"an unknown name", "", errors.New("no such host"), none},
	} {
		got := judgeOwnName(addrs(tc.addrs), tc.err, network)
		if (got == "") != (tc.want == "") || !strings.HasSuffix(got, tc.want) {
			t.Errorf("%s: got %q, want %q", tc.name, got, tc.want)
		}
	}
}

func TestNetworkMistakes(t *testing.T) {
	resolve := func(host string) ([]netip.Addr, error) {
		known := map[string]string{"n1": "10.0.0.7", "n2": "10.0.0.9", "localhost": "::1 127.0.0.1",
			"self": "127.0.1.1", "127.0.0.1": "127.0.0.1"}
		switch found := addrs(known[host]); {
		case len(found) > 0:
			return found, nil
		case host == "slow":
			return nil, &net.DNSError{IsTimeout: true}
		}
		return nil, &net.DNSError{IsNotFound: true}
	}
	const isMissing, isNCCL, isDown, isLocal = "no interface has this name", "this is NCCL's notation", "eth1 is down",
		"other nodes cannot reach lo"
	for _, tc := range []struct {
		environ string
		first   bool
		want    string // of one mistake, after the variable; empty: there is none
	}{
		{"PATH=/bin", true, ""},
		{"GLOO_SOCKET_IFNAME=eth0", true, ""},
		{"GLOO_SOCKET_IFNAME=eth0,ib0,", true, ""},
		{"GLOO_SOCKET_IFNAME=eth0,ib9", true, "ib9: " + isMissing},
		{"GLOO_SOCKET_IFNAME=ib0,lo", true, "lo: " + isLocal},
		{"GLOO_SOCKET_IFNAME=eth", true, isMissing},
		{"GLOO_SOCKET_IFNAME=ib9", true, isMissing},
		{"GLOO_SOCKET_IFNAME=^docker0", true, isNCCL},
		{"GLOO_SOCKET_IFNAME==eth0", true, isNCCL},
		{"GLOO_SOCKET_IFNAME=lo", true, isLocal},
		{"TP_SOCKET_IFNAME=eth1", true, isDown},
		{"TP_SOCKET_IFNAME=eth2", true, "eth2 has no address that other nodes can reach"},
		{"NCCL_SOCKET_IFNAME=eth", true, ""},
		{"NCCL_SOCKET_IFNAME==ib0:1", true, ""},
		{"NCCL_SOCKET_IFNAME==ib", true, isMissing},
		{"NCCL_SOCKET_IFNAME=hsn,bond", true, isMissing},
		{"NCCL_SOCKET_IFNAME=^docker,lo", true, ""},
		{"NCCL_SOCKET_IFNAME=^eth,ib,docker", true, isLocal},
		{"NCCL_SOCKET_IFNAME=^=eth0,ib0,docker0,lo", true, "eth2 has no address"},
		{"GLOO_SOCKET_IFNAME=ib7 BRINGUPD_NODE_INTERFACE=ib7 NCCL_SOCKET_IFNAME==ib7", true, ""},
		{"MASTER_ADDR=n1", true, ""},
		{"MASTER_ADDR=n1", false, ""},
		{"MASTER_ADDR=n2", false, ""},
		{"MASTER_ADDR=n2", true, "rank 0 runs on this node, and it is not one of its addresses (10.0.0.9)"},
		{"MASTER_ADDR=localhost", false, "it is a loopback address (::1)"},
		{"MASTER_ADDR=self", true, ""},
		{"MASTER_ADDR=self", false, "it is a loopback address (127.0.1.1)"},
		{"MASTER_ADDR=127.0.0.1", true, "it is a loopback address (127.0.0.1)"},
		{"MASTER_ADDR=nowhere", false, "it does not resolve to an address"},
		{"MASTER_ADDR=slow", true, ""},
	} {
		t.Run(tc.environ, func(t *testing.T) {
			var want []string
			if tc.want != "" {
				variable, _, _ := strings.Cut(tc.environ, " ")
				want = []string{variable + ": " + tc.want}
			}
			got := networkMistakes(EnvironmentOf(strings.Fields(tc.environ)), network, resolve,
				NetworkUse{HasRank0: tc.first, HasGPUs: true})
			for i := range got {
				if !strings.HasSuffix(got[i], "; this node has "+describeInterfaces(network)) {
					t.Errorf("it does not say what the node has: %q", got[i])
				}
				got[i] = got[i][:min(len(got[i]), len(want[0]))]
			}
			if diff := cmp.Diff(want, got); diff != "" {
				t.Error(diff)
			}
		})
	}
}

func TestNetworkMistakesWithoutGPUs(t *testing.T) {
	env := EnvironmentOf([]string{"NCCL_SOCKET_IFNAME=hsn0", "TP_SOCKET_IFNAME=hsn0"})
	got := networkMistakes(env, network, nil, NetworkUse{})
	if len(got) != 1 || !strings.HasPrefix(got[0], "TP_SOCKET_IFNAME=") {
		t.Errorf("got %q, want only the mistake of TP_SOCKET_IFNAME", got)
	}
}

func TestIsWithRank0(t *testing.T) {
	for _, tc := range []struct {
		rank StartedRank
		want bool
	}{
		{StartedRank{Rank: 0, LocalRank: -1, NodeIndex: -1}, true},
		{StartedRank{Rank: 1, LocalRank: 1, NodeIndex: -1}, true},
		{StartedRank{Rank: 4, LocalRank: 2, NodeIndex: 0}, true}, // --distribution=cyclic
		{StartedRank{Rank: 1, LocalRank: 0, NodeIndex: 1}, false},
		{StartedRank{Rank: 1, LocalRank: -1, NodeIndex: -1}, false},
	} {
		if got := tc.rank.IsWithRank0(); got != tc.want {
			t.Errorf("%+v: got %t, want %t", tc.rank, got, tc.want)
		}
	}
}
