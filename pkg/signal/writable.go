package signal

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/moby/sys/mountinfo"

	"github.com/bringupd/bringupd/internal/files"
)

// inodeFileSystems are FUSE file systems that identify an open directory by its inode, like the
// kernel's own. Others, such as sshfs, rclone and s3fs, may use paths: if another directory is
// renamed to the path of an open one, they use the other directory.
var inodeFileSystems = []string{"fuse.glusterfs", "fuse.mfs", "fuse.ceph-fuse", "fuse.juicefs"}

// Exposure describes how another user could replace a directory that is in use. It is empty if no
// other user can do so, as far as this node knows. On most file systems the permissions of the
// directories above do not matter, because a daemon keeps its directory open.
type Exposure struct {
	Reason string // the reason, as a clause
	Remedy string // the remedy
}

// CheckExposure returns the exposure of the run directory. It is also empty if the file system does
// not answer before ctx ends.
func (d *Dir) CheckExposure(ctx context.Context) Exposure {
	check := func(path string) (Exposure, error) { return ExposureOf(path), nil }
	found, _ := guardedCall(ctx, d.access, "check the parents of", d.path, check)
	return found
}

// ExposureOf returns the exposure of the directory at path.
func ExposureOf(path string) Exposure {
	mounts, err := mountinfo.GetMounts(mountinfo.ParentsFilter(path))
	if err != nil || len(mounts) == 0 {
		return Exposure{}
	}
	// If several file systems are mounted on the same path, the last one is visible.
	mount := mounts[0]
	for _, m := range mounts {
		if len(m.Mountpoint) >= len(mount.Mountpoint) {
			mount = m
		}
	}
	if !strings.HasPrefix(mount.FSType, "fuse") || slices.Contains(inodeFileSystems, mount.FSType) {
		return Exposure{}
	}
	found := ExposureAbove(path)
	if found.Reason != "" {
		found.Reason += ", and could replace the log directory, because " + mount.FSType +
			" finds files by path"
		found.Remedy += ", or give another --log-dir"
	}
	return found
}

// ExposureAbove returns the exposure of a path that is resolved again at each use, on any file
// system: other users must not be able to rename a directory above it.
func ExposureAbove(path string) Exposure {
	unknown := OverflowUser("/")
	for dir := filepath.Dir(path); ; dir = filepath.Dir(dir) {
		info, err := os.Lstat(dir)
		if err != nil {
			return Exposure{} // the permissions of a parent that is not visible are unknown
		}
		mode, owner := info.Mode(), files.OwnerOf(info)
		switch {
		case mode.Perm()&0o022 != 0 && mode&fs.ModeSticky == 0:
			return Exposure{
				Reason: fmt.Sprintf("other users can rename what is in %s (mode %04o, owner %s)",
					dir, mode.Perm(), describeUser(owner)),
				Remedy: "run chmod +t " + dir + " (or ask its owner to)",
			}
		case owner != 0 && owner != os.Geteuid() && owner != unknown:
			return Exposure{
				Reason: fmt.Sprintf("%s, who owns %s, can rename what is in it", describeUser(owner), dir),
				Remedy: "use a directory whose parents belong to you or root",
			}
		}
		if dir == filepath.Dir(dir) {
			return Exposure{}
		}
	}
}

// OverflowUser returns the user id by which this user namespace shows all users that it does not
// map, including root of the machine, according to the files below root. It returns -1 outside of
// user namespaces, where all users are known.
func OverflowUser(root string) int {
	// A kernel without user namespaces has no such file. The initial namespace maps all ids to
	// themselves.
	mapped, _ := os.ReadFile(filepath.Join(root, "proc/self/uid_map"))
	fields := strings.Fields(string(mapped))
	if len(fields) == 0 || slices.Equal(fields, []string{"0", "0", "4294967295"}) {
		return -1
	}
	text, _ := os.ReadFile(filepath.Join(root, "proc/sys/kernel/overflowuid"))
	id, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		return 65534 // DEFAULT_OVERFLOWUID of linux/highuid.h
	}
	return id
}
