package rolefile

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strings"

	"mvdan.cc/sh/v3/syntax"

	"github.com/bringupd/bringupd/pkg/roles"
)

// commandVariables are variables of bringupd that commands can use, besides those of
// [roles.VariableNames]: most of them only ranks have.
var commandVariables = []string{
	"BRINGUPD_RANK", "BRINGUPD_RANKS", "BRINGUPD_LOCAL_RANK", "BRINGUPD_LOCAL_RANKS", "BRINGUPD_BINDING",
	"BRINGUPD_GPU_COUNT", "BRINGUPD_NVLINK_DOMAIN", "BRINGUPD_TOPOLOGY", "BRINGUPD_NCCL_RAS_ADDR",
}

// otherVariables are further ones that commands can use, and that env may set for a nested bringupd.
var otherVariables = []string{"BRINGUPD_HOSTS", "BRINGUPD_HEAD_ADDRESS", "BRINGUPD_SOCKET"}

// Warnings returns sentences about what may be a mistake in the roles: a command refers to a variable of
// bringupd that no process gets, and that the user has not set according to isSet; or /bin/sh may not
// understand a command.
func Warnings(defs []roles.Definition, isSet func(name string) bool) (sentences []string) {
	for at := range defs {
		def := &defs[at]
		known := slices.Concat(roles.VariableNames(defs, def), commandVariables, otherVariables)
		known = slices.AppendSeq(known, maps.Keys(def.Program.Env))
		for _, text := range []string{def.Program.Command, def.Program.FollowerCommand} {
			references, assigned := expansions(text)
			known = append(known, assigned...)
			for _, name := range roles.References(references) {
				if isSet(name) || strings.HasPrefix(name, "BRINGUPD_GPU_") {
					known = append(known, name)
				}
			}
			for _, clause := range roles.UnknownVariables(references, known) {
				name, near, _ := strings.Cut(strings.TrimPrefix(clause, "there is no variable "), "; ")
				sentences = append(sentences, fmt.Sprintf(
					"role %s (line %d): the command uses %s, which no process gets; %s",
					def.Name, def.Line, name, cmp.Or(near, "leave it out")))
			}
			if def.Program.Shell == "" && isOnlyBash(text) {
				sentences = append(sentences, fmt.Sprintf("role %s (line %d): a command is for bash, and /bin/sh "+
					"may not understand it: give shell: bash", def.Name, def.Line))
			}
		}
	}
	return sentences
}

// expansions returns what the shell replaces in a text, and the names of variables that it sets there. If
// the text is no shell code, all of it may be replaced.
func expansions(text string) (references string, assigned []string) {
	file, err := syntax.NewParser().Parse(strings.NewReader(text), "")
	if err != nil {
		return text, nil
	}
	syntax.Walk(file, func(node syntax.Node) bool {
		switch n := node.(type) {
		case *syntax.ParamExp:
			references += text[n.Pos().Offset():n.End().Offset()] + " "
		case *syntax.Assign:
			if n.Name != nil {
				assigned = append(assigned, n.Name.Value)
			}
		case *syntax.WordIter:
			assigned = append(assigned, n.Name.Value)
		case *syntax.CallExpr:
			for _, word := range n.Args {
				if n.Args[0].Lit() == "read" {
					assigned = append(assigned, word.Lit())
				}
			}
		}
		return true
	})
	return references, assigned
}

// isOnlyBash reports whether a text is shell code that bash understands, and a POSIX shell need not.
func isOnlyBash(text string) bool {
	parses := func(variant syntax.LangVariant) bool {
		_, err := syntax.NewParser(syntax.Variant(variant)).Parse(strings.NewReader(text), "")
		return err == nil
	}
	return !parses(syntax.LangPOSIX) && parses(syntax.LangBash)
}
