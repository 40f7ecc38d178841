package check

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// card is one device of a tree, with one port.
type card struct {
	name, board, function, layer string // empty: mlx5_N, a ConnectX-7, 0, InfiniBand
	state, phys, rate            string // empty: ACTIVE, LinkUp, 400
	virtual                      bool   // a virtual function of another
	port                         string // empty: 1
	lacks                        string // the file that is missing
	model, firmware              string // empty: MT4129, 28.39.1002
}

func cards(all ...card) map[string]string {
	files := make(map[string]string)
	or := func(text, otherwise string) string {
		if text == "" {
			return otherwise
		}
		return text
	}
	for i, c := range all {
		device := "sys/class/infiniband/" + or(c.name, fmt.Sprintf("mlx5_%d", i))
		pci := fmt.Sprintf("sys/devices/pci0000:%02x/0000:%02x:00.%s", i, i, or(c.function, "0"))
		port := device + "/ports/" + or(c.port, "1")
		maps.Copy(files, map[string]string{
			device + "/board_id": or(c.board, "MT_0000000838") + "\n",
			device + "/hca_type": or(c.model, "MT4129") + "\n",
			device + "/fw_ver":   or(c.firmware, "28.39.1002") + "\n",
			device + "/device":   "-> ../../../../" + pci,
			pci + "/vendor":      "0x15b3\n",
			port + "/state":      or(c.state, "4: ACTIVE") + "\n",
			port + "/phys_state": or(c.phys, "5: LinkUp") + "\n",
			port + "/rate":       or(c.rate, "400 Gb/sec (4X NDR)") + "\n",
			port + "/link_layer": or(c.layer, "InfiniBand") + "\n",
		})
		if c.virtual {
			files[pci+"/physfn"] = "-> ../0000:00:00.0"
		}
		delete(files, port+"/"+c.lacks)
	}
	return files
}

func eight(last card) []card { return append(make([]card, 7), last) }

