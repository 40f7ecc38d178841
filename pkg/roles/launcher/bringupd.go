package launcher

import (
	"cmp"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// hostsLauncher is the launcher of machines without a batch system: "bringupd hosts" starts a
// daemon on each of them by ssh.
var hostsLauncher = launcherSpec{
	name:     LauncherHosts,
	claim:    func(_ Environment, want Overrides) claimLevel { return givenIf(len(want.Hosts) > 0) },
	identify: identifyHosts,
	hints: CommandHints{
		StartOnNodes:    "bringupd hosts with {n} of them in --hosts",
		ExcludeNodes:    "leave them out of --hosts",
		AttachShell:     "ssh -- {host}",
		NoRequeueReason: "bringupd hosts does not restart jobs",
	},
}

// identifyHosts uses the values from "bringupd hosts". sshd provides the address of the launching
// machine: SSH_CONNECTION begins with the client's address (ssh(1)).
func identifyHosts(env Environment, hostname string, want Overrides) (Identity, error) {
	if want.NodeIndex == nil {
		return Identity{}, errors.New("internal error: a daemon of bringupd hosts without a rank")
	}
	id := Identity{Launcher: LauncherHosts, NodeIndex: *want.NodeIndex, Size: len(want.Hosts)}
	id.LaunchAddress, _, _ = strings.Cut(env.valueOf("SSH_CONNECTION"), " ")
	for _, host := range want.Hosts {
		_, host = SplitUser(host)
		id.Hosts = append(id.Hosts, host)
	}
	if id.Host = hostname; id.NodeIndex >= 0 && id.NodeIndex < id.Size {
		id.Host = id.Hosts[id.NodeIndex]
	}
	return completeIdentity(id, want)
}

// SplitUser splits "user@host", as for ssh. The user is empty if none is given.
func SplitUser(destination string) (user, host string) {
	if at := strings.LastIndexByte(destination, '@'); at >= 0 {
		return destination[:at], destination[at+1:]
	}
	return "", destination
}

// localLauncher is the launcher of one machine: "bringupd local" starts all daemons there.
var localLauncher = launcherSpec{
	name:     LauncherLocal,
	claim:    func(_ Environment, want Overrides) claimLevel { return givenIf(want.Local) },
	identify: identifyLocal,
	hints:    CommandHints{StartOnNodes: "bringupd local --nodes={n}"},
}

// identifyLocal uses the values from "bringupd local". All nodes are on this host.
func identifyLocal(_ Environment, hostname string, want Overrides) (Identity, error) {
	if want.NodeIndex == nil || want.Size == nil {
		return Identity{}, errors.New("internal error: a local daemon without rank or size")
	}
	id := Identity{Launcher: LauncherLocal, NodeIndex: *want.NodeIndex, Size: *want.Size, Host: hostname}
	id, err := completeIdentity(id, want)
	if err != nil {
		return Identity{}, err
	}
	id.Hosts, id.LocalSize = slices.Repeat([]string{hostname}, id.Size), id.Size
	return id, nil
}

// ranksLauncher is any launcher that sets RANK and WORLD_SIZE, or a user who gives the flags.
var ranksLauncher = launcherSpec{
	name:     LauncherRanks,
	traits:   Traits{RankVariable: "RANK"},
	claim:    claimRanks,
	identify: identifyRanks,
	hints:    CommandHints{StartOnNodes: srunOnNodes},
}

func claimRanks(env Environment, want Overrides) claimLevel {
	rank, size := env.valueOf("RANK"), env.valueOf("WORLD_SIZE")
	switch {
	case want.NodeIndex != nil:
		return claimGiven
	case rank != "" && size != "":
		return claimStarted
	case want.Size != nil:
		return claimSizeGiven
	case rank != "" || size != "":
		return claimHinted
	default:
		return claimNone
	}
}

// identifyRanks uses --rank and --nnodes, or RANK and WORLD_SIZE.
func identifyRanks(env Environment, hostname string, want Overrides) (Identity, error) {
	id := Identity{Launcher: LauncherRanks, Host: hostname, LaunchAddress: env.valueOf("MASTER_ADDR")}
	switch claim := claimRanks(env, want); {
	case claim == claimGiven && want.Size != nil:
		id.NodeIndex, id.Size = *want.NodeIndex, *want.Size
		return completeIdentity(id, want)
	case claim == claimGiven:
		return Identity{}, lackingFlagError("--rank", "--nnodes")
	case claim == claimSizeGiven:
		return Identity{}, lackingFlagError("--nnodes", "--rank")
	}
	rank, rankErr := env.parseNumber(0, "RANK")
	size, sizeErr := env.parseNumber(1, "WORLD_SIZE")
	if err := cmp.Or(rankErr, sizeErr); err != nil {
		return Identity{}, rankError(err)
	}
	// A launcher of one process per GPU sets this variable.
	if local := env.valueOf("LOCAL_WORLD_SIZE"); local != "" && local != "1" {
		return Identity{}, &LaunchError{
			Problem: fmt.Sprintf("cannot run %s daemons on one node (LOCAL_WORLD_SIZE=%s, RANK=%d, "+
				"WORLD_SIZE=%d): bringupd runs once on every node", local, local, rank, size),
			Fix: "let the launcher start one process a node (torchrun: --nproc-per-node=1)",
		}
	}
	id.NodeIndex, id.Size = rank, size
	return completeIdentity(id, want)
}

func lackingFlagError(given, missing string) error {
	return &LaunchError{
		Problem: fmt.Sprintf("cannot tell which node this is: %s is given, and %s is not", given, missing),
		Fix:     "give --rank, --nnodes and --job-id together, or none of them under srun",
	}
}

var torchVariables = rankVariables{
	rank: []string{"RANK"}, rankCount: []string{"WORLD_SIZE"},
	localRank: []string{"LOCAL_RANK"}, localCount: []string{"LOCAL_WORLD_SIZE"},
	nodeIndex: []string{"GROUP_RANK", "NODE_RANK"}, nodeCount: []string{"GROUP_WORLD_SIZE"},
}

// torchrunStarter is torch's torchrun, and launchers that start processes in the same way.
var torchrunStarter = rankStarter{
	displayName: "torchrun", markVariable: "TORCHELASTIC_RUN_ID", variableNames: torchVariables,
	origin: starterOrigin{outerProgram: pythonPrefix, programs: []string{
		"torchrun", "torch.distributed.run", "torch.distributed.launch", "torch_distributed_launch",
		"accelerate", "ft_launcher", "nvidia_resiliency_ext.fault_tolerance.launcher",
	}},
	privatePrefixes: []string{"TORCHELASTIC_", "MASTER_ADDR", "MASTER_PORT"},
}

// LocalAliases returns variables of MPI launchers with the local rank of a process and the number of
// processes on its node, from which scripts select a GPU. None of them is one by which a launcher is
// recognised.
func LocalAliases(rank, count string) map[string]string {
	return map[string]string{
		"OMPI_COMM_WORLD_LOCAL_RANK": rank, "OMPI_COMM_WORLD_LOCAL_SIZE": count,
		"MV2_COMM_WORLD_LOCAL_RANK": rank, "MV2_COMM_WORLD_LOCAL_SIZE": count,
		"PALS_LOCAL_RANKID": rank,
	}
}

// worldStarter are the ranks of a bringupd world, which also have torchrun's variables.
var worldStarter = rankStarter{
	displayName: "bringupd", markVariable: "BRINGUPD_RANK",
	variableNames: rankVariables{
		rank: []string{"BRINGUPD_RANK"}, rankCount: []string{"BRINGUPD_RANKS"},
		localRank: []string{"BRINGUPD_LOCAL_RANK"}, localCount: []string{"BRINGUPD_LOCAL_RANKS"},
		nodeIndex: []string{"GROUP_RANK"}, nodeCount: []string{"GROUP_WORLD_SIZE"},
	},
	origin: starterOrigin{programs: []string{"bringupd"}},
}

// plainStarter is any launcher that sets RANK and WORLD_SIZE. It comes last, because under Slurm
// they may be left over from a batch script.
var plainStarter = rankStarter{
	displayName: "a launcher that sets RANK and WORLD_SIZE", markVariable: "RANK and WORLD_SIZE",
	variableNames: torchVariables,
	customCheck: func(env Environment) bool {
		return env.valueOf("RANK") != "" && env.valueOf("WORLD_SIZE") != ""
	},
}
