package ray

import (
	"bytes"
	_ "embed"
	"encoding/json"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/bringupd/bringupd/pkg/framework"
	"github.com/bringupd/bringupd/pkg/process"
)

// startScript imports Ray before it knows what to start.
//
//go:embed start.py
var startScript string

// startOrder has the instructions for startScript.
type startOrder struct {
	Args []string `json:"args"` // the ray command's
	// SkippedMethods are methods of Ray's Node whose processes are not needed, and DeferredMethods
	// those whose processes the node does not wait for. Methods that a version of Ray does not have
	// are ignored.
	SkippedMethods  []string `json:"skipped_methods"`
	DeferredMethods []string `json:"deferred_methods"`
}

// encodeStartOrder returns the instructions for a ray start. user are the flags that the user has
// given.
func encodeStartOrder(argv, user framework.Arguments) []byte {
	o := startOrder{Args: argv[1:], SkippedMethods: []string{},
		DeferredMethods: []string{"start_log_monitor", "start_monitor"}}
	if !hasDashboard(argv) {
		// Even without a dashboard Ray starts its process, to send usage statistics, which are off.
		o.SkippedMethods = append(o.SkippedMethods, "start_api_server")
	}
	if !user.HasFlag(clientPortFlag) {
		// its port is not published
		o.SkippedMethods = append(o.SkippedMethods, "start_ray_client_server")
	}
	line, _ := json.Marshal(o) // it consists of strings
	return line
}

// warmCommand returns the command that runs startScript for a ray command, or nil if that is not
// Ray's own script.
func warmCommand(program string, env []string) []string {
	path, err := process.ResolveProgram(program, env)
	if err != nil {
		return nil // the start reports it
	}
	if path, err = filepath.Abs(path); err != nil {
		return nil
	}
	file, err := os.Open(path)
	if err != nil {
		return nil
	}
	defer func() { _ = file.Close() }()
	text, _ := io.ReadAll(io.LimitReader(file, 4<<10)) // the beginning is enough
	python := findPython(text)
	if python == nil {
		return nil
	}
	return append(python, "-c", startScript, path)
}

// findPython returns the Python that runs a script as installers write it for Ray, or nil if it is
// another script, or not run by Python.
func findPython(script []byte) []string {
	first, rest, _ := bytes.Cut(script, []byte("\n"))
	line, is := strings.CutPrefix(string(first), "#!")
	if !is || !bytes.Contains(rest, []byte("from ray.scripts.scripts import main")) {
		return nil
	}
	words := strings.Fields(line)
	isEnv := len(words) == 2 && filepath.Base(words[0]) == "env"
	if len(words) == 0 || !isEnv && !isPython(words[0]) || isEnv && !isPython(words[1]) {
		return nil
	}
	return words
}

func isPython(word string) bool { return strings.HasPrefix(filepath.Base(word), "python") }
