package cuda

import (
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"
)

// DeviceFile is a device file of NVIDIA's driver.
type DeviceFile struct {
	Path string `json:"path"` // without the root
	// why it could not be opened, for example ENOENT or EPERM; empty if it could
	Reason string `json:"why,omitempty"`
}

const (
	uvmPath        = "/dev/nvidia-uvm"
	capsDir        = "/dev/nvidia-caps"
	imexChannelDir = "/dev/nvidia-caps-imex-channels"
)

// openDeviceFiles opens and closes the device files that CUDA needs in addition to those of the
// GPUs. The open modes are those in NVIDIA's guides to MIG and to IMEX: the files of MIG
// capabilities can only be opened for reading.
func openDeviceFiles(root string) []DeviceFile {
	all := []DeviceFile{tryOpen(root, uvmPath, unix.O_RDWR), tryOpen(root, uvmPath+"-tools", unix.O_RDWR)}
	for _, folder := range []struct {
		path string
		mode int
	}{{capsDir, unix.O_RDONLY}, {imexChannelDir, unix.O_RDWR}} {
		entries, _ := os.ReadDir(filepath.Join(root, folder.path))
		for _, entry := range entries {
			all = append(all, tryOpen(root, folder.path+"/"+entry.Name(), folder.mode))
		}
	}
	return all
}

// tryOpen opens and closes one file, and records why that failed.
func tryOpen(root, path string, mode int) DeviceFile {
	fd, err := unix.Open(filepath.Join(root, path), mode|unix.O_CLOEXEC|unix.O_NONBLOCK|unix.O_NOCTTY, 0)
	if err != nil {
		code, _ := err.(unix.Errno)
		return DeviceFile{Path: path, Reason: unix.ErrnoName(code)}
	}
	_ = unix.Close(fd)
	return DeviceFile{Path: path}
}

// isModuleLoaded reports whether the kernel has nvidia_uvm, or nil if that is unknown.
func isModuleLoaded(root string) *bool {
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

// deviceFile returns the inspected file with the given path, or a DeviceFile without a path if it
// was not inspected.
func (f Facts) deviceFile(path string) DeviceFile {
	for _, one := range f.Files {
		if one.Path == path {
			return one
		}
	}
	return DeviceFile{}
}

// countOpened returns how many files of a directory could be opened, and how many there are.
func (f Facts) countOpened(folder string) (opened, all int) {
	for _, one := range f.Files {
		if filepath.Dir(one.Path) != folder {
			continue
		}
		all++
		if one.Reason == "" {
			opened++
		}
	}
	return opened, all
}
