package check

import (
	"bufio"
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/bringupd/bringupd/internal/files/fsinfo"
	"github.com/bringupd/bringupd/pkg/process/limits"
	"github.com/bringupd/bringupd/pkg/roles/launcher"
)

// localSystem reads the state of the local machine. It implements [hostSystem].
type localSystem struct{}

var _ hostSystem = localSystem{}

func (localSystem) FreeSpace(path string) (fsinfo.Space, error) { return fsinfo.SpaceOf(path) }

// TestWrite removes the file before it writes, so that nothing stays behind if the write never
// returns.
func (localSystem) TestWrite(dir string) error {
	file, err := os.CreateTemp(dir, ".bringupd-check-*")
	if err != nil {
		return err
	}
	err = os.Remove(file.Name())
	if err == nil {
		_, err = file.Write([]byte{'.'})
	}
	if err == nil {
		err = file.Sync()
	}
	// Some file systems do not support fsync and return one of these errors.
	if errors.Is(err, syscall.EINVAL) || errors.Is(err, syscall.ENOTSUP) {
		err = nil
	}
	return errors.Join(err, file.Close())
}

func (localSystem) ResourceLimit(resource int) (limit unix.Rlimit, err error) {
	return limit, unix.Getrlimit(resource, &limit)
}

// availableMemory returns how much memory this process may use, in bytes: the machine's memory or
// the lowest limit of its cgroups. It returns 0 if that is unknown.
func availableMemory(root string) uint64 {
	memory, limit := totalMemory(root), uint64(limits.MemoryLimit(root))
	if memory == 0 || limit > 0 && limit < memory {
		return limit
	}
	return memory
}

// totalMemory returns the total memory of the machine in bytes, or 0 if it cannot be read.
func totalMemory(root string) (bytes uint64) {
	text, err := readTrimmed(root, "proc/meminfo")
	if _, bad := fmt.Sscanf(text, "MemTotal: %d kB", &bytes); err != nil || bad != nil {
		return 0
	}
	return bytes << 10
}

// cpuinfoReadLimit is the number of bytes of /proc/cpuinfo that are read. They contain the first
// processor. Reading more is slow, because the kernel queries each processor's frequency.
const cpuinfoReadLimit = 4096

// Attributes returns the attributes by which the hosts of a job are compared, as of the last call
// of [Host.Inspect]. Equal nodes have exactly the same values, so the values must not contain
// anything specific to one node, such as names, addresses or event counts.
func (h *Host) Attributes() []Attribute {
	root := h.hostPath("")
	traits := slices.Clone(h.lastNICs)
	if release, err := readTrimmed(root, "proc/sys/kernel/osrelease"); err == nil {
		traits = append(traits, Attribute{ID: AttrKernel, Value: release})
	}
	online, _ := readTrimmed(root, "sys/devices/system/cpu/online")
	if n := countCPUs(online); n > 0 {
		traits = append(traits, Attribute{ID: AttrCPU, Value: strings.TrimSpace(fmt.Sprintf("%d %s", n, cpuModelName(root)))})
	}
	var seconds float64
	uptime, _ := readTrimmed(root, "proc/uptime")
	if _, err := fmt.Sscan(uptime, &seconds); err == nil && seconds < recentBootPeriod.Seconds() {
		traits = append(traits, Attribute{ID: AttrUptime, Value: "within the hour"})
	}
	if h.GPUs && h.pathExists("/sys/module/nvidia") {
		traits = append(traits, h.imexAttributes()...)
		if cards, _ := h.rdmaDevices(); len(cards) > 0 {
			traits = append(traits, h.peermemAttribute())
		}
	}
	return traits
}

// recentBootPeriod is the time after a boot during which a node counts as just rebooted.
// Administrators usually check a node within an hour of its reboot.
const recentBootPeriod = time.Hour

// pathExists reports whether a path exists below Root.
func (h *Host) pathExists(path string) bool {
	_, err := os.Lstat(h.hostPath(path))
	return err == nil
}

