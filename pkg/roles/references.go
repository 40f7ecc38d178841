package roles

import (
	"fmt"
	"slices"
	"strings"

	"github.com/bringupd/bringupd/internal/textutil"
)

// commonVariables are the names of the variables that the processes of all roles get.
var commonVariables = []string{
	"BRINGUPD_RUN", "BRINGUPD_RUN_DIR", "BRINGUPD_ATTEMPT", "BRINGUPD_NODE_RANK", "BRINGUPD_NODE_COUNT",
	"BRINGUPD_NODE_HOST", "BRINGUPD_NODE_ADDRESS", "BRINGUPD_NODE_INTERFACE", "BRINGUPD_LAUNCH_RANK",
	"BRINGUPD_LAUNCH_COUNT", "BRINGUPD_GENERATION", "BRINGUPD_ROLE", "BRINGUPD_ROLE_INDEX", "BRINGUPD_ROLE_COUNT",
	"BRINGUPD_INSTANCE_RANK", "BRINGUPD_INSTANCE_SIZE", "BRINGUPD_INSTANCE_ADDRESS",
}

// VariableNames returns the names of the variables of bringupd that the processes of one of the roles get,
// and to which its env and probes can refer.
func VariableNames(defs []Definition, def *Definition) []string {
	names := slices.Clone(commonVariables)
	if def.Placement.GPUs != GPUsAll {
		names = append(names, "BRINGUPD_GPUS")
	}
	for at, port := range def.Program.Ports {
		for _, of := range []string{"BRINGUPD_PORT", "BRINGUPD_INSTANCE_PORT"} {
			if at == 0 {
				names = append(names, of)
			}
			names = append(names, of+"_"+VariableName(port.Name))
		}
	}
	for _, other := range WithoutSetup(defs) {
		name := VariableName(other.Name)
		names = append(names, "BRINGUPD_ENDPOINTS_FILE_"+name, "BRINGUPD_ROLE_"+name+"_KEY",
			"BRINGUPD_ROLE_"+name+"_HOSTS", "BRINGUPD_ROLE_"+name+"_ENDPOINTS")
	}
	return names
}

// UnknownVariables returns a clause for each variable of bringupd to which a text refers and which is not
// among the known ones, with the nearest of these.
func UnknownVariables(text string, known []string) (clauses []string) {
	for _, reference := range variablePattern().FindAllString(text, -1) {
		name := strings.Trim(reference, "${}")
		if slices.Contains(known, name) {
			continue
		}
		clause := "there is no variable " + reference
		if near := textutil.NearestWord(name, known, max(3, len(name)/4)); near != "" {
			clause += fmt.Sprintf("; did you mean $%s?", near)
		}
		if !slices.Contains(clauses, clause) {
			clauses = append(clauses, clause)
		}
	}
	return clauses
}

// References returns the names of the variables of bringupd to which a text refers.
func References(text string) (names []string) {
	for _, reference := range variablePattern().FindAllString(text, -1) {
		names = append(names, strings.Trim(reference, "${}"))
	}
	return names
}

// QuoteWord quotes a word of a command for the shell, which still replaces the variables of bringupd.
func QuoteWord(word string) string {
	var b strings.Builder
	rest := 0
	for _, at := range variablePattern().FindAllStringIndex(word, -1) {
		if at[0] > rest {
			b.WriteString(textutil.QuoteShellWord(word[rest:at[0]]))
		}
		b.WriteString(`"` + word[at[0]:at[1]] + `"`)
		rest = at[1]
	}
	if rest == 0 || rest < len(word) {
		b.WriteString(textutil.QuoteShellWord(word[rest:]))
	}
	return b.String()
}
