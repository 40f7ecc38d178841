//go:build linux && cgo

package gpu

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/NVIDIA/go-nvml/pkg/nvml"
	"github.com/NVIDIA/go-nvml/pkg/nvml/mock/dgxa100"
	"github.com/google/go-cmp/cmp"

	"github.com/bringupd/bringupd/pkg/process"
)

// unmocked are the functions that the mock cannot have: see inspector.fabric.
var unmocked = []string{"nvmlDeviceGetGpuFabricInfoV"}

// mockDGX returns go-nvml's mock of a machine, with answers for all queries.
func mockDGX() *dgxa100.Server {
	server := dgxa100.New()
	without(server)
	for i, one := range server.Devices {
		wholly(one.(*dgxa100.Device), i)
	}
	return server
}

// wholly sets the functions that the mock leaves out.
func wholly(d *dgxa100.Device, index int) {
	const ok = nvml.SUCCESS
	d.GetPciInfoFunc = func() (p nvml.PciInfo, ret nvml.Return) {
		for i, c := range fmt.Sprintf("00000000:%02X:00.0", 0x3b+index) {
			p.BusId[i] = int8(c)
		}
		return p, ok
	}
	d.GetVbiosVersionFunc = func() (string, nvml.Return) { return "92.00.45.00.03", ok }
	d.GetGspFirmwareVersionFunc = func() (string, nvml.Return) { return "550.54.15", ok }
	d.GetNumaNodeIdFunc = func() (int, nvml.Return) { return 0, nvml.ERROR_NOT_SUPPORTED }
	d.GetPersistenceModeFunc = func() (nvml.EnableState, nvml.Return) { return nvml.FEATURE_ENABLED, ok }
	d.GetComputeModeFunc = func() (nvml.ComputeMode, nvml.Return) { return nvml.COMPUTEMODE_EXCLUSIVE_PROCESS, ok }
	d.GetMemoryInfo_v2Func = func() (nvml.Memory_v2, nvml.Return) {
		return nvml.Memory_v2{Total: 100, Reserved: 3, Used: 2, Free: 95}, ok
	}
	d.GetComputeRunningProcessesFunc = func() ([]nvml.ProcessInfo, nvml.Return) {
		return []nvml.ProcessInfo{{Pid: 12, UsedGpuMemory: 34}, {Pid: 13, UsedGpuMemory: 1<<64 - 1}}, ok
	}
	d.GetGraphicsRunningProcessesFunc = func() ([]nvml.ProcessInfo, nvml.Return) {
		return []nvml.ProcessInfo{{Pid: 14, UsedGpuMemory: 56}}, ok
	}
	d.GetFieldValuesFunc = func(values []nvml.FieldValue) nvml.Return {
		value, link := uint32(2), values[0].ScopeId // the recovery action
		switch values[0].FieldId {
		case nvml.FI_DEV_C2C_LINK_COUNT:
			value = 3
		case nvml.FI_DEV_C2C_LINK_GET_STATUS:
			value = map[bool]uint32{true: 1}[link != 1]
		}
		values[0].ValueType = uint32(nvml.VALUE_TYPE_UNSIGNED_INT)
		binary.NativeEndian.PutUint32(values[0].Value[:], value)
		return ok
	}
	d.GetRemappedRowsFunc = func() (int, int, bool, bool, nvml.Return) { return 1, 2, true, false, ok }
	d.GetRetiredPagesFunc = func(cause nvml.PageRetirementCause) ([]uint64, nvml.Return) {
		return make([]uint64, 3+int(cause)), ok
	}
	d.GetRetiredPagesPendingStatusFunc = func() (nvml.EnableState, nvml.Return) { return nvml.FEATURE_ENABLED, ok }
	d.GetMemoryErrorCounterFunc = func(kind nvml.MemoryErrorType, counter nvml.EccCounterType,
		where nvml.MemoryLocation) (uint64, nvml.Return) {
		return uint64(100*int(counter) + 10*int(where) + int(kind)), ok
	}
	d.GetTotalEccErrorsFunc = func(kind nvml.MemoryErrorType, counter nvml.EccCounterType) (uint64, nvml.Return) {
		return uint64(1000 + int(kind)), ok
	}
	d.GetSramEccErrorStatusFunc = func() (nvml.EccSramErrorStatus, nvml.Return) {
		return nvml.EccSramErrorStatus{VolatileUncParity: 1, VolatileUncSecDed: 2, VolatileCor: 4,
			AggregateCor: 8, BThresholdExceeded: 1}, ok
	}
	d.GetGpuFabricInfoFunc = func() (nvml.GpuFabricInfo, nvml.Return) {
		return nvml.GpuFabricInfo{State: nvml.GPU_FABRIC_STATE_COMPLETED,
			Status: uint32(nvml.ERROR_NOT_READY), CliqueId: 7, ClusterUuid: [16]uint8{1}}, ok
	}
	d.GetNvLinkStateFunc = func(link int) (nvml.EnableState, nvml.Return) {
		if link >= 12 {
			return 0, nvml.ERROR_INVALID_ARGUMENT
		}
		return map[bool]nvml.EnableState{false: nvml.FEATURE_DISABLED, true: nvml.FEATURE_ENABLED}[link != 5], ok
	}
	d.GetP2PStatusFunc = func(other nvml.Device, index nvml.GpuP2PCapsIndex) (nvml.GpuP2PStatus, nvml.Return) {
		if index != nvml.P2P_CAPS_INDEX_NVLINK || other == nvml.Device(d) {
			return 0, nvml.ERROR_INVALID_ARGUMENT
		}
		return nvml.P2P_STATUS_NOT_SUPPORTED, ok
	}
}

