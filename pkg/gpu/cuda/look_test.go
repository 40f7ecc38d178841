//go:build linux && cgo

package cuda

import (
	"bufio"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	fake "github.com/bringupd/bringupd/test/cuda"
	"github.com/bringupd/bringupd/test/standin"
)

// whole is a library that has all functions; TestMain removes its folder.
var whole = sync.OnceValues(func() (standin.Fake, error) {
	var err error
	if buildDir, err = os.MkdirTemp("", "cuda-*"); err != nil {
		return standin.Fake{}, err
	}
	return fake.Build(buildDir)
})

// saying returns a library that reports these lines about this host.
func saying(t *testing.T, lines ...string) standin.Fake {
	t.Helper()
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	host, _, _ = strings.Cut(host, ".")
	f, err := whole()
	if err != nil {
		t.Fatal(err)
	}
	f = f.In(t.TempDir())
	if err := f.Answer(host, lines...); err != nil {
		t.Fatal(err)
	}
	return f
}

// lacking returns a library without those functions.
func lacking(t *testing.T, functions ...string) standin.Fake {
	t.Helper()
	f, err := fake.Build(t.TempDir(), functions...)
	if err != nil {
		t.Fatal(err)
	}
	return f
}

// looking returns a process that inspects the library.
func looking(t *testing.T, f standin.Fake, env ...string) *exec.Cmd {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0], f.Library, t.TempDir())
	cmd.Env = append(append(os.Environ(), lookVariable+"=1", f.Env(), "GOTRACEBACK=none", "GORACE=atexit_sleep_ms=0"), env...)
	return cmd
}

// look returns the facts that such a process has found.
func look(t *testing.T, f standin.Fake, env ...string) Facts {
	t.Helper()
	cmd := looking(t, f, env...)
	var said strings.Builder
	cmd.Stderr = &said
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("the process that looked has ended with %v: %s", err, said.String())
	}
	var facts Facts
	if err := json.Unmarshal(out, &facts); err != nil {
		t.Fatalf("%v in %s", err, out)
	}
	return facts
}

// TestHealthy verifies that all queries are answered for eight H100 without faults.
func TestHealthy(t *testing.T) {
	f := saying(t)
	facts := look(t, f)
	file, err := filepath.EvalSymlinks(f.Library)
	if err != nil {
		t.Fatal(err)
	}
	count, _ := facts.Count.Get()
	driver, _ := facts.Driver.Get()
	if facts.Init != (Result{0, "SUCCESS"}) || driver != 12080 || count != 8 || len(facts.Devices) != 8 || facts.InaccessiblePairs != nil ||
		facts.Library != f.Library || facts.Loaded != file || facts.Duration <= 0 || facts.VisibleDevices != nil {
		t.Errorf("the facts are %+v", facts)
	}
	for i, d := range facts.Devices {
		uuid, _ := d.UUID.Get()
		name, _ := d.Name.Get()
		if d.Ordinal != i || uuid != fmt.Sprintf("fa4e000%d-0000-0000-0000-000000000000", i) || name != "NVIDIA H100 80GB HBM3" {
			t.Errorf("device %d is %+v: %s, %s", i, d, uuid, name)
		}
	}
	if want := (DeviceFile{Path: uvmPath, Reason: "ENOENT"}); len(facts.Files) == 0 || facts.Files[0] != want {
		t.Errorf("the files are %+v, want %+v first", facts.Files, want)
	}
}

