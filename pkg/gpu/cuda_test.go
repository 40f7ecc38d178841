//go:build linux && cgo

package gpu

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	fake "github.com/bringupd/bringupd/test/cuda"
	"github.com/bringupd/bringupd/test/standin"
)

func init() {
	helpers["CUDA library"] = func() int {
		_ = json.NewEncoder(os.Stdout).Encode(inspectCUDA())
		return 0
	}
}

// cudaProcess returns a process that inspects a libcuda, which gives these answers about this host.
func cudaProcess(t *testing.T, f standin.Fake, lines ...string) *exec.Cmd {
	t.Helper()
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	host, _, _ = strings.Cut(host, ".")
	if f = f.In(t.TempDir()); len(lines) > 0 {
		if err := f.Answer(host, lines...); err != nil {
			t.Fatal(err)
		}
	}
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(f.Environ(), helperVariable+"=CUDA library", "CUDA_VISIBLE_DEVICES=0,1", "GOTRACEBACK=none")
	return cmd
}

// TestCUDADriver verifies that the answers of a libcuda are in the facts, also of one that lacks
// functions or is no libcuda, and that a slow call is named.
func TestCUDADriver(t *testing.T) {
	whole, err := fake.Build(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	lacking := func(function string) standin.Fake {
		f, err := fake.Build(t.TempDir(), function)
		if err != nil {
			t.Fatal(err)
		}
		return f
	}
	empty := filepath.Join(t.TempDir(), "libcuda.so.1")
	if err := os.WriteFile(empty, nil, 0o600); err != nil { // as docker commit leaves it behind
		t.Fatal(err)
	}
	for _, tc := range []struct {
		name    string
		library standin.Fake
		lines   string
		init    NVMLReturn
		code    int
		count   Reading[int]
		detail  string
	}{
		{"healthy", whole, "gpus 8", Success, 0, newReading(8), ""},
		{"fewer GPUs", whole, "gpus 2", Success, 0, newReading(2), ""},
		{"a failure with a name", whole, "return cuInit 802", "SYSTEM_NOT_READY", 802, Reading[int]{}, ""},
		{"a failure without a name", whole, "return cuInit 778", "CODE_778", 778, Reading[int]{}, ""},
		{"no count", whole, "return cuDeviceGetCount 802", Success, 0, missingReading[int]("SYSTEM_NOT_READY"), ""},
		{"no names", lacking("cuGetErrorName"), "return cuInit 802", "CODE_802", 802, Reading[int]{}, ""},
		{"no cuInit", lacking("cuInit"), "", FunctionNotFound, 0, Reading[int]{}, ""},
		{"an empty file", standin.Fake{Library: empty}, "", LibraryNotFound, 0, Reading[int]{}, "file too short"},
		{"no file", standin.Fake{Library: filepath.Join(t.TempDir(), "libcuda.so.1")}, "",
			LibraryNotFound, 0, Reading[int]{}, "cannot open shared object file"},
		{"slow", whole, "slow cuInit 2", Success, 0, newReading(8), "waiting for cuInit"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			cmd := cudaProcess(t, tc.library, tc.lines)
			var stderr strings.Builder
			cmd.Stderr = &stderr
			out, err := cmd.Output()
			var got CUDAFacts
			if err != nil || json.Unmarshal(out, &got) != nil {
				t.Fatalf("%v: %s %s", err, out, &stderr)
			}
			if got.Init != tc.init || got.Code != tc.code ||
				got.Count.OrZero() != tc.count.OrZero() || got.Count.Reason != tc.count.Reason ||
				!strings.Contains(got.Detail+stderr.String(), tc.detail) ||
				got.VisibleDevices == nil || *got.VisibleDevices != "0,1" {
				t.Errorf("the facts are %+v, stderr %q", got, &stderr)
			}
			if tc.library == whole && !strings.HasSuffix(got.Loaded, "libcuda.so.1") {
				t.Errorf("the loaded file is %q", got.Loaded)
			}
		})
	}
	t.Run("crash", func(t *testing.T) {
		if out, err := cudaProcess(t, whole, "crash cuInit").Output(); err == nil || len(out) > 0 {
			t.Errorf("it has ended with %v, and said %q", err, out)
		}
	})
}
