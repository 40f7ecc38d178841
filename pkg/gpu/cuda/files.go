package cuda

import (
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// File is a device file of NVIDIA's driver.
type File struct {
	Path string `json:"path"`          // without the root
	Why  string `json:"why,omitempty"` // why it could not be opened, for example ENOENT or EPERM; empty if it could
}

const (
	uvm      = "/dev/nvidia-uvm"
	caps     = "/dev/nvidia-caps"
	channels = "/dev/nvidia-caps-imex-channels"
)

// files opens and closes the device files that CUDA needs in addition to those of the GPUs. The
// open modes are those in NVIDIA's guides to MIG and to IMEX: the files of MIG capabilities can
// only be opened for reading.
func files(root string) []File {
	all := []File{try(root, uvm, unix.O_RDWR), try(root, uvm+"-tools", unix.O_RDWR)}
	for _, folder := range []struct {
		path string
		mode int
	}{{caps, unix.O_RDONLY}, {channels, unix.O_RDWR}} {
		entries, _ := os.ReadDir(filepath.Join(root, folder.path))
		for _, entry := range entries {
			all = append(all, try(root, folder.path+"/"+entry.Name(), folder.mode))
		}
	}
	return all
}

// try opens and closes one file, and records why that failed.
func try(root, path string, mode int) File {
	fd, err := unix.Open(filepath.Join(root, path), mode|unix.O_CLOEXEC|unix.O_NONBLOCK|unix.O_NOCTTY, 0)
	if err != nil {
		code, _ := err.(unix.Errno)
		return File{Path: path, Why: unix.ErrnoName(code)}
	}
	_ = unix.Close(fd)
	return File{Path: path}
}

// module reports whether the kernel has nvidia_uvm, or nil if that is unknown.
func module(root string) *bool {
	_, err := os.Stat(filepath.Join(root, "/proc/driver/nvidia-uvm"))
	loaded := err == nil
	text, err := os.ReadFile(filepath.Join(root, "/proc/modules"))
	if !loaded && err != nil {
		return nil
	}
	for line := range strings.Lines(string(text)) {
		loaded = loaded || strings.HasPrefix(line, "nvidia_uvm ")
	}
	return &loaded
}

// file returns the inspected file with the given path, or a File without a path if it was not
// inspected.
func (f Facts) file(path string) File {
	for _, one := range f.Files {
		if one.Path == path {
			return one
		}
	}
	return File{}
}

// opened returns how many files of a directory could be opened, and how many there are.
func (f Facts) opened(folder string) (opened, all int) {
	for _, one := range f.Files {
		if filepath.Dir(one.Path) != folder {
			continue
		}
		all++
		if one.Why == "" {
			opened++
		}
	}
	return opened, all
}