// TestTold verifies that the library's answers reach the facts.
func TestTold(t *testing.T) {
	begins := func(code ResultCode, name string) func(Facts) bool {
		return func(f Facts) bool {
			_, counted := f.Count.Get()
			driver, _ := f.Driver.Get()
			return f.Init == Result{code, name} && !counted && f.Count.Reason == Result{} && f.Devices == nil && driver == 12080
		}
	}
	for _, tc := range []struct {
		name, lines string
		seen        func(Facts) bool
	}{
		{"a code that it names", "return cuInit 802", begins(802, "SYSTEM_NOT_READY")},
		{"a code that only we name", "return cuInit 999", begins(999, "UNKNOWN")},
		{"a code that only it names", "return cuInit 777", begins(777, "OF_TOMORROW")},
		{"a code that nobody names", "return cuInit 778", begins(778, "CODE_778")},
		{"no version", "return cuDriverGetVersion 1", func(f Facts) bool { return f.Driver.Value == nil && f.Driver.Reason.Code == 1 && len(f.Devices) == 8 }},
		{"fewer GPUs", "gpus 2", func(f Facts) bool { return len(f.Devices) == 2 }},
		{"more than there can be", "gpus 2000000000\nreturn cuDeviceGet 101", func(f Facts) bool { return *f.Count.Value == 2e9 && len(f.Devices) == maxDevices }},
		{"fewer than none", "gpus -1", func(f Facts) bool { return *f.Count.Value == -1 && f.Devices == nil }},
		{"no count", "return cuDeviceGetCount 999", func(f Facts) bool { return f.Count.Reason.Code == 999 && f.Count.Value == nil && f.Devices == nil }},
		{"a device that can't be had", "gpu 3 return cuDeviceGet 101", func(f Facts) bool {
			return f.Devices[3].UUID.Reason == Result{101, "INVALID_DEVICE"} && f.Devices[3].Name.Value == nil && f.Devices[4].UUID.Value != nil && f.InaccessiblePairs == nil
		}},
		{"no UUID", "gpu 3 return cuDeviceGetUuid 999", func(f Facts) bool { return f.Devices[3].UUID.Reason.Code == 999 && f.Devices[3].Name.Value != nil }},
		{"another UUID", "gpu 3 uuid GPU-01234567-89ab-cdef-0123-456789ABCDEF", func(f Facts) bool { return *f.Devices[3].UUID.Value == "01234567-89ab-cdef-0123-456789abcdef" }},
		{"a name that a terminal would obey", "gpu 3 name H100\x1b[2J", func(f Facts) bool { return *f.Devices[3].Name.Value == "H100\ufffd[2J" }},
		{"no way from one to another", "peer 0 1 0", func(f Facts) bool {
			reach, ok := f.peerAccess(1, 0).Get()
			return len(f.InaccessiblePairs) == 1 && f.InaccessiblePairs[0].A == 0 && f.InaccessiblePairs[0].B == 1 && ok && !reach
		}},
		{"no answer about ways", "gpu 2 return cuDeviceCanAccessPeer 101", func(f Facts) bool {
			return len(f.InaccessiblePairs) == 7 && f.InaccessiblePairs[6].Access.Reason.Code == 101
		}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			if facts := look(t, saying(t, tc.lines)); !tc.seen(facts) {
				t.Errorf("after %q the facts are %+v", tc.lines, facts)
			}
		})
	}
}

// TestLacking verifies that a library without newer functions answers the other queries, and that a
// file that is not a libcuda is an error and no crash.
func TestLacking(t *testing.T) {
	t.Run("of an old driver", func(t *testing.T) {
		t.Parallel()
		facts := look(t, lacking(t, "cuDeviceGetUuid_v2", "cuGetErrorName", "cuDeviceCanAccessPeer"))
		if facts.Init.Name != "SUCCESS" || len(facts.Devices) != 8 || facts.Devices[7].UUID.Value == nil || len(facts.InaccessiblePairs) != 8*7 ||
			facts.InaccessiblePairs[0].Access.Reason.Name != "FUNCTION_NOT_FOUND" {
			t.Errorf("the facts are %+v", facts)
		}
	})
	t.Run("not CUDA's", func(t *testing.T) {
		t.Parallel()
		if facts := look(t, lacking(t, "cuInit")); facts.Init.Code != FunctionNotFound {
			t.Errorf("the facts are %+v", facts)
		}
	})
	t.Run("no library", func(t *testing.T) {
		t.Parallel()
		file := filepath.Join(t.TempDir(), "libcuda.so.1")
		if err := os.WriteFile(file, nil, 0o600); err != nil { // as docker commit leaves it behind
			t.Fatal(err)
		}
		for path, words := range map[string]string{file: "file too short", file + ".none": "cannot open shared object file"} {
			if facts := look(t, standin.Fake{Library: path}); facts.Init.Code != LibraryNotFound || !strings.Contains(facts.Detail, words) {
				t.Errorf("the facts are %+v, want %q", facts, words)
			}
		}
	})
}

