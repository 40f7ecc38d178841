//go:build linux && cgo

package gpu

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/bringupd/bringupd/pkg/gpu/cuda"
	fake "github.com/bringupd/bringupd/test/cuda"
)

func init() {
	helpers["worker"] = func() int { return ChildMain(os.Getenv("GPU_TEST_LIBRARY"), os.Stdin, os.Stdout) }
	helpers["visible"] = func() int {
		_, _ = os.Stdout.Write(line{Worked: &cuda.Worked{Detail: os.Getenv(VisibleVariable), Took: 1}}.encode())
		return 0
	}
}

// workers is a child that has the GPUs of a stand-in work, of which that is said.
func workers(t *testing.T, lines ...string) Child {
	t.Helper()
	f, err := fake.Build(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	host, err := os.Hostname()
	if err != nil {
		t.Fatal(err)
	}
	host, _, _ = strings.Cut(host, ".")
	if err := f.Answer(host, lines...); err != nil {
		t.Fatal(err)
	}
	// A libcuda is looked for beside the library of NVML's that is named, which work has no need of.
	nvml := filepath.Join(filepath.Dir(f.Library), "libnvidia-ml.so.1")
	if err := os.WriteFile(nvml, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return Child{Program: self, Env: helperEnv("worker", f.Env(), "GPU_TEST_LIBRARY="+nvml, "GORACE=atexit_sleep_ms=0")}
}

func TestWork(t *testing.T) {
	w, err := workers(t, "gpus 2", "gpu 1 wrong 1").Work(t.Context(), nil, false)
	if err != nil || w.End.Code != 0 || len(w.GPUs) != 2 || w.GPUs[0].Rate == nil || w.GPUs[0].Wrong != 0 || w.GPUs[1].Wrong == 0 {
		t.Errorf("the work is %+v, %v", w, err)
	}
}

// Who hangs is known by what was told until then; the others have done their work up to there.
func TestWorkThatHangs(t *testing.T) {
	child := workers(t, "gpus 2", "gpu 1 hang cuMemcpyDtoHAsync")
	child.Deadline = 3 * time.Second
	w, err := child.Work(t.Context(), nil, false)
	if err != nil || w.End.Code != cuda.Unresponsive || w.GPUs[1].Doing != cuda.StepFrom || w.GPUs[1].To == nil ||
		w.GPUs[0].Doing != "" || w.GPUs[0].From == nil || !strings.Contains(w.Detail, "waiting for cuMemcpyDtoHAsync_v2 of device 1") {
		t.Errorf("the work is %+v, %v", w, err)
	}
}

func TestWorkThatDies(t *testing.T) {
	w, err := workers(t, "gpus 2", "gpu 1 crash cuLaunchKernel").Work(t.Context(), nil, false)
	if err != nil || w.End.Code != cuda.Died || !strings.Contains(w.Detail, "SIG") || w.GPUs[0].To == nil {
		t.Errorf("the work is %+v, %v", w, err)
	}
	w, err = Child{Program: "/nonexistent/bringupd"}.Work(t.Context(), nil, false)
	if err != nil || w.End.Code != cuda.Died || !strings.Contains(w.Detail, "it cannot be started") {
		t.Errorf("the work is %+v, %v", w, err)
	}
}

// At the context's end the child ends too, wherever it is.
func TestWorkGivenUp(t *testing.T) {
	child := workers(t, "gpus 1", "hang cuInit")
	over := errors.New("the job is over")
	ctx, cancel := context.WithTimeoutCause(t.Context(), time.Second/5, over)
	defer cancel()
	began := time.Now()
	if w, err := child.Work(ctx, nil, false); !errors.Is(err, over) || time.Since(began) > ceiling {
		t.Errorf("the work is %+v, %v", w, err)
	}
}

// The child sees the GPUs that it is to use, whatever we see.
func TestWorkOfThose(t *testing.T) {
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	child := Child{Program: self, Env: append(helperEnv("visible"), VisibleVariable+"=7")}
	if w, err := child.Work(t.Context(), []string{"GPU-a", "GPU-b"}, true); err != nil || w.Detail != "GPU-a,GPU-b" {
		t.Errorf("the work is %+v, %v", w, err)
	}
}
