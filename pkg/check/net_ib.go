package check

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/bringupd/bringupd/pkg/process"
	"github.com/bringupd/bringupd/pkg/prose"
)

const (
	idIB    = "net.ib"
	ibClass = "/sys/class/infiniband"
)

// trainingPatience is for how long a link in training is waited for: training takes seconds, and without a cable it
// never ends.
const trainingPatience = time.Minute

// managementPart is the part of its like's rate up to which an Ethernet port is for management: nothing is computed
// over it.
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
	by          string  // the variable of the driver's that names it; empty: the job can do without it
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

// active is what NCCL asks of a port before it uses it: its state alone.
func (p port) active() bool { return p.err == nil && p.state.number == stateActive }

// lookIB judges the ports that the job names, and those that are unlike their like. What is wrong has a finding a port.
//
// A node is not unfit for a port that is down: NCCL takes whatever ports are active (src/transport/net_ib/init.cc), many
// cards have a second port without a cable, and only the site knows which should be up. NHC (check_hw_ib in
// scripts/lbnl_hw.nhc) asks for one active port, of a device and a rate that the site may name; gpud judges no port
// where nobody has told it how many there should be (components/accelerator/nvidia/infiniband/evaluate_threshold.go).
// That a node has fewer or slower ports than the other nodes of its job is told by x.nic_rate.
func (h *Host) lookIB(s *Sheet) {
	ports, err := h.ports()
	if err != nil {
		s.unread(err)
		return
	}
	s.traits = h.nicTraits(ports)
	if len(ports) == 0 {
		s.Skip("there are no RDMA network cards")
		return
	}
	whole := s.Each
	for _, p := range ports {
		s.Each.Source, s.Each.Device = p.path, &Device{Index: -1, Name: p.name}
		p.judge(s, ports)
		h.judgeGID(s, p)
	}
	s.Each = whole
	rates := activeRates(ports)
	down := len(ports) - len(rates)
	switch {
	case len(s.Found) > 0:
	case len(rates) == 0:
		s.Warn(Environment, fmt.Sprintf("none of %d %s is active", down, prose.Noun(down, "port")), "one that is, where the job computes over it",
			"see whether they should have cables, and a subnet manager; --check "+idIB+"=off where not")
	case down > 0:
		s.Pass(fmt.Sprintf("%s active, %d down with no like that is up", tally(rates, "x"), down))
	default:
		s.Pass(tally(rates, "x") + " active")
	}
}

// naming returns the variable of the driver's that names a port of these; empty where none does, or where the job has no
// other node to talk to.
//
// NCCL_IB_HCA is [^][=]CARD[:PORT[:RAIL[:PLANE]]],… (NCCL's user guide, "Environment Variables") and UCX_NET_DEVICES is
// [^]CARD[:PORT],… (UCX's src/ucp/core/ucp_context.c). A list of what is not to be used names nothing. Nor does the mere
// beginning of a card's name, as in NCCL_IB_HCA=mlx5: it asks for those that are active. A card without a port is as
// well as the best of its ports.
func (h *Host) naming(p port, ports []port) string {
	if h.Nodes == 1 {
		return ""
	}
	another := slices.ContainsFunc(ports, func(o port) bool { return o.device == p.device && o.number != p.number && o.active() })
	disabled, _ := process.LookupEnv(h.Environ, "NCCL_IB_DISABLE")
	for _, variable := range []string{"NCCL_IB_HCA", "UCX_NET_DEVICES"} {
		list, _ := process.LookupEnv(h.Environ, variable)
		if strings.HasPrefix(list, "^") || variable == "NCCL_IB_HCA" && disabled == "1" {
			continue
		}
		for entry := range strings.SplitSeq(strings.TrimPrefix(list, "="), ",") {
			card, rest, _ := strings.Cut(entry, ":")
			number, _, _ := strings.Cut(rest, ":")
			if card == p.device && (number == strconv.Itoa(p.number) || number == "" && !another) {
				return variable
			}
		}
	}
	return ""
}

// devices returns the names of the RDMA devices, without those that are virtual functions of another: they are for
// virtual machines. That there are none is no error.
func (h *Host) devices() (names []string, err error) {
	entries, err := os.ReadDir(h.path(ibClass))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	for _, entry := range entries {
		if _, err := os.Lstat(filepath.Join(h.path(ibClass), entry.Name(), "device/physfn")); err != nil {
			names = append(names, entry.Name())
		}
	}
	return names, nil
}

// Card is an RDMA device, as it is known wherever it is put.
type Card struct {
	Name string // mlx5_0
	GUID string // of the node, as the kernel writes it: 506b:4b03:00c0:ffee
	Bus  string // PCI address
}

// Cards are the RDMA devices below a root of which all of that can be read, without virtual functions.
func Cards(root string) (cards []Card) {
	h := &Host{Root: root}
	names, _ := h.devices()
	for _, name := range names {
		dir := filepath.Join(h.path(ibClass), name)
		guid, _ := readText(dir, "node_guid")
		target, err := os.Readlink(filepath.Join(dir, "device"))
		if err == nil && strings.Trim(guid, "0:") != "" {
			cards = append(cards, Card{Name: name, GUID: guid, Bus: filepath.Base(target)})
		}
	}
	return cards
}