// TestVisible verifies that the process sees inherited variables in the same way as CUDA.
func TestVisible(t *testing.T) {
	for _, value := range []string{"", "0,1"} {
		if facts := look(t, saying(t), "CUDA_VISIBLE_DEVICES="+value); facts.VisibleDevices == nil || *facts.VisibleDevices != value {
			t.Errorf("with %q the facts are %+v", value, facts)
		}
	}
}

// TestCrash verifies that a crash of the inspecting process is reported as such, without facts.
func TestCrash(t *testing.T) {
	out, err := looking(t, saying(t, "crash cuInit")).Output()
	if err == nil || len(out) > 0 {
		t.Errorf("it has ended with %v, and said %q", err, out)
	}
}

// TestHang verifies that a call that does not return is named while it lasts.
func TestHang(t *testing.T) {
	for _, function := range []string{"cuInit", "cuDeviceGetName"} {
		t.Run(function, func(t *testing.T) {
			t.Parallel()
			cmd := looking(t, saying(t, "gpus 1", "hang "+function))
			out, err := cmd.StderrPipe()
			if err != nil {
				t.Fatal(err)
			}
			if err := cmd.Start(); err != nil {
				t.Fatal(err)
			}
			stop := time.AfterFunc(time.Minute, func() { _ = cmd.Process.Kill() })
			defer stop.Stop()
			lines := bufio.NewScanner(out)
			lines.Scan()
			if got := lines.Text(); got != "waiting for "+function {
				t.Errorf("it says %q", got)
			}
			_ = cmd.Process.Kill()
			_ = cmd.Wait()
		})
	}
}

func TestFiles(t *testing.T) {
	root := t.TempDir()
	for _, path := range []string{"dev/nvidia-uvm", "dev/nvidia-caps/nvidia-cap21", "dev/nvidia-caps-imex-channels/channel0", "proc/modules"} {
		path = filepath.Join(root, path)
		if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte("nvidia 1 0\nnvidia_uvm 1 0\n"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	// A link to itself.
	if err := os.Symlink("nvidia-cap30", filepath.Join(root, "dev/nvidia-caps/nvidia-cap30")); err != nil {
		t.Fatal(err)
	}
	want := []DeviceFile{
		{Path: uvmPath}, {uvmPath + "-tools", "ENOENT"}, {Path: capsDir + "/nvidia-cap21"}, {capsDir + "/nvidia-cap30", "ELOOP"}, {Path: imexChannelDir + "/channel0"},
	}
	if got := openDeviceFiles(root); !slices.Equal(got, want) {
		t.Errorf("the files are\n%+v, want\n%+v", got, want)
	}
	if is := isModuleLoaded(root); is == nil || !*is {
		t.Errorf("the module is loaded, and it says %v", is)
	}
	if err := os.WriteFile(filepath.Join(root, "proc/modules"), []byte("nvidia_uvmx 1 0 nvidia_uvm\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if is := isModuleLoaded(root); is == nil || *is {
		t.Errorf("the module is not loaded, and it says %v", is)
	}
	if is := isModuleLoaded(t.TempDir()); is != nil {
		t.Errorf("nobody knows of the module, and it says %v", *is)
	}
	if err := os.MkdirAll(filepath.Join(root, "proc/driver/nvidia-uvm"), 0o700); err != nil {
		t.Fatal(err)
	}
	if is := isModuleLoaded(root); is == nil || !*is {
		t.Errorf("the module has a folder in /proc, and it says %v", is)
	}
}