// peermemAttribute reports whether a kernel module gives network cards access to GPU memory:
// nvidia_peermem or its predecessor. NCCL and UCX detect the modules in the same way
// (src/transport/net_ib/gdr.cc, src/uct/ib/base/ib_md.c). Without a module, DMA-BUF may still give
// that access, so "none" is fine if it is the same on all nodes.
func (h *Host) peermemAttribute() Attribute {
	if h.pathExists("/sys/module/nvidia_peermem") || h.pathExists("/sys/kernel/mm/memory_peers/nv_mem") {
		return Attribute{ID: AttrPeerMem, Value: "loaded"}
	}
	return Attribute{ID: AttrPeerMem, Value: "none"}
}

// imexAttributes returns the state of IMEX, with which GPUs of one NVLink domain access each
// other's memory across nodes. It reports whether a channel exists, which after a reboot must be
// created again, and whether the service runs, which is seen by its cgroup (NVIDIA's IMEX guide,
// "IMEX Channels" and "Getting Started"). The numbers of the channels are left out because some may
// belong to other jobs; the node list of the service's domain is left out because each rack of a
// job has its own.
func (h *Host) imexAttributes() []Attribute {
	channels, err := os.ReadDir(h.hostPath("/dev/nvidia-caps-imex-channels"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	var has []string
	if len(channels) > 0 {
		has = append(has, "channels")
	}
	const unit = "system.slice/nvidia-imex.service"
	// cgroup v2 and v1
	if h.pathExists("/sys/fs/cgroup/"+unit) || h.pathExists("/sys/fs/cgroup/systemd/"+unit) {
		has = append(has, "service")
	}
	return []Attribute{{ID: AttrIMEX, Value: cmp.Or(strings.Join(has, " and "), "none")}}
}

// readNICAttributes returns the attributes of the network cards by which nodes are compared. The
// caller must be the check of the ports, because reading them may hang for ever in a card's
// firmware. Values that cannot be read are left out.
func (h *Host) readNICAttributes(ports []rdmaPort) []Attribute {
	devices, _ := h.rdmaDevices() // cannot fail: their ports have just been read
	var models, firmware []string
	for _, device := range devices {
		kind, _ := readTrimmed(h.hostPath(ibClass), device, "hca_type")
		models = append(models, cmp.Or(kind, "unknown model"))
		if version, err := readTrimmed(h.hostPath(ibClass), device, "fw_ver"); err == nil && version != "" {
			firmware = append(firmware, strings.TrimSpace(kind+" "+version))
		}
	}
	traits := []Attribute{{ID: AttrNICs, Value: cmp.Or(formatCounts(models, " "), "none")}}
	unread := slices.ContainsFunc(ports, func(p rdmaPort) bool { return p.err != nil })
	if len(ports) > 0 && !unread {
		traits = append(traits, Attribute{ID: AttrNICRate, Value: cmp.Or(formatCounts(activeRates(ports), "x"), "none active")})
		traits = append(traits, gidAttributes(ports)...)
	}
	if len(firmware) > 0 {
		slices.Sort(firmware)
		traits = append(traits, Attribute{ID: AttrNICFirmware, Value: strings.Join(slices.Compact(firmware), ", ")})
	}
	return traits
}

// countCPUs returns the number of CPUs in a list in the kernel's format, such as 0-3,8. It returns
// 0 if the list is malformed.
func countCPUs(list string) int {
	all, err := launcher.ExpandNodeList("["+list+"]", 0)
	if err != nil {
		return 0
	}
	return len(all)
}

// cpuModelName returns the model name of the first processor. It is empty if the kernel reports
// none, as on ARM.
func cpuModelName(root string) string {
	file, err := os.Open(filepath.Join(root, "proc/cpuinfo"))
	if err != nil {
		return ""
	}
	defer func() { _ = file.Close() }()
	lines := bufio.NewScanner(io.LimitReader(file, cpuinfoReadLimit))
	for lines.Scan() {
		if name, value, found := strings.Cut(lines.Text(), ":"); found && strings.TrimSpace(name) == "model name" {
			return strings.TrimSpace(value)
		}
	}
	return ""
}
