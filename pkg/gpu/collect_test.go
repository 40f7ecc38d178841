package gpu

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
)

// fakeLibrary answers as told. A call that it lacks, or that comes before Init
// or after Shutdown, is one that would end the process.
type fakeLibrary struct {
	t       *testing.T
	initial Return
	lacks   map[string]bool
	handles []Return
	devices []*fakeDevice

	mu    sync.Mutex
	ready bool
	calls []string
}

func (l *fakeLibrary) called(function string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.calls = append(l.calls, function)
	if !l.ready || l.lacks[function] {
		l.t.Errorf("%s is called, which ends the process", function)
	}
}

func (l *fakeLibrary) Init() Return {
	l.ready = l.initial == Success
	return l.initial
}

func (l *fakeLibrary) Shutdown() Return {
	l.called("nvmlShutdown")
	l.ready = false
	return Success
}

func (l *fakeLibrary) Has(function string) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.ready {
		l.t.Errorf("%s is looked up before the library is open", function)
	}
	return !l.lacks[function]
}

func (l *fakeLibrary) Device(index int) (device, Return) {
	if ret := l.handles[index]; ret != Success {
		return nil, ret
	}
	return l.devices[index], Success
}

func (l *fakeLibrary) DriverVersion() (string, Return) { return "570.86.15", Success }
func (l *fakeLibrary) CUDAVersion() (int, Return)      { return 12080, Success }
func (l *fakeLibrary) NVMLVersion() (string, Return)   { return "12.570.86.15", Success }
func (l *fakeLibrary) DeviceCount() (int, Return)      { return len(l.handles), Success }

// fakeDevice is a GPU of which only what these tests ask can be asked: the rest
// is the mock's, see nvml_cgo_test.go.
type fakeDevice struct {
	device
	lib     *fakeLibrary
	fabrics map[int]Return
	links   []Return
	clocks  []uint64
	next    int
	fields  []field
}

func (d *fakeDevice) UUID() (string, Return)   { return "GPU-1", Success }
func (d *fakeDevice) Name() (string, Return)   { return "NVIDIA H100", Success }
func (d *fakeDevice) Serial() (string, Return) { return "", NoPermission }
func (d *fakeDevice) VBIOS() (string, Return)  { return "", NotSupported }
func (d *fakeDevice) GSP() (string, Return) {
	d.lib.called("nvmlDeviceGetGspFirmwareVersion")
	return "570", Success
}
func (d *fakeDevice) Bus() (string, Return)              { return "00000000:3B:00.0", Success }
func (d *fakeDevice) NUMANode() (int, Return)            { return 0, NotSupported }
func (d *fakeDevice) Minor() (int, Return)               { return 0, Success }
func (d *fakeDevice) Persistence() (bool, Return)        { return false, Success }
func (d *fakeDevice) ComputeMode() (int, Return)         { return 0, Success }
func (d *fakeDevice) ECC() (Switch, Return)              { return Switch{Current: true}, Success }
func (d *fakeDevice) MIGMode() (Switch, Return)          { return Switch{}, NotSupported }
func (d *fakeDevice) Load() (int, Return)                { return 0, Success }
func (d *fakeDevice) Memory() (Memory, Return)           { return Memory{Total: 80, Used: 2}, Success }
func (d *fakeDevice) Processes() ([]Process, Return)     { return []Process{{PID: 4711, Used: 5}}, Success }
func (d *fakeDevice) RemappedRows() (Remapped, Return)   { return Remapped{}, GPUIsLost }
func (d *fakeDevice) RetiredPages() (Retired, Return)    { return Retired{}, NotSupported }
func (d *fakeDevice) PCIeReplays() (int, Return)         { return 0, Success }
func (d *fakeDevice) LinkTo(device) (int, Return)        { return 0, Success }
func (d *fakeDevice) PCIeWidth() (int, int, Return)      { return 8, 16, Success }
func (d *fakeDevice) PCIeGeneration() (int, int, Return) { return 1, 5, Success }

func (d *fakeDevice) MemoryV2() (Memory, Return) {
	d.lib.called("nvmlDeviceGetMemoryInfo_v2")
	return Memory{Total: 80, Used: 1, Reserved: 1}, Success
}

func (d *fakeDevice) Fields(ids ...uint32) ([]field, Return) {
	if len(ids) != 1 || ids[0] != 230 {
		return nil, InvalidArgument
	}
	return d.fields, Success
}