func collectFrom(server nvml.Interface) Facts { return collectBelow("/nonexistent", server) }

func collectBelow(root string, server nvml.Interface) Facts {
	c := newCollector(server, io.Discard)
	c.root = root
	return c.collectFacts(func(Progress) {})
}

// withHandles sets the number of GPUs and the result of each handle query.
func withHandles(server *dgxa100.Server, handles ...nvml.Return) *dgxa100.Server {
	server.DeviceGetCountFunc = func() (int, nvml.Return) { return len(handles), nvml.SUCCESS }
	server.DeviceGetHandleByIndexFunc = func(index int) (nvml.Device, nvml.Return) {
		if ret := handles[index]; ret != nvml.SUCCESS {
			return nil, ret
		}
		return server.Devices[index%len(server.Devices)], nvml.SUCCESS
	}
	return server
}

// without removes functions from the library.
func without(server *dgxa100.Server, functions ...string) {
	server.LookupSymbolFunc = func(symbol string) error {
		if slices.Contains(functions, symbol) || slices.Contains(unmocked, symbol) {
			return errors.New("no such symbol")
		}
		return nil
	}
}

func TestCollectFromMock(t *testing.T) {
	server := mockDGX()
	f := collectFrom(server)
	if diff := cmp.Diff(Facts{
		Version: FactsVersion, Init: Success, Driver: newReading("550.54.15"),
		CUDA: newReading("12.4"), Count: newReading(8),
		GPUs: f.GPUs, Pairs: f.Pairs,
	}, f); diff != "" {
		t.Error(diff)
	}
	var all []NVLink
	for i := range 12 {
		all = append(all, NVLink{i, newReading(i != 5)})
	}
	want := GPU{
		Index: 4, Handle: Success, UUID: newReading(server.Devices[4].(*dgxa100.Device).UUID),
		Bus: newReading("0000:3f:00.0"), Name: newReading("Mock NVIDIA A100-SXM4-40GB"),
		DeviceInfo: DeviceInfo{
			VBIOS: newReading("92.00.45.00.03"), GSP: newReading("550.54.15"),
			Memory: newReading(Memory{Total: 100, Used: 2}),
			Numa:   missingReading[int](NotSupported), Persistence: newReading(true), ComputeMode: newReading(3),
		},
		Health: Health{
			Recovery: newReading(2), Remapped: newReading(RemappedRows{Uncorrected: 2, Pending: true}),
			Retired: newReading(RetiredPages{SingleBit: 3, DoubleBit: 4, Pending: true}),
			DRAM:    newReading(MemoryErrors{Uncorrected: 21}),
			SRAM:    newReading(MemoryErrors{Uncorrected: 3, ThresholdExceeded: true}),
		},
		Interconnect: Interconnect{
			Fabric: newReading(Fabric{State: 3, Status: "NOT_READY",
				Cluster: "01000000-0000-0000-0000-000000000000", Clique: 7}),
			Links: all, C2C: newReading(LinkCount{Active: 2, Total: 3}),
		},
		Utilization: Utilization{
			MIG: newReading(ModeState{}), Processes: newReading([]Process{{PID: 12, Used: 34},
				{PID: 13, Unknown: true}}),
			GraphicsProcesses: newReading([]Process{{PID: 14, Used: 56}}),
		},
	}
	if diff := cmp.Diff(want, f.GPUs[4]); diff != "" {
		t.Error(diff)
	}
	if len(f.GPUs) != 8 || len(f.Pairs) != 28 || f.Pairs[27] != (GPUPair{6, 7, f.Pairs[27].Status}) {
		t.Errorf("%d GPUs, pairs %+v", len(f.GPUs), f.Pairs)
	}
	if status, ok := f.Pairs[0].Status.Get(); !ok || status != 5 {
		t.Errorf("the first pair is %+v", f.Pairs[0])
	}
	if len(server.ShutdownCalls()) != 0 {
		t.Error("NVML does not stay open")
	}
}

