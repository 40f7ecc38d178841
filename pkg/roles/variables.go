package roles

import (
	"cmp"
	"fmt"
	"iter"
	"maps"
	"net"
	"slices"
	"strconv"
	"strings"

	"github.com/bringupd/bringupd/internal/textutil"
)

// maxListLength is the length of a variable above which it is left out: a process cannot start with
// one of 128 KiB.
const maxListLength = 64 << 10

// VariableName returns a name of a role or port as it appears in the names of variables.
func VariableName(name string) string {
	return strings.ToUpper(strings.ReplaceAll(name, "-", "_"))
}

// Endpoint is an address at which an instance of a role serves.
type Endpoint struct {
	Host, Address string
	Port          int // 0: the role has no ports
	Instance      int // index of the instance in its role
}

// HostPort returns the endpoint in the form host:port, and without a port only the address.
func (e Endpoint) HostPort() string {
	if e.Port == 0 {
		return e.Address
	}
	return net.JoinHostPort(e.Address, strconv.Itoa(e.Port))
}

// Endpoints returns the planned endpoints of a role, sorted by instance: those of the processes of
// rank 0, or of all processes if the role says so.
func (p *Plan) Endpoints(role *RolePlan) []Endpoint {
	return slices.AppendSeq(make([]Endpoint, 0, len(role.Instances)), p.eachEndpoint(role))
}

func (p *Plan) eachEndpoint(role *RolePlan) iter.Seq[Endpoint] {
	return func(yield func(Endpoint) bool) {
		for _, instance := range role.Instances {
			processes := instance.Processes
			if !role.Program.AllEndpoints {
				processes = processes[:1]
			}
			for _, process := range processes {
				endpoint := Endpoint{
					Host: p.Nodes[process.Place].Host, Address: p.addressOf(process.Place), Instance: instance.Index,
				}
				if len(process.Ports) > 0 {
					endpoint.Port = process.Ports[0]
				}
				if !yield(endpoint) {
					return
				}
			}
		}
	}
}

// addressOf returns the address of a node, or its name if the address is unknown.
func (p *Plan) addressOf(place int) string {
	return cmp.Or(p.Nodes[place].Address, p.Nodes[place].Host)
}

// Variables returns the variables that describe the plan to a process of an instance. Those that
// depend on the state of the run, such as its generation, its keys and the endpoints that are ready,
// are not among them. It returns nil if there is no such process.
func (p *Plan) Variables(roleName string, instance, process int) map[string]string {
	vars := p.OwnVariables(roleName, instance, process)
	if vars != nil {
		maps.Copy(vars, p.ListVariables())
	}
	return vars
}

// OwnVariables returns those of the [Plan.Variables] that are not the same for all processes.
func (p *Plan) OwnVariables(roleName string, instance, process int) map[string]string {
	role := p.FindRole(roleName)
	if role == nil || instance < 0 || instance >= len(role.Instances) {
		return nil
	}
	processes := role.Instances[instance].Processes
	if process < 0 || process >= len(processes) {
		return nil
	}
	own, leader := processes[process], processes[0]
	vars := map[string]string{
		"BRINGUPD_ROLE":             role.Name,
		"BRINGUPD_ROLE_INDEX":       strconv.Itoa(instance),
		"BRINGUPD_ROLE_COUNT":       strconv.Itoa(len(role.Instances)),
		"BRINGUPD_INSTANCE_RANK":    strconv.Itoa(own.Rank),
		"BRINGUPD_INSTANCE_SIZE":    strconv.Itoa(len(processes)),
		"BRINGUPD_INSTANCE_ADDRESS": p.addressOf(leader.Place),
	}
	role.addPorts(vars, "BRINGUPD_PORT", own)
	role.addPorts(vars, "BRINGUPD_INSTANCE_PORT", leader)
	return vars
}

// addPorts adds the ports of a process: the first one also under the name alone.
func (r *RolePlan) addPorts(vars map[string]string, name string, process Process) {
	for at, port := range process.Ports {
		if at == 0 {
			vars[name] = strconv.Itoa(port)
		}
		vars[name+"_"+VariableName(r.Program.Ports[at].Name)] = strconv.Itoa(port)
	}
}