func (d *fakeDevice) ErrorCount(uncorrected bool, place location) (uint64, Return) {
	switch {
	case place == inDRAM && !uncorrected:
		return 7, Success
	case place == inSRAM && uncorrected:
		return 2, Success
	}
	return 0, Success
}

func (d *fakeDevice) SRAM() (SRAM, Return) {
	d.lib.called("nvmlDeviceGetSramEccErrorStatus")
	return SRAM{Errors: Errors{Uncorrected: 2}}, Success
}

func (d *fakeDevice) Fabric(version int) (Fabric, Return) {
	function := "nvmlDeviceGetGpuFabricInfoV"
	if version == 1 {
		function = "nvmlDeviceGetGpuFabricInfo"
	}
	d.lib.called(function)
	return Fabric{State: version, Clique: 9}, d.fabrics[version]
}

func (d *fakeDevice) LinkActive(link int) (bool, Return) {
	if link >= len(d.links) {
		return false, NotSupported
	}
	return d.links[link] == Success, d.links[link]
}

func (d *fakeDevice) ClockReasons() (uint64, Return) {
	d.lib.called("nvmlDeviceGetCurrentClocksEventReasons")
	return d.reasons()
}

func (d *fakeDevice) ThrottleReasons() (uint64, Return) { return d.reasons() }

func (d *fakeDevice) reasons() (uint64, Return) {
	d.next++
	return d.clocks[d.next-1], Success
}

// fakeNode is a machine with GPUs, the handles of which are had or not.
func fakeNode(t *testing.T, handles ...Return) *fakeLibrary {
	l := &fakeLibrary{t: t, initial: Success, lacks: make(map[string]bool), handles: handles}
	for range handles {
		l.devices = append(l.devices, &fakeDevice{
			lib: l, fabrics: map[int]Return{3: Success}, links: []Return{Success, Success}, clocks: []uint64{1, 0x40, 0},
			fields: []field{number(Success, 1, 0)},
		})
	}
	return l
}

// number is a field that holds one.
func number(ret Return, kind uint32, value uint64) field {
	f := field{ret: ret, kind: kind}
	binary.NativeEndian.PutUint64(f.raw[:], value)
	return f
}

func (l *fakeLibrary) collect(root string) Facts {
	c := collector{lib: l, root: root, asked: newQuestions(), pause: func(time.Duration) {}}
	return c.collect()
}

func TestCollectWithoutInit(t *testing.T) {
	for _, ret := range []Return{NotSupported, DriverNotLoaded, LibraryNotFound, GPUIsLost, ResetRequired, OperatingSystem, LibRMVersion, "NOT_READY", UnknownError} {
		l := fakeNode(t, Success)
		l.initial = ret
		want := Facts{Version: FactsVersion, Init: ret}
		if diff := cmp.Diff(want, l.collect(t.TempDir())); diff != "" {
			t.Errorf("%s:\n%s", ret, diff)
		}
		if len(l.calls) != 0 {
			t.Errorf("%s: calls %v", ret, l.calls)
		}
	}
}

func TestCollectAllThatCanBeHad(t *testing.T) {
	l := fakeNode(t, Success)
	f := l.collect(t.TempDir())
	summary := GPU{
		Index: 0, Handle: Success,
		UUID: Read("GPU-1"), Bus: Read("0000:3b:00.0"), Name: Read("NVIDIA H100"), Serial: Unread[string](NoPermission),
		VBIOS: Unread[string](NotSupported), GSP: Read("570"), Memory: Read(Memory{Total: 80, Used: 1, Reserved: 1}),
		Numa: Unread[int](NotSupported), Minor: Read(0), Persist: Read(false), Compute: Read(0),
		Recovery: Read(0), Remapped: Unread[Remapped](GPUIsLost), Retired: Unread[Retired](NotSupported),
		ECC: Read(Switch{Current: true}), DRAM: Read(Errors{Corrected: 7}), SRAM: Read(SRAM{Errors: Errors{Uncorrected: 2}}),
		Fabric: Read(Fabric{State: 3, Clique: 9}), Links: []Link{{0, Read(true)}, {1, Read(true)}},
		PCIe: Read(PCIe{Width: 8, MaxWidth: 16, Gen: 1, MaxGen: 5}), Replays: Read(0), Clocks: Read([]uint64{1, 0x40, 0}),
		Load: Read(0), MIG: Unread[Switch](NotSupported), Procs: Read([]Process{{PID: 4711, Used: 5}}),
	}
	want := Facts{
		Version: FactsVersion, Init: Success, Driver: Read("570.86.15"), CUDA: Read("12.8"), NVML: Read("12.570.86.15"),
		Count: Read(1), GPUs: []GPU{summary},
	}
	if diff := cmp.Diff(want, f); diff != "" {
		t.Error(diff)
	}
	if last := l.calls[len(l.calls)-1]; last != "nvmlShutdown" {
		t.Errorf("the last call is %s", last)
	}
}