// codes are the return codes of a driver in trouble, with this package's names for them.
var codes = map[nvml.Return]NVMLReturn{
	3: NotSupported, 9: DriverNotLoaded, 12: LibraryNotFound, 15: GPUIsLost, 16: ResetRequired, 17: OperatingSystem,
	18: LibRMVersionMismatch, 27: "NOT_READY", 999: UnknownError, 12345: "CODE_12345",
}

// TestFailures verifies that each failure affects only its own reading, with its own reason, and
// that nothing is called after a failed initialisation.
func TestFailures(t *testing.T) {
	for code, want := range codes {
		server := mockDGX()
		server.InitFunc = func() nvml.Return { return code }
		server.LookupSymbolFunc, server.ShutdownFunc = nil, nil // any other call panics
		if diff := cmp.Diff(Facts{Version: FactsVersion, Init: want}, collectFrom(server)); diff != "" {
			t.Errorf("init %d: %s", code, diff)
		}
		server = mockDGX()
		server.DeviceGetCountFunc = func() (int, nvml.Return) { return 8, code }
		if f := collectFrom(server); f.Count != missingReading[int](want) || len(f.GPUs) != 0 || f.Init != Success {
			t.Errorf("count %d: got %+v", code, f)
		}
		server = withHandles(mockDGX(), nvml.SUCCESS, code, nvml.SUCCESS)
		if f := collectFrom(server); len(f.GPUs) != 3 || f.GPUs[2].Handle != Success ||
			len(f.Pairs) != 1 || cmp.Diff(GPU{Index: 1, Handle: want}, f.GPUs[1]) != "" {
			t.Errorf("handle %d: %+v", code, f)
		}
		for name, tc := range map[string]struct {
			fail    func(*dgxa100.Device)
			reading func(GPU) (why NVMLReturn, none bool)
		}{
			"uuid": {func(d *dgxa100.Device) { d.GetUUIDFunc = func() (string, nvml.Return) { return "x", code } },
				func(g GPU) (NVMLReturn, bool) { return g.UUID.Reason, g.UUID.Value == nil }},
			"field": {func(d *dgxa100.Device) {
				d.GetFieldValuesFunc = func(values []nvml.FieldValue) nvml.Return {
					values[0].NvmlReturn = uint32(code)
					return nvml.SUCCESS
				}
			}, func(g GPU) (NVMLReturn, bool) { return g.Recovery.Reason, g.Recovery.Value == nil }},
			"fields": {func(d *dgxa100.Device) {
				d.GetFieldValuesFunc = func([]nvml.FieldValue) nvml.Return { return code }
			},
				func(g GPU) (NVMLReturn, bool) { return g.Recovery.Reason, g.Recovery.Value == nil }},
			"remapped": {func(d *dgxa100.Device) {
				d.GetRemappedRowsFunc = func() (int, int, bool, bool, nvml.Return) { return 1, 1, true, true, code }
			}, func(g GPU) (NVMLReturn, bool) { return g.Remapped.Reason, g.Remapped.Value == nil }},
			"retired": {func(d *dgxa100.Device) {
				d.GetRetiredPagesPendingStatusFunc = func() (nvml.EnableState, nvml.Return) { return 1, code }
			}, func(g GPU) (NVMLReturn, bool) { return g.Retired.Reason, g.Retired.Value == nil }},
			"mig": {func(d *dgxa100.Device) { d.GetMigModeFunc = func() (int, int, nvml.Return) { return 1, 1, code } },
				func(g GPU) (NVMLReturn, bool) { return g.MIG.Reason, g.MIG.Value == nil }},
		} {
			server := mockDGX()
			tc.fail(server.Devices[2].(*dgxa100.Device))
			g := collectFrom(server).GPUs[2]
			if why, none := tc.reading(g); why != want || !none {
				t.Errorf("%s returns %d: the reason is %q, no value: %t", name, code, why, none)
			}
			if g.Name.Value == nil || g.Memory.Value == nil || g.Processes.Value == nil {
				t.Errorf("%s returns %d: another reading is missing: %+v", name, code, g)
			}
		}
	}
}

