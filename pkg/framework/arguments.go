package framework

import (
	"fmt"
	"math"
	"net"
	"slices"
	"strconv"
	"strings"
)

// NodeName returns the name of a node in its framework's cluster. It is unique among the attempts
// that may share a cluster. rank is the node's index in the launch, which never changes.
func NodeName(attempt string, rank int) string { return fmt.Sprintf("%s-%d", attempt, rank) }

// Arguments are flags of a framework's program, one argument each: "--flag=value" or "--switch".
type Arguments []string

// ParseArguments parses "--flag=value", "--flag value" and "--switch", as given by the user for a
// program such as "ray start". switches are its flags without a value; all others have one. example
// is a flag with a value, for the error.
func ParseArguments(program string, args, switches []string, example string) (Arguments, error) {
	var flags Arguments
	for i := 0; i < len(args); i++ {
		flag := args[i]
		name, _, hasValue := strings.Cut(flag, "=")
		if !strings.HasPrefix(name, "-") || strings.Trim(name, "-") == "" {
			return nil, fmt.Errorf("cannot pass %q to %s: only flags are accepted, such as %s", flag, program, example)
		}
		if !hasValue && !slices.Contains(switches, name) {
			if i++; i == len(args) {
				return nil, fmt.Errorf("cannot pass %s to %s: it has no value; give %s=VALUE", name, program, name)
			}
			flag = name + "=" + args[i]
		}
		flags = append(flags, flag)
	}
	return flags, nil
}

// FlagName returns the name of a flag, with its dashes.
func FlagName(flag string) string {
	name, _, _ := strings.Cut(flag, "=")
	return name
}

// HasFlag reports whether a flag with this name is given.
func (a Arguments) HasFlag(name string) bool {
	_, found := a.LastValue(name)
	return found
}

// LastValue returns the value of the last flag with this name, which is the one that programs use.
func (a Arguments) LastValue(name string) (value string, found bool) {
	for _, flag := range slices.Backward(a) {
		if has, value, _ := strings.Cut(flag, "="); has == name {
			return value, true
		}
	}
	return "", false
}

// PortValue returns the port that a flag sets, or otherwise if the flag is not given. 0 means that
// the kernel picks one.
func (a Arguments) PortValue(name string, otherwise int) (int, error) {
	value, given := a.LastValue(name)
	if !given {
		return otherwise, nil
	}
	number, err := strconv.Atoi(value)
	if err != nil || number < 0 || number > math.MaxUint16 {
		return 0, fmt.Errorf("cannot use %s=%s: a port is a number from 0 to 65535", name, value)
	}
	return number, nil
}

// DashboardURL returns the URL of a dashboard that is served at a host and port. If it listens on
// all addresses, the URL has the node's address. It is empty if the service picks the port.
func DashboardURL(node Node, host, port string) string {
	switch {
	case port == "" || port == "0":
		return ""
	case host == "" || host == "0.0.0.0" || host == "::":
		host = node.Address
	}
	return "http://" + net.JoinHostPort(host, port)
}

// RejectFlags returns an error if the user has given one of the flags in own, which the daemon sets
// itself. Each is mapped to the setting to use instead.
func (a Arguments) RejectFlags(program string, own map[string]string) error {
	for _, flag := range a {
		if instead, refused := own[FlagName(flag)]; refused {
			return fmt.Errorf("cannot pass %s to %s: %s", FlagName(flag), program, instead)
		}
	}
	return nil
}
