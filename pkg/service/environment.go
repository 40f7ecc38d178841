package service

import (
	"fmt"
	"maps"
	"net"
	"slices"
	"strconv"
	"strings"

	"go.uber.org/zap"

	"github.com/bringupd/bringupd/internal/envlist"
	"github.com/bringupd/bringupd/pkg/framework"
	"github.com/bringupd/bringupd/pkg/gpu/ncclras"
	"github.com/bringupd/bringupd/pkg/roles/launcher"
	"github.com/bringupd/bringupd/pkg/signal"
	"github.com/bringupd/bringupd/pkg/signal/record"
)

// Slot is the place of a node in the team, and the number of the team's nodes.
type Slot struct{ Place, Size int }

// Environment has what decides the environment of a child of a daemon: of the driver, a rank, a
// service, a process of a role, a command of bringupd exec, a setup command, a probe, a sandbox and
// the command of --on-end.
type Environment struct {
	Kind     launcher.ChildKind
	Run, Dir string            // name and directory of the run
	ID       launcher.Identity // identity of the node
	Address  launcher.NodeAddress
	Slot     *Slot // the node's; nil for a child on a node that has none
	// socket of the node's rendezvous server; empty without a world of ranks
	Socket       string
	GPUVariables map[string]string // variables that describe the node's GPUs
	NCCLAddress  string            // reserved for NCCL's RAS subsystem; empty if there is none
	Team         *Team             // nil for a child that needs no other node
	Credentials  map[string]string // variables for the services of the team
}

// Team has what a child needs to reach the nodes of its run and their services.
type Team struct {
	Hosts    []string // in the order of the nodes; nil if they are not known on this node
	Endpoint framework.Endpoint
}

// AttemptVariable is the number of the attempt: how often the process has been started before in
// its launch.
const AttemptVariable = "BRINGUPD_ATTEMPT"

// Of returns the environment of the child, based on that of the daemon or on the one in which a
// framework has described its service. It removes variables that describe the place of another
// process, adds what is known about the run and the node, and then the variables in more. Later ones
// take precedence. A variable with an empty value is removed. If a proxy is set, the
// nodes are excluded from it.
func (e Environment) Of(base []string, more ...map[string]string) []string {
	lookup := launcher.EnvironmentOf(base)
	set := launcher.InheritedVariables(base, e.Kind)
	maps.Copy(set, map[string]string{
		launcher.RunVariable: e.Run,
		"BRINGUPD_RUN_DIR":   e.Dir,
		AttemptVariable:      strconv.Itoa(e.ID.Attempt),
		"BRINGUPD_NODE_HOST": e.ID.Host,
		// Remove variables that may have been set by a daemon that runs around this one or has submitted
		// this job.
		"BRINGUPD_NODE_RANK": "", "BRINGUPD_NODE_COUNT": "", launcher.RendezvousVariable: e.Socket,
		"BRINGUPD_LAUNCH_RANK":  strconv.Itoa(record.NodeOfMember(e.ID.NodeIndex, e.ID.Size)),
		"BRINGUPD_LAUNCH_COUNT": strconv.Itoa(e.ID.Size),
	})
	e.addNetworkVariables(set, base)
	maps.Copy(set, e.GPUVariables)
	maps.Copy(set, e.flightRecorderVariables(lookup))
	maps.Copy(set, ncclras.Variables(e.NCCLAddress, lookup))
	if e.Slot != nil {
		set["BRINGUPD_NODE_RANK"] = strconv.Itoa(e.Slot.Place)
		set["BRINGUPD_NODE_COUNT"] = strconv.Itoa(e.Slot.Size)
	}
	known := append([]string{e.Address.Address, e.ID.Host}, e.ID.Hosts...)
	if e.Team != nil {
		set["BRINGUPD_HOSTS"] = strings.Join(e.Team.Hosts, ",")
		set[framework.HeadAddressVariable] = e.Team.Endpoint.Address
		maps.Copy(set, e.Team.Endpoint.Env)
		maps.Copy(set, e.Credentials)
		known = append(known, e.Team.Hosts...)
	}
	for _, variables := range more {
		maps.Copy(set, variables)
	}
	env := envlist.With(base, set)
	head, _ := envlist.Lookup(env, framework.HeadAddressVariable)
	return BypassProxy(env, append(known, head)...)
}

// LogRemoved logs which variables that a job script may have set for the driver do not reach it, besides
// those that its command line sets.
func LogRemoved(log *zap.Logger, base, driver []string) {
	names := slices.DeleteFunc(launcher.RemovedScriptVariables(base), func(name string) bool {
		return slices.ContainsFunc(driver, func(word string) bool { return strings.HasPrefix(word, name+"=") })
	})
	if len(names) > 0 {
		log.Info(fmt.Sprintf("the driver is no rank, and does not get %s: to keep %s, start the driver with: "+
			"-- env %[2]s=$%[2]s … (docs/environment.md)", strings.Join(names, ", "), names[0]))
	}
}

