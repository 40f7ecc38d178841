package check

import (
	"cmp"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/bringupd/bringupd/pkg/prose"
)

const (
	idIB    = "net.ib"
	ibClass = "/sys/class/infiniband"
)

// trainingPatience is for how long a link in training is waited for: training takes seconds, and without a cable it
// never ends.
const trainingPatience = time.Minute

// managementPart is the part of the fastest port's rate up to which an Ethernet
// port is for management: nothing is computed over it.
const managementPart = 0.25

// port is what the kernel tells of one port of an RDMA device.
type port struct {
	device string // mlx5_0
	name   string // as administrators name it: mlx5_3, mlx4_0 port 2
	path   string
	work
	state, phys state
	rate        float64 // Gb/s
	err         error   // what could not be read
}

// work is what the ports that do the same work on a node have in common: they are the same port of the same function of
// the same card. The rate can't tell, for a port that is down has none. Many cards have a second port that nobody has
// put a cable in.
type work struct {
	board    string // what kind of card it is on
	function string // of that card: "1" in 0000:3b:00.1
	number   int    // of the port
	layer    string // InfiniBand, Ethernet
}

// state is one of a port's, as a number and in the kernel's words.
type state struct {
	number int
	said   string
}

// The states, as the InfiniBand specification numbers them.
const (
	stateInit        = 2
	stateArmed       = 3
	stateActive      = 4
	stateActiveDefer = 5
)

// The physical states.
const (
	physPolling  = 2
	physTraining = 4
	physLinkUp   = 5
	physRecovery = 6
)

func (p port) active() bool {
	return p.err == nil && p.state.number == stateActive && p.phys.number == physLinkUp
}

// lookIB judges all ports of a node by each other. What is wrong has a finding a port.
func (h *Host) lookIB(s *Sheet) {
	ports, err := h.ports()
	if err != nil {
		s.unread(err)
		return
	}
	ports = withoutManagement(ports)
	if len(ports) == 0 {
		s.Skip("there are no RDMA network cards")
		return
	}
	whole := s.Each
	for _, p := range ports {
		s.Each.Source, s.Each.Device = p.path, &Device{Index: -1, Name: p.name}
		p.judge(s, ports, h.GPUs)
	}
	if s.Each = whole; len(s.Found) == 0 {
		s.Pass(portsText(ports))
	}
}

// devices returns the names of the RDMA devices, without those that are virtual
// functions of another: they are for virtual machines.
func (h *Host) devices() []string {
	entries, _ := os.ReadDir(h.path(ibClass))
	var names []string
	for _, entry := range entries {
		if _, err := os.Lstat(filepath.Join(h.path(ibClass), entry.Name(), "device/physfn")); err != nil {
			names = append(names, entry.Name())
		}
	}
	return names
}

// ports reads all ports. That there are none is no error.
func (h *Host) ports() ([]port, error) {
	var ports []port
	for _, device := range h.devices() {
		dir := filepath.Join(h.path(ibClass), device)
		entries, err := os.ReadDir(filepath.Join(dir, "ports"))
		if err != nil {
			return nil, err
		}
		for _, entry := range entries {
			if number, err := strconv.Atoi(entry.Name()); err == nil {
				p := readPort(dir, number)
				if len(entries) > 1 {
					p.name = fmt.Sprintf("%s port %d", device, number)
				}
				ports = append(ports, p)
			}
		}
	}
	return ports, nil
}

// readPort reads a port of the device that has the directory.
func readPort(dir string, number int) port {
	device := filepath.Base(dir)
	p := port{device: device, name: device, path: filepath.Join(dir, "ports", strconv.Itoa(number)), work: work{number: number}}
	read := func(name string) string {
		text, err := readText(p.path, name)
		p.err = cmp.Or(p.err, err)
		return text
	}
	p.layer = read("link_layer")
	p.state, p.phys = parseState(read("state")), parseState(read("phys_state"))
	p.rate = parseRate(read("rate"))
	if p.err == nil && (p.state.number == 0 || p.phys.number == 0) {
		p.err = fmt.Errorf("cannot understand the state %q and the physical state %q", p.state.said, p.phys.said)
	}
	// What a card does not tell is empty, for all its like.
	board, _ := readText(dir, "board_id")
	kind, _ := readText(dir, "hca_type")
	target, _ := os.Readlink(filepath.Join(dir, "device"))
	p.board = cmp.Or(board, kind)
	_, p.function, _ = strings.Cut(filepath.Base(target), ".")
	return p
}

// parseState reads "4: ACTIVE".
func parseState(text string) state {
	before, after, found := strings.Cut(text, ":")
	number, err := strconv.Atoi(before)
	if err != nil || !found {
		return state{said: text}
	}
	return state{number, strings.TrimSpace(after)}
}