func TestSlicedGPU(t *testing.T) {
	server := mockDGX()
	d := server.Devices[0].(*dgxa100.Device)
	d.MigMode = nvml.DEVICE_MIG_ENABLE
	d.GetMaxMigDeviceCountFunc = func() (int, nvml.Return) { return 7, nvml.SUCCESS }
	d.GetMigDeviceHandleByIndexFunc = func(index int) (nvml.Device, nvml.Return) {
		if index == 1 || index > 2 {
			return nil, nvml.ERROR_NOT_FOUND
		}
		part := dgxa100.NewDevice(index)
		part.UUID, part.Name = fmt.Sprint("MIG-", index), "1g.5gb"
		part.GetMemoryInfo_v2Func = func() (nvml.Memory_v2, nvml.Return) {
			return nvml.Memory_v2{Total: 10, Used: uint64(index)}, nvml.SUCCESS
		}
		part.GetComputeRunningProcessesFunc = func() ([]nvml.ProcessInfo, nvml.Return) {
			return nil,
				nvml.ERROR_NO_PERMISSION
		}
		return part, nvml.SUCCESS
	}
	g := collectFrom(server).GPUs[0]
	instance := func(n int) MIGInstance {
		return MIGInstance{
			UUID: fmt.Sprint("MIG-", n), Name: "1g.5gb",
			Memory: newReading(Memory{Total: 10, Used: uint64(n)}), Processes: missingReading[[]Process](NoPermission),
		}
	}
	want := []MIGInstance{instance(0), instance(2)}
	if diff := cmp.Diff(want, g.MIGInstances); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff(newReading(ModeState{Current: true, Pending: true}), g.MIG); diff != "" {
		t.Error(diff)
	}
}

func TestRecoveryField(t *testing.T) {
	for _, test := range []struct {
		name  string
		ret   nvml.Return
		kind  nvml.ValueType
		value uint64
		want  Reading[int]
	}{
		{"none", nvml.SUCCESS, nvml.VALUE_TYPE_UNSIGNED_INT, 0, newReading(0)},
		{"reboot, beside what the union holds", nvml.SUCCESS, nvml.VALUE_TYPE_UNSIGNED_INT,
			0xdead00000002, newReading(2)},
		{"as a long", nvml.SUCCESS, nvml.VALUE_TYPE_UNSIGNED_LONG_LONG, 5, newReading(5)},
		{"as an int", nvml.SUCCESS, nvml.VALUE_TYPE_SIGNED_INT, 0xffffffff, newReading(-1)},
		{"as a short", nvml.SUCCESS, nvml.VALUE_TYPE_UNSIGNED_SHORT, 0x10004, newReading(4)},
		{"as what is no number", nvml.SUCCESS, nvml.VALUE_TYPE_DOUBLE, 1, missingReading[int](UnknownError)},
		{"the call was well, the field not", nvml.ERROR_NOT_SUPPORTED, nvml.VALUE_TYPE_UNSIGNED_INT,
			0, missingReading[int](NotSupported)},
	} {
		server := mockDGX()
		server.Devices[0].(*dgxa100.Device).GetFieldValuesFunc = func(values []nvml.FieldValue) nvml.Return {
			if len(values) != 1 {
				t.Errorf("%s: asked for %+v", test.name, values)
			}
			if values[0].FieldId != 230 {
				return nvml.ERROR_NOT_SUPPORTED
			}
			values[0].NvmlReturn, values[0].ValueType = uint32(test.ret), uint32(test.kind)
			binary.NativeEndian.PutUint64(values[0].Value[:], test.value)
			return nvml.SUCCESS
		}
		if diff := cmp.Diff(test.want, collectFrom(server).GPUs[0].Recovery); diff != "" {
			t.Errorf("%s: %s", test.name, diff)
		}
	}
}

