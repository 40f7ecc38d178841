package advice

import (
	"slices"
	"strings"
)

// programError is an error of a framework, and what to do about it.
type programError struct {
	messages []string // any of these in a line, as it is printed by one of the last versions
	ofRanks  bool     // it is one of ranks; otherwise of a program that does not run as ranks
	step     string
}

const runAsRanks = "run the program as ranks, which get RANK and the other variables: " +
	"--ranks-per-node=gpu, or a number (ranks-per-node: gpu in a role)"

// portTaken are the errors of torch, zmq and uvicorn about a port that another process has.
var portTaken = []string{
	"The server socket has failed to listen on any local network address",
	"zmq.error.ZMQError: Address already in use", "error while attempting to bind on address",
}

// programErrors are errors that the flags of the job cause. The first that matches counts.
var programErrors = []programError{
	{messages: []string{
		"environment variable RANK expected", "environment variable WORLD_SIZE expected", // torch
		"environment variable MASTER_ADDR expected", "environment variable MASTER_PORT expected",
		"KeyError: 'RANK'", "KeyError: 'WORLD_SIZE'", "KeyError: 'LOCAL_RANK'",
		"KeyError: 'MASTER_ADDR'", "cannot find BRINGUPD_RANK", // the Python package's
		"coordinator_address should be defined", "Number of processes must be defined", // JAX
	}, step: runAsRanks},
	// Open MPI 4 takes the variables of a Slurm step for those of a rank.
	{messages: []string{
		"was not built with SLURM's PMI support", "must then build Open MPI using --with-pmi",
		"you can use SLURM's PMIx support",
	}, step: "run the MPI program as ranks, without mpirun: --ranks-per-node=core, or a number " +
		"(ranks-per-node: core in a role)"},
	{messages: []string{"ompi_rte_init failed", "PMIx_Init failed"}, ofRanks: true,
		step: "see why these ranks have no PMIx, which Open MPI needs: bringupd doctor -- PROGRAM " +
			"(the static build of bringupd has none)"},
	{messages: []string{
		"There are not enough slots available in the system",
		"number of available slots when deciding", // its last lines
	},
		step: "give the driver's mpirun more slots: --slots-per-node=N, or a smaller -n to mpirun"},
	{messages: []string{"KeyError: 'DASK_SCHEDULER_ADDRESS'"},
		step: "start a Dask cluster: --framework=dask"},
	{messages: []string{"RuntimeError: Nanny failed to start"}, step: "start a Dask cluster on all nodes, to which " +
		"Client() connects: --framework=dask; or, for one of this node only, put its start under: " +
		`if __name__ == "__main__":`},
	// of Dask's and other pools of processes that are started when the module is loaded
	{messages: []string{"before the current process has finished its bootstrapping phase"},
		step: `put the start of the program under: if __name__ == "__main__":`},
	{messages: []string{"Could not find any running Ray instance", "KeyError: 'RAY_ADDRESS'"},
		step: "start a Ray cluster: --framework=ray"},
	{messages: portTaken, step: "another process on the node has the port: let the program pick a free " +
		"one, as torchrun --standalone does, or run it as ranks, which get a free MASTER_PORT: " +
		"--ranks-per-node=gpu, or a number"},
	{messages: portTaken, ofRanks: true, step: "another process on the node has the port: give the " +
		"program one that bringupd keeps for it, as $BRINGUPD_PORT of a role (more of them: its key ports)"},
	{messages: []string{"CUDA error: invalid device ordinal", "HIP error: invalid device ordinal"},
		ofRanks: true,
		step: "show all GPUs of the node to each rank: --bind=cpu,memory,network; or use device 0, a " +
			"rank's own"},
}

// knownStep returns the step, or nothing if it is empty.
func knownStep(step string) []string {
	if step == "" {
		return nil
	}
	return []string{step}
}

// adviseProgram returns the step about an error in the last lines of a program, or an empty string.
func adviseProgram(lines []string, ofRanks bool) string {
	for _, known := range programErrors {
		isPrinted := func(line string) bool {
			return slices.ContainsFunc(known.messages,
				func(message string) bool { return strings.Contains(line, message) })
		}
		if known.ofRanks == ofRanks && slices.ContainsFunc(lines, isPrinted) {
			return known.step
		}
	}
	return ""
}
