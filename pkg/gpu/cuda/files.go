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
	Why  string `json:"why,omitempty"` // it could not be opened, as ENOENT or EPERM; empty: it could
}

const (
	uvm      = "/dev/nvidia-uvm"
	caps     = "/dev/nvidia-caps"
	channels = "/dev/nvidia-caps-imex-channels"
)

// files opens the device files that CUDA needs besides those of the GPUs, and closes them at once. NVIDIA's guides to
// MIG and to IMEX have their modes: the capabilities of MIG can only be read.
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

func try(root, path string, mode int) File {
	fd, err := unix.Open(filepath.Join(root, path), mode|unix.O_CLOEXEC|unix.O_NONBLOCK|unix.O_NOCTTY, 0)
	if err != nil {
		code, _ := err.(unix.Errno)
		return File{Path: path, Why: unix.ErrnoName(code)}
	}
	_ = unix.Close(fd)
	return File{Path: path}
}

// module tells whether the kernel has nvidia_uvm; nil where it does not say.
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

// file returns what is known of a device file; nothing is if its path is empty.
func (f Facts) file(path string) File {
	for _, one := range f.Files {
		if one.Path == path {
			return one
		}
	}
	return File{}
}

// opened counts the files of a folder, and those of them that could be opened.
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