func TestLinksEndAtTheLast(t *testing.T) {
	const ok = nvml.SUCCESS
	for _, test := range []struct {
		name string
		says []nvml.Return
		want int
	}{
		{"none", []nvml.Return{nvml.ERROR_NOT_SUPPORTED}, 0},
		{"two, and no third", []nvml.Return{ok, ok, nvml.ERROR_INVALID_ARGUMENT, ok}, 2},
		{"one that can't be read among others", []nvml.Return{ok, nvml.ERROR_UNKNOWN, ok, nvml.ERROR_NOT_SUPPORTED}, 3},
		{"more than there can be", make([]nvml.Return, 50), nvml.NVLINK_MAX_LINKS},
	} {
		server := mockDGX()
		server.Devices[0].(*dgxa100.Device).GetNvLinkStateFunc = func(link int) (nvml.EnableState, nvml.Return) {
			return nvml.FEATURE_ENABLED, test.says[link]
		}
		if got := collectFrom(server).GPUs[0].Links; len(got) != test.want {
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
	for _, ret := range []nvml.Return{nvml.ERROR_GPU_IS_LOST, nvml.ERROR_RESET_REQUIRED,
		nvml.ERROR_UNKNOWN, nvml.ERROR_NO_PERMISSION} {
		f := collectBelow(root, withHandles(mockDGX(), nvml.SUCCESS, ret))
		want := GPU{Index: 1, Handle: returnName(ret), Bus: newReading("0000:86:00.0")}
		if diff := cmp.Diff(want, f.GPUs[1]); diff != "" {
			t.Errorf("%s: %s", ret, diff)
		}
		if name, _ := f.GPUs[0].Name.Get(); name == "" || len(f.Pairs) != 0 {
			t.Errorf("%s: the other one is %+v, the pairs %+v", ret, f.GPUs[0], f.Pairs)
		}
	}
	if f := collectBelow(root, withHandles(mockDGX(), nvml.SUCCESS, nvml.ERROR_GPU_IS_LOST,
		nvml.ERROR_GPU_IS_LOST)); f.GPUs[1].Bus.Value != nil || f.GPUs[2].Bus.Value != nil {
		t.Error("an address is guessed")
	}
}

func TestProcessNames(t *testing.T) {
	for _, test := range []struct{ namespace, want string }{
		{initialPIDNamespace, "python3"},
		{"pid:[4026532999]", ""}, // a container: 4711 is another process here
	} {
		root := t.TempDir()
		dir := filepath.Join(root, "proc/self/ns")
		if err := errors.Join(os.MkdirAll(dir, 0o755), os.MkdirAll(filepath.Join(root, "proc/4711"), 0o755),
			os.Symlink(test.namespace, filepath.Join(dir, "pid")),
			os.WriteFile(filepath.Join(root, "proc/4711/comm"), []byte("python3\n"), 0o644)); err != nil {
			t.Fatal(err)
		}
		server := mockDGX()
		server.Devices[0].(*dgxa100.Device).GetComputeRunningProcessesFunc = func() ([]nvml.ProcessInfo, nvml.Return) {
			return []nvml.ProcessInfo{{Pid: 4711, UsedGpuMemory: 5}}, nvml.SUCCESS
		}
		processes, _ := collectBelow(root, server).GPUs[0].Processes.Get()
		if len(processes) != 1 || processes[0].Name != test.want {
			t.Errorf("%s: got %+v", test.namespace, processes)
		}
	}
}

// TestGPUThatHangs verifies that a GPU that hangs is named with the call, that the other GPUs'
// facts are complete, and that the GPU is not queried again while it hangs.
func TestGPUThatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := mockDGX()
		var calls atomic.Int64
		server.Devices[3].(*dgxa100.Device).GetVbiosVersionFunc = func() (string, nvml.Return) {
			calls.Add(1)
			time.Sleep(10 * time.Minute)
			return "", nvml.ERROR_GPU_IS_LOST
		}
		c := newCollector(server, io.Discard)
		c.root = t.TempDir()
		for range 2 {
			var last Progress
			began := time.Now()
			f := c.collectFacts(func(p Progress) { last = p })
			if took := time.Since(began); took > gpuProgressTimeout+time.Second {
				t.Errorf("it took %v", took)
			}
			want := GPU{Index: 3, Handle: DriverUnresponsive, Hangs: "nvmlDeviceGetVbiosVersion"}
			if diff := cmp.Diff(want, f.GPUs[3]); diff != "" || f.GPUs[4].Name.Value == nil || len(f.Pairs) != 21 {
				t.Errorf("%s; the next is %+v, of %d pairs", diff, f.GPUs[4], len(f.Pairs))
			}
			if last.SlowCalls != "nvmlDeviceGetVbiosVersion of GPU 3" && last.SlowCalls != "" {
				t.Errorf("it has told of %q", last.SlowCalls)
			}
		}
		if calls.Load() != 1 {
			t.Errorf("it was asked %d times", calls.Load())
		}
		time.Sleep(10 * time.Minute)
	})
}

