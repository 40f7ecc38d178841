package roles

import (
	"cmp"
	"fmt"
	"strconv"
)

// Ranks is any launcher that sets RANK and WORLD_SIZE, or a user who gives the corresponding flags.
const Ranks Launcher = "ranks"

var ranks = launcher{
	name: Ranks, traits: Traits{Rank: "RANK"},
	claim: claimRanks, identify: identifyRanks, words: plainWords,
}

func claimRanks(env Environment, want Want) claim {
	rank, size := env.get("RANK"), env.get("WORLD_SIZE")
	switch {
	case want.Rank != nil:
		return told
	case rank != "" && size != "":
		return started
	case want.Size != nil:
		return sized
	case rank != "" || size != "":
		return hinted
	default:
		return unclaimed
	}
}

// anotherName is the fix for a daemon inside its own run if the user can name runs.
const anotherName = "give the inner one another --job-id"

// noSlurm explains why a job of an unknown launcher cannot be requeued.
const noSlurm = "it is no job of Slurm's, which alone can start one anew"

// plainWords returns the words of a launcher without its own: the user names the runs.
func plainWords(string) Words {
	return Words{Nested: anotherName, Nodes: srunNodes, Gone: "once none of its daemons runs any more", NoRequeue: noSlurm}
}

// identifyRanks uses the flags, or RANK and WORLD_SIZE.
func identifyRanks(env Environment, hostname string, want Want) (Identity, error) {
	if claim := claimRanks(env, want); claim == told || claim == sized {
		return identifyFlags(env, hostname, want)
	}
	rank, rankErr := env.number(0, "RANK")
	size, sizeErr := env.number(1, "WORLD_SIZE")
	if err := cmp.Or(rankErr, sizeErr); err != nil {
		return Identity{}, rankError(err)
	}
	// A launcher of one process per GPU sets this variable.
	if local := env.get("LOCAL_WORLD_SIZE"); local != "" && local != "1" {
		return Identity{}, &LaunchError{
			Problem: fmt.Sprintf("cannot run %s daemons on one node (LOCAL_WORLD_SIZE=%s, RANK=%d, WORLD_SIZE=%d): bringupd runs once on every node", local, local, rank, size),
			Mend:    "let the launcher start one process a node (torchrun: --nproc-per-node=1)",
		}
	}
	return plainIdentity(Ranks, hostname, rank, size, want.JobID, env.get("MASTER_ADDR"))
}

// identifyFlags uses --rank and --nnodes.
func identifyFlags(env Environment, hostname string, want Want) (Identity, error) {
	if want.Rank == nil || want.Size == nil {
		given, missing := "--rank", "--nnodes"
		if want.Rank == nil {
			given, missing = missing, given
		}
		return Identity{}, &LaunchError{
			Problem: fmt.Sprintf("cannot tell which node this is: %s is given, and %s is not", given, missing),
			Mend:    "give --rank, --nnodes and --job-id together, or none of them under srun",
		}
	}
	return plainIdentity(Ranks, hostname, *want.Rank, *want.Size, want.JobID, env.get("MASTER_ADDR"))
}

// maxSize is far above the size of any existing run. It prevents that a mistake allocates a huge
// list of hosts.
const maxSize = 1 << 20

func plainIdentity(launcher Launcher, hostname string, rank, size int, job, launchAddress string) (Identity, error) {
	switch {
	case size < 1 || size > maxSize:
		return Identity{}, rankError(fmt.Errorf("the number of nodes is %d, and should be 1 to %d", size, maxSize))
	case rank < 0 || rank >= size:
		return Identity{}, rankError(fmt.Errorf("the rank is %d, and should be 0 to %d in a run of %d nodes", rank, size-1, size))
	case job == "":
		return Identity{}, &LaunchError{
			Problem: fmt.Sprintf("cannot name the run of rank %d of %d: RANK and WORLD_SIZE tell no job, and runs of one name would meet each other", rank, size),
			Mend:    "give --job-id=NAME, the same on all ranks and another one for every launch",
		}
	}
	return Identity{
		Launcher: launcher, Rank: rank, Size: size, Host: hostname, Job: job,
		Key:           digest(string(launcher), job, strconv.Itoa(size)),
		LaunchAddress: launchAddress,
		LocalSize:     1, GPUs: -1,
	}, nil
}

func rankError(err error) error {
	return &LaunchError{
		Problem: fmt.Sprintf("cannot tell which node this is: %v", err),
		Mend:    "give each node its own RANK from 0 and the same WORLD_SIZE (or --rank and --nnodes), and all of them one --job-id",
	}
}
