package files

import (
	"cmp"
	"fmt"
	"syscall"
)

// FileSystem is the file system of a directory, according to statfs.
type FileSystem struct {
	Name  string
	Local bool // known to exist on one machine only
}

// fileSystems has the known file systems, by the magic numbers in linux/magic.h and in their own
// sources.
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

// FileSystemOf returns the file system of a path.
func FileSystemOf(path string) (FileSystem, error) {
	var stat syscall.Statfs_t
	if err := syscall.Statfs(path, &stat); err != nil {
		return FileSystem{}, err
	}
	// Type is signed, and has 32 bits on some machines.
	magic := stat.Type & 0xFFFFFFFF
	return cmp.Or(fileSystems[magic], FileSystem{Name: fmt.Sprintf("0x%x", magic)}), nil
}

// FileSystemNamed returns the file system with this name, which comes from a record.
func FileSystemNamed(name string) FileSystem {
	for _, known := range fileSystems {
		if known.Name == name {
			return known
		}
	}
	return FileSystem{Name: name}
}

// Space is the size of a file system and its free space, in bytes and in files. It does not include
// quotas, which few file systems report in this way.
type Space struct {
	Size      uint64
	Free      uint64 // for other users than root
	Files     uint64 // maximum number of files; 0 if there is no such number
	FreeFiles uint64
}

// SpaceOf returns the size and the free space of the file system of a path.
func SpaceOf(path string) (Space, error) {
	var stat syscall.Statfs_t
	if err := syscall.Statfs(path, &stat); err != nil {
		return Space{}, err
	}
	unit := uint64(stat.Bsize)
	return Space{Size: stat.Blocks * unit, Free: stat.Bavail * unit, Files: stat.Files, FreeFiles: stat.Ffree}, nil
}