// TestGPUsThatComeSlowly covers a driver without persistence mode, which attaches one GPU after the
// other, however many callers there are.
func TestGPUsThatComeSlowly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		server := mockDGX()
		handle := server.DeviceGetHandleByIndexFunc
		attaching := make(chan bool, 1)
		server.DeviceGetHandleByIndexFunc = func(index int) (nvml.Device, nvml.Return) {
			attaching <- true
			time.Sleep(gpuProgressTimeout - time.Second)
			<-attaching
			return handle(index)
		}
		c := newCollector(server, io.Discard)
		c.root = t.TempDir()
		var told []int
		f := c.collectFacts(func(p Progress) {
			if len(told) == 0 || told[len(told)-1] != p.Initialised {
				told = append(told, p.Initialised)
			}
		})
		if lost := slices.ContainsFunc(f.GPUs, func(g GPU) bool { return !g.IsUsable() }); lost {
			t.Errorf("a GPU was not waited for: %+v", f)
		}
		if diff := cmp.Diff([]int{0, 1, 2, 3, 4, 5, 6, 7, 8}, told); diff != "" {
			t.Error(diff)
		}
	})
}

func TestAddressesAreThoseOfSysfs(t *testing.T) {
	for bus, want := range map[string]string{
		"00000000:3B:00.0": "0000:3b:00.0", "0000:3B:00.0": "0000:3b:00.0",
		"00010000:01:00.0": "10000:01:00.0", "": "", "odd": "odd",
	} {
		var info nvml.PciInfo
		for i, c := range bus {
			info.BusId[i] = int8(c)
		}
		if got := formatBusAddress(info); got != want {
			t.Errorf("%s is %s", bus, got)
		}
	}
	if got := formatCUDAVersion(11040); got != "11.4" {
		t.Errorf("11040 is %s", got)
	}
	if got := formatClusterUUID([16]byte{0: 0xab, 15: 1}); got != "ab000000-0000-0000-0000-000000000001" {
		t.Errorf("the cluster is %s", got)
	}
}

func TestWhatADriverHangsIn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		said := &process.HeadBuffer{MaxBytes: 1 << 10}
		c := newCollector(nil, said)
		remapped, name := c.trackCall(3, "nvmlDeviceGetRemappedRows"), c.trackCall(1, "nvmlDeviceGetName")
		initiated := c.trackCall(systemSlot, "nvmlInit_v2")
		time.Sleep(slowCallThreshold / 2)
		name()
		for range 5 { // calls that take no time do not hide the others
			time.Sleep(slowCallThreshold / 2)
			c.trackCall(2, "nvmlDeviceGetName")()
		}
		initiated()
		time.Sleep(slowCallThreshold)
		remapped()
		time.Sleep(slowCallThreshold)
		synctest.Wait()
		want := "waiting for nvmlInit_v2, nvmlDeviceGetRemappedRows of GPU 3\nwaiting for " +
			"nvmlDeviceGetRemappedRows of GPU 3\n"
		if got := said.String(); got != want || c.openCalls != nil {
			t.Errorf("it said %q; open: %v", got, c.openCalls)
		}
	})
}
