package daemon

import (
	"context"
	"fmt"
	"os"

	"go.uber.org/zap"

	"github.com/bringupd/bringupd/internal/envlist"
	"github.com/bringupd/bringupd/pkg/exec/rsh"
	"github.com/bringupd/bringupd/pkg/framework"
	"github.com/bringupd/bringupd/pkg/ranks"
	"github.com/bringupd/bringupd/pkg/ranks/mpidetect"
	"github.com/bringupd/bringupd/pkg/roles/launcher"
)

// Hosts returns the indices of the driver's nodes and their hosts.
func (t commandNodes) Hosts() ([]int, []string) {
	return t.head.membership.MemberNodes(), t.head.teamHosts()
}

// Address returns the address of a node, or an empty string if it is unknown.
func (t commandNodes) Address(nodeIndex int) string {
	if nodeIndex == 0 {
		address, _ := t.head.cfg.Address()
		return address.Address
	}
	joined, _ := t.head.roundTrip.ReadJoined(t.head.WorkCtx, nodeIndex)
	return joined.Address
}

// RequestConn asks a worker, on its peer link, to connect to the head and receive a command.
func (t commandNodes) RequestConn(nodeIndex int) error {
	if !t.head.isConnected(nodeIndex) {
		return fmt.Errorf("%s has no peer link, which bringupd rsh needs: see --lifeline, and whether it reaches the head's ports", t.head.nodeName(nodeIndex))
	}
	t.head.peerLinks.RequestStream(nodeIndex)
	return nil
}

// addRemoteEnv adds the variables by which the driver's mpirun finds its nodes and starts
// processes there.
func (h *head) addRemoteEnv(env []string) []string {
	program, err := os.Executable()
	if err != nil {
		h.Log.Warn("the driver's mpirun is not told how to reach the nodes", zap.Error(err))
	}
	quiet := err != nil || h.cfg.Framework.Name() != framework.None{}.Name()
	return envlist.With(env, h.remote.PrepareDriver(rsh.DriverInfo{
		Program: program, Hosts: h.teamHosts(), Slots: h.slotsPerNode(), HostsOnly: quiet,
		Argv: h.cfg.Driver, IsMPIRun: mpidetect.IsLauncher(h.cfg.Driver),
	}, env))
}

// watchDriver logs a warning if the driver of several nodes is an MPI program that runs alone, until
// ctx ends.
func (h *head) watchDriver(ctx context.Context, pid int) {
	nodes := h.membership.Count()
	if nodes < 2 || h.cfg.Framework.Name() != (framework.None{}).Name() {
		return
	}
	find := func() *mpidetect.LoadedMPI { return mpidetect.DetectLoaded(pid) }
	h.Background(func(context.Context) {
		mpidetect.WatchDriver(ctx, find, nodes, func(words string) { h.Log.Warn(words) })
	})
}

// slotsPerNode returns the number of slots of a node. It assumes that all nodes are like the
// head's.
func (h *head) slotsPerNode() int {
	if told := h.cfg.World.MaxPerNode; told > 0 {
		return told
	}
	var err error
	if h.layout, err = h.cfg.Simulation.NodeResources(h.gpuMonitor.Topology(), launcher.EnvironmentOf(h.cfg.Environ)); err != nil {
		h.Log.Warn("cannot determine the number of slots per node; give --slots-per-node", zap.Error(err))
	}
	room, _ := ranks.LayoutRequest{}.NodeRanks(h.rankSlots()) // cannot fail without a requested number
	return room
}
