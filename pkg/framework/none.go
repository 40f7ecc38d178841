package framework

import (
	"errors"
	"slices"

	"github.com/bringupd/bringupd/pkg/health"
)

// HeadAddress is the variable with the head's address for the worker's command and the driver.
const HeadAddress = "BRINGUPD_HEAD_ADDRESS"

// None runs the user's own commands, or nothing.
type None struct {
	HeadCommand   string // run by /bin/sh on the head; empty: none
	HeadReady     *health.Probe
	WorkerCommand string // run by /bin/sh on every node; empty: none
	WorkerReady   *health.Probe
	DedicatedHead bool // the head's node runs no worker
}

var (
	_ Framework = None{}
	_ Choice    = (*None)(nil)
	_ Checked   = (*None)(nil)
)

// Name returns "none".
func (None) Name() string { return "none" }

// Flags returns the settings for the commands and their probes.
func (n *None) Flags() []Flag {
	return []Flag{
		{Name: "head-cmd", Shape: "COMMAND", Value: &n.HeadCommand, Usage: "shell command of the head's service"},
		{Name: "head-ready", Shape: "PROBE", Value: &n.HeadReady, Usage: "probe that proves it ready: tcp:PORT, http://…, grpc://…, exec:COMMAND, file:/PATH"},
		{Name: "worker-cmd", Shape: "COMMAND", Value: &n.WorkerCommand, Usage: "shell command of every node's service"},
		{Name: "worker-ready", Shape: "PROBE", Value: &n.WorkerReady, Usage: "probe that proves it ready"},
	}
}

// Check returns an error for a probe without a command.
func (n *None) Check() error {
	switch {
	case n.HeadReady != nil && n.HeadCommand == "":
		return errors.New("cannot use --head-ready without the head's service: give --head-cmd")
	case n.WorkerReady != nil && n.WorkerCommand == "":
		return errors.New("cannot use --worker-ready without the workers' service: give --worker-cmd")
	}
	return nil
}

// Framework returns the framework with the present settings.
func (n *None) Framework(dedicatedHead bool) Framework {
	chosen := *n
	chosen.DedicatedHead = dedicatedHead
	return chosen
}

// Serves reports whether there is a command for the head or the workers.
func (n None) Serves() bool { return n.HeadCommand != "" || n.WorkerCommand != "" }

// Head returns the head's command, or nil if there is none, and the head's address.
func (n None) Head(node Node) (*Service, Endpoint, error) {
	endpoint := Endpoint{Address: node.Address}
	if n.HeadCommand == "" {
		return nil, endpoint, nil
	}
	return command("head", n.HeadCommand, n.HeadReady, node), endpoint, nil
}

// Worker returns the worker's command, or nil if the node runs none. HeadAddress is in its
// environment.
func (n None) Worker(node Node, endpoint Endpoint) (*Service, error) {
	if n.WorkerCommand == "" || (n.DedicatedHead && node.Rank == 0) {
		return nil, nil
	}
	node.Environ = append(slices.Clip(node.Environ), HeadAddress+"="+endpoint.Address)
	return command("worker", n.WorkerCommand, n.WorkerReady, node), nil
}

// command returns a shell command as a service. Without a probe it is ready once it runs, and only
// its death is detected.
func command(name, line string, probe *health.Probe, node Node) *Service {
	service := &Service{
		Name: name,
		Argv: []string{"/bin/sh", "-c", line},
		Env:  node.Environ,
	}
	if probe != nil {
		service.Ready = probe.Try
		if port, ok := probe.Port(); ok {
			service.Port = port
			service.Ports = []Port{{Name: name, Number: port}}
		}
	}
	return service
}
