package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/bringupd/bringupd/internal/textutil"
)

// script returns the completion script of a shell.
func script(t *testing.T, shell string) string {
	t.Helper()
	got := call(t, nil, "completion", shell)
	if got.code != 0 || got.err != "" || got.out == "" {
		t.Fatalf("got %+v", got)
	}
	return got.out
}

// askBash returns the completions that a real bash offers for a line, split into words as bash
// does; the cursor is at the end of the last word.
func askBash(t *testing.T, script string, words ...string) []string {
	t.Helper()
	program := script + "\nCOMP_WORDS=(\"$@\"); COMP_CWORD=$(($# - 1)); _bringupd; printf '%s\\n' \"${COMPREPLY[@]}\""
	command := exec.CommandContext(t.Context(), "bash", append([]string{"--norc", "-c", program, "bash"}, words...)...)
	var said strings.Builder
	command.Stderr = &said
	out, err := command.Output()
	if err != nil || said.Len() > 0 {
		t.Fatalf("%q: %v, %s", words, err, said.String())
	}
	return strings.Fields(string(out))
}

func TestBashCompletes(t *testing.T) {
	bash := script(t, "bash")
	t.Chdir(t.TempDir())
	for _, name := range []string{"logs/17.0", "jobs"} {
		if err := os.MkdirAll(name, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"job.yaml", "train.py"} {
		if err := os.WriteFile(name, nil, 0o700); err != nil {
			t.Fatal(err)
		}
	}
	for _, tc := range []struct {
		line string // words separated by blanks; the last one, which may be empty, is completed
		want string
	}{
		{"bringupd sim", "simulate"},
		{"bringupd --ro", "--role="},
		{"bringupd run --ro", "--role="},
		{"bringupd local --ro", ""},
		{"bringupd check --js", "--json"},
		{"bringupd --js", ""},
		{"bringupd --launched", ""},
		{"bringupd gpu-", ""},
		{"bringupd --role = ", "auto head worker sandbox"},
		{"bringupd --role =", "auto head worker sandbox"},
		{"bringupd --role = w", "worker"},
		{"bringupd --role=w", "--role=worker"},
		{"bringupd --role w", "worker"},
		{"bringupd --role = w --log-format = j", "json"},
		{"bringupd --verbose --log-f", "--log-format="},
		{"bringupd --gpu-check = re", "require"},
		{"bringupd --sandbox-require = ", "all any head"},
		{"bringupd --log-dir = l", "logs"},
		{"bringupd --log-dir = t", ""},
		{"bringupd --log-dir=l", "--log-dir=logs"},
		{"bringupd --config = jo", "job.yaml jobs"},
		{"bringupd --job-id = l", ""},
		{"bringupd --job-id l", ""},
		{"bringupd --verbose t", ""},
		{"bringupd stop logs/1", "logs/17.0"},
		{"bringupd help che", "check"},
		{"bringupd completion ", "bash fish zsh"},
		{"bringupd completion z", "zsh"},
		{"bringupd --framework = ray -- ./tr", "./train.py"},
		{"bringupd -- ./train.py --role = w", ""},
		{"bringupd -- ./train.py jo", "job.yaml jobs"},
		{"bringupd -- basenam", "basename"},
	} {
		got := askBash(t, bash, strings.Split(tc.line, " ")...)
		slices.Sort(got)
		want := strings.Fields(tc.want)
		slices.Sort(want)
		if !slices.Equal(got, want) {
			t.Errorf("%q: got %q, not %q", tc.line, got, want)
		}
	}
	if got := askBash(t, bash, "bringupd", ""); !slices.Contains(got, "local") || !slices.Contains(got, "completion") || slices.Contains(got, "gpu-child") {
		t.Errorf("the subcommands are %q", got)
	}
}

// TestCompletionScripts verifies that each installed shell accepts its script, and that each script
// has every flag and subcommand.
func TestCompletionScripts(t *testing.T) {
	app := (&invocation{}).newApp()
	for _, shell := range supportedShells {
		text := script(t, shell)
		if path, err := exec.LookPath(shell); err == nil {
			file := filepath.Join(t.TempDir(), "script")
			if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
			if out, err := exec.CommandContext(t.Context(), path, "-n", file).CombinedOutput(); err != nil || len(out) > 0 {
				t.Errorf("%s does not take it: %v, %s", shell, err, out)
			}
		}
		for _, command := range listCompletions(app) {
			for _, name := range append([]string{command.Name}, flagsOf(command, shell)...) {
				if !strings.Contains(text, name) {
					t.Errorf("%s: %s has no %s", shell, command.Name, name)
				}
			}
		}
		for _, hidden := range []string{"launched-locally", "gpu-child", "<no value>"} {
			if strings.Contains(text, hidden) {
				t.Errorf("%s has %s", shell, hidden)
			}
		}
	}
}

func flagsOf(command commandCompletion, shell string) (names []string) {
	for _, flag := range command.Flags {
		switch {
		case shell == "fish":
			names = append(names, " -l "+flag.Name+" ")
		case flag.Shape != "":
			names = append(names, "--"+flag.Name+"=")
		default:
			names = append(names, "--"+flag.Name)
		}
	}
	return names
}

func TestCompletionOfWhat(t *testing.T) {
	refused(t, call(t, nil, "completion"), 64, "cannot print a completion", "bash, fish, zsh")
	refused(t, call(t, nil, "completion", "zhs"), 64, `cannot complete in "zhs"`, "the nearest is zsh")
	refused(t, call(t, nil, "completion", "bash", "--", "x"), 64, "cannot print a completion")
}

func TestTextsInScripts(t *testing.T) {
	if got, want := textutil.EscapeSingleQuotes(escapeBrackets(`node's [a]: b\`)), `node'\''s \[a\]\: b\\`; got != want {
		t.Errorf("got %s, not %s", got, want)
	}
}
