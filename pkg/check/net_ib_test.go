package check

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// card is one device of a tree, with one port.
type card struct {
	name, board, function, layer string // empty: mlx5_N, a ConnectX-7, 0, InfiniBand
	state, phys, rate            string // empty: ACTIVE, LinkUp, 400
	virtual                      bool   // a virtual function of another
	port                         string // empty: 1
	lacks                        string // the file that is not there
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
			device + "/board_id":   or(c.board, "MT_0000000838") + "\n",
			device + "/hca_type":   "MT4129\n",
			device + "/device":     "-> ../../../../" + pci,
			pci + "/vendor":        "0x15b3\n",
			port + "/state":        or(c.state, "4: ACTIVE") + "\n",
			port + "/phys_state":   or(c.phys, "5: LinkUp") + "\n",
			port + "/rate":         or(c.rate, "400 Gb/sec (4X NDR)") + "\n",
			port + "/link_layer":   or(c.layer, "InfiniBand") + "\n",
			port + "/counters/foo": "1\n",
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
	ethernet := card{layer: "Ethernet", board: "MT_0000000425", rate: "25 Gb/sec (1X EDR)"}
	with := func(c card, change func(*card)) card { change(&c); return c }
	on := func(board, layer string) func(*card) {
		return func(c *card) { c.board, c.layer = board, layer }
	}
	second := func(c *card) { c.function = "1" }
	for _, tc := range []struct {
		name  string
		cards []card
		gpus  bool
		want  []string // verdict, device, observed
	}{
		{"none", nil, true, []string{"SKIP  there are no RDMA network cards"}},
		{"eight", eight(card{}), true, []string{"PASS  8 ports of 400 Gb/s active"}},
		{"one", []card{{}}, true, []string{"PASS  1 port of 400 Gb/s active"}},
		{"eight and two for storage", append(eight(card{}), card{board: "MT_1", rate: "200 Gb/sec (4X HDR)"}, card{board: "MT_1", rate: "200 Gb/sec (4X HDR)"}),
			true, []string{"PASS  8 ports of 400 Gb/s and 2 of 200 Gb/s active"}},
		{"eight and one for management", append(eight(card{}), ethernet), true, []string{"PASS  8 ports of 400 Gb/s active"}},
		{"Ethernet alone", []card{ethernet, ethernet}, true, []string{"PASS  2 ports of 25 Gb/s active"}},
		{"virtual functions don't count", append(eight(card{}), with(down, func(c *card) { c.virtual = true })), true,
			[]string{"PASS  8 ports of 400 Gb/s active"}},
		{"one is in INIT", eight(initial), true, []string{"WAIT mlx5_7 INIT, LinkUp"}},
		{"one is ARMED", eight(card{state: "3: ARMED"}), true, []string{"WAIT mlx5_7 ARMED, LinkUp"}},
		{"all are in INIT", []card{initial, initial}, false, []string{"WAIT mlx5_0 INIT, LinkUp", "WAIT mlx5_1 INIT, LinkUp"}},
		{"one is Polling", eight(down), true, []string{"WAIT mlx5_7 DOWN, Polling"}},
		{"one is Polling on a node without GPUs", eight(down), false, []string{"WAIT mlx5_7 DOWN, Polling"}},
		{"one is Disabled", eight(disabled), true, []string{"FAIL mlx5_7 DOWN, Disabled"}},
		{"two are Disabled", append(eight(disabled), disabled), true, []string{"FAIL mlx5_7 DOWN, Disabled", "FAIL mlx5_8 DOWN, Disabled"}},
		{"one is asleep", eight(card{state: "1: DOWN", phys: "1: Sleep"}), true, []string{"FAIL mlx5_7 DOWN, Sleep"}},
		{"one is slower", eight(card{rate: "200 Gb/sec (4X HDR)"}), true, []string{"FAIL mlx5_7 200 Gb/s"}},
		{"the first is slower", append([]card{{rate: "100 Gb/sec (4X EDR)"}}, eight(card{})...), true, []string{"FAIL mlx5_0 100 Gb/s"}},
		{"the management port is down", append(eight(card{}), with(disabled, on("MT_0000000425", "Ethernet"))), true,
			[]string{"WARN mlx5_8 DOWN, Disabled"}},
		{"no second port of a card has a cable", []card{{}, with(down, second), {}, with(down, second)}, true,
			[]string{"WARN mlx5_1 DOWN, Polling", "WARN mlx5_3 DOWN, Polling"}},
		{"one second port of a card is down", []card{{}, {function: "1"}, {}, with(disabled, second)}, true,
			[]string{"FAIL mlx5_3 DOWN, Disabled"}},
		{"all are down", []card{disabled, down}, true, []string{"FAIL mlx5_0 DOWN, Disabled", "WAIT mlx5_1 DOWN, Polling"}},
		{"all are down on a node without GPUs", []card{disabled, down}, false,
			[]string{"WARN mlx5_0 DOWN, Disabled", "WARN mlx5_1 DOWN, Polling"}},
		{"all Ethernet is down on a node with GPUs", []card{with(down, on("b", "Ethernet"))}, true, []string{"WARN mlx5_0 DOWN, Polling"}},
		{"two ports of a device", []card{{name: "mlx4_0"}, {name: "mlx4_0", port: "2", state: "1: DOWN", phys: "3: Disabled"}}, true,
			[]string{"WARN mlx4_0 port 2 DOWN, Disabled"}},
		{"no state to read", eight(card{lacks: "state"}), true, []string{"UNKNOWN mlx5_7"}},
		{"a state that nobody knows", eight(card{state: "up"}), true,
			[]string{"UNKNOWN mlx5_7 it could not be read: cannot understand the state \"up\" and the physical state \"LinkUp\""}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			h := &Host{Root: tree(t, cards(tc.cards...)), GPUs: tc.gpus}
			var got []string
			for _, f := range found(h, idIB) {
				complete(t, f)
				device := ""
				if f.Device != nil {
					device = f.Device.String()
				}
				line := fmt.Sprintf("%s %s %s", f.Verdict, device, f.Observed)
				if slices.Contains(tc.want, fmt.Sprintf("%s %s", f.Verdict, device)) { // its words are the system's
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

// A cable that is missing must not hold the gate until the deadline.
func TestIBPatience(t *testing.T) {
	for phys, want := range map[string]bool{"2: Polling": true, "5: LinkUp": false} {
		state := "1: DOWN"
		if !want {
			state = "2: INIT"
		}
		h := &Host{Root: tree(t, cards(card{}, card{state: state, phys: phys}))}
		if f := found(h, idIB)[0]; (f.Patience == trainingPatience) != want {
			t.Errorf("%s: patience %s", phys, f.Patience)
		}
	}
}

func TestParseRate(t *testing.T) {
	for text, want := range map[string]float64{
		"400 Gb/sec (4X NDR)": 400, "2.5 Gb/sec (1X SDR)": 2.5, "": 0, "fast": 0, "10": 0, " Gb/sec": 0,
	} {
		if got := parseRate(text); got != want {
			t.Errorf("%q: got %g, want %g", text, got, want)
		}
	}
}

func TestIBErrors(t *testing.T) {
	const counters = "sys/class/infiniband/mlx5_0/ports/1/counters/"
	first := map[string]string{counters + "link_downed": "7\n", counters + "link_error_recovery": "0\n"}
	for _, tc := range []struct {
		name   string
		before map[string]string
		now    map[string]string
		want   Verdict
	}{
		{"no counters", nil, nil, Skip},
		{"nothing since", first, first, Pass},
		{"a link went down", first, map[string]string{counters + "link_downed": "8\n", counters + "link_error_recovery": "0\n"}, Warn},
		{"a link recovered", first, map[string]string{counters + "link_downed": "7\n", counters + "link_error_recovery": "2\n"}, Warn},
		{"the card was reset", first, map[string]string{counters + "link_downed": "0\n", counters + "link_error_recovery": "0\n"}, Pass},
		{"a card that came later", nil, first, Pass},
		{"no number", nil, map[string]string{counters + "link_downed": "N/A\n"}, Skip},
	} {
		t.Run(tc.name, func(t *testing.T) {
			h := &Host{Root: tree(t, cards(card{})), errors: make(map[string]int)}
			grow(t, h.Root, tc.before)
			found(h, idIBErrors)
			grow(t, h.Root, tc.now)
			for range 2 { // what was seen once is still told of at the next look
				got := found(h, idIBErrors)
				if len(got) != 1 || got[0].Verdict != tc.want {
					t.Fatalf("got %+v, want %s", got, tc.want)
				}
				complete(t, got[0])
				if tc.want == Warn && got[0].Device.String() != "mlx5_0" {
					t.Errorf("the device is %s", got[0].Device)
				}
			}
		})
	}
}
