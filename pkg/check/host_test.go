package check

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"
)

var hostIDs = []string{idIB, idShm, idDisk, idLimits, idStep}

// TestLook verifies that each check has one finding on a host without problems.
func TestLook(t *testing.T) {
	files := cards(card{}, card{})
	files["proc/meminfo"] = "MemTotal:       131072000 kB\n"
	step := []string{"SLURM_JOB_ID=17", "SLURM_STEP_ID=0"}
	h := &Host{Root: tree(t, files), TempDir: t.TempDir(), GPUs: true, Environ: step, system: node{}}
	var ids []string
	for _, f := range h.Inspect(t.Context(), nil) {
		complete(t, f)
		ids = append(ids, f.ID)
		if f.Verdict != Pass {
			t.Errorf("%s: %s: %s", f.ID, f.Verdict, f.Observed)
		}
	}
	if !slices.Equal(ids, hostIDs) {
		t.Errorf("got %v, want %v", ids, hostIDs)
	}
}

// TestLookAtWhatHangs verifies that a disk that hangs is reported after 2 s and then by each later
// inspection while it hangs, without additional goroutines, and that its final answer counts.
func TestLookAtWhatHangs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var asked atomic.Int32
		hang := make(chan error)
		h := &Host{Root: tree(t, nil), TempDir: "/tmp", system: node{prove: func(string) error {
			asked.Add(1)
			return <-hang
		}}}
		about := func(findings []Finding) Finding {
			return findings[slices.IndexFunc(findings, func(f Finding) bool { return f.ID == idDisk })]
		}
		begin := time.Now()
		for _, after := range []string{"2s", "4s", "6s"} {
			findings := h.Inspect(t.Context(), nil)
			f := about(findings)
			complete(t, f)
			if f.Verdict != Wait || f.MaxWait == 0 || !strings.Contains(f.Observed, after) {
				t.Errorf("after %s: %+v", after, f)
			}
			if others := len(findings); others < len(hostIDs) {
				t.Errorf("%d findings, want those of the others too", others)
			}
		}
		if took := time.Since(begin); took != 3*answerTimeout || asked.Load() != 1 {
			t.Errorf("took %s, and asked %d times", took, asked.Load())
		}
		hang <- syscall.EROFS
		if f := about(h.Inspect(t.Context(), nil)); f.Verdict != Fail || !strings.Contains(f.Observed, "read-only") {
			t.Errorf("after the answer: %+v", f)
		}
		close(hang)
		if f := about(h.Inspect(t.Context(), nil)); f.Verdict != Pass {
			t.Errorf("when all is well again: %+v", f)
		}
	})
}

func TestLookEndsWithItsContext(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hang := make(chan error)
		h := &Host{Root: tree(t, nil), TempDir: "/tmp", system: node{prove: func(string) error { return <-hang }}}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		begin := time.Now()
		h.Inspect(ctx, nil)
		if took := time.Since(begin); took != time.Second {
			t.Errorf("took %s", took)
		}
		close(hang)
	})
}

func TestLookBroken(t *testing.T) {
	h := &Host{Root: tree(t, nil), TempDir: "/tmp",
		system: node{err: errors.New("broken"), prove: func(string) error { return nil }}}
	for _, f := range h.Inspect(t.Context(), nil) {
		complete(t, f)
		if f.Verdict != Unknown && f.ID != idIB && f.ID != idStep {
			t.Errorf("%s: %s", f.ID, f.Verdict)
		}
	}
}
