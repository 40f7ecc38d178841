package framework

import (
	"context"
	"errors"
	"slices"

	"github.com/bringupd/bringupd/pkg/health"
)

// HeadAddressVariable is the variable with the head's address for the worker's command and the
// driver.
const HeadAddressVariable = "BRINGUPD_HEAD_ADDRESS"

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
	_ Factory   = (*None)(nil)
)

// Name returns "none".
func (None) Name() string { return "none" }

// OwnFlags returns the settings for the commands and their probes.
func (n *None) OwnFlags() []Flag {
	return []Flag{
		{Name: "head-cmd", Placeholder: "COMMAND", Target: &n.HeadCommand,
			Usage: "shell command that starts the head's service"},
		{Name: "head-ready", Placeholder: "PROBE", Target: &n.HeadReady,
			Usage: "readiness probe of the head's service: tcp:PORT, http://…, exec:COMMAND, file:/PATH"},
		{Name: "worker-cmd", Placeholder: "COMMAND", Target: &n.WorkerCommand,
			Usage: "shell command that starts each node's service"},
		{Name: "worker-ready", Placeholder: "PROBE", Target: &n.WorkerReady,
			Usage: "readiness probe of each node's service"},
	}
}

// ValidateSettings returns an error for a probe without a command.
func (n *None) ValidateSettings() error {
	switch {
	case n.HeadReady != nil && n.HeadCommand == "":
		return errors.New("cannot use --head-ready without --head-cmd")
	case n.WorkerReady != nil && n.WorkerCommand == "":
		return errors.New("cannot use --worker-ready without --worker-cmd")
	}
	return nil
}

// BuildFramework returns the framework with the present settings.
func (n *None) BuildFramework(o Options) Framework {
	chosen := *n
	chosen.DedicatedHead = o.DedicatedHead
	return chosen
}

// Traits returns which nodes run the commands.
func (n None) Traits() (t Traits) {
	if n.HeadCommand != "" {
		t.HeadName = headName
	}
	if n.WorkerCommand != "" {
		t.WorkerName = workerName
	}
	t.NoWorkerOnHead = n.DedicatedHead
	return t
}

const headName, workerName = "head", "worker"

// HasServices reports whether there is a command for the head or the workers.
func (n None) HasServices() bool { return n.HeadCommand != "" || n.WorkerCommand != "" }

// HeadService returns the head's command, or nil if there is none, and the head's address.
func (n None) HeadService(node Node) (*Service, Endpoint, error) {
	endpoint := Endpoint{Address: node.Address}
	if n.HeadCommand == "" {
		return nil, endpoint, nil
	}
	return shellService(headName, n.HeadCommand, n.HeadReady, node), endpoint, nil
}

// WorkerService returns the worker's command, or nil if the node runs none. HeadAddressVariable is
// in its environment.
func (n None) WorkerService(node Node, endpoint Endpoint) (*Service, error) {
	if n.WorkerCommand == "" || (n.DedicatedHead && node.TeamIndex == 0) {
		return nil, nil
	}
	node.Environ = append(slices.Clip(node.Environ), HeadAddressVariable+"="+endpoint.Address)
	return shellService(workerName, n.WorkerCommand, n.WorkerReady, node), nil
}

func shellService(name, line string, probe *health.Probe, node Node) *Service {
	service := NewService(name, []string{"/bin/sh", "-c", line}, node.Environ, probe)
	if service.ReadyPort != 0 {
		service.Ports = []Port{{Name: name, Number: service.ReadyPort}}
	}
	return service
}

// NewService returns a command as a service. Without a probe it is ready once it runs, and only its
// death is detected. If env is not nil, the command of a probe has the environment that the service
// has by then.
func NewService(name string, argv, env []string, probe *health.Probe) *Service {
	service := &Service{Name: name, Argv: argv, Env: env}
	if probe != nil {
		service.CheckReady = probe.Try
		if env != nil {
			service.CheckReady = func(ctx context.Context) error { return probe.WithEnv(service.Env, nil).Try(ctx) }
		}
		service.ReadyPort, _ = probe.LocalPort()
	}
	return service
}
