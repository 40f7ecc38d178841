package main

import (
	"strings"
	"testing"

	"github.com/bringupd/bringupd/deploy"
)

func TestScript(t *testing.T) {
	list := call(t, nil, "script")
	for _, script := range deploy.Scripts() {
		if list.code != 0 || !strings.Contains(list.out, "  "+script.Name+" ") {
			t.Errorf("code %d: the list lacks %s: %s", list.code, script.Name, list.out)
		}
	}
	for name, path := range map[string]string{"ray": "slurm/ray.sbatch",
		"torch": "slurm/ranks.sbatch", "kubernetes": "kubernetes/job.yaml"} {
		if got := call(t, nil, "script", name); got.code != 0 || got.err != "" ||
			got.out != contents(t, "../../deploy/"+path) {
			t.Errorf("%s: code %d: %s%s", name, got.code, got.out, got.err)
		}
	}
	if mpi := call(t, nil, "script", "mpi"); !strings.Contains(mpi.out, `--ranks-per-node="${RANKS_PER_NODE:-core}"`) {
		t.Errorf("the script for MPI starts other ranks: %s", mpi.out)
	}
	refused(t, call(t, nil, "script", "rai"), 64,
		`cannot print the script "rai": give one of ray, torch, mpi, `, "did you mean ray?")
	refused(t, call(t, nil, "script", "ray", "dask"), 64, "cannot print a script: give one of ray")
	refused(t, call(t, nil, "script", "--ray"), 64, "cannot use --ray")
}