func TestCollectFromOlderDriver(t *testing.T) {
	l := fakeNode(t, Success, Success)
	for _, function := range []string{
		"nvmlDeviceGetMemoryInfo_v2", "nvmlDeviceGetGspFirmwareVersion", "nvmlDeviceGetSramEccErrorStatus", "nvmlDeviceGetGpuFabricInfoV",
		"nvmlDeviceGetGpuFabricInfo", "nvmlDeviceGetCurrentClocksEventReasons", "nvmlShutdown",
	} {
		l.lacks[function] = true
	}
	g := l.collect(t.TempDir()).GPUs[1]
	if diff := cmp.Diff(Read(Memory{Total: 80, Used: 2}), g.Memory); diff != "" {
		t.Error("memory", diff)
	}
	if diff := cmp.Diff(Read(SRAM{Errors: Errors{Uncorrected: 2}, Unknown: true}), g.SRAM); diff != "" {
		t.Error("SRAM", diff)
	}
	if diff := cmp.Diff(Read([]uint64{1, 0x40, 0}), g.Clocks); diff != "" {
		t.Error("clocks", diff)
	}
	if g.GSP.Why != FunctionNotFound || g.Fabric.Why != FunctionNotFound {
		t.Errorf("GSP %+v, fabric %+v", g.GSP, g.Fabric)
	}
}

func TestFabricForms(t *testing.T) {
	for _, test := range []struct {
		name    string
		returns map[int]Return
		lacks   string
		state   int
		why     Return
	}{
		{"the newest", map[int]Return{3: Success}, "", 3, ""},
		{"a library before the third", map[int]Return{3: versionMismatch, 2: Success}, "", 2, ""},
		{"one that says it does not support it", map[int]Return{3: NotSupported, 2: Success}, "", 2, ""},
		{"one before the second", map[int]Return{3: versionMismatch, 2: versionMismatch, 1: Success}, "", 1, ""},
		{"one with the old function only", map[int]Return{1: Success}, "nvmlDeviceGetGpuFabricInfoV", 1, ""},
		{"a GPU without a fabric", map[int]Return{3: NotSupported, 2: NotSupported, 1: NotSupported}, "", 0, NotSupported},
		{"a GPU that is lost", map[int]Return{3: GPUIsLost, 2: Success, 1: Success}, "", 0, GPUIsLost},
	} {
		l := fakeNode(t, Success)
		l.devices[0].fabrics = test.returns
		l.lacks[test.lacks] = true
		got := l.collect(t.TempDir()).GPUs[0].Fabric
		if fabric, _ := got.Get(); fabric.State != test.state || got.Why != test.why {
			t.Errorf("%s: got %+v", test.name, got)
		}
	}
}

func TestRecoveryField(t *testing.T) {
	for _, test := range []struct {
		name  string
		field field
		want  Reading[int]
	}{
		{"none", number(Success, 1, 0), Read(0)},
		{"reboot, beside what the union holds", number(Success, 1, 0xdead00000002), Read(2)},
		{"as a long", number(Success, 3, 5), Read(5)},
		{"as an int", number(Success, 5, 0xffffffff), Read(-1)},
		{"as a short", number(Success, 6, 0x10004), Read(4)},
		{"as what is no number", number(Success, 0, 1), Unread[int](UnknownError)},
		{"the call was well, the field not", number(NotSupported, 1, 0), Unread[int](NotSupported)},
	} {
		l := fakeNode(t, Success)
		l.devices[0].fields = []field{test.field}
		if diff := cmp.Diff(test.want, l.collect(t.TempDir()).GPUs[0].Recovery); diff != "" {
			t.Errorf("%s: %s", test.name, diff)
		}
	}
}

func TestLinksEndAtTheLast(t *testing.T) {
	for _, test := range []struct {
		name string
		says []Return
		want int
	}{
		{"none", []Return{NotSupported}, 0},
		{"two, and no third", []Return{Success, Success, InvalidArgument, Success}, 2},
		{"one that can't be read among others", []Return{Success, UnknownError, Success}, 3},
		{"more than there can be", make([]Return, 50), mostLinks},
	} {
		l := fakeNode(t, Success)
		for i, ret := range test.says {
			if ret == "" {
				test.says[i] = Success
			}
		}
		l.devices[0].links = test.says
		if got := l.collect(t.TempDir()).GPUs[0].Links; len(got) != test.want {
			t.Errorf("%s: got %+v", test.name, got)
		}
	}
}

