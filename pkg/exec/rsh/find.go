package rsh

import (
	"fmt"
	"net"
	"slices"
	"strconv"
	"strings"

	"github.com/bringupd/bringupd/pkg/roles/launcher"
)

// FindNode returns the node that word names, as seen from the node from. word is a host with or
// without its domain, an address, localhost, or a node index. If a host has several daemons, their
// first node is returned. If no node matches, the error lists the nodes.
func FindNode(word string, from int, team Team) (node int, err error) {
	if ip := net.ParseIP(word); word == "localhost" || ip != nil && ip.IsLoopback() {
		return from, nil
	}
	nodes, hosts := team.Hosts()
	for _, same := range []func(at int) bool{
		func(at int) bool { return strings.EqualFold(hosts[at], word) },
		func(at int) bool { return net.ParseIP(word) == nil && isSameHost(hosts[at], word) },
		func(at int) bool { return strconv.Itoa(nodes[at]) == word },
		func(at int) bool { return net.ParseIP(word) != nil && team.Address(nodes[at]) == word },
	} {
		for at := range nodes {
			if same(at) {
				return nodes[at], nil
			}
		}
	}
	return 0, fmt.Errorf("it is not one of this run's nodes: %s", launcher.HostList(slices.Compact(hosts)))
}

// isSameHost reports whether two names are those of one host. One of them may lack the domain.
func isSameHost(a, b string) bool {
	shortA, domainA, _ := strings.Cut(a, ".")
	shortB, domainB, _ := strings.Cut(b, ".")
	return strings.EqualFold(shortA, shortB) && (domainA == "" || domainB == "")
}
