package launcher

import (
	"context"
	"errors"
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"time"
)

// nameTimeout bounds each lookup of a host name.
const nameTimeout = 2 * time.Second

// NameProblem returns why peers do not reach a program that listens at the address of the node's own
// host name, as Gloo and TensorPipe do if nothing selects an interface. It is empty if they do, or if
// no peer is on another machine. Its first call may take nameTimeout.
func (a NodeAddress) NameProblem() string {
	if a.CheckName == nil {
		return ""
	}
	return a.CheckName()
}

// findNameProblem looks the node's own host name up. found are the interfaces of the node, of which
// one has the address that peers reach.
func findNameProblem(found []netInterface) string {
	host, err := os.Hostname()
	if err != nil {
		return "its own host name is unknown: " + err.Error()
	}
	addrs, err := resolveName(host)
	return judgeOwnName(addrs, err, found)
}

func resolveName(host string) ([]netip.Addr, error) {
	ctx, cancel := context.WithTimeout(context.Background(), nameTimeout)
	defer cancel()
	addrs, err := net.DefaultResolver.LookupNetIP(ctx, "ip", host)
	for i, addr := range addrs {
		addrs[i] = addr.Unmap().WithZone("")
	}
	return addrs, err
}

// judgeOwnName returns what is wrong with the addresses to which the node's own name resolves.
// getaddrinfo returns a loopback address before all others, also if it is one of several. The address
// of any other interface is right: the site has chosen it.
func judgeOwnName(addrs []netip.Addr, err error, found []netInterface) string {
	if err != nil || len(addrs) == 0 {
		return "its own host name does not resolve to an address"
	}
	if at := slices.IndexFunc(addrs, netip.Addr.IsLoopback); at >= 0 {
		return "its own host name resolves to " + addrs[at].String() + ", which other nodes cannot reach"
	}
	if !slices.ContainsFunc(addrs, func(addr netip.Addr) bool { return interfaceOf(addr, found) != "" }) {
		return "its own host name resolves to " + addrs[0].String() + ", which is not one of its addresses"
	}
	return ""
}

// interfaceOf returns the name of the interface with an address; empty if none has it.
func interfaceOf(addr netip.Addr, found []netInterface) string {
	for _, i := range found {
		if slices.Contains(i.addrs, addr) {
			return i.name
		}
	}
	return ""
}

// interfaceVariables select the interfaces of programs. Gloo and TensorPipe accept names (torch's
// ProcessGroupGloo.cpp, which opens each of them, and tensorpipe_agent.cpp), NCCL and RCCL prefixes
// or, after "=", names, all others after "^" (NCCL's user guide, "Environment Variables").
var interfaceVariables = []struct {
	name   string
	ofNCCL bool
}{{"GLOO_SOCKET_IFNAME", false}, {"TP_SOCKET_IFNAME", false}, {"NCCL_SOCKET_IFNAME", true}}

// FindNetworkMistakes returns what is wrong, on this node, with the variables by which a user
// selects the network of programs with processes on several machines. Variables of NCCL and RCCL are
// left out if the programs use no GPU of this node.
func FindNetworkMistakes(env Environment, here NetworkUse) ([]string, error) {
	found, err := systemInterfaces()
	if err != nil {
		return nil, err
	}
	return networkMistakes(env, found, resolveName, here), nil
}

// FindNetworkMistakes is like the function, for the environment of a rank. It returns nothing if all
// ranks run on this machine.
func (r StartedRank) FindNetworkMistakes(env Environment, hasGPUs bool) ([]string, error) {
	if !r.SpansMachines() {
		return nil, nil
	}
	return FindNetworkMistakes(func(name string) (string, bool) {
		value, isSet := env(name)
		if name == "MASTER_ADDR" && value == r.MasterHost { // the launcher's own
			return "", false
		}
		return value, isSet
	}, NetworkUse{HasRank0: r.IsWithRank0(), HasGPUs: hasGPUs})
}

// NetworkUse is what the programs with processes on several machines have on a node.
type NetworkUse struct {
	HasRank0, HasGPUs bool
}

