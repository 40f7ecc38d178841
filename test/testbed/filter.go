package testbed

import (
	"context"
	"fmt"
	"strconv"
	"strings"
)

// filterTable is the name of the table in a node's packet filter.
const filterTable = "testbed"

// FilterTCP makes node i's packet filter silently drop, in both directions, all TCP packets between
// it and other hosts, or only those from or to the given ports. Processes and connections continue
// to exist. It replaces an earlier filter of the node.
func (b *Bed) FilterTCP(ctx context.Context, i int, ports ...int) error {
	b.logf("%s: TCP filtered, ports %v", b.Node(i), ports)
	n := b.nodes[i]
	return n.run(ctx, filterRules(ports), "nft", "-f", "-")
}

// UnfilterTCP undoes FilterTCP.
func (b *Bed) UnfilterTCP(ctx context.Context, i int) error {
	b.logf("%s: TCP no longer filtered", b.Node(i))
	// Add the table first, so that deleting it succeeds even if it did not exist.
	return b.nodes[i].run(ctx,
		fmt.Sprintf("table inet %[1]s\ndelete table inet %[1]s\n", filterTable), "nft", "-f", "-")
}

// filterRules returns the filter in nft's syntax. It does not affect the node's loopback interface.
func filterRules(ports []int) string {
	match := []string{"meta l4proto tcp"}
	if len(ports) > 0 {
		var set []string
		for _, port := range ports {
			set = append(set, strconv.Itoa(port))
		}
		of := "{ " + strings.Join(set, ", ") + " }"
		match = []string{"tcp sport " + of, "tcp dport " + of}
	}
	rules := func(device string) string {
		var lines strings.Builder
		for _, m := range match {
			fmt.Fprintf(&lines, "    %s \"eth0\" %s drop\n", device, m)
		}
		return lines.String()
	}
	return fmt.Sprintf(`table inet %[1]s
delete table inet %[1]s
table inet %[1]s {
  chain in {
    type filter hook input priority 0;
%[2]s  }
  chain out {
    type filter hook output priority 0;
%[3]s  }
}
`, filterTable, rules("iifname"), rules("oifname"))
}
