package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/bringupd/bringupd/pkg/signal"
	"github.com/bringupd/bringupd/pkg/signal/record"
)

// askBash returns the completions that bash offers for a line, split into words as bash does; the
// cursor is at the end.
func askBash(t *testing.T, line string) []string {
	t.Helper()
	script := call(t, nil, "completion", "bash")
	if script.code != 0 || script.err != "" {
		t.Fatalf("got %+v", script)
	}
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	spaced := strings.NewReplacer("=", " = ", ":", " : ").Replace(line)
	words := strings.Split(spaced, " ")
	words = slices.DeleteFunc(words[:len(words)-1], func(word string) bool { return word == "" })
	words = append(words, line[strings.LastIndexAny(line, " =")+1:])
	if strings.HasSuffix(line, "=") {
		words = words[:len(words)-1]
	}
	program := script.out + "\nbringupd() { " + mainVariable + "=1 " + self + " \"$@\"; }\n" +
		"COMP_LINE=$1 COMP_POINT=${#1}; shift\n" +
		"COMP_WORDS=(\"$@\"); COMP_CWORD=$(($# - 1)); _bringupd; printf '%s\\n' \"${COMPREPLY[@]}\""
	command := exec.CommandContext(t.Context(), "bash",
		append([]string{"--norc", "-c", program, "bash", line}, words...)...)
	command.Stderr = os.Stderr
	out, err := command.Output()
	if err != nil {
		t.Fatalf("%q: %v", line, err)
	}
	return strings.Fields(string(out))
}

func TestBashCompletes(t *testing.T) {
	for line, want := range map[string]string{
		"bringupd sta":                     "status",
		"bringupd gpu-":                    "",
		"bringupd --ro":                    "--roles --role=",
		"bringupd run --ro":                "--roles --role=",
		"bringupd local --ro":              "--roles",
		"bringupd check --js":              "--json",
		"bringupd --launched":              "",
		"bringupd --role=":                 "auto",
		"bringupd --role=a":                "auto",
		"bringupd --role a":                "auto",
		"bringupd --role=s --log-format=j": "json",
		"bringupd --verbose --log-f":       "--log-format=",
		"bringupd --log-dir=l":             "", // bash completes files
		"bringupd --verbose t":             "",
		"bringupd status lo":               "",
		"bringupd help che":                "check",
		"bringupd local ":                  "",
		"bringupd local --nodes=2 ":        "",
		"bringupd --framework=ray ":        "",
		"bringupd --dry-run ":              "",
		"bringupd kv put ":                 "",
		"bringupd status --help ":          "",
		"bringupd help pro":                "probes",
		"bringupd completion z":            "zsh",
		"bringupd -- ./train.py --role=w":  "",
	} {
		if got := strings.Join(askBash(t, line), " "); got != want {
			t.Errorf("%q: got %q, want %q", line, got, want)
		}
	}
}

// TestBashCompletesNames completes the names of runs, and of nodes and logs of a run.
func TestBashCompletesNames(t *testing.T) {
	dir := endedRun(t, "4711.0")
	for node, host := range []string{"n10", "n11"} {
		put(t, dir, signal.NodesDir, signal.NodeName(node, 2, record.StateJoined),
			&record.Joined{Header: record.Header{Version: record.FormatVersion, Nonce: "n0",
				NodeIndex: node, Host: host}})
	}
	logDir := filepath.Dir(dir)
	for _, name := range []string{"4712.0", "$(touch hacked)"} {
		if err := os.MkdirAll(filepath.Join(logDir, name, signal.ControlDir), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	forget(t)
	t.Chdir(t.TempDir())
	t.Setenv("LOGS", filepath.Dir(logDir))
	for line, want := range map[string]string{
		"bringupd status --log-dir=DIR 47":                       "4712.0 4711.0",
		"bringupd status --log-dir DIR 4711":                     "4711.0",
		"bringupd status --verbose --log-dir=DIR ":               "4712.0 4711.0",
		"bringupd status --log-dir=$LOGS/bringupd-logs ":         "4712.0 4711.0",
		"bringupd status --log-dir=DIR 4711.0 ":                  "",
		"bringupd status --serve=127.0.0.1:0 --log-dir=DIR 4712": "4712.0",
		"bringupd status --log-dir=DIR/none ":                    "",
		"bringupd status --wrong --log-dir=DIR ":                 "",
		"bringupd logs --log-dir=DIR dr":                         "",
		"bringupd logs driver --log-dir=DIR ":                    "4712.0 4711.0",
		"bringupd exec --log-dir=DIR --node n 4711.0":            "4711.0",
		"bringupd exec DIR/4711.0 --node n1":                     "n10 n11",
		"bringupd exec DIR/4711.0 --node=n1":                     "n10 n11",
		"bringupd exec DIR/4711.0 --all --node=":                 "0 1 n10 n11",
		"bringupd why DIR/4711.0 --node=n10":                     "n10",
		"bringupd logs DIR/4711.0 --ta":                          "--tail=",
		"bringupd prune --log-dir=DIR ":                          "",
		"bringupd exec DIR/4711.0 -- n1":                         "",
	} {
		line = strings.ReplaceAll(line, "DIR", logDir)
		if got := strings.Join(askBash(t, line), " "); got != want {
			t.Errorf("%q: got %q, want %q", line, got, want)
		}
	}
	if _, err := os.Lstat("hacked"); err == nil {
		t.Error("the name of a run was executed")
	}
}

// TestCompletionScripts verifies that each installed shell accepts its script.
func TestCompletionScripts(t *testing.T) {
	for _, shell := range supportedShells {
		script := call(t, nil, "completion", shell)
		if script.code != 0 || !strings.Contains(script.out, completionFlag) {
			t.Errorf("%s: got %+v", shell, script)
		}
		path, err := exec.LookPath(shell)
		if err != nil {
			continue
		}
		file := filepath.Join(t.TempDir(), "script")
		if err := os.WriteFile(file, []byte(script.out), 0o600); err != nil {
			t.Fatal(err)
		}
		if out, err := exec.CommandContext(t.Context(), path, "-n", file).CombinedOutput(); err != nil || len(out) > 0 {
			t.Errorf("%s rejects it: %v, %s", shell, err, out)
		}
	}
	refused(t, call(t, nil, "completion"), 64, "cannot print a completion script", "bash, fish, zsh")
	refused(t, call(t, nil, "completion", "zhs"), 64, `script "zhs"`, "did you mean zsh?")
	refused(t, call(t, nil, "completion", "bash", "--", "x"), 64, "cannot print a completion script")
}
