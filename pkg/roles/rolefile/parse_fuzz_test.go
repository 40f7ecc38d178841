package rolefile

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
	"unicode/utf8"

	"go.yaml.in/yaml/v3"

	"github.com/bringupd/bringupd/pkg/roles"
)

// parseFile parses the roles and the spares in the text of a file, whose other keys it ignores.
func parseFile(text []byte) (file File, err error) {
	var top map[string]yaml.Node
	if err := yaml.Unmarshal(text, &top); err != nil {
		return file, errors.New("cannot read job.yaml: " + strings.ReplaceAll(err.Error(), "\n", " "))
	}
	var wrong Errors
	list, spares := top[RolesKey], top[SparesKey]
	if list.Kind == 0 { // Parse is given values only
		return file, errors.New("cannot read job.yaml: it has no roles")
	}
	if file.Roles, err = Parse(&list); err != nil {
		wrong = append(wrong, err.(Errors)...)
	}
	if file.Spares, err = ParseSpares(&spares); err != nil && spares.Kind != 0 {
		wrong = append(wrong, err.(Errors)...)
	}
	if len(wrong) > 0 {
		return file, errors.New(wrong.InFile("job.yaml"))
	}
	return file, nil
}

// FuzzParseFile verifies that a file is either refused with a line, or has roles that are placed or
// refused on any nodes, without taking long.
func FuzzParseFile(f *testing.F) {
	files, err := filepath.Glob("testdata/topologies/*.yaml")
	if err != nil {
		f.Fatal(err)
	}
	for _, path := range files {
		text, err := os.ReadFile(path)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(text)
	}
	for _, word := range []string{
		" c", "a\n b\n", "\n\ta", "\ta\n\n", "a: b # c", "null", "no", "'a\"", "-", "\x1b\u0085", "a\r\nb ",
	} {
		f.Add(fmt.Appendf(nil, "roles: [{name: a, nodes: 1, command: %q, env: {%q: %q}}]", word, word, word))
	}
	for _, text := range []string{
		everyKey, "roles: &a [*a]", "roles: [&a {<<: *a, name: a}]",
		"roles:\n- &a {name: a, nodes: 1, command: c, env: &e {<<: *e}}\n- {<<: [*a, *a], name: b}",
		"roles: [{name: a, nodes: rest, ranks-per-node: 4096, command: c, ports: {a: {count: " +
			"512}}}]", "spares: {0: 9}\nroles: [{name: a, nodes: all, command: c}]",
		"spares: {0}\nroles: [{name: a, nodes: all, command: c}]",
		"roles: [{name: a, nodes: head, command: c, restarts: {max: 100000, backoff: 1ms..8760h}}]",
	} {
		f.Add([]byte(text))
	}
	allocations := [][]roles.NodeFacts{
		parseNodes("1x0"), parseNodes("4x8 2x0/1"), parseNodes("4x4/0/d0 4x4/0/d1"), nil,
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		start := time.Now()
		file, err := parseFile(text)
		if err != nil {
			checkRefusal(t, err)
			return
		}
		for _, def := range file.Roles {
			checkDefinition(t, def)
		}
		checkFormat(t, file)
		for _, levels := range [][][]string{roles.StartLevels(file.Roles), roles.EndLevels(file.Roles)} {
			if names := slices.Concat(levels...); len(names) != len(file.Roles) {
				t.Errorf("%d roles are in the levels %v", len(file.Roles), levels)
			}
		}
		for _, nodes := range allocations {
			used, spare := file.Spares.Split(nodes)
			if len(used)+len(spare) != len(nodes) {
				t.Errorf("of %d nodes %d are used and %d spare", len(nodes), len(used), len(spare))
			}
			plan, err := roles.MakePlan(file.Roles, nodes)
			if wrong, ours := errors.AsType[*roles.PlacementError](err); err != nil && (!ours || wrong.Problem == "") {
				t.Errorf("got %v", err)
			}
			if err == nil && len(file.Roles) < 20 {
				checkPlan(t, plan)
			}
		}
		if took := time.Since(start); took > 10*time.Second {
			t.Errorf("it took %v", took)
		}
	})
}