// parseRate reads "400 Gb/sec (4X NDR)"; 0 where it is none.
func parseRate(text string) (rate float64) {
	if _, err := fmt.Sscanf(text, "%g Gb/sec", &rate); err != nil {
		return 0
	}
	return rate
}

// withoutManagement drops the Ethernet ports that are much slower than the fastest port.
func withoutManagement(ports []port) []port {
	var fastest float64
	for _, p := range ports {
		if p.active() {
			fastest = max(fastest, p.rate)
		}
	}
	return slices.DeleteFunc(slices.Clone(ports), func(p port) bool {
		return p.active() && p.layer == "Ethernet" && p.rate <= managementPart*fastest
	})
}

// judge judges one port by those that are like it, and by whether it need do any work. It says nothing where all is well.
func (p port) judge(s *Sheet, ports []port, gpus bool) {
	observed, expected := fmt.Sprintf("%s, %s", p.state.said, p.phys.said), "ACTIVE, LinkUp"
	needed := gpus && p.layer == "InfiniBand" && !slices.ContainsFunc(ports, port.active)
	peers := slices.DeleteFunc(slices.Clone(ports), func(other port) bool { return !other.active() || other.work != p.work })
	var fastest port // the first of several
	if len(peers) > 0 {
		fastest = slices.MaxFunc(peers, func(a, b port) int { return cmp.Compare(a.rate, b.rate) })
		needed, expected = true, expected+" as "+fastest.name
	}
	switch {
	case p.err != nil:
		s.unread(p.err)
	case p.active() && p.rate >= fastest.rate: // all is well
	case p.active():
		s.Fail(Node, rateText(p.rate), fmt.Sprintf("%s as %s", rateText(fastest.rate), fastest.name),
			"drain the node: a worn cable or transceiver makes a link come up slower, and the slowest link sets the pace of all nodes")
	case p.phys.number == physLinkUp && slices.Contains([]int{stateInit, stateArmed, stateActiveDefer}, p.state.number):
		s.Say(Wait, Node, observed, expected, "see whether the subnet manager runs and can reach this port: sminfo, ibdiagnet")
	case !needed:
		s.Warn(Node, observed, expected, "no other port like it is up: see whether it should have a cable; --check "+idIB+"=off where not")
	case slices.Contains([]int{physPolling, physTraining, physRecovery}, p.phys.number):
		s.Say(Wait, Node, observed, expected,
			"the other side does not answer: see to cable, transceiver and switch port").Patience = trainingPatience
	default:
		s.Fail(Node, observed, expected, "drain the node: see to the card, its cable and the switch port; ibportstate and mlxlink tell more")
	}
}

func rateText(rate float64) string { return strconv.FormatFloat(rate, 'f', -1, 64) + " Gb/s" }

// portsText says what is up: 8 ports of 400 Gb/s and 2 of 200 Gb/s active.
func portsText(ports []port) string {
	counts := make(map[float64]int)
	for _, p := range ports {
		counts[p.rate]++
	}
	var parts []string
	for _, rate := range slices.Backward(slices.Sorted(maps.Keys(counts))) {
		word := ""
		if len(parts) == 0 {
			word = " " + prose.Noun(counts[rate], "port")
		}
		parts = append(parts, fmt.Sprintf("%d%s of %s", counts[rate], word, rateText(rate)))
	}
	return strings.Join(parts, " and ") + " active"
}

const idIBErrors = "net.ib_err"

// errorCounters are the counters of a port that stand still while its link is well. Only what they count from the first
// look on is told.
var errorCounters = []string{"link_downed", "link_error_recovery"}

// lookIBErrors compares the counts of errors with the first look's.
func (h *Host) lookIBErrors(s *Sheet) {
	ports, err := h.ports()
	if err != nil {
		s.unread(err)
		return
	}
	source, counted := s.Each.Source, false
	for _, p := range ports {
		for _, name := range errorCounters {
			path := filepath.Join(p.path, "counters", name)
			text, err := readText(path)
			count, bad := strconv.Atoi(text)
			if err != nil || bad != nil {
				continue
			}
			counted = true
			first, known := h.errors[path]
			if !known {
				h.errors[path] = count
			} else if more := count - first; more > 0 {
				s.Each.Source, s.Each.Device = path, &Device{Index: -1, Name: p.device}
				s.Warn(Node, fmt.Sprintf("%s has counted %d since the first look", name, more), "none",
					"the link goes up and down: see to cable, transceiver and switch port before a long run")
			}
		}
	}
	s.Each.Source, s.Each.Device = source, nil
	switch {
	case !counted:
		s.Skip("there are no counters of errors")
	case len(s.Found) == 0:
		s.Pass("no link has gone down since the first look")
	}
}
