// Package deploy has the scripts that start bringupd under each batch system.
package deploy

import (
	"bytes"
	"embed"
	"path"
)

//go:embed flux kubernetes lsf pbs slurm/*.sbatch slurm/ray.sub
var files embed.FS

// Script is a script that a user adapts to a site and submits.
type Script struct {
	Name    string // as users request it
	Summary string
	path    string
	perNode string // default of RANKS_PER_NODE; empty: that of the file
}

// Scripts returns all scripts, the most used ones first.
func Scripts() []Script {
	return []Script{
		{"ray", "Slurm: a Ray cluster; the driver connects with ray.init()", "slurm/ray.sbatch", ""},
		{"torch", "Slurm: one rank per GPU, without torchrun", "slurm/ranks.sbatch", ""},
		{"mpi", "Slurm: the ranks of an MPI program, without mpirun", "slurm/ranks.sbatch", "core"},
		{"dask", "Slurm: a Dask cluster; the driver connects with Client()", "slurm/dask.sbatch", ""},
		{"generic", "Slurm: your own services on head and workers", "slurm/generic.sbatch", ""},
		{"ray-sandbox", "Slurm: Ray, and a sandbox in its own step", "slurm/ray-sandbox.sbatch", ""},
		{"generic-sandbox", "Slurm: your services, and a sandbox in its own step", "slurm/generic-sandbox.sbatch", ""},
		{"ray.sub", "Slurm: the variables and logs of NeMo RL's ray.sub", "slurm/ray.sub", ""},
		{"pbs", "OpenPBS and PBS Pro", "pbs/generic.pbs", ""},
		{"flux", "Flux: your own services", "flux/generic.sh", ""},
		{"flux-ray", "Flux: a Ray cluster", "flux/ray.sh", ""},
		{"lsf", "LSF", "lsf/generic.lsf", ""},
		{"kubernetes", "Kubernetes: an Indexed Job", "kubernetes/job.yaml", ""},
		{"jobset", "Kubernetes: a JobSet, restarted as a whole", "kubernetes/jobset.yaml", ""},
	}
}

// FileName returns the name under which the script's own comments submit it.
func (s Script) FileName() string { return path.Base(s.path) }

// Text returns the script.
func (s Script) Text() []byte {
	text, _ := files.ReadFile(s.path) // it is embedded
	if s.perNode != "" {
		const before = "{RANKS_PER_NODE:-"
		text = bytes.ReplaceAll(text, []byte(before+"gpu}"), []byte(before+s.perNode+"}"))
	}
	return text
}
