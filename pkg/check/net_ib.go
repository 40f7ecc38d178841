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

	"github.com/bringupd/bringupd/internal/envlist"
	"github.com/bringupd/bringupd/internal/textutil"
)

const (
	idIB    = "net.ib"
	ibClass = "/sys/class/infiniband"
)

// linkTrainingTimeout is how long the checks wait for a link in training. Training takes seconds;
// without a cable it never ends.
const linkTrainingTimeout = time.Minute

// managementFraction is a fraction of the rate of comparable ports. A slower Ethernet port is a
// management port, which does not carry the job's traffic.
const managementFraction = 0.25

// rdmaPort is the state of one port of an RDMA device, as read from the kernel.
type rdmaPort struct {
	device string // mlx5_0
	name   string // name that administrators use: mlx5_3, mlx4_0 port 2
	path   string
	portRole
	state, phys portState
	rate        float64 // in Gb/s
	err         error   // first error in reading the port
	requiredBy  string  // variable that names the port; empty if the job does not require it
}

// portRole identifies comparable ports of a node: the same port of the same function of the same
// card model. The rate is not part of it, because a port that is down has none. Many cards have a
// second port without a cable.
type portRole struct {
	board    string // model of the card
	function string // PCI function: "1" in 0000:3b:00.1
	number   int    // number of the port
	layer    string // InfiniBand, Ethernet
}

// portState is the state of a port: its number and the kernel's name for it.
type portState struct {
	number int
	name   string
}

// Port states, numbered by the InfiniBand specification.
const (
	stateInit        = 2
	stateArmed       = 3
	stateActive      = 4
	stateActiveDefer = 5
)

// Physical port states.
const (
	physPolling  = 2
	physTraining = 4
	physLinkUp   = 5
	physRecovery = 6
)

// isActive reports whether NCCL would use the port. NCCL checks only the state.
func (p rdmaPort) isActive() bool { return p.err == nil && p.state.number == stateActive }

// checkIB checks the ports that the job names, and compares the other ports with comparable ones.
// It adds one finding for each port with a problem.
//
// A port that is down does not make a node unfit: NCCL uses the ports that are active
// (src/transport/net_ib/init.cc), many cards have a second port without a cable, and only the site
// knows which ports should be up. NHC (check_hw_ib in scripts/lbnl_hw.nhc) requires one active
// port, with a device and rate that the site may configure. gpud checks no port unless the expected
// number is configured (components/accelerator/nvidia/infiniband/evaluate_threshold.go). The
// comparison x.nic_rate reports nodes with fewer or slower ports than the other nodes of the job.
func (h *Host) checkIB(s *FindingBuilder) {
	ports, err := h.readPorts()
	if err != nil {
		s.addUnreadable(err)
		return
	}
	s.attributes = h.readNICAttributes(ports)
	if len(ports) == 0 {
		s.AddSkip("no RDMA NICs")
		return
	}
	// Check each port. Its findings name the port.
	whole := s.Template
	for _, p := range ports {
		s.Template.Source, s.Template.Device = p.path, &Device{Index: -1, Name: p.name}
		p.checkState(s, ports)
		h.checkGIDIndex(s, p)
	}
	// Summarise all ports unless one of them has a finding.
	s.Template = whole
	rates := activeRates(ports)
	down := len(ports) - len(rates)
	switch {
	case len(s.Findings) > 0:
	case len(rates) == 0:
		s.AddWarning(ClassEnvironment, fmt.Sprintf("none of %d %s is active", down, textutil.PluralForm(down, "port")), "an active port, if the job uses RDMA",
			"check cables and the subnet manager; if no port is meant to be up, use --check "+idIB+"=off")
	case down > 0:
		s.AddPass(fmt.Sprintf("%s active, %d down with no comparable port up", formatCounts(rates, "x"), down))
	default:
		s.AddPass(formatCounts(rates, "x") + " active")
	}
}

