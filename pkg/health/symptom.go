package health

import (
	"fmt"
	"slices"
	"strings"
	"syscall"

	"github.com/bringupd/bringupd/pkg/pattern"
	"github.com/bringupd/bringupd/pkg/process"
	"github.com/bringupd/bringupd/pkg/signal"
)

// symptoms are messages of programs that fail because of another process, in lower case. A line
// with one of them is not the message of a cause. The comments give the source of each; the C
// library's messages for errno values occur in many others.
var symptoms = []string{
	// errno ECONNRESET, EPIPE, ECONNREFUSED, ECONNABORTED, ENOTCONN, ETIMEDOUT and EHOSTUNREACH, as
	// strerror(3) and Python print them
	"connection reset by peer", "[errno 104]", "broken pipe", "[errno 32]", "connection refused", "[errno 111]",
	"software caused connection abort", "transport endpoint is not connected", "connection timed out", "no route to host",

	"connection closed by peer",               // gloo: pytorch/pytorch#75512
	"gloo connectfullmesh failed",             // pytorch's ProcessGroupGloo.cpp; sgl-project/sglang#3226
	"application timeout caused pair closure", // gloo's unbound_buffer.cc
	"ms for recv operation to complete",       // gloo: pytorch/gloo#511
	"ms for send operation to complete",       // the same

	"ncclremoteerror", // NVIDIA/nccl#934, #2076
	"remote process exited or there was a network", // the same, as pytorch has it: NVIDIA/nccl#2076
	"ncclsystemerror",                  // NVIDIA/nccl#697
	"connection closed by remote peer", // NVIDIA/nccl#795
	"connection closed by localrank",   // NVIDIA/nccl-tests#252
	"got completion from peer",         // NET/IB: NVIDIA/nccl-tests#252

	"nccl communicator was aborted",                // pytorch's NCCLUtils.cpp
	"watchdog caught collective operation timeout", // pytorch/pytorch#118369
	"recvvalue failed on socketimpl",               // TCPStore: pytorch/pytorch#129985
	"failed to recv, got 0 bytes",                  // the same: pytorch/pytorch#130056
	"store->get(",                                  // the unique id of NCCL, if rank 0 has gone: kaito-project/kaito#135
	"socket timeout",                               // TCPStore before 2.5: pytorch/pytorch#55571
	"diststoreerror: wait timeout",                 // TCPStore since: pytorch/pytorch#131808
	"successfully reached monitoredbarrier",        // pytorch's ProcessGroupGloo.cpp; pytorch/pytorch#53773
	"heartbeat monitor timed out",                  // pytorch's ProcessGroupNCCL.cpp

	"most likely indicates that another task died",     // xla's client.h: jax-ml/jax#39095
	"failed to send rpc to coordination service",       // the same
	"tasks are unhealthy (stopped sending heartbeats)", // the same, by the coordinator

	"pmi_barrier returned",          // MPICH 5, which waits for a rank that has gone
	"communication error with rank", // MPICH: pmodels/mpich#5762
	"mpidi_ofi_handle_cq_error",     // MPICH and Intel MPI over libfabric: ofiwg/libfabric#10072

	"peer unexpectedly closed connection",         // Open MPI: open-mpi/ompi#4131
	"peer process has unexpectedly disconnected",  // Open MPI: open-mpi/ompi#7735
	"has lost communication with a remote daemon", // Open MPI: open-mpi/ompi#6786
	"lost connection to server",                   // PMIx: open-mpi/ompi#8925
	"mpi_err_proc_failed", "mpi_err_proc_aborted", // the MPI standard, since 4.1 and 5.0: mpi-forum/mpi-issues#134

	"connection reset by remote peer", // UCX: rapidsai/ucx-py#985
	"endpoint timeout",                // UCX: openucx/ucx#1920
	"transport retry count",           // UCX: openucx/ucx#2973

	"commclosederror",                                                                          // Dask's distributed
	"rayactorerror", "actordiederror", "workercrashederror", "ownerdiederror", "nodediederror", // Ray: ray-project/ray#18586
}

// exceptionLine is the line with which Python ends a traceback, after the prefixes of launchers and
// torch.
var exceptionLine = pattern.New(`^(?:\[[^\]]*\]:? ?)*(?:\w+\.)*\w*(?:Error|Exception|Interrupt|Died)(?::|$)`)

// hardSignals end a process without a request: because of its own fault, or by the kernel if memory
// runs out. ABRT is not one of them: libraries abort the process when their peers are gone.
var hardSignals = []syscall.Signal{syscall.SIGSEGV, syscall.SIGBUS, syscall.SIGILL, syscall.SIGFPE, syscall.SIGSYS, syscall.SIGKILL}

// softSignals are sent to end a process on purpose, or because the reader of its output has gone.
var softSignals = []syscall.Signal{syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP, syscall.SIGPIPE}

// peerAborted is the exit code with which Open MPI 5 aborts if a peer has died: its ranks may do so
// before their daemon has detected the death.
const peerAborted = 14

// symptomOf returns why the failure of a rank looks like the consequence of another one: one of the
// symptoms, or how it ended. It returns an empty string if it does not.
func symptomOf(f signal.FailedRecord) string {
	by := syscall.Signal(rankCode(f) - 128) // also if a shell reports it for its child
	switch {
	case ofRank(Kind(f.Kind)) && f.Code == peerAborted:
		return fmt.Sprintf("code %d", peerAborted)
	case Kind(f.Kind) == RankFailed && slices.Contains(hardSignals, by):
		return ""
	case Kind(f.Kind) == RankFailed && slices.Contains(softSignals, by):
		return process.SignalName(by)
	}
	lines := append(slices.Clip(f.Lines), f.What)
	// The first exception is the cause: the others follow from it, or from the end.
	if at := slices.IndexFunc(lines, exceptionLine().MatchString); at >= 0 {
		return symptomIn(lines[at])
	}
	for _, line := range lines {
		if symptom := symptomIn(line); symptom != "" {
			return symptom
		}
	}
	return ""
}

func symptomIn(line string) string {
	line = strings.ToLower(line)
	if at := slices.IndexFunc(symptoms, func(s string) bool { return strings.Contains(line, s) }); at >= 0 {
		return symptoms[at]
	}
	return ""
}
