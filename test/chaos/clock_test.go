//go:build testbed

package chaos

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// Linux has one wall clock for all namespaces of a machine, and LD_PRELOAD has no effect on a
// static binary. So the program under test is built with a variant of package time whose Now adds
// an offset from a file on the node. The file has eight bytes, which may change at any moment;
// every node has its own /tmp.
const (
	clockFile = "/tmp/chaos-clock"

	clockSource = `package time

import (
	"syscall"
	"unsafe"
)

// chaosOffset is in seconds; nil where the node has no such file.
var chaosOffset = func() *int64 {
	fd, err := syscall.Open("` + clockFile + `", syscall.O_RDONLY|syscall.O_CLOEXEC, 0)
	if err != nil {
		return nil
	}
	defer syscall.Close(fd)
	data, err := syscall.Mmap(fd, 0, 8, syscall.PROT_READ, syscall.MAP_SHARED)
	if err != nil {
		return nil
	}
	return (*int64)(unsafe.Pointer(&data[0]))
}()
`
	clockRead  = "\tsec, nsec, mono := runtimeNow()\n"
	clockShift = clockRead + "\tif chaosOffset != nil {\n\t\tsec += *chaosOffset\n\t}\n"
)

// overlay writes the files for go build -overlay, and returns the path of the overlay file.
func overlay(ctx context.Context, dir string) (string, error) {
	replaced, err := calmFiles(dir)
	if err != nil {
		return "", err
	}
	root, err := exec.CommandContext(ctx, "go", "env", "GOROOT").Output()
	if err != nil {
		return "", fmt.Errorf("cannot find Go's sources: %v", err)
	}
	original := filepath.Join(strings.TrimSpace(string(root)), "src/time/time.go")
	source, err := os.ReadFile(original)
	if err != nil {
		return "", fmt.Errorf("cannot read Go's own clock: %v", err)
	}
	now := "func Now() Time {\n"
	if strings.Count(string(source), now+clockRead) != 1 {
		return "", fmt.Errorf("cannot set the clock: %s is not as expected", original)
	}
	patched := strings.Replace(string(source), now+clockRead, now+clockShift, 1)
	replaced[original] = filepath.Join(dir, "time.go")
	replaced[filepath.Join(filepath.Dir(original), "chaos_clock.go")] = filepath.Join(dir,
		"chaos_clock.go")
	overlay, err := json.Marshal(map[string]map[string]string{"Replace": replaced})
	if err != nil {
		return "", err
	}
	for name, content := range map[string]string{"time.go": patched, "chaos_clock.go": clockSource,
		"overlay.json": string(overlay)} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o600); err != nil {
			return "", err
		}
	}
	return filepath.Join(dir, "overlay.json"), nil
}

// setClock sets the offset of a node's clock, also for programs that are running there.
func (a *arena) setClock(ctx context.Context, node int, off time.Duration) error {
	seconds := binary.NativeEndian.AppendUint64(nil, uint64(int64(off/time.Second)))
	write := a.bed.OnNode(ctx, node, "dd", "of="+clockFile, "conv=notrunc", "status=none")
	write.Stdin = bytes.NewReader(seconds)
	if out, err := write.CombinedOutput(); err != nil {
		return fmt.Errorf("cannot set the clock of %s: %v: %s", a.bed.Node(node), err, out)
	}
	return nil
}

// checkClock verifies that the program's clock follows the offset. Otherwise changing the clock
// would wrongly seem harmless.
func (a *arena) checkClock(t *testing.T) {
	t.Helper()
	must(t, a.setClock(t.Context(), 0, time.Hour))
	const logs = "/tmp/chaos-clock-logs"
	alone := a.bed.OnNode(t.Context(), 0, a.program, "--rank=0", "--nnodes=1", "--job-id=clock",
		"--log-dir="+logs, "--log-format=json", "--verbose", "--", "true")
	out, err := alone.CombinedOutput()
	if err != nil {
		t.Fatalf("cannot run a job of one node: %v: %s", err, out)
	}
	var line struct{ At time.Time }
	if err := json.NewDecoder(bytes.NewReader(out)).Decode(&line); err != nil ||
		time.Until(line.At) < time.Hour/2 {
		t.Fatalf("a node whose clock is an hour ahead says %s, want that it is later (%v)", out,
			err)
	}
	must(t, a.setClock(t.Context(), 0, 0))
	if out, err := a.bed.OnNode(t.Context(), 0, "rm", "-r", logs).CombinedOutput(); err != nil {
		t.Fatalf("cannot tidy up: %v: %s", err, out)
	}
}