// namingVariable returns the variable in the driver's environment that names the port p. It is
// empty if there is none, or if the job has only one node. ports are all ports of the node.
//
// The format of NCCL_IB_HCA is [^][=]CARD[:PORT[:RAIL[:PLANE]]],… (NCCL's user guide,
// "Environment Variables"), that of UCX_NET_DEVICES is [^]CARD[:PORT],… (UCX's
// src/ucp/core/ucp_context.c). A list of excluded cards names no port. A prefix of card names, as
// in NCCL_IB_HCA=mlx5, names none either: it selects the active ports. A card without a port
// number only requires that one of its ports is active.
func (h *Host) namingVariable(p rdmaPort, ports []rdmaPort) string {
	if h.Nodes == 1 {
		return ""
	}
	another := slices.ContainsFunc(ports, func(o rdmaPort) bool { return o.device == p.device && o.number != p.number && o.isActive() })
	disabled, _ := envlist.Lookup(h.Environ, "NCCL_IB_DISABLE")
	for _, variable := range []string{"NCCL_IB_HCA", "UCX_NET_DEVICES"} {
		list, _ := envlist.Lookup(h.Environ, variable)
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

// rdmaDevices returns the names of the RDMA devices. It leaves out virtual functions, which are for
// virtual machines. It returns no error if there are no devices.
func (h *Host) rdmaDevices() (names []string, err error) {
	entries, err := os.ReadDir(h.hostPath(ibClass))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	for _, entry := range entries {
		if _, err := os.Lstat(filepath.Join(h.hostPath(ibClass), entry.Name(), "device/physfn")); err != nil {
			names = append(names, entry.Name())
		}
	}
	return names, nil
}

// readCounter reads a counter from a file.
func readCounter(path string) (int, error) {
	text, err := readTrimmed(path)
	if err != nil {
		return 0, err
	}
	return strconv.Atoi(text)
}

// readPorts reads all ports of all devices. It returns no error if there are none.
func (h *Host) readPorts() ([]rdmaPort, error) {
	devices, err := h.rdmaDevices()
	if err != nil {
		return nil, err
	}
	var ports []rdmaPort
	// Read each port. A device with several ports needs port numbers in the names.
	for _, device := range devices {
		dir := filepath.Join(h.hostPath(ibClass), device)
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
	// The match against the driver's environment needs the states of all ports.
	for i, p := range ports {
		ports[i].requiredBy = h.namingVariable(p, ports)
	}
	return ports, nil
}

// readPort reads one port of the device with directory dir. Errors are in the port.
func readPort(dir string, number int) rdmaPort {
	device := filepath.Base(dir)
	p := rdmaPort{device: device, name: device, path: filepath.Join(dir, "ports", strconv.Itoa(number)), portRole: portRole{number: number}}
	read := func(name string) string {
		text, err := readTrimmed(p.path, name)
		p.err = cmp.Or(p.err, err)
		return text
	}
	p.layer = read("link_layer")
	p.state, p.phys = parseState(read("state")), parseState(read("phys_state"))
	p.rate = parseRate(read("rate"))
	if p.err == nil && (p.state.number == 0 || p.phys.number == 0) {
		p.err = fmt.Errorf("cannot parse the state %q and the physical state %q", p.state.name, p.phys.name)
	}
	// Values that a card does not report are empty, as they are for all cards of its model.
	board, _ := readTrimmed(dir, "board_id")
	kind, _ := readTrimmed(dir, "hca_type")
	target, _ := os.Readlink(filepath.Join(dir, "device"))
	p.board = cmp.Or(board, kind)
	_, p.function, _ = strings.Cut(filepath.Base(target), ".")
	return p
}

// parseState parses a state such as "4: ACTIVE". The number is 0 if the text is malformed.
func parseState(text string) portState {
	before, after, found := strings.Cut(text, ":")
	number, err := strconv.Atoi(before)
	if err != nil || !found {
		return portState{name: text}
	}
	return portState{number, strings.TrimSpace(after)}
}

// parseRate parses a rate such as "400 Gb/sec (4X NDR)" and returns it in Gb/s. It returns 0 if the
// text is malformed.
func parseRate(text string) (rate float64) {
	if _, err := fmt.Sscanf(text, "%g Gb/sec", &rate); err != nil {
		return 0
	}
	return rate
}

// checkState adds a finding if the port has a problem. A port that the job names must be up, and as
// fast as comparable ports that the job names. Any other port should match the comparable ports.
func (p rdmaPort) checkState(s *FindingBuilder, ports []rdmaPort) {
	observed, expected := fmt.Sprintf("%s, %s", p.state.name, p.phys.name), "ACTIVE, LinkUp"
	verdict := Warn
	if p.requiredBy != "" {
		verdict, expected = Fail, expected+", because "+p.requiredBy+" names it"
	}
	var fastest rdmaPort // the first one, if several are equally fast
	for _, other := range ports {
		if other.isActive() && other.portRole == p.portRole && (p.requiredBy == "" || other.requiredBy != "") && (fastest.name == "" || other.rate > fastest.rate) {
			fastest = other
		}
	}
	// Classify the port, with the most reliable evidence first.
	management := p.layer == "Ethernet" && p.rate <= managementFraction*fastest.rate
	switch {
	case p.err != nil:
		s.addUnreadable(p.err)
	case p.isActive() && (p.rate >= fastest.rate || management): // no problem
	case p.isActive():
		s.AddFinding(verdict, ClassEnvironment, formatRate(p.rate), fmt.Sprintf("%s, as on %s", formatRate(fastest.rate), fastest.name),
			"check cable and transceiver: a worn one reduces the link speed, and the slowest link slows down all nodes").Strict = p.requiredBy == ""
	case p.requiredBy == "" && fastest.name != "":
		s.AddWarning(ClassEnvironment, observed, expected+", as on "+fastest.name,
			"check whether it should have a cable, and check the switch port (ibportstate, mlxlink)").Strict = true
	case p.requiredBy == "": // down with no comparable port up; a port that never had a cable looks the same
	case p.phys.number == physLinkUp && slices.Contains([]int{stateInit, stateArmed, stateActiveDefer}, p.state.number):
		s.AddFinding(Wait, ClassEnvironment, observed, expected, "check that the subnet manager runs and reaches this port (sminfo, ibdiagnet)")
	case slices.Contains([]int{physPolling, physTraining, physRecovery}, p.phys.number):
		s.AddFinding(Wait, ClassEnvironment, observed, expected,
			"no signal from the other end: check cable, transceiver and switch port").MaxWait = linkTrainingTimeout
	default:
		s.AddFailure(ClassEnvironment, observed, expected, "drain the node; check the NIC, its cable and the switch port (ibportstate, mlxlink)")
	}
}

// formatRate formats a rate given in Gb/s.
func formatRate(rate float64) string { return strconv.FormatFloat(rate, 'f', -1, 64) + " Gb/s" }

// activeRates returns the rates of the ports that are active.
func activeRates(ports []rdmaPort) (rates []string) {
	for _, p := range ports {
		if p.isActive() {
			rates = append(rates, formatRate(p.rate))
		}
	}
	return rates
}

// formatCounts returns how often each text occurs, the most frequent first: 8x400 Gb/s, 2x200 Gb/s.
func formatCounts(all []string, times string) string {
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

// errorCounters are the counters of a port that do not change while its link works. Only increases
// since the first inspection are reported.
var errorCounters = []string{linkDowned, linkRecovered}

const (
	linkDowned    = "link_downed"
	linkRecovered = "link_error_recovery"
)

// checkIBErrors compares the error counters with the values from the first inspection.
func (h *Host) checkIBErrors(s *FindingBuilder) {
	ports, err := h.readPorts()
	if err != nil {
		s.addUnreadable(err)
		return
	}
	// Compare each counter of each port with its first value.
	source, counted := s.Template.Source, false
	for _, p := range ports {
		for _, name := range errorCounters {
			path := filepath.Join(p.path, "counters", name)
			count, err := readCounter(path)
			if err != nil {
				continue
			}
			counted = true
			first, known := h.errorBaselines[path]
			if !known {
				h.errorBaselines[path] = count
			} else if more := count - first; more > 0 {
				s.Template.Source, s.Template.Device = path, &Device{Index: -1, Name: p.device}
				s.AddWarning(ClassEnvironment, fmt.Sprintf("%s has increased by %d since the first reading", name, more), "none",
					"the link is unstable: check cable, transceiver and switch port before a long run")
			}
		}
	}
	// Summarise all counters unless one of them has a finding.
	s.Template.Source, s.Template.Device = source, nil
	switch {
	case !counted:
		s.AddSkip("no error counters")
	case len(s.Findings) == 0:
		s.AddPass("no link has gone down since the first reading")
	}
}
