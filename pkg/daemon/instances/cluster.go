package instances

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/bringupd/bringupd/pkg/daemon/planning"
	"github.com/bringupd/bringupd/pkg/framework"
	"github.com/bringupd/bringupd/pkg/health"
	"github.com/bringupd/bringupd/pkg/roles"
	"github.com/bringupd/bringupd/pkg/signal"
	"github.com/bringupd/bringupd/pkg/signal/record"
)

// cluster is the cluster of a framework that an instance is: the first node runs the head's service,
// and each node a worker's, as far as the framework has them. The port of the head is planned, so
// that all nodes know its address.
type cluster struct {
	framework.Cluster // its head is the first node, as another node describes it

	service *framework.Service // the head's
}

func describeCluster(cfg NodeConfig, plan *roles.Plan, role *roles.RolePlan,
	instance *roles.Instance) (c cluster, err error) {
	chosen := cfg.Frameworks[role.Program.Framework]
	builder, ok := chosen.(framework.ClusterBuilder)
	if !ok {
		return c, health.NewFailure(health.Usage, "cannot run role %s: there is no framework %q",
			role.Name, role.Program.Framework)
	}
	first := instance.Processes[0]
	// The endpoint of the role is the head's port, unless the role has a command that serves there.
	port := first.Ports[0]
	if role.Program.Command != "" {
		port = planning.RendezvousPort(plan.Nodes[first.Place], instance, 0)
	}
	c.Framework = builder.WithHeadPort(port)
	facts := plan.Nodes[first.Place]
	if c.Head, err = cfg.Host.DescribeNode(c.Framework, memberOf(cfg, role, instance, first)); err != nil {
		return c, err
	}
	c.Head.Host, c.Head.Address = facts.Host, facts.Address
	c.service, err = c.HeadService()
	return c, err
}

// Member is a node's part in the cluster of an instance.
type Member struct {
	Cluster     string // name of the cluster: unique, and safe as a name
	Index, Size int    // within the cluster
}

// memberOf returns the part of the node of a process in the cluster of its instance.
func memberOf(cfg NodeConfig, role *roles.RolePlan, instance *roles.Instance, p roles.Process) Member {
	return Member{Cluster: fmt.Sprintf("%s-%s-%d", cfg.Dir.Name(), role.Name, instance.Index),
		Index: p.Rank, Size: len(instance.Processes)}
}

// startMember starts this node's services of a cluster, and on the first node waits until the
// framework lists all nodes.
func (s *supervisor) startMember(ctx context.Context, p roles.Process,
	number int) (started []startedProcess, failure *health.Failure) {
	ctx, cancel := context.WithTimeoutCause(ctx, s.role.Ready.Timeout, health.ErrDeadline)
	defer cancel()
	c, err := describeCluster(s.cfg, s.known().Plan, s.role, s.instance)
	if err != nil {
		return nil, health.AsFailure(err)
	}
	name := s.processName(p)
	start := func(service *framework.Service, name string) error {
		if service == nil {
			return nil
		}
		service.Name = name
		// Both services have this log, if there are two.
		s.cfg.Children.SetLogName(name, s.role.ProcessLogName(s.instance, p, number))
		service.Env = s.cfg.Host.ServiceEnviron(service.Env)
		own, f := s.startProgram(ctx, startedProcess{process: p, isService: true}, service, nil)
		started = append(started, own...)
		if f != nil {
			return f
		}
		return nil
	}
	if p.Rank == 0 {
		err = start(c.service, name)
	} else {
		err = s.awaitClusterHead(ctx, number)
	}
	if err != nil {
		return started, health.AsFailure(err)
	}
	if p.Rank == 0 {
		s.cfg.Children.CheckOpenAccess(c.Cluster)
		if len(s.instance.Processes) > 1 {
			s.mark(number, record.InstanceHead, 0)
		}
	}
	self, err := s.cfg.Host.DescribeNode(c.Framework, memberOf(s.cfg, s.role, s.instance, p))
	if err != nil {
		return started, health.AsFailure(err)
	}
	worker, err := c.WorkerService(self)
	if err == nil {
		if p.Rank == 0 {
			name += "-worker"
		}
		err = start(worker, name)
	}
	if err == nil && p.Rank == 0 {
		err = s.awaitMembers(ctx, c)
	}
	if err != nil {
		return started, health.AsFailure(err)
	}
	if p.Rank > 0 || s.role.Program.Command == "" {
		return started, nil
	}
	command, f := s.startCommand(ctx, p, number, s.processName(p)+"-command", c.variables(), nil)
	return append(started, command...), f
}

// variables returns the variables by which a process finds the cluster.
func (c cluster) variables() map[string]string {
	variables := maps.Clone(c.Endpoint.Env)
	variables[framework.HeadAddressVariable] = c.Endpoint.Address
	return variables
}

// awaitClusterHead waits until the first node has proven that the head's service holds its port.
// Before that another user may listen there, and would get the secrets of the cluster.
func (s *supervisor) awaitClusterHead(ctx context.Context, generation int) error {
	name := signal.OrderName(s.instance.Number, generation, signal.OrderConnect)
	if s.awaitControl(ctx, func(l signal.Listing) bool { return l.HasName(name) }) {
		return nil
	}
	if err := context.Cause(ctx); !errors.Is(err, health.ErrDeadline) {
		return err
	}
	return health.NewFailure(health.DeadlinePassed,
		"%s waited %s for the service of the head, %s, which neither came up nor failed",
		s.cfg.Name, s.role.Ready.Timeout, s.known().Nodes[s.instance.Processes[0].Place].Host)
}

// awaitMembers waits until the framework lists all nodes of the cluster.
func (s *supervisor) awaitMembers(ctx context.Context, c cluster) error {
	var members []framework.Member
	for _, p := range s.instance.Processes {
		members = append(members, framework.Member{NodeIndex: p.Rank, Host: s.known().Nodes[p.Place].Host})
	}
	return c.AwaitMembers(ctx, members, s.role.Ready.Timeout)
}

// ClusterEndpoint returns the endpoint of the only cluster of a framework that the roles have, and
// reports whether there is one.
func (n *Node) ClusterEndpoint() (framework.Endpoint, bool) {
	c, err := describeOnlyCluster(n.cfg, n.known().Plan, func(*roles.RolePlan) bool { return true })
	return c.Endpoint, err == nil && c.Framework != nil
}

// clusterVariables returns the variables of the only cluster of a framework that a role starts
// after or shares nodes with.
func clusterVariables(cfg NodeConfig, plan *roles.Plan, role *roles.RolePlan) (map[string]string, error) {
	c, err := describeOnlyCluster(cfg, plan, func(other *roles.RolePlan) bool {
		return slices.Contains(role.After, other.Name) || slices.Contains(role.Placement.With, other.Name)
	})
	if err != nil || c.Framework == nil {
		return nil, err
	}
	return c.variables(), nil
}

// describeOnlyCluster describes the only cluster that the roles which match have. It has no framework if
// they have none, or several.
func describeOnlyCluster(cfg NodeConfig, plan *roles.Plan, match func(*roles.RolePlan) bool) (c cluster, err error) {
	var found []*roles.RolePlan
	for i := range plan.Roles {
		if role := &plan.Roles[i]; role.Program.Framework != "" && match(role) {
			found = append(found, role)
		}
	}
	if len(found) != 1 || len(found[0].Instances) != 1 {
		return c, nil
	}
	return describeCluster(cfg, plan, found[0], &found[0].Instances[0])
}