// checkRefusal fails the test if an error does not name the file and, unless the file is no YAML,
// the line.
func checkRefusal(t *testing.T, err error) {
	t.Helper()
	for line := range strings.Lines(err.Error()) {
		rest, hasLine := strings.CutPrefix(line, "cannot use job.yaml:")
		number, problem, _ := strings.Cut(rest, ": ")
		switch {
		case strings.HasPrefix(line, "cannot read job.yaml: ") || strings.HasPrefix(line, "and "):
		case !hasLine || number == "" || strings.Trim(number, "0123456789") != "" ||
			number == "0" || strings.TrimSpace(problem) == "":
			t.Errorf("the error has no line: %q", line)
		case utf8.RuneCountInString(line) > 1200:
			t.Errorf("the error has %d bytes", len(line))
		}
	}
}

// checkDefinition fails the test if a role has values that the runtime does not expect.
func checkDefinition(t *testing.T, def roles.Definition) {
	t.Helper()
	place := def.Placement
	switch {
	case !isName(def.Name) || def.Line < 1 || def.Program.Command == "" &&
		def.Program.Framework == "" && def.Program.Step == "",
		place.Nodes == 0 || place.InstancesPerNode == 0 || place.NodesPerInstance == 0 || place.RanksPerNode == 0,
		def.Restarts.Window <= 0 || def.Restarts.MinBackoff <= 0 ||
			def.Restarts.MaxBackoff < def.Restarts.MinBackoff || def.Restarts.Max < 0,
		def.Ready.Timeout <= 0 || def.Alive.After <= 0 || def.Stop.Grace < 0 || def.Stop.Signal == "",
		def.Required.Start < roles.QuorumAll || def.Required.Run < roles.QuorumAll, def.Oneshot && def.Primary:
		t.Errorf("got %+v", def)
	}
}

// TestHostileFiles parses files that refer to themselves or that grow when they are expanded.
func TestHostileFiles(t *testing.T) {
	deep := "roles: " + strings.Repeat("[", 5000) + strings.Repeat("]", 5000)
	growing := "a0: &a0 {k: v}\n"
	for i := range 30 {
		previous, next := string(rune('a'+i%26))+strings.Repeat("x", i/26),
			string(rune('a'+(i+1)%26))+strings.Repeat("x", (i+1)/26)
		if i == 0 {
			previous = "a0"
		}
		growing += "k" + next + ": &" + next + " {<<: [" + strings.Repeat("*"+previous+", ", 9) +
			"*" + previous + "]}\n"
	}
	many := "roles:\n- &a {name: a, nodes: 1, command: c, " + strings.Repeat("x: 1, ", 10) +
		"y: 1}\n" + strings.Repeat("- *a\n", 900)
	var keys strings.Builder
	for i := range 600 {
		keys.WriteString("A" + strings.Repeat("B", i%7) + string(rune('a'+i%26)) + strings.Repeat("c", i/26) + ": 1, ")
	}
	for _, tc := range []struct{ name, text, message string }{
		{"a list in itself", "roles: &a [*a]\n", "this role: a mapping is expected"},
		{"a mapping in itself", "roles:\n- &a {<<: *a, name: a}\n", "nodes is missing"},
		{"deep lists", deep, "cannot "},
		{"growing merges", growing + "roles: [{<<: *ex, name: a}]\n", "there is no key"},
		{"one wrong role many times", many, "x is already set in line 2"},
		{"too many roles", "roles:\n" + strings.Repeat("- {}\n", 1001), "roles has 1001 roles: give at most 1000"},
		{"too many keys", "roles: [{name: a, nodes: 1, command: c, env: {" + keys.String() +
			"}}]\n", "keys: give at most 500"},
		{"a long name", "roles: [{name: " + strings.Repeat("a", 1<<16) + ", nodes: 1, command: c}]\n", "…"},
		{"a long key", "roles: [{? " + strings.Repeat("a", 1000) + "\n : 1}]\n", "there is no key"},
		{"control characters", "roles: [{\"a\\e[1mb\\n\": 1}]\n", "there is no key"},
		{"two lines in a name", "roles: [{name: a, nodes: 1, command: c, env: {\"A\\nB\": [1]}}]\n",
			"cannot be the name of a variable"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			start := time.Now()
			_, err := parseFile([]byte(tc.text))
			if err == nil || !strings.Contains(err.Error(), tc.message) {
				t.Fatalf("got %v, want %s", err, tc.message)
			}
			checkRefusal(t, err)
			if strings.ContainsRune(err.Error(), 0x1b) || time.Since(start) > 10*time.Second {
				t.Errorf("after %v: %q", time.Since(start), err)
			}
		})
	}
}
