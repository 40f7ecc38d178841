package launcher

import (
	"cmp"
	"fmt"
	"strconv"
)

// LauncherRanks is any launcher that sets RANK and WORLD_SIZE, or a user who gives the
// corresponding flags.
const LauncherRanks Launcher = "ranks"

var ranksLauncher = launcherSpec{
	name: LauncherRanks, traits: Traits{RankVariable: "RANK"},
	claimOf: claimRanks, identifyDaemon: identifyRanks, commandHints: plainHints,
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

// nestedNameAdvice is the fix for a daemon inside its own run if the user can name runs.
const nestedNameAdvice = "give the inner one another --job-id"

// noSlurmReason explains why a job of an unknown launcher cannot be requeued.
const noSlurmReason = "only jobs of Slurm can be requeued"

// plainHints returns the words of a launcher without its own: the user names the runs.
func plainHints(string) CommandHints {
	return CommandHints{NestedAdvice: nestedNameAdvice, StartOnNodes: srunOnNodes, JobGoneSign: "once none of its daemons is running", NoRequeueReason: noSlurmReason}
}

// identifyRanks uses the flags, or RANK and WORLD_SIZE.
func identifyRanks(env Environment, hostname string, want Overrides) (Identity, error) {
	if claim := claimRanks(env, want); claim == claimGiven || claim == claimSizeGiven {
		return identifyFlags(env, hostname, want)
	}
	rank, rankErr := env.parseNumber(0, "RANK")
	size, sizeErr := env.parseNumber(1, "WORLD_SIZE")
	if err := cmp.Or(rankErr, sizeErr); err != nil {
		return Identity{}, rankError(err)
	}
	// A launcher of one process per GPU sets this variable.
	if local := env.valueOf("LOCAL_WORLD_SIZE"); local != "" && local != "1" {
		return Identity{}, &LaunchError{
			Problem: fmt.Sprintf("cannot run %s daemons on one node (LOCAL_WORLD_SIZE=%s, RANK=%d, WORLD_SIZE=%d): bringupd runs once on every node", local, local, rank, size),
			Fix:     "let the launcher start one process a node (torchrun: --nproc-per-node=1)",
		}
	}
	return plainIdentity(LauncherRanks, hostname, rank, size, want.JobID, env.valueOf("MASTER_ADDR"))
}

// identifyFlags uses --rank and --nnodes.
func identifyFlags(env Environment, hostname string, want Overrides) (Identity, error) {
	if want.NodeIndex == nil || want.Size == nil {
		given, missing := "--rank", "--nnodes"
		if want.NodeIndex == nil {
			given, missing = missing, given
		}
		return Identity{}, &LaunchError{
			Problem: fmt.Sprintf("cannot tell which node this is: %s is given, and %s is not", given, missing),
			Fix:     "give --rank, --nnodes and --job-id together, or none of them under srun",
		}
	}
	return plainIdentity(LauncherRanks, hostname, *want.NodeIndex, *want.Size, want.JobID, env.valueOf("MASTER_ADDR"))
}

// maxNodes is far above the size of any existing run. It prevents that a mistake allocates a huge
// list of hosts.
const maxNodes = 1 << 20

func plainIdentity(launcher Launcher, hostname string, rank, size int, job, launchAddress string) (Identity, error) {
	switch {
	case size < 1 || size > maxNodes:
		return Identity{}, rankError(fmt.Errorf("the number of nodes is %d, and should be 1 to %d", size, maxNodes))
	case rank < 0 || rank >= size:
		return Identity{}, rankError(fmt.Errorf("the rank is %d, and should be 0 to %d in a run of %d nodes", rank, size-1, size))
	case job == "":
		return Identity{}, &LaunchError{
			Problem: fmt.Sprintf("cannot name the run of rank %d of %d: RANK and WORLD_SIZE do not identify the job, and runs of the same name would interfere", rank, size),
			Fix:     "give --job-id=NAME, the same on all nodes and different for every launch",
		}
	}
	return Identity{
		Launcher: launcher, NodeIndex: rank, Size: size, Host: hostname, Job: job,
		LaunchKey:     digestFacts(string(launcher), job, strconv.Itoa(size)),
		LaunchAddress: launchAddress,
		LocalSize:     1, GPUs: -1,
	}, nil
}

func rankError(err error) error {
	return &LaunchError{
		Problem: fmt.Sprintf("cannot tell which node this is: %v", err),
		Fix:     "give each node its own RANK from 0 and the same WORLD_SIZE (or --rank and --nnodes), and all of them one --job-id",
	}
}