// ListVariables returns the variables that are the same for all processes: the planned hosts and
// endpoints of each role. A list above 64 KiB is left out.
func (p *Plan) ListVariables() map[string]string {
	vars := make(map[string]string)
	for at := range p.Roles {
		var hosts, endpoints strings.Builder
		add := func(list *strings.Builder, entry string) {
			if list.Len() > 0 {
				list.WriteByte(',')
			}
			list.WriteString(entry)
		}
		for endpoint := range p.eachEndpoint(&p.Roles[at]) {
			if hosts.Len() <= maxListLength {
				add(&hosts, endpoint.Host)
			}
			if endpoints.Len() <= maxListLength {
				add(&endpoints, endpoint.HostPort())
			}
			if min(hosts.Len(), endpoints.Len()) > maxListLength {
				break
			}
		}
		prefix := "BRINGUPD_ROLE_" + VariableName(p.Roles[at].Name)
		for suffix, list := range map[string]string{"_HOSTS": hosts.String(), "_ENDPOINTS": endpoints.String()} {
			if len(list) <= maxListLength {
				vars[prefix+suffix] = list
			}
		}
	}
	return vars
}

// variablePattern matches what [ExpandValue] replaces.
var variablePattern = textutil.CompileLazily(`\$\{BRINGUPD_[A-Z0-9_]*\}|\$BRINGUPD_[A-Z0-9_]*`)

// IsKeyVariable reports whether a variable of bringupd has the key of a role, which is a secret.
func IsKeyVariable(name string) bool {
	return strings.HasPrefix(name, "BRINGUPD_ROLE_") && strings.HasSuffix(name, "_KEY")
}

// ExpandProbe replaces the variables of bringupd in a probe as [ExpandValue] does, except the keys of
// roles: a probe is shown, and the command line of a command is visible to all users of its node. A
// command finds the keys in its environment. Other probes cannot have them.
func ExpandProbe(text string, vars map[string]string) (string, error) {
	if err := refuseShownKey(text); err != nil {
		return "", err
	}
	vars = maps.Clone(vars)
	for name := range vars {
		if IsKeyVariable(name) {
			vars[name] = "${" + name + "}"
		}
	}
	return ExpandValue(text, vars)
}

// refuseShownKey returns an error for a probe that would show a key.
func refuseShownKey(text string) error {
	for _, reference := range variablePattern().FindAllString(text, -1) {
		if IsKeyVariable(strings.Trim(reference, "${}")) && !strings.HasPrefix(text, "exec:") {
			return fmt.Errorf("cannot put a key into %q, which is shown: use exec:COMMAND with %s, "+
				"whose environment has it", text, reference)
		}
	}
	return nil
}

// StandInProbe replaces the variables of bringupd in a probe by values of their forms, so that the
// probe can be parsed before there is a plan. Like [ExpandProbe], it refuses a key that would be shown.
func StandInProbe(text string) (string, error) {
	return variablePattern().ReplaceAllStringFunc(text, func(reference string) string {
		switch name := strings.Trim(reference, "${}"); {
		case strings.HasPrefix(name, "BRINGUPD_ENDPOINTS_FILE_"):
			return "/endpoints"
		case strings.HasSuffix(name, "_ENDPOINTS"):
			return "host:1"
		}
		return "1"
	}), refuseShownKey(text)
}

// ExpandValue replaces the variables of bringupd in the value of a variable, in the form
// $BRINGUPD_PORT or ${BRINGUPD_PORT}, by their values, and nothing else. It refuses a variable that has
// no value.
func ExpandValue(text string, vars map[string]string) (string, error) {
	var unknown []string
	expanded := variablePattern().ReplaceAllStringFunc(text, func(reference string) string {
		name := strings.Trim(reference, "${}")
		value, known := vars[name]
		if !known && !slices.Contains(unknown, reference) {
			unknown = append(unknown, reference)
		}
		return value
	})
	if len(unknown) == 0 {
		return expanded, nil
	}
	known := slices.Sorted(maps.Keys(vars))
	known = slices.DeleteFunc(known, func(name string) bool { return !strings.HasPrefix(name, "BRINGUPD_") })
	return "", fmt.Errorf("cannot replace %s in %q: the variables are %s",
		strings.Join(unknown, " and "), text, strings.Join(known, ", "))
}
