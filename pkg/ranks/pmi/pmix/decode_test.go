package pmix

import (
	"bytes"
	"encoding/binary"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"

	"github.com/bringupd/bringupd/pkg/ranks/pmi"
)

// decoder is a process that parses orders and answers like the child, with the sanitizers for
// addresses and undefined behaviour.
type decoder struct {
	program string
	child   *exec.Cmd
	in      io.WriteCloser
	out     io.Reader
	said    bytes.Buffer
}

func buildDecoder(f *testing.F) *decoder {
	f.Helper()
	const variable = "BRINGUPD_TEST_DECODER" // workers of the fuzzer find the binary that was built before
	d := &decoder{program: os.Getenv(variable)}
	f.Cleanup(d.end)
	if d.program != "" {
		return d
	}
	d.program = filepath.Join(f.TempDir(), "decode")
	f.Setenv(variable, d.program)
	build := exec.Command("gcc", "-g", "-O1", "-w", "-std=gnu11", "-fsanitize=address,undefined",
		"-fno-sanitize-recover=all",
		"-o", d.program, "testdata/decode.c", "-ldl", "-lpthread")
	if said, err := build.CombinedOutput(); err != nil {
		f.Fatalf("cannot build the decoder: %v\n%s", err, said)
	}
	return d
}

func (d *decoder) end() {
	if d.child != nil {
		_ = d.in.Close()
		_ = d.child.Wait()
		d.child = nil
	}
}

// reads lets the decoder read a frame, and fails if the decoder ends.
func (d *decoder) reads(t *testing.T, frame []byte) {
	t.Helper()
	var err error
	if d.child == nil {
		d.said.Reset()
		d.child = exec.Command(d.program)
		d.child.Env = []string{"ASAN_OPTIONS=detect_leaks=0"}
		d.child.Stderr = &d.said
		if d.in, err = d.child.StdinPipe(); err != nil {
			t.Fatal(err)
		}
		if d.out, err = d.child.StdoutPipe(); err != nil {
			t.Fatal(err)
		}
		if err = d.child.Start(); err != nil {
			t.Fatal(err)
		}
	}
	_, _ = d.in.Write(append(binary.BigEndian.AppendUint32(nil, uint32(len(frame))), frame...))
	if _, err := io.ReadFull(d.out, make([]byte, 1)); err != nil {
		d.end()
		t.Fatalf("the child's decoder ends: %s", d.said.Bytes())
	}
}

// FuzzChild lets the child's C code read data that no daemon sends: it must handle each frame and
// access no foreign memory.
func FuzzChild(f *testing.F) {
	job := &pmi.Job{
		Name: "w", Hosts: []string{"n0", "n1"}, Nodes: []int{0, 1, 1}, Apps: []int{0, 0, 1},
		UniverseSize: 4, Parent: &pmi.ProcID{Job: "v", Rank: 1},
	}
	add := newFrame(doAddJob, 1)
	add.addText(job.Name)
	add.addNumber(2)
	add.addAttributes(jobAttributes(job, 1, "/tmp"))
	f.Add([]byte(*add))
	for at := 0; at < len(*add); at += 41 { // truncated
		f.Add([]byte(slices.Clone((*add)[:at])))
	}
	nested := newFrame(doInit, 2)
	for range 1000 {
		nested.addNumber(1)
		nested.addText("k")
		nested.addNumber(typeArray)
	}
	f.Add([]byte(*nested))
	event := newFrame(doEvent, 3)
	event.addNumber(-7)
	event.addProc(pmi.ProcID{Job: "w"})
	event.addByte(rangeSession)
	event.addNumber(2)
	event.addBytes([]byte("packed"))
	f.Add([]byte(*event))
	for op := range byte(doPack + 1) {
		one := newFrame(op, 4)
		one.addProc(pmi.ProcID{Job: "w"})
		f.Add([]byte(*one))
	}
	for question := range upGroup + 1 { // an answer to each
		answer := newFrame(doAnswer, uint32(question))
		answer.addNumber(0)
		answer.addNumber(1)
		answer.addProc(pmi.ProcID{Job: "w"})
		answer.addText("key")
		answer.addBytes([]byte("even"))
		f.Add([]byte(*answer))
		infos := newFrame(doAnswer, uint32(question))
		infos.addNumber(0)
		infos.addAttributes([]attribute{{"a", typeBytes, []byte("b")},
			{"c", typeProcs, []pmi.ProcID{{Job: "w"}}}, {"d", typeSize, uint64(7)}})
		f.Add([]byte(*infos))
	}
	d := buildDecoder(f)
	f.Fuzz(func(t *testing.T, frame []byte) { d.reads(t, frame) })
}
