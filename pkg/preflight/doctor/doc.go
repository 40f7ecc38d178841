// Package doctor examines a launch before a big job and reports whether the job would work. Every
// node gathers facts and sends them to the head through the shared file system, as in a run. The
// checks are pure functions of the facts.
package doctor
