// Package exec runs commands on the nodes of a running job: for processes outside the job
// (bringupd exec), and for programs that start their own daemons there, such as an mpirun with
// bringupd rsh as its agent. It implements the sides of the caller ([Client]), of the agent
// ([Agent]), of the head ([Head]) and of every node ([Node]).
//
// A command has a stream: the caller connects to the head, and an agent to its node's daemon, which
// connects to the head. The head asks the other nodes, by their peer links, for a connection each,
// and forwards the request, the output and the exit. No node connects to any node other than the
// head. A stream ends if either side ends.
//
// Files replace the streams of a caller that cannot reach the head, or if a node has no peer link.
// All names contain the request's id.
//
//  1. The caller publishes control/call.<id>: the command, its variables and nodes.
//  2. The head refuses it if another user could have written it. It publishes control/exec.<id>: the
//     nodes that run the command, or the reason for a refusal. It removes the call, which may contain
//     secrets.
//  3. A node publishes exec/<id>.<node>.end when its command has ended: its output, and its exit. If
//     the job continues without the node, the head publishes that.
//  4. The caller replaces control/exec.<id>.beat.<n> by the next, and creates control/exec.<id>.cancel
//     to cancel the command. A node also ends commands of a caller whose names do not change.
//  5. At its end, the caller removes all of these names. The head does so for a silent caller.
package exec
