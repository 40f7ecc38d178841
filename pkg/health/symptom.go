package health

import (
	"fmt"
	"slices"
	"strings"
	"syscall"

	"github.com/bringupd/bringupd/internal/textutil"
	"github.com/bringupd/bringupd/pkg/process"
	"github.com/bringupd/bringupd/pkg/signal/record"
)

// symptomMessages are messages of programs that fail because of another process, in lower case. A
// line with one of them is not the message of a cause. The comments give the source of each; the C
// library's messages for errno values occur in many others.
var symptomMessages = []string{
	// errno ECONNRESET, EPIPE, ECONNREFUSED, ECONNABORTED, ENOTCONN, ETIMEDOUT and EHOSTUNREACH, as
	// strerror(3) and Python print them
	"connection reset by peer", "[errno 104]", "broken pipe", "[errno 32]", "connection refused", "[errno 111]",
	"software caused connection abort", "transport endpoint is not connected", "connection timed out",
	"no route to host",

	"connection closed by peer", // gloo: pytorch/pytorch#75512
	// pytorch's ProcessGroupGloo.cpp; sgl-project/sglang#3226
	"gloo connectfullmesh failed",
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
	// the unique id of NCCL, if rank 0 has gone: kaito-project/kaito#135
	"store->get(",
	"socket timeout",               // TCPStore before 2.5: pytorch/pytorch#55571
	"diststoreerror: wait timeout", // TCPStore since: pytorch/pytorch#131808
	// pytorch's ProcessGroupGloo.cpp; pytorch/pytorch#53773
	"successfully reached monitoredbarrier",
	"heartbeat monitor timed out", // pytorch's ProcessGroupNCCL.cpp

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
	// the MPI standard, since 4.1 and 5.0: mpi-forum/mpi-issues#134
	"mpi_err_proc_failed", "mpi_err_proc_aborted",

	"connection reset by remote peer", // UCX: rapidsai/ucx-py#985
	"endpoint timeout",                // UCX: openucx/ucx#1920
	"transport retry count",           // UCX: openucx/ucx#2973

	// Dask's distributed
	"commclosederror",
	// Ray: ray-project/ray#18586
	"rayactorerror", "actordiederror", "workercrashederror", "ownerdiederror", "nodediederror",
}

// exceptionLine is the line with which Python ends a traceback, after the prefixes of launchers and
// torch.
var exceptionLine = textutil.CompileLazily(`^(?:\[[^\]]*\]:? ?)*(?:\w+\.)*\w*(?:Error|Exception|Interrupt|Died)(?::|$)`)

// faultSignals end a process without a request: because of its own fault, or by the kernel if
// memory runs out. ABRT is not one of them: libraries abort the process when their peers are gone.
var faultSignals = []syscall.Signal{syscall.SIGSEGV, syscall.SIGBUS, syscall.SIGILL, syscall.SIGFPE,
	syscall.SIGSYS, syscall.SIGKILL}

// requestedSignals are sent to end a process on purpose, or because the reader of its output has
// gone.
var requestedSignals = []syscall.Signal{syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP, syscall.SIGPIPE}

// peerAbortedCode is the exit code with which Open MPI 5 aborts if a peer has died: its ranks may
// do so before their daemon has detected the death.
const peerAbortedCode = 14

// findSymptom returns why the failure of a rank looks like the consequence of another one: one of
// the symptoms, or how it ended. It returns an empty string if it does not.
func findSymptom(f record.Failure) string {
	by := syscall.Signal(rankExitCode(f) - 128) // also if a shell reports it for its child
	switch {
	case isRankKind(f.Kind) && f.Code == peerAbortedCode:
		return fmt.Sprintf("code %d", peerAbortedCode)
	case f.Kind == RankFailed && slices.Contains(faultSignals, by):
		return ""
	case f.Kind == RankFailed && slices.Contains(requestedSignals, by):
		return process.SignalName(by)
	}
	lines := append(slices.Clip(f.Lines), f.Message)
	// The first exception is the cause: the others follow from it, or from the end.
	if at := slices.IndexFunc(lines, exceptionLine().MatchString); at >= 0 {
		return matchSymptom(lines[at])
	}
	for _, line := range lines {
		if symptom := matchSymptom(line); symptom != "" {
			return symptom
		}
	}
	return ""
}

func matchSymptom(line string) string {
	line = strings.ToLower(line)
	if at := slices.IndexFunc(symptomMessages, func(s string) bool { return strings.Contains(line, s) }); at >= 0 {
		return symptomMessages[at]
	}
	return ""
}
