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

	"github.com/prometheus/procfs/sysfs"

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

// managementFactor is by how much an Ethernet port is slower than comparable ones if it is a
// management port, which does not carry the job's traffic.
const managementFactor = 4

// rdmaPort is one port of an RDMA device, or a device that cannot be read.
type rdmaPort struct {
	sysfs.InfiniBandPort
	portRole
	label      string // name that administrators use: mlx5_3, mlx4_0 port 2
	path       string
	err        error  // why the device cannot be read
	requiredBy string // variable that names the port; empty if the job does not require it
}

// portRole identifies comparable ports of a node: the same port of the same function of the same
// card model. The rate is not part of it, because a port that is down has none. Many cards have a
// second port without a cable.
type portRole struct {
	board    string // model of the card
	function string // PCI function: "1" in 0000:3b:00.1
	port     uint
	layer    string // InfiniBand, Ethernet
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
func (p rdmaPort) isActive() bool { return p.err == nil && p.StateID == stateActive }

// checkIB checks the ports that the job names, and compares the other ports with comparable ones.
// It adds one finding for each port with a problem.
//
// A port that is down does not make a node unfit: NCCL uses the ports that are active
// (src/transport/net_ib/init.cc), many cards have a second port without a cable, and only the site
// knows which ports should be up. The comparison x.nic_rate reports nodes with fewer or slower ports.
func (h *Host) checkIB(s *FindingBuilder) {
	devices, ports, err := h.readPorts()
	if err != nil {
		s.addUnreadable(err)
		return
	}
	s.attributes = nicAttributes(devices, ports)
	if len(ports) == 0 {
		s.AddSkip("no RDMA NICs")
		return
	}
	whole := s.Template
	for _, p := range ports {
		s.Template.Source, s.Template.Device = p.path, &Device{Index: -1, Name: p.label}
		p.checkState(s, ports)
	}
	s.Template = whole
	rates := activeRates(ports)
	down := len(ports) - len(rates)
	switch {
	case len(s.Findings) > 0:
	case len(rates) == 0:
		s.AddWarning(ClassEnvironment,
			fmt.Sprintf("none of %d %s is active", down, textutil.PluralForm(down, "port")),
			"an active port, if the job uses RDMA",
			"check cables and the subnet manager; if no port is meant to be up, use --check "+idIB+"=off")
	case down > 0:
		s.AddPass(fmt.Sprintf("%s active, %d down with no comparable port up",
			formatCounts(rates, "x"), down))
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
	another := slices.ContainsFunc(ports, func(o rdmaPort) bool {
		return o.Name == p.Name && o.Port != p.Port && o.isActive()
	})
	disabled, _ := envlist.Lookup(h.Environ, "NCCL_IB_DISABLE")
	for _, variable := range []string{"NCCL_IB_HCA", "UCX_NET_DEVICES"} {
		list, _ := envlist.Lookup(h.Environ, variable)
		if strings.HasPrefix(list, "^") || variable == "NCCL_IB_HCA" && disabled == "1" {
			continue
		}
		for entry := range strings.SplitSeq(strings.TrimPrefix(list, "="), ",") {
			card, rest, _ := strings.Cut(entry, ":")
			number, _, _ := strings.Cut(rest, ":")
			if card == p.Name && (number == fmt.Sprint(p.Port) || number == "" && !another) {
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
		if !h.pathExists(filepath.Join(ibClass, entry.Name(), "device/physfn")) {
			names = append(names, entry.Name())
		}
	}
	return names, nil
}

// readPorts reads all devices and their ports. It returns no error if there are none. A device that
// cannot be read is among the ports only.
func (h *Host) readPorts() (devices []sysfs.InfiniBandDevice, ports []rdmaPort, err error) {
	names, err := h.rdmaDevices()
	if err != nil || len(names) == 0 {
		return nil, nil, err
	}
	sys, err := sysfs.NewFS(h.hostPath("/sys"))
	if err != nil {
		return nil, nil, err
	}
	for _, name := range names {
		dir := filepath.Join(h.hostPath(ibClass), name)
		device, err := sys.InfiniBandDevice(name)
		if err != nil {
			unread := sysfs.InfiniBandPort{Name: name}
			ports = append(ports, rdmaPort{InfiniBandPort: unread, label: name, path: dir, err: err})
			continue
		}
		devices = append(devices, *device)
		// A card that does not report its function or model is like all cards of its model.
		target, _ := os.Readlink(filepath.Join(dir, "device"))
		_, function, _ := strings.Cut(filepath.Base(target), ".")
		board := cmp.Or(device.BoardID, device.HCAType)
		for _, number := range slices.Sorted(maps.Keys(device.Ports)) {
			p := rdmaPort{InfiniBandPort: device.Ports[number], label: name}
			p.portRole = portRole{board, function, number, p.LinkLayer}
			p.path = filepath.Join(dir, "ports", fmt.Sprint(number))
			if len(device.Ports) > 1 {
				p.label = fmt.Sprintf("%s port %d", name, number)
			}
			ports = append(ports, p)
		}
	}
	// The match against the driver's environment needs the states of all ports.
	for i, p := range ports {
		ports[i].requiredBy = h.namingVariable(p, ports)
	}
	return devices, ports, nil
}

// checkState adds a finding if the port has a problem. A port that the job names must be up, and as
// fast as comparable ports that the job names. Any other port should match the comparable ports.
func (p rdmaPort) checkState(s *FindingBuilder, ports []rdmaPort) {
	observed, expected := fmt.Sprintf("%s, %s", p.State, p.PhysState), "ACTIVE, LinkUp"
	verdict := Warn
	if p.requiredBy != "" {
		verdict, expected = Fail, expected+", because "+p.requiredBy+" names it"
	}
	var fastest rdmaPort // the first one, if several are equally fast
	for _, other := range ports {
		comparable := other.portRole == p.portRole && (p.requiredBy == "" || other.requiredBy != "")
		if other.isActive() && comparable && (fastest.label == "" || other.Rate > fastest.Rate) {
			fastest = other
		}
	}
	// Classify the port, with the most reliable evidence first.
	management := p.LinkLayer == "Ethernet" && p.Rate*managementFactor <= fastest.Rate
	switch {
	case p.err != nil:
		s.addUnreadable(p.err)
	case p.isActive() && (p.Rate >= fastest.Rate || management): // no problem
	case p.isActive():
		s.AddFinding(verdict, ClassEnvironment, formatRate(p.Rate),
			fmt.Sprintf("%s, as on %s", formatRate(fastest.Rate), fastest.label),
			"check cable and transceiver: a worn one reduces the link speed, "+
				"and the slowest link slows down all nodes").Strict = p.requiredBy == ""
	case p.requiredBy == "" && fastest.label != "":
		s.AddWarning(ClassEnvironment, observed, expected+", as on "+fastest.label,
			"check whether it should have a cable, and check the switch port (ibportstate, mlxlink)").
			Strict = true
	case p.requiredBy == "": // nothing comparable is up; a port that never had a cable looks the same
	case p.PhysStateID == physLinkUp &&
		slices.Contains([]uint{stateInit, stateArmed, stateActiveDefer}, p.StateID):
		s.AddFinding(Wait, ClassEnvironment, observed, expected,
			"check that the subnet manager runs and reaches this port (sminfo, ibdiagnet)")
	case slices.Contains([]uint{physPolling, physTraining, physRecovery}, p.PhysStateID):
		s.AddFinding(Wait, ClassEnvironment, observed, expected,
			"no signal from the other end: check cable, transceiver and switch port").
			MaxWait = linkTrainingTimeout
	default:
		s.AddFailure(ClassEnvironment, observed, expected,
			"drain the node; check the NIC, its cable and the switch port (ibportstate, mlxlink)")
	}
}

// formatRate formats a rate given in bytes per second.
func formatRate(rate uint64) string {
	const gigabit = 1e9 / 8
	return strconv.FormatFloat(float64(rate)/gigabit, 'f', -1, 64) + " Gb/s"
}

func activeRates(ports []rdmaPort) (rates []string) {
	for _, p := range ports {
		if p.isActive() {
			rates = append(rates, formatRate(p.Rate))
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

// nicAttributes returns the attributes of the network cards by which nodes are compared. What cannot
// be read is left out.
func nicAttributes(devices []sysfs.InfiniBandDevice, ports []rdmaPort) []Attribute {
	var models, firmware []string
	for _, device := range devices {
		models = append(models, cmp.Or(device.HCAType, "unknown model"))
		if device.FirmwareVersion != "" {
			firmware = append(firmware, strings.TrimSpace(device.HCAType+" "+device.FirmwareVersion))
		}
	}
	if slices.ContainsFunc(ports, func(p rdmaPort) bool { return p.err != nil }) {
		return nil
	}
	all := []Attribute{{ID: AttrNICs, Value: cmp.Or(formatCounts(models, " "), "none")}}
	if len(ports) > 0 {
		rates := cmp.Or(formatCounts(activeRates(ports), "x"), "none active")
		all = append(append(all, Attribute{AttrNICRate, rates}), gidAttributes(ports)...)
	}
	if len(firmware) > 0 {
		slices.Sort(firmware)
		all = append(all, Attribute{AttrNICFirmware, strings.Join(slices.Compact(firmware), ", ")})
	}
	return all
}
