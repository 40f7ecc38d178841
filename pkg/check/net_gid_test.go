package check

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
)

// An Ethernet port's table: the link-local address and an IPv4 one, with a GID of each version for
// each.
const (
	local = "fe80:0000:0000:0000:a288:c2ff:fe3b:506a"
	ipv4  = "0000:0000:0000:0000:0000:ffff:0ac8:010a"
	ipv6  = "2010:0200:0000:0002:a288:c2ff:fe3b:506a"
	zero  = "0000:0000:0000:0000:0000:0000:0000:0000"
)

// table returns the port's GID table of a card with these GIDs, by index: "v2 ADDRESS", or none.
func table(card int, gids ...string) map[string]string {
	files := make(map[string]string)
	port := fmt.Sprintf("sys/class/infiniband/mlx5_%d/ports/1", card)
	for index, entry := range gids {
		version, address, _ := strings.Cut(entry, " ")
		kind := map[string]string{"v1": "IB/RoCE v1\n", "v2": "RoCE v2\n"}[version]
		if version == "none" {
			kind, address = refused, zero
		}
		files[fmt.Sprintf("%s/gid_attrs/types/%d", port, index)] = kind
		files[fmt.Sprintf("%s/gids/%d", port, index)] = address + "\n"
	}
	return files
}

// refused is a file for which the kernel returns EINVAL on every machine: the loopback has no
// speed.
const refused = "-> /sys/class/net/lo/speed"

func TestGIDs(t *testing.T) {
	usual := []string{"v1 " + local, "v2 " + local, "v1 " + ipv4, "v2 " + ipv4}
	late := []string{"v1 " + local, "v2 " + local, "v1 " + ipv6, "v2 " + ipv6, "none", "v2 " + ipv4, "none"}
	bare := []string{"v1 " + local, "v2 " + local, "none", "none"}
	far := append(slices.Repeat([]string{"none"}, maxGIDEntries), usual...)
	ethernet := card{layer: "Ethernet"}
	down := card{layer: "Ethernet", state: "1: DOWN", phys: "3: Disabled"}
	for _, tc := range []struct {
		name   string
		cards  []card
		tables [][]string // of the cards
		extra  map[string]string
		trait  string
	}{
		{name: "as usual", tables: [][]string{usual, usual}, trait: "2 at 3"},
		{name: "in another order", tables: [][]string{usual, late}, trait: "1 at 3, 1 at 5"},
		{name: "no address", tables: [][]string{bare, usual}, trait: "1 at 3, 1 with none"},
		{name: "beyond what is read", tables: [][]string{far, usual}, trait: "1 at 3, 1 with none"},
		{name: "a port that is down", cards: []card{ethernet, down}, tables: [][]string{usual, bare}, trait: "1 at 3"},
		{name: "InfiniBand", cards: []card{{}, {}}, tables: [][]string{{"v1 " + local}, nil}},
		{name: "entries that are refused", tables: [][]string{usual, usual}, trait: "2 at 3", extra: map[string]string{
			"sys/class/infiniband/mlx5_0/ports/1/gids/4":            refused,
			"sys/class/infiniband/mlx5_1/ports/1/gids/5":            ipv4 + "\n",
			"sys/class/infiniband/mlx5_1/ports/1/gid_attrs/types/5": refused,
		}},
		{name: "no table", tables: [][]string{usual, nil}},
		{name: "no address at all", tables: [][]string{usual, {"v2 here"}}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			if tc.cards == nil {
				tc.cards = []card{ethernet, ethernet}
			}
			files := cards(tc.cards...)
			for i, gids := range tc.tables {
				maps.Copy(files, table(i, gids...))
			}
			maps.Copy(files, tc.extra)
			h := &Host{Root: tree(t, files), TempDir: t.TempDir(), system: node{}}
			h.Inspect(t.Context(), nil)
			var trait string
			for _, is := range h.Attributes() {
				if is.ID == AttrGIDs {
					trait = is.Value
				}
			}
			if trait != tc.trait {
				t.Errorf("got %q, want %q", trait, tc.trait)
			}
		})
	}
}
