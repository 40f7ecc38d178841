package signal

import (
	"cmp"
	"context"
	"fmt"
	"syscall"
)

// FileSystem is what statfs says a directory lies on.
type FileSystem struct {
	Name  string
	Local bool // known to live on one machine alone
}

// fileSystems names the ones worth telling apart, by the magic numbers of
// linux/magic.h and the file systems' own sources.
var fileSystems = map[int64]FileSystem{
	0xEF53:     {"ext4", true},
	0x58465342: {"xfs", true},
	0x9123683E: {"btrfs", true},
	0x2FC12FC1: {"zfs", true},
	0xF2F52010: {"f2fs", true},
	0x01021994: {"tmpfs", true},
	0x858458F6: {"ramfs", true},
	0x794C7630: {"overlay", true},
	0x6969:     {"nfs", false},
	0xFF534D42: {"cifs", false},
	0xFE534D42: {"smb2", false},
	0x65735546: {"fuse", false},
	0x0BD00BD0: {"lustre", false},
	0x47504653: {"gpfs", false},
	0x00C36400: {"ceph", false},
	0x19830326: {"beegfs", false},
	0x01021997: {"9p", false},
	0x6A656A63: {"virtiofs", false},
}

func fileSystemOf(path string) (FileSystem, error) {
	var stat syscall.Statfs_t
	if err := syscall.Statfs(path, &stat); err != nil {
		return FileSystem{}, err
	}
	// Type is signed, and 32 bits wide on some machines.
	magic := stat.Type & 0xFFFFFFFF
	return cmp.Or(fileSystems[magic], FileSystem{Name: fmt.Sprintf("0x%x", magic)}), nil
}

// named returns what is known of the file system of that name, as a record
// tells it.
func named(name string) FileSystem {
	for _, known := range fileSystems {
		if known.Name == name {
			return known
		}
	}
	return FileSystem{Name: name}
}

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
