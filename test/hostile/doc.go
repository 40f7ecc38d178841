// Package hostile is a file system for tests: a folder of this machine, shown
// by FUSE as a network file system at its worst would show it. It is mounted
// once for every node over the same folder, so that each node has caches,
// faults and stalls of its own, as with clients of one file server.
//
// A mount is served by a process of its own (test/cmd/hostile): a process that
// used a mount which it serves itself could wait for itself for ever. Its knobs
// can be turned while it runs.
//
// With all knobs at zero it passes everything through, and nothing is cached.
// What it does not do: permissions (it is for root alone), file locks, extended
// attributes, and a crash of the server (a sync has nothing to do).
package hostile
