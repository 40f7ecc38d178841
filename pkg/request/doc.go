// Package request has a run that lives run a command on its nodes, for somebody
// outside the job: all of bringupd exec, the Caller's side, the Head's and each
// Node's. Files carry it; a connection to the head, where one can be made, only
// makes it fast. All names of a request bear its id.
//
//  1. The caller publishes exec/<id>.request (the command, variables for it, and
//     which nodes) and marks control/call.<id>. From then on it watches exec/.
//  2. The head, which watches control/ anyway, removes the call. It looks into
//     exec/ as long as a request is announced or carried out, and at no other time.
//  3. It reads the request, unless others may have written it, and publishes
//     exec/<id>.taken: who runs it, or why nobody does. The caller then removes the
//     request, which may hold secrets.
//  4. Where others than the head run it, the head publishes the command as
//     control/exec.<id>, marks control/exec.<id>.cancel to have it ended early, and
//     removes both when all have answered. Workers watch control/ anyway.
//  5. A node publishes what its command says as exec/<id>.<rank>.<n>; the caller
//     passes it on in order and removes it. Its last word is exec/<id>.<rank>.end:
//     the rest of it, and how the command ended.
//  6. The caller beats, over the connection or by renaming exec/<id>.beat.<n>, and
//     marks exec/<id>.cancel when it has had enough. The head ends the commands of a
//     caller that is silent for 8 s, or whose connection was closed.
//  7. Where the job goes on without the nodes that are still to answer, the head
//     publishes their last word.
//  8. When all have answered and the caller has gone, the head removes all that bears
//     the id. After the run's end the caller does.
package request