func TestIB(t *testing.T) {
	down := card{state: "1: DOWN", phys: "2: Polling", rate: "10 Gb/sec (4X SDR)"}
	disabled := card{state: "1: DOWN", phys: "3: Disabled", rate: "10 Gb/sec (4X SDR)"}
	initial := card{state: "2: INIT"}
	slow := card{rate: "200 Gb/sec (4X HDR)"}
	ethernet := card{layer: "Ethernet", board: "MT_0000000425", rate: "25 Gb/sec (1X EDR)"}
	with := func(c card, change func(*card)) card { change(&c); return c }
	pair := func(last card) []card { return []card{{}, last} }
	second := func(c *card) { c.function = "1" }
	const hca, ucx = "NCCL_IB_HCA=", "UCX_NET_DEVICES="
	const all = hca + "=mlx5_0,mlx5_1"
	dual := []card{{name: "mlx4_0"}, {name: "mlx4_0", port: "2", state: "1: DOWN", phys: "3: Disabled"}}
	for _, tc := range []struct {
		name  string
		cards []card
		env   string   // of the driver; separated by blanks
		nodes int      // of the job; 0: unknown
		want  []string // verdict, ! marks a failure in strict mode, device, observed
	}{
		{"none", nil, all, 4, []string{"SKIP  no RDMA NICs"}},
		{"eight", eight(card{}), "", 4, []string{"PASS  8x400 Gb/s active"}},
		{"eight and one for management", append(eight(card{}), ethernet), "", 4,
			[]string{"PASS  8x400 Gb/s, 1x25 Gb/s active"}},
		{"two like it, and one of them for management",
			[]card{with(ethernet, func(c *card) { c.rate = "100 Gb/sec (4X EDR)" }), ethernet}, "", 4,
			[]string{"PASS  1x100 Gb/s, 1x25 Gb/s active"}},
		{"virtual functions don't count", append(eight(card{}),
			with(down, func(c *card) { c.virtual = true })), "", 4, []string{"PASS  8x400 Gb/s active"}},
		{"active is what counts", pair(card{phys: "6: LinkErrorRecovery"}), all, 4,
			[]string{"PASS  2x400 Gb/s active"}},

		// Ports that the job does not name.
		{"one is in INIT", pair(initial), "", 4, []string{"WARN! mlx5_1 INIT, LinkUp"}},
		{"one is Polling", pair(down), "", 4, []string{"WARN! mlx5_1 DOWN, Polling"}},
		{"one is Disabled", pair(disabled), "", 4, []string{"WARN! mlx5_1 DOWN, Disabled"}},
		{"one is slower", pair(slow), "", 4, []string{"WARN! mlx5_1 200 Gb/s"}},
		{"the storage is down, and nothing like it is up",
			append(pair(card{}), with(disabled, func(c *card) { c.board = "MT_1" })), "", 4,
			[]string{"PASS  2x400 Gb/s active, 1 down with no comparable port up"}},
		{"no second port of a card has a cable", []card{{}, with(down, second), {}, with(down, second)}, "", 4,
			[]string{"PASS  2x400 Gb/s active, 2 down with no comparable port up"}},
		{"one second port of a card is down", []card{{}, {function: "1"}, {},
			with(disabled, second)}, "", 4, []string{"WARN! mlx5_3 DOWN, Disabled"}},
		{"a device's second port has no cable", dual, "", 4,
			[]string{"PASS  1x400 Gb/s active, 1 down with no comparable port up"}},
		{"all are down", []card{disabled, down}, "", 4, []string{"WARN  none of 2 ports is active"}},
		{"no state to read", pair(card{lacks: "state"}), "", 4, []string{"UNKNOWN mlx5_1"}},

		// Ports that the job names.
		{"all well", pair(card{}), all, 4, []string{"PASS  2x400 Gb/s active"}},
		{"a named one is in INIT", pair(initial), all, 4, []string{"WAIT mlx5_1 INIT, LinkUp"}},
		{"a named one is Polling", pair(down), all, 4, []string{"WAIT mlx5_1 DOWN, Polling"}},
		{"a named one is Disabled", pair(disabled), all, 4, []string{"FAIL mlx5_1 DOWN, Disabled"}},
		{"a named one is slower", pair(slow), all, 4, []string{"FAIL mlx5_1 200 Gb/s"}},
		{"the only named one is slower than what the job does not use", []card{slow, {}}, hca +
			"mlx5_0", 4, []string{"PASS  1x200 Gb/s, 1x400 Gb/s active"}},
		{"the only named one is down, and nothing like it is up", []card{disabled}, hca + "=mlx5_0",
			0, []string{"FAIL mlx5_0 DOWN, Disabled"}},
		{"one that is not named is down", append(pair(card{}), disabled), all, 4,
			[]string{"WARN! mlx5_2 DOWN, Disabled"}},
		{"what another name begins with", []card{{}, {},
			with(disabled, func(c *card) { c.name = "mlx5_10" })}, hca + "mlx5_1", 4,
			[]string{"WARN! mlx5_10 DOWN, Disabled"}},
		{"what all names begin with", pair(disabled), hca + "mlx5", 4, []string{"WARN! mlx5_1 DOWN, Disabled"}},
		{"all but some", pair(disabled), hca + "^=mlx5_0,mlx5_1", 4, []string{"WARN! mlx5_1 DOWN, Disabled"}},
		{"a named port", pair(disabled), hca + "=mlx5_0:1,mlx5_1:1", 4, []string{"FAIL mlx5_1 DOWN, Disabled"}},
		{"a named card with its rail", pair(disabled), hca + "=mlx5_1::0", 4, []string{"FAIL mlx5_1 DOWN, Disabled"}},
		{"another port is named", pair(disabled), hca + "=mlx5_1:2", 4, []string{"WARN! mlx5_1 DOWN, Disabled"}},
		{"a card of two ports is named", dual, hca + "=mlx4_0", 4,
			[]string{"PASS  1x400 Gb/s active, 1 down with no comparable port up"}},
		{"the second port of two is named", dual, hca + "=mlx4_0:2", 4, []string{"FAIL mlx4_0 port 2 DOWN, Disabled"}},
		{"UCX names it", pair(disabled), ucx + "eth0,mlx5_1:1", 4, []string{"FAIL mlx5_1 DOWN, Disabled"}},
		{"UCX does without it", pair(disabled), ucx + "^mlx5_1:1", 4, []string{"WARN! mlx5_1 DOWN, Disabled"}},
		{"NCCL uses none", pair(disabled), all + " NCCL_IB_DISABLE=1", 4, []string{"WARN! mlx5_1 DOWN, Disabled"}},
		{"NCCL uses none, and UCX one", pair(disabled), all + " NCCL_IB_DISABLE=1 " + ucx +
			"mlx5_1:1", 4, []string{"FAIL mlx5_1 DOWN, Disabled"}},
		{"nobody knows how many nodes", pair(disabled), all, 0, []string{"FAIL mlx5_1 DOWN, Disabled"}},
		{"a job on one node needs nothing", pair(disabled), all, 1, []string{"WARN! mlx5_1 DOWN, Disabled"}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			h := &Host{Root: tree(t, cards(tc.cards...)), Environ: strings.Fields(tc.env), Nodes: tc.nodes}
			var got []string
			for _, f := range found(h, idIB) {
				complete(t, f)
				device, strict := "", ""
				if f.Device != nil {
					device = f.Device.String()
				}
				if f.Strict {
					strict = "!"
				}
				line := fmt.Sprintf("%s%s %s %s", f.Verdict, strict, device, f.Observed)
				// The rest of the text is the operating system's.
				if slices.Contains(tc.want, fmt.Sprintf("%s %s", f.Verdict, device)) {
					line = fmt.Sprintf("%s %s", f.Verdict, device)
				}
				got = append(got, line)
			}
			if diff := cmp.Diff(tc.want, got); diff != "" {
				t.Errorf("want (-), got (+):\n%s", diff)
			}
		})
	}
}

