// Package process runs the children of one daemon: it starts them, passes on and keeps what they print, tells how
// they ended, and sees to it that nothing of theirs outlives the daemon, however the daemon ends.
//
// # What is a child's family
//
// A child begins a session of its own, so that a terminal's job control cannot stop it and a signal for it reaches
// nobody else. Programs leave sessions, though: they fork twice, call setsid, overwrite their environment with a
// title. So what belongs to a child is found by four signs, any of which is enough:
//
//   - it is in the session that the child began;
//   - its first environment names the child: BRINGUPD_GUARD, which every child is started with, holds a random word
//     for the daemon and a number for the child, and is inherited where nothing scrubs it;
//   - it descends from one that belongs, by one snapshot of /proc that is taken before anything is signalled;
//   - it is in a session that one that belongs began. Those are noted while the families live, by a census: one second
//     after a child's start, then ever more rarely, up to every ten seconds. A trainer's worker that began a session,
//     wrote a title over its environment and lost its launcher is known by nothing else.
//
// A number alone proves nothing, for the kernel gives them out again. A process is known by its number and the time
// it started; nothing that started before the child belongs to it; a session counts only as long as its number can't
// have been given away: where its leader is gone, only who was there when it was last known as ours is a member, and
// who descends from those. Before each signal the start time is looked at once more, with a pidfd held where the kernel
// has them.
//
// BRINGUPD_GUARD also names the job it was set in (SLURM_JOB_ID and its like). Whoever carries the mark in another job
// is a stranger: a driver that submits the next job hands it our environment, and that job may run on this node before
// we have ended.
//
// # What ends it, and what that rests on
//
//  1. Stop: the child's group gets TERM (or what the caller names) and, once the child itself has gone, the rest of the
//     family too, less those who started later, as they are part of the answer; after the grace all get KILL, until two
//     looks in a row find nobody. One look is not enough: a process shows no environment for an instant while it
//     execs, and one that was being forked is in no snapshot.
//  2. The daemon dies (kill -9, a crash, os.Exit): the kernel sends KILL to each child (PR_SET_PDEATHSIG). It does so
//     when the thread that forked ends, hence children are forked on threads that are kept for as long as the
//     Supervisor. The kernel forgets the setting for set-uid programs, and it reaches no grandchild: this is only the
//     fastest of the means.
//  3. The guard: one small process a daemon, the same binary again, in a session of its own, deaf to TERM, INT and HUP,
//     with another name than the program's. It reads the list of our sessions from a pipe. The end of the pipe without
//     a goodbye, or another parent than the daemon, means the daemon is gone, and it kills all families as in 1,
//     without grace. It needs neither the file system nor the network then. No child is forked before the guard was,
//     and what it is told waits in the pipe until its code runs.
//     It also reports the signals of Relayed that it gets: one that reaches daemon and guard was sent to all processes
//     of a step, the children among them (see Reached).
//  4. The guard dies: the daemon starts another and tells it all.
//  5. AdoptOrphans: the kernel makes the daemon the parent of what its children leave behind (PR_SET_CHILD_SUBREAPER), so
//     that no descendant can hide from it. The census tells the guard of the sessions of these orphans, EndAll kills
//     them, and those that end earlier are reaped. The processes that another part of the daemon waits for are in the
//     daemon's own session and are left alone.
//
// The end of a child alone, whatever ended it, is an ordinary exit: its family stays until Stop, which is to be called
// for each child, also for one that ended by itself.
//
// # What does not hold
//
//   - A process that called setsid, cleared its environment and lost its parent since the last census (one second after
//     a start, ten later on) survives a daemon that is killed: by 2, a child's own children lose their parent with the
//     daemon, and the guard was not told of the session. It stays until the launcher ends the step (Slurm's proctrack).
//     A daemon that ends by itself finds it: see 5.
//   - What another service runs for a child (a container's daemon, atd, systemd-run) is not the child's.
//   - Where daemon and guard are killed in the same instant, 2 is all there is; so it is in the second that may pass
//     before a third guard follows two that died at once.
//   - A process in uninterruptible sleep can't be killed by anybody: it is named in Exit.Err three seconds after KILL.
//     A guard whose daemon has died goes on trying for a minute.
//   - Where /proc is mounted with hidepid, it shows no other users' processes, nor ours that may not be traced (what a
//     set-uid program becomes, ssh-agent): but for the child itself they count as strangers, and
//     get no signal but that for the child's group.
//   - A process whose environment can't be read (another user's, or its memory is locked while a file system hangs) is
//     known by the other signs only. Of looks that hang there are 64 at most; then nobody else's is read either.
//   - A program on a file system that hangs is looked at before the fork, by a thread that may hang: Start ends with its
//     context. If the file system dies between that look and the exec, the fork holds up the whole daemon, as any
//     vfork in a Go program does.
//
// # Output
//
// Each stream has a reader of its own, which does three things with what comes: it cuts lines for the tail that goes
// into errors, gives them to the log, which may hold the child up for a bounded time alone (see journal.Journal), and passes the bytes on, unchanged,
// to whom the caller named. The last may hold the child up for as long as it likes, as that is its own standard output.
//
// A child has ended when it was reaped, whatever becomes of its output: Child.Ended tells. What is in its pipes then is
// passed on, and is among the last lines. Others of the family may keep them open: they are listened to for one second
// more, or for as long as a Stop waits for them. Afterwards, until Stop, they print to nobody; their pipe is not closed
// under them, as that would kill them in the middle of what they do.
//
// # Exit codes of what can't be started
//
// As in a shell, ErrNotFound (127) means there is no such file, and ErrNotExecutable (126) that there is one which the
// kernel won't run: a directory, no permission, an interpreter that is missing, another machine's binary. A script
// without a "#!" line is not run by a shell either, as which shell would be a guess: it is ErrNotExecutable too.
package process
