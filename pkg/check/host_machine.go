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

	"github.com/bringupd/bringupd/pkg/process"
	"github.com/bringupd/bringupd/pkg/roles"
	"github.com/bringupd/bringupd/pkg/signal"
)

// machine reads the state of the local machine. It implements [kernel].
type machine struct{}

var _ kernel = machine{}

func (machine) Space(path string) (signal.Space, error) { return signal.SpaceOf(path) }

// Prove removes the file before it writes, so that nothing stays behind if the write never returns.
func (machine) Prove(dir string) error {
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

func (machine) Limit(resource int) (limit unix.Rlimit, err error) {
	return limit, unix.Getrlimit(resource, &limit)
}

// memoryOf returns how much memory this process may use, in bytes: the machine's memory or the
// lowest limit of its cgroups. It returns 0 if that is unknown.
func memoryOf(root string) uint64 {
	memory, limit := machineMemory(root), uint64(process.MemoryLimit(root))
	if memory == 0 || limit > 0 && limit < memory {
		return limit
	}
	return memory
}

// machineMemory returns the total memory of the machine in bytes, or 0 if it cannot be read.
func machineMemory(root string) (bytes uint64) {
	text, err := readText(root, "proc/meminfo")
	if _, bad := fmt.Sscanf(text, "MemTotal: %d kB", &bytes); err != nil || bad != nil {
		return 0
	}
	return bytes << 10
}

// cpuinfoStart is the number of bytes of /proc/cpuinfo that are read. They contain the first
// processor. Reading more is slow, because the kernel queries each processor's frequency.
const cpuinfoStart = 4096

// Traits returns the attributes by which the hosts of a job are compared, as of the last call of
// [Host.Look]. Equal nodes have exactly the same values, so the values must not contain anything
// specific to one node, such as names, addresses or event counts.
func (h *Host) Traits() []Trait {
	root := h.path("")
	traits := slices.Clone(h.nics)
	if release, err := readText(root, "proc/sys/kernel/osrelease"); err == nil {
		traits = append(traits, Trait{ID: Kernel, Value: release})
	}
	online, _ := readText(root, "sys/devices/system/cpu/online")
	if n := countCPUs(online); n > 0 {
		traits = append(traits, Trait{ID: CPU, Value: strings.TrimSpace(fmt.Sprintf("%d %s", n, modelOf(root)))})
	}
	var seconds float64
	uptime, _ := readText(root, "proc/uptime")
	if _, err := fmt.Sscan(uptime, &seconds); err == nil && seconds < justNow.Seconds() {
		traits = append(traits, Trait{ID: Uptime, Value: "within the hour"})
	}
	if h.GPUs && h.exists("/sys/module/nvidia") {
		traits = append(traits, h.imex()...)
		if cards, _ := h.devices(); len(cards) > 0 {
			traits = append(traits, h.peermem())
		}
	}
	return traits
}

// justNow is the time after a boot during which a node counts as just rebooted. Administrators
// usually check a node within an hour of its reboot.
const justNow = time.Hour

// exists reports whether a path exists below Root.
func (h *Host) exists(path string) bool {
	_, err := os.Lstat(h.path(path))
	return err == nil
}

// peermem reports whether a kernel module gives network cards access to GPU memory: nvidia_peermem
// or its predecessor. NCCL and UCX detect the modules in the same way (src/transport/net_ib/gdr.cc,
// src/uct/ib/base/ib_md.c). Without a module, DMA-BUF may still give that access, so "none" is fine
// if it is the same on all nodes.
func (h *Host) peermem() Trait {
	if h.exists("/sys/module/nvidia_peermem") || h.exists("/sys/kernel/mm/memory_peers/nv_mem") {
		return Trait{ID: PeerMem, Value: "loaded"}
	}
	return Trait{ID: PeerMem, Value: "none"}
}

// imex returns the state of IMEX, with which GPUs of one NVLink domain access each other's memory
// across nodes. It reports whether a channel exists, which after a reboot must be created again,
// and whether the service runs, which is seen by its cgroup (NVIDIA's IMEX guide, "IMEX Channels"
// and "Getting Started"). The numbers of the channels are left out because some may belong to other
// jobs; the node list of the service's domain is left out because each rack of a job has its own.
func (h *Host) imex() []Trait {
	channels, err := os.ReadDir(h.path("/dev/nvidia-caps-imex-channels"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	var has []string
	if len(channels) > 0 {
		has = append(has, "channels")
	}
	const unit = "system.slice/nvidia-imex.service"
	if h.exists("/sys/fs/cgroup/"+unit) || h.exists("/sys/fs/cgroup/systemd/"+unit) { // cgroup v2 and v1
		has = append(has, "service")
	}
	return []Trait{{ID: IMEX, Value: cmp.Or(strings.Join(has, " and "), "none")}}
}

// nicTraits returns the attributes of the network cards by which nodes are compared. The caller
// must be the check of the ports, because reading them may hang for ever in a card's firmware.
// Values that cannot be read are left out.
func (h *Host) nicTraits(ports []port) []Trait {
	devices, _ := h.devices() // cannot fail: their ports have just been read
	var models, firmware []string
	for _, device := range devices {
		kind, _ := readText(h.path(ibClass), device, "hca_type")
		models = append(models, cmp.Or(kind, "of no known model"))
		if version, err := readText(h.path(ibClass), device, "fw_ver"); err == nil && version != "" {
			firmware = append(firmware, strings.TrimSpace(kind+" "+version))
		}
	}
	traits := []Trait{{ID: NICs, Value: cmp.Or(tally(models, " "), "none")}}
	unread := slices.ContainsFunc(ports, func(p port) bool { return p.err != nil })
	if len(ports) > 0 && !unread {
		traits = append(traits, Trait{ID: NICRate, Value: cmp.Or(tally(activeRates(ports), "x"), "none active")})
		traits = append(traits, gidTrait(ports)...)
	}
	if len(firmware) > 0 {
		slices.Sort(firmware)
		traits = append(traits, Trait{ID: NICFirmware, Value: strings.Join(slices.Compact(firmware), ", ")})
	}
	return traits
}

// countCPUs returns the number of CPUs in a list in the kernel's format, such as 0-3,8. It returns
// 0 if the list is malformed.
func countCPUs(list string) int {
	all, err := roles.ExpandNodeList("["+list+"]", 0)
	if err != nil {
		return 0
	}
	return len(all)
}

// modelOf returns the model name of the first processor. It is empty if the kernel reports none, as
// on ARM.
func modelOf(root string) string {
	file, err := os.Open(filepath.Join(root, "proc/cpuinfo"))
	if err != nil {
		return ""
	}
	defer func() { _ = file.Close() }()
	lines := bufio.NewScanner(io.LimitReader(file, cpuinfoStart))
	for lines.Scan() {
		if name, value, found := strings.Cut(lines.Text(), ":"); found && strings.TrimSpace(name) == "model name" {
			return strings.TrimSpace(value)
		}
	}
	return ""
}
