package signal

import (
	"context"
	"syscall"
)

// Space is the room on a file system, in bytes and in files. A quota is not in
// it: few file systems show one so.
type Space struct {
	Size      uint64
	Free      uint64 // for those who are not root
	Files     uint64 // how many it can hold; 0 where there is no such number
	FreeFiles uint64
}

// Space returns what room the share has. It is one call, and the same for all
// nodes: the head alone asks.
func (d *Dir) Space(ctx context.Context) (Space, error) {
	return guarded(ctx, d.via.Meter, "ask for the space of", d.path, func() (Space, error) { return d.via.Share.Space(d.path) })
}

// SpaceOf returns what room the file system of a path has.
func SpaceOf(path string) (Space, error) {
	var stat syscall.Statfs_t
	if err := syscall.Statfs(path, &stat); err != nil {
		return Space{}, err
	}
	unit := uint64(stat.Bsize)
	return Space{Size: stat.Blocks * unit, Free: stat.Bavail * unit, Files: stat.Files, FreeFiles: stat.Ffree}, nil
}
