package main

import (
	"strings"
	"testing"
)

// TestRefusesRemovedFlags gives each removed flag by the command line, a variable and the file.
func TestRefusesRemovedFlags(t *testing.T) {
	for _, flag := range removedFrom("run") {
		says := "this flag was removed: " + flag.instead
		argument, value := "--"+flag.name, "true"
		if flag.shape != "" {
			argument, value = argument+"=1", "1"
		}
		refused(t, call(t, nil, append([]string{argument}, rank0...)...), 64, says)
		variable := "BRINGUPD_" + strings.ToUpper(strings.ReplaceAll(flag.name, "-", "_"))
		refused(t, call(t, []string{variable + "=" + value}, rank0...), 64, variable, says)
		t.Setenv(variable, "")
		path := file(t, "job.yaml", flag.name+": "+value+"\n")
		refused(t, call(t, nil, append([]string{"--config=" + path}, rank0...)...), 64, "job.yaml:1", says)
	}
}
