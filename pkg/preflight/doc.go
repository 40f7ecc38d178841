// Package preflight finds out, before the work of a job begins, whether the job would work. It has
// three parts:
//
//   - The node's checks ([NodeChecks]): those of its GPUs, those of pkg/check and the site's own
//     commands. They are repeated until everything is ready or a timeout expires. The daemon runs
//     them before the gate opens, and the head then compares the nodes ([Comparison]). The command
//     "bringupd check" runs the same checks.
//   - The doctor ([RunDoctor]), which examines a launch. Every node gathers facts and sends them to
//     the head through the shared file system, as in a run. Its checks are pure functions of the
//     facts.
//   - The preview of a file of roles ([RolePreview]): the placement on assumed nodes, what a fault
//     leads to, and the job script that starts it.
package preflight