func TestLostGPU(t *testing.T) {
	root := t.TempDir()
	for bus, ids := range map[string][2]string{
		"0000:3b:00.0": {"0x10de", "0x030200"}, "0000:86:00.0": {"0x10de", "0x030200"},
		"0000:87:00.0": {"0x10de", "0x068000"}, "0000:02:00.0": {"0x102b", "0x030000"},
	} {
		addPCI(t, root, bus, ids[0], ids[1])
	}
	for _, ret := range []Return{GPUIsLost, ResetRequired, UnknownError, NoPermission} {
		l := fakeNode(t, Success, ret)
		f := l.collect(root)
		want := GPU{Index: 1, Handle: ret, Bus: Read("0000:86:00.0")}
		if diff := cmp.Diff(want, f.GPUs[1]); diff != "" {
			t.Errorf("%s: %s", ret, diff)
		}
		if name, _ := f.GPUs[0].Name.Get(); name == "" || len(f.Pairs) != 0 {
			t.Errorf("%s: the other one is %+v, the pairs %+v", ret, f.GPUs[0], f.Pairs)
		}
	}
	if f := fakeNode(t, Success, GPUIsLost, GPUIsLost).collect(root); f.GPUs[1].Bus.Asked() || f.GPUs[2].Bus.Asked() {
		t.Error("an address is guessed")
	}
}

func TestPairsOfThoseThatCanBeHad(t *testing.T) {
	f := fakeNode(t, Success, GPUIsLost, Success, Success).collect(t.TempDir())
	want := []Pair{{0, 2, Read(0)}, {0, 3, Read(0)}, {2, 3, Read(0)}}
	if diff := cmp.Diff(want, f.Pairs); diff != "" {
		t.Error(diff)
	}
}

func TestProcessNames(t *testing.T) {
	for _, test := range []struct{ namespace, want string }{
		{firstPIDs, "python3"},
		{"pid:[4026532999]", ""}, // a container: 4711 is another process here
	} {
		root := t.TempDir()
		dir := filepath.Join(root, "proc/self/ns")
		if err := errors.Join(os.MkdirAll(dir, 0o755), os.MkdirAll(filepath.Join(root, "proc/4711"), 0o755),
			os.Symlink(test.namespace, filepath.Join(dir, "pid")),
			os.WriteFile(filepath.Join(root, "proc/4711/comm"), []byte("python3\n"), 0o644)); err != nil {
			t.Fatal(err)
		}
		processes, _ := fakeNode(t, Success).collect(root).GPUs[0].Procs.Get()
		if len(processes) != 1 || processes[0].Name != test.want {
			t.Errorf("%s: got %+v", test.namespace, processes)
		}
	}
}

func TestClocksAreLookedAtOverTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := collector{lib: fakeNode(t, Success, Success, Success), root: t.TempDir(), asked: newQuestions(), pause: time.Sleep}
		began := time.Now()
		c.collect()
		if took := time.Since(began); took != 200*time.Millisecond {
			t.Errorf("three GPUs took %v", took)
		}
	})
}

func TestAddressesAreThoseOfSysfs(t *testing.T) {
	for bus, want := range map[string]string{
		"00000000:3B:00.0": "0000:3b:00.0", "0000:3B:00.0": "0000:3b:00.0", "00010000:01:00.0": "10000:01:00.0", "": "", "odd": "odd",
	} {
		if got := busText(bus); got != want {
			t.Errorf("%s is %s", bus, got)
		}
	}
	if got := cudaText(11040); got != "11.4" {
		t.Errorf("11040 is %s", got)
	}
	if got := clusterText([16]byte{0: 0xab, 15: 1}); got != "ab000000-0000-0000-0000-000000000001" {
		t.Errorf("the cluster is %s", got)
	}
}

func TestWhatADriverHangsIn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		asked := newQuestions()
		var said bytes.Buffer
		stop := tellWaits(asked, &said, time.Second)
		asked.begin(3, "nvmlDeviceGetRemappedRows")
		asked.begin(1, "nvmlDeviceGetName")
		asked.begin(system0, "nvmlInit_v2")
		asked.end(1)
		time.Sleep(3500 * time.Millisecond)
		asked.end(3)
		asked.end(system0)
		time.Sleep(5 * time.Second)
		stop()
		if got := said.String(); got != "waiting for nvmlInit_v2, nvmlDeviceGetRemappedRows of GPU 3\n" {
			t.Errorf("it said %q", got)
		}
	})
}

