package framework

import (
	"fmt"
	"math"
	"net"
	"slices"
	"strconv"
	"strings"
)

// NodeName is what a node is called in its framework's cluster: unique among the
// runs that may meet there. rank is that of the launch, which never changes.
func NodeName(attempt string, rank int) string { return fmt.Sprintf("%s-%d", attempt, rank) }

// Arguments are flags of a framework's program, each one argument: "--flag=value"
// or "--switch".
type Arguments []string

// ParseArguments reads "--flag=value", "--flag value" and "--switch" as the user has
// given them for a program, as in "ray start". switches are its flags that take no
// value; all others do. example is a flag with a value, for the error.
func ParseArguments(program string, args, switches []string, example string) (Arguments, error) {
	var flags Arguments
	for i := 0; i < len(args); i++ {
		flag := args[i]
		name, _, hasValue := strings.Cut(flag, "=")
		if !strings.HasPrefix(name, "-") || strings.Trim(name, "-") == "" {
			return nil, fmt.Errorf("cannot pass %q to %s: it takes flags only, as in %s", flag, program, example)
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

// Has tells whether a flag of a name is given.
func (a Arguments) Has(name string) bool {
	_, found := a.Value(name)
	return found
}

// Value returns the value of the last flag of a name, which is the one that
// programs take.
func (a Arguments) Value(name string) (value string, found bool) {
	for _, flag := range slices.Backward(a) {
		if has, value, _ := strings.Cut(flag, "="); has == name {
			return value, true
		}
	}
	return "", false
}

// Port returns the port that a flag fixes, or another one where it isn't given;
// 0 is the kernel's choice.
func (a Arguments) Port(name string, otherwise int) (int, error) {
	value, given := a.Value(name)
	if !given {
		return otherwise, nil
	}
	number, err := strconv.Atoi(value)
	if err != nil || number < 0 || number > math.MaxUint16 {
		return 0, fmt.Errorf("cannot use %s=%s: a port is a number of 0 to 65535", name, value)
	}
	return number, nil
}

// Dashboard returns the URL of pages that are served at a host and port. Those of all
// addresses are at the node's; it is empty where the service picks the port.
func Dashboard(node Node, host, port string) string {
	switch {
	case port == "" || port == "0":
		return ""
	case host == "" || host == "0.0.0.0" || host == "::":
		host = node.Address
	}
	return "http://" + net.JoinHostPort(host, port)
}

// Refuse returns an error where the user has given one of the daemon's own flags,
// each of which is there with what to give instead.
func (a Arguments) Refuse(program string, own map[string]string) error {
	for _, flag := range a {
		if instead, refused := own[FlagName(flag)]; refused {
			return fmt.Errorf("cannot pass %s to %s: %s", FlagName(flag), program, instead)
		}
	}
	return nil
}

// FreePorts returns n ports that nobody listens on right now, all different.
func FreePorts(n int) ([]int, error) {
	ports := make([]int, 0, n)
	for range n {
		// Kept open until all are found: that is what makes them differ.
		held, err := net.Listen("tcp", ":0")
		if err != nil {
			return nil, fmt.Errorf("cannot find a free port: %v", err)
		}
		defer func() { _ = held.Close() }()
		ports = append(ports, held.Addr().(*net.TCPAddr).Port)
	}
	return ports, nil
}
