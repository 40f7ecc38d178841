package daemon

import (
	"maps"
	"strings"

	"github.com/bringupd/bringupd/internal/envlist"
	"github.com/bringupd/bringupd/pkg/framework"
	"github.com/bringupd/bringupd/pkg/health"
	"github.com/bringupd/bringupd/pkg/membership"
	"github.com/bringupd/bringupd/pkg/roles/launcher"
	"github.com/bringupd/bringupd/pkg/service"
)

// childEnv returns base with the variables for a child of this node. place is nil if the child has
// none in the team.
func (n *node) childEnv(base []string, place *membership.Slot) []string {
	address, _ := n.cfg.Address() // if there is none, the run ends where a peer or a program needs it
	env := service.Environment{
		Run: n.Dir.Name(), Dir: n.Dir.Path(), ID: n.id, Address: address, Slot: place, Trace: n.traceContext(), GPUVariables: n.gpuMonitor.TopologyEnv(), NCCLAddress: n.ncclPort.Address(),
	}
	if here := n.worldNode.Load(); here != nil {
		env.Socket = here.SocketPath()
	}
	return env.AddTo(base)
}

// selectedAddress returns this node's address. Without one it fails only if the user has selected
// the interface: the run may need none.
func (n *node) selectedAddress() (launcher.NodeAddress, error) {
	address, err := n.cfg.Address()
	if err != nil && address.Selected {
		return address, health.NewFailure(health.Launch, "%s: %v", n.nodeName(n.id.NodeIndex), err)
	}
	return address, nil
}

// driverEnv adds the variables for the driver to base: the hosts, the address of the head's
// service, and the credentials of the services.
func (n *node) driverEnv(base []string, hosts []string, endpoint framework.Endpoint) []string {
	more := map[string]string{
		"BRINGUPD_HOSTS":              strings.Join(hosts, ","),
		framework.HeadAddressVariable: endpoint.Address,
	}
	maps.Copy(more, endpoint.Env)
	maps.Copy(more, n.privateDir.CredentialEnv())
	return service.BypassProxy(envlist.With(base, more), append([]string{endpoint.Address}, hosts...)...)
}

// serviceInfo has the data about the run in the environment of commands from outside.
type serviceInfo struct {
	endpoint framework.Endpoint
	hosts    []string // hosts of the team; set only on the head
}