func addPCI(t *testing.T, root, bus, vendor, class string) {
	t.Helper()
	dir := filepath.Join(root, "sys/bus/pci/devices", bus)
	err := errors.Join(os.MkdirAll(dir, 0o755), os.WriteFile(filepath.Join(dir, "vendor"), []byte(vendor+"\n"), 0o644),
		os.WriteFile(filepath.Join(dir, "class"), []byte(class+"\n"), 0o644))
	if err != nil {
		t.Fatal(err)
	}
}

func TestPresent(t *testing.T) {
	put := func(name, text string) func(*testing.T, string) {
		return func(t *testing.T, root string) {
			path := filepath.Join(root, name)
			if err := errors.Join(os.MkdirAll(filepath.Dir(path), 0o755), os.WriteFile(path, []byte(text), 0o644)); err != nil {
				t.Fatal(err)
			}
		}
	}
	card := func(bus, vendor, class string) func(*testing.T, string) {
		return func(t *testing.T, root string) { addPCI(t, root, bus, vendor, class) }
	}
	const version = "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  570.86.15  Release Build  (dvs@host)  Thu Jan 23\nGCC version: gcc 11.4.0\n"
	for _, test := range []struct {
		name    string
		has     []func(*testing.T, string)
		want    []string
		without bool
	}{
		{name: "nothing"},
		{name: "others' cards and files", has: []func(*testing.T, string){
			card("0000:00:02.0", "0x8086", "0x030000"), card("0000:3b:00.1", "0x10de", "0x040300"), card("0000:3c:00.0", "0x10de", "0x068000"),
			put("dev/nvidia-uvm", ""), put("dev/nvidia", ""), put("dev/nvidia-caps/x", ""), put("dev/nvidia0x", ""), put("dev/null", ""),
		}},
		{name: "all", has: []func(*testing.T, string){
			put("dev/nvidia11", ""), put("dev/nvidia0", ""), put("dev/nvidiactl", ""), put("proc/driver/nvidia/version", version),
			card("0000:86:00.0", "0x10de", "0x030200"), card("0000:3b:00.0", "0x10de", "0x030000"),
		}, want: []string{
			"device file /dev/nvidia0", "device file /dev/nvidia11", "device file /dev/nvidiactl", "kernel module 570.86.15",
			"PCI device 0000:3b:00.0", "PCI device 0000:86:00.0",
		}},
		{name: "on the bus, without a driver", has: []func(*testing.T, string){card("0000:86:00.0", "0x10de", "0x030200")},
			want: []string{"PCI device 0000:86:00.0"}, without: true},
		{name: "in a container that was given the files", has: []func(*testing.T, string){put("dev/nvidiactl", "")},
			want: []string{"device file /dev/nvidiactl"}},
		{name: "a version that can't be read", has: []func(*testing.T, string){put("proc/driver/nvidia/version", "?\n")},
			want: []string{"kernel module unknown"}},
	} {
		root := t.TempDir()
		for _, add := range test.has {
			add(t, root)
		}
		got := Present(root)
		if diff := cmp.Diff(test.want, got); diff != "" {
			t.Errorf("%s: %s", test.name, diff)
		}
		if WithoutDriver(got) != test.without {
			t.Errorf("%s: without a driver is %v", test.name, !test.without)
		}
	}
}

func BenchmarkPresent(b *testing.B) {
	for b.Loop() {
		Present("/")
	}
}

// What is told of GPUs goes into records that others read.
func TestFactsAreSmall(t *testing.T) {
	handles := make([]Return, 16)
	for i := range handles {
		handles[i] = Success
	}
	l := fakeNode(t, handles...)
	for _, d := range l.devices {
		d.links = make([]Return, mostLinks)
		for i := range d.links {
			d.links[i] = Success
		}
	}
	var text strings.Builder
	printTo(t, &text, l.collect(t.TempDir()))
	if text.Len() > mostFacts/20 {
		t.Errorf("the facts of 16 GPUs are %d bytes", text.Len())
	}
}

func printTo(t *testing.T, to *strings.Builder, facts Facts) {
	t.Helper()
	if err := json.NewEncoder(to).Encode(facts); err != nil {
		t.Fatal(err)
	}
}