// flightRecorderVariables returns the variables that make torch write the dumps of its flight
// recorder into the run directory: if the user has given the recorder a buffer, and no other place.
func (e Environment) flightRecorderVariables(base func(name string) (string, bool)) map[string]string {
	more := make(map[string]string)
	const ownEnd = "/" + signal.LogsDir + "/" + signal.FlightRecorderPrefix // of a run around this one, too
	for _, names := range []struct {
		buffer,
		dump string
	}{{"TORCH_FR_BUFFER_SIZE", "TORCH_FR_DUMP_TEMP_FILE"}, {"TORCH_NCCL_TRACE_BUFFER_SIZE",
		"TORCH_NCCL_DEBUG_INFO_TEMP_FILE"}} {
		if place, _ := base(names.dump); place != "" && !strings.HasSuffix(place, ownEnd) {
			return nil
		}
		more[names.dump] = ""
		if size, _ := base(names.buffer); size != "" && size != "0" {
			more[names.dump] = e.Dir + ownEnd
		}
	}
	return more
}

// addNetworkVariables adds the node's address and interface to more, and the variables with which
// vLLM, Gloo, TensorPipe and NCCL use that interface, unless base has them: those of NCCL, which
// itself passes over loopback interfaces, if the user has selected the interface; those of the
// others also if they would follow the node's own name to an address that peers do not reach. Values
// that a daemon around this one has added to base are replaced, because they may be those of another
// node.
func (e Environment) addNetworkVariables(more map[string]string, base []string) {
	lookup := launcher.EnvironmentOf(base)
	outerAddress, _ := lookup(launcher.NodeAddressVariable)
	outerInterface, _ := lookup(launcher.NodeInterfaceVariable)
	here := e.Address
	more[launcher.NodeAddressVariable], more[launcher.NodeInterfaceVariable] = here.Address, here.Interface
	misled := here.Selected || here.NameProblem() != "" && here.Interface != ""
	for _, v := range []struct {
		name, value, outer string
		needed             bool
	}{
		{"VLLM_HOST_IP", here.Address, outerAddress, misled},
		{"GLOO_SOCKET_IFNAME", here.Interface, outerInterface, misled},
		{"TP_SOCKET_IFNAME", here.Interface, outerInterface, misled},
		// "=": the name, and not a prefix of it
		{"NCCL_SOCKET_IFNAME", "=" + here.Interface, "=" + outerInterface, here.Selected},
	} {
		if value, isSet := lookup(v.name); isSet && value != v.outer {
			continue
		}
		more[v.name] = ""
		if v.needed {
			more[v.name] = v.value
		}
	}
}

// proxyVariables name a proxy for HTTP. Most programs read only those in lower case.
var proxyVariables = []string{
	"http_proxy", "https_proxy", "all_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY",
}

// maxProxyExceptions is the maximum length of a list of hosts that no proxy serves, in bytes. The
// kernel limits a variable to 128 KiB, and every process of the job has a copy of each.
const maxProxyExceptions = 32 << 10

// BypassProxy returns environ with the loopback addresses and the given hosts, names or addresses
// with or without a port, added to no_proxy and NO_PROXY, if environ names a proxy: it would refuse
// or fail to reach what listens on the job's own nodes. Hosts beyond maxProxyExceptions are left
// out.
func BypassProxy(environ []string, hosts ...string) []string {
	lookup := launcher.EnvironmentOf(environ)
	isSet := func(name string) bool { value, _ := lookup(name); return value != "" }
	if !slices.ContainsFunc(proxyVariables, isSet) {
		return environ
	}
	lower, _ := lookup("no_proxy")
	upper, _ := lookup("NO_PROXY")
	if lower == "" {
		lower = upper
	}
	if upper == "" {
		upper = lower
	}
	hosts = append([]string{"localhost", "127.0.0.1"}, hosts...)
	return envlist.With(environ, map[string]string{
		"no_proxy": addExceptions(lower, hosts), "NO_PROXY": addExceptions(upper, hosts),
	})
}

// addExceptions adds hosts to a list of hosts that no proxy serves.
func addExceptions(list string, hosts []string) string {
	entries := strings.FieldsFunc(list, func(r rune) bool { return r == ',' || r == ' ' })
	if slices.Contains(entries, "*") {
		return list
	}
	listed, size := make(map[string]bool), len(list)
	for _, entry := range entries {
		listed[entry] = true
	}
	for _, host := range hosts {
		if name, _, err := net.SplitHostPort(host); err == nil {
			host = name
		}
		if host == "" || listed[host] || size+len(host) > maxProxyExceptions {
			continue
		}
		listed[host] = true
		entries, size = append(entries, host), size+len(host)+1
	}
	return strings.Join(entries, ",")
}
