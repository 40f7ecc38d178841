// Package exec runs commands on the nodes of a running job, for processes outside the job
// (bringupd exec). It implements the sides of the caller ([Client]), of the head ([Head]) and of
// every node ([Node]). Files carry the requests. A connection to the head, if possible, only makes
// them faster. All names of a request contain its id.
//
//  1. The caller publishes exec/<id>.request (the command, its variables and nodes) and creates
//     control/call.<id>. From then on it polls exec/.
//  2. The head, which polls control/ anyway, removes the call. It polls exec/ only while a request
//     is announced or being handled.
//  3. The head reads the request, and refuses it if another user could have written it. It
//     publishes exec/<id>.taken: the nodes that run the command, or the reason for a refusal. The
//     caller then removes the request, which may contain secrets.
//  4. If nodes other than the head run the command, the head publishes it as control/exec.<id>. It
//     creates control/exec.<id>.cancel to cancel it. It removes both when all nodes have answered.
//     Workers poll control/ anyway.
//  5. A node publishes the output of its command as exec/<id>.<rank>.<n>, where n counts the
//     records. The caller forwards the output in order and removes the records. The last record is
//     exec/<id>.<rank>.end: the rest of the output, and the exit of the command.
//  6. The caller sends heartbeats, over the connection or by renaming exec/<id>.beat.<n>, and
//     creates exec/<id>.cancel to cancel the request. The head ends the commands of a caller that
//     is silent for 8 s, or has closed its connection.
//  7. If the job continues without nodes that have not answered yet, the head publishes their last
//     record.
//  8. When all nodes have answered and the caller has gone, the head removes all names with the
//     id. After the end of the run, the caller removes them.
package exec
