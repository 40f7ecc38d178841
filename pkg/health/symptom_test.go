package health

import (
	"strings"
	"syscall"
	"testing"

	"github.com/bringupd/bringupd/pkg/process"
	"github.com/bringupd/bringupd/pkg/signal/record"
)

// TestSymptomatic checks error messages of programs from real bug reports.
func TestSymptomatic(t *testing.T) {
	for _, tc := range []struct {
		name  string
		looks bool // resembles a consequence
		lines string
	}{
		{"gloo", true, gloo},
		{"gloo, behind torch's prefix", true, "[rank3]: " + gloo},
		{"gloo at the start", true, "[E ProcessGroupGloo.cpp:138] Gloo connectFullMesh failed " +
			"with Connection reset by peer"},
		{"gloo's timeout", true, "RuntimeError: [gloo/transport/tcp/unbound_buffer.cc:81] Timed " +
			"out waiting 1800000ms for recv operation to complete"},
		{"gloo after a timeout", true, "RuntimeError: Application timeout caused pair closure"},
		{"NCCL in torch", true, "torch.distributed.DistBackendError: NCCL error in: " +
			"/pytorch/torch/csrc/distributed/c10d/NCCLUtils.hpp:268, remote process exited or " +
			"there was a network error, NCCL version 2.21.5\nncclRemoteError: A call failed " +
			"possibly due to a network error or a remote process exiting " +
			"prematurely.\nLast error:\nsocketProgressOpt: Call to recv from " +
			"172.17.0.2<33759> failed : Connection reset by peer"},
		{"NCCL's watchdog", true, "terminate called after throwing an instance of " +
			"'c10::DistBackendError'\n  what():  [PG 3 Rank 5] Process group watchdog thread " +
			"terminated with exception: [Rank 5] Watchdog caught collective operation " +
			"timeout: WorkNCCL(SeqNum=9141, OpType=_ALLGATHER_BASE) ran for 600020 " +
			"milliseconds before timing out.\nframe #0: " +
			"c10::Error::Error(c10::SourceLocation, std::string) + 0x96 (0x7f3b6d41df86 in libc10.so)"},
		{"NCCL, aborted", true, "RuntimeError: NCCL communicator was aborted on node 2.  " +
			"Original reason for failure was: watchdog"},
		{"TCPStore", true, "torch.distributed.DistNetworkError: failed to recv, got 0 bytes"},
		{"TCPStore, reset", true, "[W519 18:43:28.514281000 TCPStore.cpp:125] [c10d] recvValue " +
			"failed on SocketImpl(fd=22, addr=[h]:50160, remote=[h]:58159): Connection reset by peer"},
		{"NCCL's id, whose rank is gone", true,
			"RuntimeError: [1] is setting up NCCL communicator and retrieving ncclUniqueId from " +
				"[0] via c10d key-value store by key '0', but store->get('0') got error: Connection reset by peer"},
		{"a monitored barrier", true, "RuntimeError: Rank 3 successfully reached " +
			"monitoredBarrier, but received errors while waiting for send/recv from node 0. " +
			"Please check node 0 logs for faulty rank."},
		{"JAX", true, "F0929 17:42:48.594200 1044529 client.h:77] Terminating process because " +
			"the JAX distributed service detected fatal errors. This most likely indicates that " +
			"another task died; see the other task logs for more details."},
		{"MPICH", true, "Fatal error in PMPI_Send: Unknown error class, error " +
			"stack:\nPMPI_Send(159).............: MPI_Send(buf=0x7fff0cdc72cc, count=1, " +
			"MPI_INT, dest=1, tag=0, MPI_COMM_WORLD) failed\nMPID_nem_tcp_connpoll(1845): " +
			"Communication error with node 1: Connection refused"},
		{"Open MPI over TCP", true, "[btl_tcp_endpoint.c:457] recv(31) failed: Connection reset by peer (104)"},
		{"Open MPI's help", true, "An MPI communication peer process has unexpectedly " +
			"disconnected.  This\nusually indicates a failure in the peer process"},
		{"UCX", true, "[1516700569.601083] [n3:31714:0] ucp_worker.c:437  UCX  ERROR Error " +
			"Endpoint timeout was not handled for ep 0x1d33870"},
		{"Python", true, "Traceback (most recent call last):\n  File \"train.py\", line 3, in " +
			"<module>\nBrokenPipeError: [Errno 32] Broken pipe"},
		{"Dask", true, "distributed.comm.core.CommClosedError: in <TCP (closed) " +
			"Client->Scheduler local=tcp://a:1 remote=tcp://b:2>: Stream is closed"},
		{"Ray", true, "ray.exceptions.RayActorError: The actor died unexpectedly before finishing this task."},
		{"one thing led to another", true, "ConnectionResetError: [Errno 104] Connection reset " +
			"by peer\n\nDuring handling of the above exception, another exception " +
			"occurred:\n\nRuntimeError: training failed"},

		{"nothing", false, ""},
		{"its own", false, nan},
		{"no memory on the GPU, and noise from the end", false,
			"torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB\n[W " +
				"TCPStore.cpp:125] [c10d] recvValue failed on SocketImpl(fd=6): Connection reset by peer"},
		{"a CUDA error", false, "torch.distributed.DistBackendError: NCCL error in: " +
			"ProcessGroupNCCL.cpp:1347, unhandled cuda error"},
		{"a C program's own", false, "cannot read shard 3: no such file"},
		{"an interrupt", false, "KeyboardInterrupt"},
		{"the C library's own", false, "free(): invalid pointer"},
		{"a frame that names an error", false, "    raise ConnectionResetError(x)"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			lines := strings.Split(tc.lines, "\n")
			looks := func(exit process.Exit) bool {
				return hasSymptom(NewRankExitFailure(record.WorldRank{}, "n1", exit, lines).Failure)
			}
			if got := looks(process.Exit{Code: 1}); got != tc.looks {
				t.Errorf("code 1: %t", got)
			}
			if got := looks(process.Exit{Code: -1, Signal: syscall.SIGABRT}); got != tc.looks {
				t.Errorf("SIGABRT: %t", got)
			}
			for _, sig := range faultSignals {
				if looks(process.Exit{Code: -1, Signal: sig}) || looks(process.Exit{Code: 128 + int(sig)}) {
					t.Errorf("%v looks like a consequence", sig)
				}
			}
			for _, sig := range requestedSignals {
				if !looks(process.Exit{Code: -1, Signal: sig}) || !looks(process.Exit{Code: 128 + int(sig)}) {
					t.Errorf("%v does not look like a consequence", sig)
				}
			}
			if got := CauseGracePeriod(NewRankExitFailure(record.WorldRank{}, "n1",
				process.Exit{Code: 1}, lines)); (got > 0) != tc.looks {
				t.Errorf("it yields for %v", got)
			}
			if got := hasSymptom(NewRankAbortFailure(record.WorldRank{}, "n1", 1, "", lines).Failure); got != tc.looks {
				t.Errorf("abort: %t", got)
			}
		})
	}
}

func TestSymptomsAreLower(t *testing.T) {
	seen := make(map[string]bool)
	for _, s := range symptomMessages {
		if s != strings.ToLower(s) || s == "" || seen[s] {
			t.Errorf("%q can't be found, or is there twice", s)
		}
		seen[s] = true
	}
}
