// Package ncclras asks NCCL, or RCCL, which ranks a communicator lacks, by their RAS subsystem
// (reliability, availability and serviceability).
//
// Every process that uses NCCL has a RAS thread, which accepts clients at the address in the variable
// NCCL_RAS_ADDR, by default port 28028 of this machine. All processes of a job on a node share that
// port, and each of them answers for the whole job. The protocol has no authentication, and a client
// cannot see which job answers. So each daemon reserves a port of its own ([ReservePort]), at which
// only processes of this user can listen, and the default port is never asked.
//
// Earlier versions were reported to crash when they were asked often, and to report a job that hangs
// as healthy. So RAS is asked once per diagnosis, and only if it can answer as JSON, as NCCL can since
// 2.28.7.
package ncclras
