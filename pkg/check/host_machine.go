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

// machine is the machine itself.
type machine struct{}

var _ kernel = machine{}

func (machine) Space(path string) (signal.Space, error) { return signal.SpaceOf(path) }

// Prove removes the file before it writes, so that nothing stays behind where the write never returns.
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
	// Some file systems have nothing to sync, and say so.
	if errors.Is(err, syscall.EINVAL) || errors.Is(err, syscall.ENOTSUP) {
		err = nil
	}
	return errors.Join(err, file.Close())
}

func (machine) Limit(resource int) (limit unix.Rlimit, err error) {
	return limit, unix.Getrlimit(resource, &limit)
}

// memoryOf returns how much memory this process may use, in bytes: the
// machine's, or the least limit of its cgroup. 0 where it can't be told.
func memoryOf(root string) uint64 {
	memory, limit := machineMemory(root), uint64(process.MemoryLimit(root))
	if memory == 0 || limit > 0 && limit < memory {
		return limit
	}
	return memory
}

func machineMemory(root string) (bytes uint64) {
	text, err := readText(root, "proc/meminfo")
	if _, bad := fmt.Sscanf(text, "MemTotal: %d kB", &bytes); err != nil || bad != nil {
		return 0
	}
	return bytes << 10
}

// cpuinfoStart is how much of /proc/cpuinfo has the first processor in it. More
// is not read: the kernel asks each processor for its frequency.
const cpuinfoStart = 4096

// Traits are what the hosts of a job are compared by, as the last look has seen them. Nodes that are alike have the same,
// to the letter: nothing is in them that only one node has, as a name, an address or a count of what has happened.
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

// justNow is for how long a node is one that was just rebooted: whoever does it comes back to look within the hour.
const justNow = time.Hour

func (h *Host) exists(path string) bool {
	_, err := os.Lstat(h.path(path))
	return err == nil
}

// peermem tells whether network cards can reach the memory of GPUs by a kernel module, nvidia_peermem or the one before
// it, which NCCL and UCX find in the same way (src/transport/net_ib/gdr.cc, src/uct/ib/base/ib_md.c). Without it they may
// still do so by DMA-BUF: none is well where all nodes have none.
func (h *Host) peermem() Trait {
	if h.exists("/sys/module/nvidia_peermem") || h.exists("/sys/kernel/mm/memory_peers/nv_mem") {
		return Trait{ID: PeerMem, Value: "loaded"}
	}
	return Trait{ID: PeerMem, Value: "none"}
}

// imex tells what the node has of IMEX, by which GPUs reach each other's memory between nodes of one NVLink domain: a
// channel, which is not there after a reboot unless somebody makes it, and the service, whose cgroup there is for as long
// as it runs (NVIDIA's IMEX guide, "IMEX Channels" and "Getting Started"). Not told are the channels' numbers, for other
// jobs may have some, and the list of nodes in the service's domain, for each rack of a job has another.
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
	if h.exists("/sys/fs/cgroup/"+unit) || h.exists("/sys/fs/cgroup/systemd/"+unit) { // of cgroup v2 and v1
		has = append(has, "service")
	}
	return []Trait{{ID: IMEX, Value: cmp.Or(strings.Join(has, " and "), "none")}}
}

// nicTraits are what nodes are compared by of their network cards. They are read by the look at the ports, which may take
// a card's firmware for ever. What could not be read is left out.
func (h *Host) nicTraits(ports []port) []Trait {
	devices, _ := h.devices() // whose ports have just been read
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

// countCPUs counts a list as the kernel writes it: 0-3,8. 0 where it is none.
func countCPUs(list string) int {
	all, err := roles.ExpandNodeList("["+list+"]", 0)
	if err != nil {
		return 0
	}
	return len(all)
}

// modelOf returns the name of the first processor's model; empty where the kernel has none, as on ARM.
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
