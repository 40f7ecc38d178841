package ranks

import (
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/bringupd/bringupd/pkg/ranks/affinity"
	"github.com/bringupd/bringupd/pkg/roles/launcher"
)

func TestPassedOn(t *testing.T) {
	all := launcher.StartedRank{LauncherTitle: "srun", Rank: 5, RankCount: 6, LocalRank: 1, LocalCount: 2, NodeIndex: 2,
		NodeCount: 3, MasterHost: "n2", MasterPort: 20001}
	alone := launcher.StartedRank{Rank: 1, RankCount: 2, LocalRank: -1, NodeIndex: -1}
	met := alone
	met.MasterHost, met.MasterPort = "n2", 20001
	for _, tc := range []struct {
		name, base string // variables, separated by blanks
		rank       launcher.StartedRank
		at         affinity.Affinity
		own, want  string
	}{
		{"a task of srun --mpi=pmix, whose variables stay", "SLURM_PROCID=5 PMIX_NAMESPACE=x PMIX_RANK=5 RANK=0", all,
			affinity.Affinity{CPUs: affinity.IDSet{3}}, "", `BRINGUPD_BINDING={"cpus":"3"}
BRINGUPD_LOCAL_RANK=1 BRINGUPD_LOCAL_RANKS=2 BRINGUPD_NODE_COUNT=3 BRINGUPD_NODE_RANK=2 BRINGUPD_RANK=5
BRINGUPD_RANKS=6 GROUP_RANK=2 GROUP_WORLD_SIZE=3 LOCAL_RANK=1 LOCAL_WORLD_SIZE=2 MASTER_ADDR=n2 MASTER_PORT=20001
PMIX_NAMESPACE=x PMIX_RANK=5 RANK=5 ROLE_NAME=default ROLE_RANK=5 ROLE_WORLD_SIZE=6 RRUN_NRANKS=6 RRUN_RANK=5
SLURM_PROCID=5 WORLD_SIZE=6`},
		{"what the launch says of where to meet counts", "MASTER_ADDR=h MASTER_PORT=7", met, affinity.Affinity{}, "",
			`BRINGUPD_BINDING={} BRINGUPD_RANK=1 BRINGUPD_RANKS=2 MASTER_ADDR=h MASTER_PORT=7 RANK=1 ROLE_NAME=default
ROLE_RANK=1 ROLE_WORLD_SIZE=2 WORLD_SIZE=2`},
		{"the user's word is the last", "A=launch", alone, affinity.Affinity{GPUs: []string{"3"}},
			"A=x A=b=c RANK=9 ROLE_RANK= ROLE_NAME= ROLE_WORLD_SIZE=", `A=b=c BRINGUPD_BINDING={"gpus":["3"]}
BRINGUPD_RANK=1 BRINGUPD_RANKS=2 CUDA_VISIBLE_DEVICES=3 JAX_LOCAL_DEVICE_IDS=0 RANK=9 WORLD_SIZE=2`},
	} {
		t.Run(tc.name, func(t *testing.T) {
			got := PassThroughEnviron(strings.Fields(tc.base), tc.rank, tc.at, strings.Fields(tc.own))
			if diff := cmp.Diff(strings.Fields(tc.want), slices.Sorted(slices.Values(got))); diff != "" {
				t.Error(diff)
			}
		})
	}
}