func networkMistakes(env Environment, found []netInterface, resolve func(host string) ([]netip.Addr, error),
	here NetworkUse) (mistakes []string) {
	add := func(name, problem string) {
		mistakes = append(mistakes, name+"="+shortenText(env.valueOf(name))+": "+problem+"; this node has "+
			describeInterfaces(found))
	}
	for _, v := range interfaceVariables {
		value := env.valueOf(v.name)
		if value == "" || env.isOfOuterRun(value) || v.ofNCCL && !here.HasGPUs {
			continue
		}
		if problem := judgeInterfaces(value, v.ofNCCL, found); problem != "" {
			add(v.name, problem)
		}
	}
	const master = "MASTER_ADDR"
	if host := env.valueOf(master); host != "" {
		if problem := judgeMaster(host, found, resolve, here.HasRank0); problem != "" {
			add(master, problem)
		}
	}
	return mistakes
}

// isOfOuterRun reports whether a daemon around this one has set a variable to its own interface.
// The children of this one get another value.
func (env Environment) isOfOuterRun(value string) bool {
	return strings.TrimPrefix(value, "=") == env.valueOf(NodeInterfaceVariable)
}

// judgeInterfaces returns what is wrong with a selection of interfaces; empty if peers reach one, or
// each of a list of names.
func judgeInterfaces(value string, ofNCCL bool, found []netInterface) string {
	if !ofNCCL {
		return judgeNames(value, found)
	}
	list, others := strings.CutPrefix(value, "^")
	list, exact := strings.CutPrefix(list, "=")
	names := strings.Split(list, ",")
	return judgeSelection(func(name string) bool {
		return others != slices.ContainsFunc(names, func(entry string) bool {
			entry, _, _ = strings.Cut(entry, ":") // a port of NCCL's
			return name == entry || !exact && strings.HasPrefix(name, entry)
		})
	}, found)
}

// judgeNames returns what is wrong with the first name of a list that peers do not reach.
func judgeNames(list string, found []netInterface) string {
	if strings.ContainsAny(list[:1], "^=") {
		return "this is NCCL's notation, and only names of interfaces are accepted, such as eth0"
	}
	for name := range strings.SplitSeq(strings.TrimSuffix(list, ","), ",") {
		problem := judgeSelection(func(other string) bool { return name == other }, found)
		if problem != "" && name != list {
			problem = name + ": " + problem
		}
		if problem != "" {
			return problem
		}
	}
	return ""
}

// judgeSelection returns why peers reach no selected interface; empty if they reach one.
func judgeSelection(selects func(name string) bool, found []netInterface) string {
	problem := "no interface has this name"
	for _, i := range found {
		switch {
		case !selects(i.name):
		case !i.up:
			problem = i.name + " is down"
		case i.loopback:
			problem = "other nodes cannot reach " + i.name
		case !bestAddress(i.addrs, false).IsValid():
			problem = i.name + " has no address that other nodes can reach"
		default:
			return ""
		}
	}
	return problem
}

// judgeMaster returns what is wrong with the address at which the ranks of several machines meet.
func judgeMaster(host string, found []netInterface, resolve func(host string) ([]netip.Addr, error),
	isFirst bool) string {
	addrs, err := resolve(host)
	if failed, is := errors.AsType[*net.DNSError](err); is && failed.IsNotFound {
		return "it does not resolve to an address"
	}
	isOwn := func(addr netip.Addr) bool { return addr.IsLoopback() || interfaceOf(addr, found) != "" }
	_, noAddress := netip.ParseAddr(host)
	switch {
	case err != nil || len(addrs) == 0: // unknown
		return ""
	case isFirst && noAddress != nil && isOwn(addrs[0]): // Debian's 127.0.1.1; other nodes look the name up themselves
		return ""
	case addrs[0].IsLoopback() || addrs[0].IsUnspecified():
		return "it is a loopback address (" + addrs[0].String() + "), and other nodes do not reach rank 0 there"
	case isFirst && !slices.ContainsFunc(addrs, isOwn):
		return "rank 0 runs on this node, and it is not one of its addresses (" + addrs[0].String() + ")"
	}
	return ""
}
