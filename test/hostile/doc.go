// Package hostile is a file system for tests: it shows a folder of this machine through FUSE, as a
// network file system at its worst would. Each node gets its own mount of the same folder, so that
// each node has its own caches, faults and stalls, like clients of one file server.
//
// Each mount is served by a separate process (test/cmd/hostile): a process that used a mount which
// it serves itself could deadlock. The faults ("knobs") can be changed at any time.
//
// If all knobs are zero, it passes all calls through, and nothing is cached. It does not support
// permissions (only root can use it), file locks, extended attributes, and crashes of the server
// (sync has no effect).
package hostile