// TestIBUnread verifies that an unreadable directory is distinguished from a node without cards.
func TestIBUnread(t *testing.T) {
	h := &Host{Root: tree(t, map[string]string{"sys/class/infiniband": "no directory\n"}),
		TempDir: t.TempDir(), system: node{}}
	if f := only(t, found(h, idIB)); f.Verdict != Unknown {
		t.Errorf("got %+v", f)
	}
	if h.Inspect(t.Context(), nil); len(h.Attributes()) > 0 {
		t.Errorf("it tells %v", h.Attributes())
	}
}

// TestIBPatience verifies that a missing cable does not block the gate until the deadline.
func TestIBPatience(t *testing.T) {
	for phys, want := range map[string]bool{"2: Polling": true, "5: LinkUp": false} {
		state := "1: DOWN"
		if !want {
			state = "2: INIT"
		}
		h := &Host{Root: tree(t, cards(card{}, card{state: state, phys: phys})),
			Environ: []string{"NCCL_IB_HCA=mlx5_1"}}
		if f := found(h, idIB)[0]; (f.MaxWait == linkTrainingTimeout) != want {
			t.Errorf("%s: patience %s", phys, f.MaxWait)
		}
	}
}

// TestNICTraits verifies that equal nodes have equal traits, regardless of the order and names of
// their cards and of their counters. The traits are available after an inspection.
func TestNICTraits(t *testing.T) {
	down := card{state: "1: DOWN", phys: "2: Polling", rate: "10 Gb/sec (4X SDR)"}
	field := card{model: "MT41692", firmware: "32.38.1002", board: "MT_1", rate: "200 Gb/sec (4X HDR)"}
	for _, tc := range []struct {
		name  string
		cards []card
		want  []Attribute
	}{
		{"none", nil, []Attribute{{"x.nics", "none"}}},
		{"eight", eight(card{}), []Attribute{{"x.nics", "8 MT4129"}, {"x.nic_rate", "8x400 Gb/s"},
			{"x.nic_fw", "MT4129 28.39.1002"}}},
		{"of two kinds", []card{field, {}, {}},
			[]Attribute{{"x.nics", "2 MT4129, 1 MT41692"}, {"x.nic_rate", "2x400 Gb/s, 1x200 Gb/s"},
				{"x.nic_fw", "MT4129 28.39.1002, MT41692 32.38.1002"}}},
		{"of two versions", []card{{}, {firmware: "28.40.1000"}, {}},
			[]Attribute{{"x.nics", "3 MT4129"}, {"x.nic_rate", "3x400 Gb/s"},
				{"x.nic_fw", "MT4129 28.39.1002, MT4129 28.40.1000"}}},
		{"one is down", eight(down), []Attribute{{"x.nics", "8 MT4129"},
			{"x.nic_rate", "7x400 Gb/s"}, {"x.nic_fw", "MT4129 28.39.1002"}}},
		{"all are down", []card{down, down}, []Attribute{{"x.nics", "2 MT4129"},
			{"x.nic_rate", "none active"}, {"x.nic_fw", "MT4129 28.39.1002"}}},
		{"virtual functions don't count", []card{{}, {virtual: true}},
			[]Attribute{{"x.nics", "1 MT4129"}, {"x.nic_rate", "1x400 Gb/s"}, {"x.nic_fw", "MT4129 28.39.1002"}}},
		{"a port can't be read", []card{{}, {lacks: "state"}}, nil},
	} {
		t.Run(tc.name, func(t *testing.T) {
			h := &Host{Root: tree(t, cards(tc.cards...)), TempDir: t.TempDir(), system: node{}}
			if diff := cmp.Diff([]Attribute(nil), h.Attributes()); diff != "" {
				t.Errorf("before a look: want (-), got (+):\n%s", diff)
			}
			for range 2 {
				h.Inspect(t.Context(), nil)
				if diff := cmp.Diff(tc.want, h.Attributes()); diff != "" {
					t.Errorf("want (-), got (+):\n%s", diff)
				}
			}
		})
	}
}
