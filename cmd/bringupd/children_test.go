package main

import (
	"bufio"
	"encoding/json"
	"os"
	"strings"
	"testing"

	"github.com/bringupd/bringupd/pkg/config"
	"github.com/bringupd/bringupd/pkg/gpu"
)

// pipe returns a pipe whose ends are closed at the end of the test at the latest.
func pipe(t *testing.T) (out, in *os.File) {
	t.Helper()
	out, in, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { out.Close(); in.Close() })
	return out, in
}

func TestGPUChild(t *testing.T) {
	forget(t)
	questions, ask := pipe(t)
	answers, answer := pipe(t)
	code := make(chan int, 1)
	go func() {
		files := config.Streams{In: questions, Out: answer, Err: os.Stderr}
		code <- runMain([]string{"bringupd", "gpu-child"}, make(chan os.Signal), files)
	}()
	if _, err := ask.WriteString(`{"v":2,"request":"inspect"}` + "\n"); err != nil {
		t.Fatal(err)
	}
	text, err := bufio.NewReader(answers).ReadBytes('\n')
	if err != nil {
		t.Fatal(err)
	}
	ask.Close()
	var said struct{ Facts gpu.Facts }
	if err := json.Unmarshal(text, &said); err != nil || <-code != 0 {
		t.Fatalf("it says %s: %v", text, err)
	}
	if said.Facts.Version != gpu.FactsVersion || said.Facts.Init == "" {
		t.Errorf("the facts are %+v", said.Facts)
	}
}

func TestGPUChildIsHidden(t *testing.T) {
	if got := call(t, nil, "--help"); strings.Contains(got.out, gpu.ChildCommand) {
		t.Error("it is in the help")
	}
	if got := call(t, nil, "help", "gpu-chil"); strings.Contains(got.err, gpu.ChildCommand) {
		t.Errorf("it is suggested: %s", got.err)
	}
	if got := call(t, nil, "gpu-child", "--", "driver"); got.code != 64 {
		t.Errorf("with a driver: %+v", got)
	}
}