// Links is how often the links of the card's ports have gone down, and have recovered from errors, since its driver was
// loaded or somebody has reset the counts; nil where a port's could not be read. It asks the card's firmware, which may
// never answer.
func (c Card) Links(root string) (downs, recoveries *int) {
	dir := filepath.Join((&Host{Root: root}).path(ibClass), c.Name, "ports")
	return sumCounters(dir, linkDowned), sumCounters(dir, linkRecovered)
}

// sumCounters adds up a counter of all ports in a directory; nil where one can't be read, for the rest would be less.
func sumCounters(dir, name string) *int {
	ports, err := os.ReadDir(dir)
	sum := 0
	for _, port := range ports {
		count, bad := readCounter(filepath.Join(dir, port.Name(), "counters", name))
		sum, err = sum+count, cmp.Or(err, bad)
	}
	if err != nil || len(ports) == 0 {
		return nil
	}
	return &sum
}

func readCounter(path string) (int, error) {
	text, err := readText(path)
	if err != nil {
		return 0, err
	}
	return strconv.Atoi(text)
}

// ports reads all ports. That there are none is no error.
func (h *Host) ports() ([]port, error) {
	devices, err := h.devices()
	if err != nil {
		return nil, err
	}
	var ports []port
	for _, device := range devices {
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
	for i, p := range ports {
		ports[i].by = h.naming(p, ports)
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

// judge judges one port: what the job names must be up, and as fast as its like that the job names. Any other should be
// as its like are. It says nothing where all is well.
func (p port) judge(s *Sheet, ports []port) {
	observed, expected := fmt.Sprintf("%s, %s", p.state.said, p.phys.said), "ACTIVE, LinkUp"
	verdict := Warn
	if p.by != "" {
		verdict, expected = Fail, expected+", for "+p.by+" names it"
	}
	var fastest port // the first of several
	for _, other := range ports {
		if other.active() && other.work == p.work && (p.by == "" || other.by != "") && (fastest.name == "" || other.rate > fastest.rate) {
			fastest = other
		}
	}
	management := p.layer == "Ethernet" && p.rate <= managementPart*fastest.rate
	switch {
	case p.err != nil:
		s.unread(p.err)
	case p.active() && (p.rate >= fastest.rate || management): // all is well
	case p.active():
		s.Say(verdict, Environment, rateText(p.rate), fmt.Sprintf("%s as %s", rateText(fastest.rate), fastest.name),
			"see to cable and transceiver: a worn one makes a link come up slower, and the slowest link sets the pace of all nodes").Strict = p.by == ""
	case p.by == "" && fastest.name != "":
		s.Warn(Environment, observed, expected+" as "+fastest.name,
			"see whether it should have a cable, and to the switch port; ibportstate and mlxlink tell more").Strict = true
	case p.by == "": // what has never had a cable looks the same
	case p.phys.number == physLinkUp && slices.Contains([]int{stateInit, stateArmed, stateActiveDefer}, p.state.number):
		s.Say(Wait, Environment, observed, expected, "see whether the subnet manager runs and can reach this port: sminfo, ibdiagnet")
	case slices.Contains([]int{physPolling, physTraining, physRecovery}, p.phys.number):
		s.Say(Wait, Environment, observed, expected,
			"the other side does not answer: see to cable, transceiver and switch port").Patience = trainingPatience
	default:
		s.Fail(Environment, observed, expected, "drain the node: see to the card, its cable and the switch port; ibportstate and mlxlink tell more")
	}
}

func rateText(rate float64) string { return strconv.FormatFloat(rate, 'f', -1, 64) + " Gb/s" }

// activeRates are those of the ports that are up.
func activeRates(ports []port) (rates []string) {
	for _, p := range ports {
		if p.active() {
			rates = append(rates, rateText(p.rate))
		}
	}
	return rates
}

// tally says how many there are of each, the most first: 8x400 Gb/s, 2x200 Gb/s.
func tally(all []string, times string) string {
	counts := make(map[string]int)
	for _, one := range all {
		counts[one]++
	}
	var parts []string
	for _, one := range slices.SortedFunc(maps.Keys(counts), func(a, b string) int {
		return cmp.Or(cmp.Compare(counts[b], counts[a]), cmp.Compare(a, b))
	}) {
		parts = append(parts, strconv.Itoa(counts[one])+times+one)
	}
	return strings.Join(parts, ", ")
}

const idIBErrors = "net.ib_err"

// errorCounters are the counters of a port that stand still while its link is well. Only what they count from the first
// look on is told.
var errorCounters = []string{linkDowned, linkRecovered}

const (
	linkDowned    = "link_downed"
	linkRecovered = "link_error_recovery"
)

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
			count, err := readCounter(path)
			if err != nil {
				continue
			}
			counted = true
			first, known := h.errors[path]
			if !known {
				h.errors[path] = count
			} else if more := count - first; more > 0 {
				s.Each.Source, s.Each.Device = path, &Device{Index: -1, Name: p.device}
				s.Warn(Environment, fmt.Sprintf("%s has counted %d since the first look", name, more), "none",
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
