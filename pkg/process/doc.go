// Package process starts, supervises and stops the child processes of one daemon. It forwards and
// logs their output, reports how they ended, and makes sure that none of their processes outlives
// the daemon, however the daemon ends.
//
// # The family of a child
//
// A child's family is the child and all processes that it has started, directly or indirectly. Each
// child is started in a new session, so that a terminal's job control cannot stop it and a signal to
// its process group reaches no other process. Programs leave their session, so a process is a member
// of the family if at least one of these criteria holds:
//
//   - It is in the session of the child.
//   - Its initial environment has the child's mark: the variable BRINGUPD_GUARD, which holds a random
//     string for the daemon and a number for the child. Descendants inherit it unless a program
//     removes it.
//   - Its limit for file locks (RLIMIT_LOCKS, which Linux ignores) holds the same mark. This finds,
//     for example, a trainer's worker that created a session, overwrote its environment with a title
//     and lost its launcher.
//   - It descends from a member, or is in the session of one, according to one snapshot of /proc
//     that is taken before any signal is sent.
//
// The kernel reuses process IDs, so a process is identified by its PID and its start time, and one
// that started before the child is not a member. A session counts only as long as its ID cannot have
// been reused: if the session leader has ended, only processes that existed when the session was last
// known to belong to the family, and their descendants, are members. Before each signal the start
// time is checked again, through a pidfd if the kernel has them.
//
// BRINGUPD_GUARD also names the job in which it was set (SLURM_JOB_ID or a similar variable). A
// process that carries the mark in another job is not a member: a driver that submits the next job
// passes its environment on, and that job may run on this node before this daemon has ended.
//
// # What ends a family
//
//  1. Stop. The child's process group gets SIGTERM, or the signal that the caller names. Once the
//     child itself has ended, the rest of the family gets the signal too, except processes that
//     started after it was first sent: those are part of the reaction to it. After the grace
//     period all members get SIGKILL, until two scans in a row find no member. One scan is not
//     enough: a process shows no environment for an instant during execve, and a process that is
//     just being forked is in no snapshot. It is enough if the child has been reaped and the daemon
//     has no orphans (see 5), because then no descendant of the child exists.
//  2. The kernel. If the daemon dies, the kernel sends SIGKILL to each child (PR_SET_PDEATHSIG). It
//     does so when the thread that forked the child ends, so children are forked on threads that
//     live as long as the Supervisor. The setting is cleared for set-uid programs and does not reach
//     grandchildren: this is only the fastest means.
//  3. The guard, one small process per daemon. It runs the same binary in a session of its own,
//     ignores SIGTERM, SIGINT and SIGHUP, and has another process name than the program. It reads
//     the list of the families' sessions from a pipe. If the pipe ends without a goodbye message,
//     or if the daemon is no longer its parent, then the daemon has died, and the guard kills all
//     families as in 1, without a grace period, and without the file system or the network. No child
//     is forked before the guard, and messages wait in the pipe until its code runs. It also reports
//     the signals of [ForwardedSignals] that it receives (see [Supervisor.SignalReachedGuard]), and
//     kills all families of a daemon that lives and gives no sign of it (see
//     [Supervisor.EndIfSilent]).
//  4. If the guard dies, the daemon starts another one and sends it the whole list.
//  5. AdoptOrphans. The kernel makes the daemon the parent of the orphans that its children leave
//     behind (PR_SET_CHILD_SUBREAPER; pid 1 of a container is their parent anyway), so that no
//     descendant can hide. Orphans that have ended are reaped every few seconds, and EndAll kills the
//     others. Helpers and commands are not touched, nor other processes in the daemon's own session,
//     unless the daemon is pid 1.
//
// The end of the child alone, whatever its cause, is an ordinary exit: its family stays until
// Stop. Stop must therefore be called for each child, also for one that ended by itself.
//
// # Limitations
//
//   - If the hard limit for file locks is finite or the kernel has no prlimit, a process that has
//     called setsid, cleared its environment and lost its parent survives a daemon that is killed,
//     and the end of its child; [Supervisor.EndAll] ends it.
//   - Processes that another service runs for a child (a container runtime's daemon, atd,
//     systemd-run) are not members of the family.
//   - If daemon and guard are killed at the same instant, only 2 remains. The same holds for the
//     second before a third guard is started after two that died at once.
//   - A process in uninterruptible sleep cannot be killed. Exit.Err names it three seconds after
//     SIGKILL. After the death of the daemon, the guard keeps trying for a minute.
//   - If /proc is mounted with hidepid, it shows no processes that may not be traced. Except for the
//     child itself, they get only the signals to the child's process group.
//   - If the environment of a process cannot be read (another user's process, or its memory is
//     locked while a file system hangs), only the other criteria apply. At most 64 such reads may
//     hang at the same time; after that, no other environment is read either.
//   - The program's file is opened before the fork, on a thread that may hang if its file system
//     does: Start ends with its context. If the file system fails between that check and execve,
//     the fork blocks the whole daemon, as any vfork in a Go program does.
//
// # Output
//
// Each stream has its own reader, which keeps the last lines for error messages, writes lines to the
// log, which may block the child for a bounded time only (see files.Journal), and passes the bytes
// unchanged to the caller's writer, which may block the child for as long as it likes.
//
// A child has ended when it has been reaped, whatever happens to its output (see [Child.Ended]). The
// data in its pipes at that moment is still passed on. Other members of the family may keep the
// pipes open: they are read for one second more, or for as long as a call of Stop is waiting. After
// that their output is discarded, but the pipe is not closed, because that would kill its writers.
package process
