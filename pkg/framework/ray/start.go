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

// startProgram is what imports Ray before it is told what to start.
//
//go:embed start.py
var startProgram string

// order is what startProgram is told.
type order struct {
	Args []string `json:"args"` // of the ray command
	// Never are the methods of Ray's Node that start what nobody would use, and Later
	// those that start what the node does not wait for. One that a Ray does not have is
	// passed over.
	Never []string `json:"never"`
	Later []string `json:"later"`
}

// orderOf returns how a ray start is carried out. user are the flags that are the user's own; block says that all
// ports are known.
func orderOf(argv, user framework.Arguments, block bool) []byte {
	o := order{Args: argv[1:], Never: []string{}, Later: []string{"start_log_monitor", "start_monitor"}}
	if !haveDashboard(argv) {
		// Without a dashboard Ray starts its process all the same, to send usage statistics, which are off.
		o.Never = append(o.Never, "start_api_server")
	}
	if !user.Has(clientPort) && !block {
		o.Never = append(o.Never, "start_ray_client_server") // at a port that nobody is told
	}
	line, _ := json.Marshal(o) // it is made of strings
	return line
}

// warm returns what runs startProgram for a ray command; nil where that is no script of
// Ray's own.
func warm(program string, env []string) []string {
	file, err := process.Which(program, env)
	if err != nil {
		return nil // the start says so
	}
	if file, err = filepath.Abs(file); err != nil {
		return nil
	}
	python := interpreter(beginning(file))
	if python == nil {
		return nil
	}
	return append(python, "-c", startProgram, file)
}

// beginning returns the first part of a file; nothing where it can't be read.
func beginning(path string) []byte {
	const enough = 4 << 10
	file, err := os.Open(path)
	if err != nil {
		return nil
	}
	defer func() { _ = file.Close() }()
	text, _ := io.ReadAll(io.LimitReader(file, enough))
	return text
}

// interpreter returns the Python that runs a script as installers write it for Ray; nil
// where it is another, or is not run by Python.
func interpreter(script []byte) []string {
	first, rest, _ := bytes.Cut(script, []byte("\n"))
	line, is := strings.CutPrefix(string(first), "#!")
	if !is || !bytes.Contains(rest, []byte("from ray.scripts.scripts import main")) {
		return nil
	}
	words := strings.Fields(line)
	if len(words) == 1 && words[0] == "/bin/sh" {
		// What pip writes where the path is too long for a first line.
		second, _, _ := bytes.Cut(rest, []byte("\n"))
		path, is := strings.CutPrefix(string(second), "'''exec' ")
		if !is {
			return nil
		}
		path = strings.TrimSuffix(strings.TrimSpace(path), ` "$0" "$@"`)
		words = []string{strings.Trim(path, `"`)}
	}
	if len(words) == 2 && filepath.Base(words[0]) == "env" && isPython(words[1]) {
		return words
	}
	if len(words) == 0 || !isPython(words[0]) {
		return nil
	}
	return words
}

func isPython(word string) bool { return strings.HasPrefix(filepath.Base(word), "python") }
